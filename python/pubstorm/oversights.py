"""Oversights of a scenario, in words: populations that no stage connects, publications without
subscriber, filters without publication. They are warnings: the scenario can be run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pubstorm.offered.unmatched import Unmatched, never_connected, unmatched
from pubstorm.plan import Plan, provisional_plan
from pubstorm.quantity import share_text
from pubstorm.scenario import Scenario
from pubstorm.scenario.document import Path, read_document
from pubstorm.scenario.overrides import parse_override

STEPS_MAX = 20
"""Steps of a sweep that are looked at."""


@dataclass(frozen=True, slots=True)
class Oversight:
    """A key of a scenario whose value is allowed and probably not meant."""

    path: Path
    """The key."""
    text: str
    """The consequence."""
    hint: str
    """A remedy."""


def oversights(scenario: Scenario) -> Iterator[Oversight]:
    """The oversights of a scenario without a sweep."""
    plan = provisional_plan(scenario)
    alone = {plan.populations[index].name for index in never_connected(plan)}
    for name in scenario.populations:
        shares = {each.name for each in plan.populations if each.name.partition("/")[0] == name}
        if shares and shares <= alone:
            yield Oversight(
                ("populations", name),
                f"no stage connects {name}",
                f"add {name} to the populations of a connect stage",
            )
    for each in unmatched(plan):
        yield _unmatched(scenario, plan, each)


def oversights_in_words(scenario: Scenario, played: Sequence[Scenario]) -> Iterator[str]:
    """The oversights of a scenario, or of the first steps of its sweep, each once, with the line of
    its key."""
    found: dict[Path, tuple[str, Oversight]] = {}
    labels = [step.variation.label for step in scenario.steps]
    for number, each in enumerate(played[:STEPS_MAX]):
        where = f"in step {labels[number]!r}: " if labels and number else ""
        for oversight in oversights(each):
            found.setdefault(oversight.path, (where, oversight))
    if found:
        yield ""
        yield "warnings"
    for path, (where, oversight) in found.items():
        written = ".".join(map(str, path))
        yield f"  {_place(scenario, path)}: {written}: {where}{oversight.text}"
        yield f"    hint: {oversight.hint}"


def _unmatched(scenario: Scenario, plan: Plan, found: Unmatched) -> Oversight:
    name, _, share = plan.populations[found.population].name.partition("/")
    path: Path = ("populations", name, found.key, found.number)
    own = scenario.populations[name].shares.get(share)
    if own is not None and found.key in own.model_fields_set:
        path = ("populations", name, "shares", share, found.key, found.number)
    all_ = found.share == 1
    about = "" if all_ else f"about {share_text(min(max(round(found.share, 2), 0.01), 0.99))} of "
    if found.key == "publications":
        whose = "its messages" if all_ else "its messages, such as those"
        text = f"no subscriber receives {about}{whose} to {found.example!r}"
        hint = "correct the topic, its range, or the filters of the subscribers"
    else:
        whose = "the filter" if all_ else "its filters, such as"
        text = f"no publication matches {about}{whose} {found.example!r}"
        hint = "correct the filter, its range, or the topics of the publications"
    return Oversight(path, text, hint)


def _place(scenario: Scenario, path: Path) -> str:
    """The file and line of a key, or the override that wrote it."""
    source = scenario.source
    for text in source.overrides:
        written = parse_override(text).path
        if path[: len(written)] == written:
            return f"--set {text}"
    lines, shown = read_document(source.text).lines, path
    while shown and shown not in lines:
        shown = shown[:-1]
    return f"{source.file}:{lines.get(shown, 1)}"
