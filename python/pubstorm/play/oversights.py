"""Oversights of a scenario, in words: populations that no stage connects, publications without
subscriber or stamp, filters without publication, filters that overlap. They are warnings: the
scenario can be run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pubstorm.contract.offered_load import Unmatched, carries_stamp
from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.host.binaries import offered_load
from pubstorm.quantities import share_text
from pubstorm.scenario import Scenario
from pubstorm.scenario.defaults import SHARE, covers, may_match
from pubstorm.scenario.document import Path, read_document
from pubstorm.scenario.rewrite import parse_override

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


def oversights(scenario: Scenario, plan: Plan) -> Iterator[Oversight]:
    """The oversights of a scenario without a sweep; `plan`: its plan, provisional or not."""
    loads = list(zip(plan.populations, offered_load(plan).populations, strict=True))
    planned = {population.of for population, _ in loads}
    unconnected = planned.difference(each.of for each, load in loads if load.clients_max)
    for name in scenario.populations:
        if name in unconnected:
            yield Oversight(
                ("populations", name),
                f"no stage connects {name}",
                f"add {name} to the populations of a connect stage",
            )
    for population, load in loads:
        for number, publication in enumerate(load.publications):
            if publication.unmatched is not None:
                path = _path(scenario, population.name, "publications", number)
                yield _unreceived(path, publication.unmatched)
        # Births, commands and states of Sparkplug are no publications.
        is_sparkplug = population.mqtt is not None and population.mqtt.sparkplug is not None
        for number, unmatched in enumerate(load.subscriptions):
            if unmatched is not None and not is_sparkplug:
                path = _path(scenario, population.name, "subscriptions", number)
                yield _unpublished(path, unmatched)
    for name, each in scenario.populations.items():
        tls = getattr(each, "tls", None)
        if tls is not None and tls.key_log is not None:
            yield Oversight(
                ("populations", name, "tls", "key_log"),
                f"{tls.key_log} can decrypt the traffic of {name} in this run",
                "delete the file after use, and leave key_log out of runs that need no capture",
            )
    topics = {
        names.twin(flow.topic): flow.topic
        for each in plan.populations
        if (names := each.can.names) is not None
        for flow in each.publications
    }
    for population in plan.populations:
        yield from _stampless(scenario, plan, population)
        yield from _overlapping(scenario, topics, population)


def _stampless(scenario: Scenario, plan: Plan, publisher: PlannedPopulation) -> Iterator[Oversight]:
    """Yields publications whose messages reach subscribers without a stamp."""
    names = publisher.can.names
    for number, publication in enumerate(publisher.publications if names is not None else ()):
        blind = [
            each
            for each in plan.populations
            if names is not None and not carries_stamp(publication, publisher, each)
            if any(may_match(own, names.twin(publication.topic)) for own in _filters(each))
        ]
        if blind:
            hint = "write {stamp} into the payload, or a size of 32B or more"
            if publisher.mqtt and blind[0].mqtt:
                hint += "; or let both speak version: 5, if it has a payload or data"
            yield Oversight(
                _path(scenario, publisher.name, "publications", number),
                f"its messages reach {blind[0].name} without a stamp: they have no latency, and "
                "one that comes twice is no duplicate and can hide one that is lost",
                hint,
            )


def _overlapping(
    scenario: Scenario, topics: Mapping[str, str], receiver: PlannedPopulation
) -> Iterator[Oversight]:
    """Yields filters of a population that match messages of an earlier one, where no identifiers
    distinguish the copies that a broker may send. `topics`: as MQTT has them, and as written."""
    filters = _filters(receiver)
    own = [place for place, each in enumerate(filters) if not each.startswith(SHARE)]
    for nth, place in enumerate(own):
        subscription = receiver.subscriptions[place]
        for before in own[:nth]:
            earlier = receiver.subscriptions[before]
            pair = (filters[place], filters[before])
            both = (own for t, own in topics.items() if all(covers(each, t) for each in pair))
            topic = next(both, None)
            is_known = None not in (subscription.identifier, earlier.identifier)
            if topic is not None and not (
                is_known and subscription.identifier != earlier.identifier
            ):
                hint = "leave one of the filters out"
                if receiver.mqtt:
                    hint += ", or give each an identifier (version: 5)"
                yield Oversight(
                    _path(scenario, receiver.name, "subscriptions", place),
                    f"messages to {topic!r} match {earlier.filter!r} too: a broker may send a copy "
                    "for each filter, which counts as a copy and not as a duplicate",
                    hint,
                )
                break


def _filters(receiver: PlannedPopulation) -> list[str]:
    """Returns the filters of a population as MQTT has them; none if they are prefixes."""
    names = receiver.can.names
    if names is None:
        return []
    whole = re.compile(rf"({re.escape(SHARE)}[^/]*/)?(.*)", re.DOTALL)
    found = (whole.fullmatch(each.filter) for each in receiver.subscriptions)
    return [(each[1] or "") + names.twin(each[2]) for each in found if each is not None]


def oversights_in_words(
    scenario: Scenario, played: Sequence[Scenario], plans: Sequence[Plan]
) -> Iterator[str]:
    """The oversights of a scenario, or of the first steps of its sweep, each once, with the line of
    its key."""
    found: dict[Path, tuple[str, Oversight]] = {}
    labels = [step.variation.label for step in scenario.steps]
    for number, (each, plan) in enumerate(zip(played[:STEPS_MAX], plans, strict=False)):
        where = f"in step {labels[number]!r}: " if labels and number else ""
        for oversight in oversights(each, plan):
            found.setdefault(oversight.path, (where, oversight))
    if found:
        yield ""
        yield "warnings"
    for path, (where, oversight) in found.items():
        written = ".".join(map(str, path))
        yield f"  {_place(scenario, path)}: {written}: {where}{oversight.text}"
        yield f"    hint: {oversight.hint}"


def _unreceived(path: Path, found: Unmatched) -> Oversight:
    whose = "its messages" if found.share == 1 else "its messages, such as those"
    text = f"no subscriber receives {_about(found)}{whose} to {found.example!r}"
    hint = "correct the topic, its range, or the filters of the subscribers"
    return Oversight(path, text, hint)


def _unpublished(path: Path, found: Unmatched) -> Oversight:
    whose = "the filter" if found.share == 1 else "its filters, such as"
    text = f"no publication matches {_about(found)}{whose} {found.example!r}"
    return Oversight(path, text, "correct the filter, its range, or the topics of the publications")


def _about(found: Unmatched) -> str:
    """The share in words; empty where it is all."""
    if found.share == 1:
        return ""
    return f"about {share_text(min(max(round(found.share, 2), 0.01), 0.99))} of "


def _path(scenario: Scenario, population: str, key: str, number: int) -> Path:
    """The key of a publication or subscription in the scenario; a share may have its own."""
    name, _, share = population.partition("/")
    own = scenario.populations[name].differing.get(share)
    if own is not None and key in own.model_fields_set:
        return ("populations", name, "shares", share, key, number)
    return ("populations", name, key, number)


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
