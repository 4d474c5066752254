"""Removes the retained messages that this run left on one target, and nothing else: each is told
by its topic and its stamp. It looks again afterwards; sessions are ended by `sessions`."""

from __future__ import annotations

import time
from collections import Counter

from pubstorm.plan import Plan
from pubstorm.quantity import count_text, counted
from pubstorm.residue.look import retained_on, sessions_on
from pubstorm.residue.observer import Identity, Observer, ObserverError
from pubstorm.residue.topics import OWN_TOPICS_MAX, keeps_messages, own_topics
from pubstorm.result import Residue


def has_own_retained(plan: Plan) -> bool:
    """Whether the run may have left retained messages."""
    return keeps_messages(plan)


def remove_retained(
    plan: Plan, target: int, before: dict[str, bytes], budget_s: float
) -> list[Residue]:
    """Clears what this run kept on a target; `before` is what was kept before it."""
    until_s = time.monotonic() + budget_s
    own = own_topics(plan)
    tries: Counter[str] = Counter()
    left: set[str] = set()
    problem = ""
    try:
        while time.monotonic() < until_s:
            look, _ = retained_on(plan, target, until_s)
            left = {t for t, payload in look.retained.items() if own.has(t, payload, before)}
            wanted = {topic for topic in left if tries[topic] < TRIES}
            if not wanted:
                break
            _clear(plan, target, wanted, until_s)
            tries.update(wanted)
    except ObserverError as error:
        problem = str(error)
    if not own.complete and not problem:
        problem = f"it keeps more than {count_text(OWN_TOPICS_MAX)}"
    return _said(str(plan.targets[target]), len(tries.keys() - left), left, problem)


def verify_sessions(plan: Plan, target: int, problem: str | None, budget_s: float) -> list[Residue]:
    """Looks whether sessions of this run's clients are left on a target."""
    until_s = time.monotonic() + budget_s
    name = str(plan.targets[target])
    said: list[Residue] = []
    try:
        for population, present, asked in sessions_on(plan, target, until_s):
            ended = len(range(target, population.clients, len(plan.targets)))
            text = f"ended {counted(ended, 'session')} of {population.name}"
            text += f", none of {counted(asked, 'client')} asked has one left"
            what = "sessions"
            if present or problem:
                what, text = "unknown", f"sessions of {population.name} could not be ended"
                text += f": {present} of {counted(asked, 'client')} asked have one"
                text += f" ({problem})" if problem else ""
            values = {"what": what, "total": present or ended, "text": text}
            said.append(Residue.model_validate({"target": name, "when": "after", **values}))
    except ObserverError as error:
        text = f"whether sessions are left is not known: {error}"
        said.append(Residue(target=name, when="after", what="unknown", total=0, text=text))
    return said


def _clear(plan: Plan, target: int, topics: set[str], until_s: float) -> None:
    """Publishes nothing, retained, as one client of each population that keeps messages."""
    for number, population in enumerate(plan.populations):
        if not keeps_messages(plan.model_copy(update={"populations": (population,)})):
            continue
        client_id = f"clear-{plan.run_tag:08x}-{number}"
        identity, address = Identity.of(population), plan.targets[target]
        with Observer(address, identity, client_id, clean=True, until_s=until_s) as observer:
            observer.clear(sorted(topics))


def _said(name: str, removed: int, left: set[str], problem: str) -> list[Residue]:
    said: list[tuple[str, int, str]] = []
    if removed:
        text = f"removed {counted(removed, 'retained message')} of this run"
        said.append(("retained", removed, text))
    if left:
        text = f"{counted(len(left), 'retained message')} of this run could not be removed, such as"
        said.append(("unknown", len(left), f"{text} {min(left)}"))
    if problem:
        said.append(("unknown", 0, f"retained messages of this run may be left: {problem}"))
    return [
        Residue.model_validate(
            {"target": name, "when": "after", "what": what, "total": total, "text": text}
        )
        for what, total, text in said
    ]


TRIES = 2
"""How often a message is cleared that is there again."""
