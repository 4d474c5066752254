"""Removes the retained messages of this run from one target, by topic and stamp, and looks again
afterwards. `sessions` ends sessions."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from pubstorm.contract.attachment import clients_at
from pubstorm.contract.plan import Plan
from pubstorm.play.clean_start.look import retained_on, sessions_on
from pubstorm.play.clean_start.observer import Deadline, TargetObserver
from pubstorm.play.clean_start.topics import OWN_TOPICS_MAX, Own, own_topics
from pubstorm.quantities import count_text, counted
from pubstorm.result import StaleState
from pubstorm.topology.observer import Login, ObserverError


def remove_retained(
    plan: Plan, target: int, before: dict[str, bytes] | None, deadline: Deadline
) -> list[StaleState]:
    """Clears what this run kept on a target; `before` is what was kept before it, None if that is
    not known."""
    own = own_topics(plan)
    tries: Counter[str] = Counter()
    left: set[str] = set()
    problem, is_all = "", True
    try:
        while not deadline.is_over:
            look, _ = retained_on(
                plan, target, deadline, lambda topic, payload: own.has(topic, payload, before)
            )
            left, is_all = set(look.retained), not look.truncated
            wanted = {topic for topic in left if tries[topic] < TRIES}
            if not wanted:
                break
            cleared = _clear(plan, target, own, wanted, deadline)
            tries.update(cleared)
            left -= cleared
    except ObserverError as error:
        # A connection that was lost does not say how much of it was cleared.
        left, problem = set(), str(error)
    if not is_all and not left:
        problem = problem or "there were more than could be looked at"
    if before is None and not all(each.stamps for each in own.publishers.values()):
        problem = problem or "without a stamp, nothing shows whose they are"
    if not own.is_complete:
        problem = problem or f"it keeps more than {count_text(OWN_TOPICS_MAX)}"
    return _said(str(plan.targets[target]), len(tries.keys() - left), _Left(left, is_all), problem)


def verify_sessions(
    plan: Plan, problem: str | None, target: int, deadline: Deadline
) -> list[StaleState]:
    """Looks whether sessions of this run's clients are left on a target."""
    name = str(plan.targets[target])
    said: list[StaleState] = []
    try:
        for population, present, asked in sessions_on(plan, target, deadline):
            ended = len(clients_at(plan, plan.populations.index(population), target))
            text = f"ended {counted(ended, 'session')} of {population.name}"
            text += f", none of {counted(asked, 'client')} asked has one left"
            what = "sessions"
            if present or problem:
                what, text = "unknown", f"sessions of {population.name} could not be ended"
                text += f": {present} of {counted(asked, 'client')} asked have one"
                text += f" ({problem})" if problem else ""
            values = {"what": what, "total": present or ended, "text": text}
            said.append(StaleState.model_validate({"target": name, "when": "after", **values}))
    except ObserverError as error:
        text = f"whether sessions are left is not known: {error}"
        said.append(StaleState(target=name, when="after", what="unknown", total=0, text=text))
    return said


def _clear(plan: Plan, target: int, own: Own, topics: set[str], deadline: Deadline) -> set[str]:
    """Publishes nothing, retained, to each topic as the client that published to it. Returns the
    topics for which there was time."""
    cleared: set[str] = set()
    shares: dict[Login, list[str]] = defaultdict(list)
    for topic in sorted(topics):
        publisher = own.publishers[topic]
        population = plan.populations[publisher.population]
        shares[Login.of(population, publisher.client)].append(topic)
    for number, (login, share) in enumerate(shares.items()):
        client_id = f"clear-{plan.run_tag:08x}-{number}"
        with TargetObserver(
            plan.targets[target], login, client_id, deadline, clean=True
        ) as observer:
            cleared.update(observer.clear(share))
        if deadline.is_over:
            break
    return cleared


class _Left(NamedTuple):
    """Retained messages of the run that could not be removed."""

    topics: set[str]
    is_all: bool
    """False if there may be more."""


def _said(name: str, removed: int, left: _Left, problem: str) -> list[StaleState]:
    said: list[tuple[str, int, str]] = []
    if removed:
        text = f"removed {counted(removed, 'retained message')} of this run"
        said.append(("retained", removed, text))
    if left.topics:
        total = len(left.topics)
        at_least = "" if left.is_all else "at least "
        text = f"{at_least}{counted(total, 'retained message')} of this run could not be removed"
        said.append(("unknown", total, f"{text}, such as {min(left.topics)}"))
    if problem:
        said.append(("unknown", 0, f"retained messages of this run may be left: {problem}"))
    return [
        StaleState.model_validate(
            {"target": name, "when": "after", "what": what, "total": total, "text": text}
        )
        for what, total, text in said
    ]


TRIES = 2
"""Times that a message which returns is cleared."""
