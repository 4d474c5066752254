"""Removes the retained messages of this run from one target, by topic and stamp, and looks again
afterwards. `sessions` ends sessions."""

from __future__ import annotations

from collections import Counter, defaultdict

from pubstorm.contract.attachment import clients_at
from pubstorm.contract.plan import Plan
from pubstorm.play.clean_start.look import retained_on, sessions_on
from pubstorm.play.clean_start.observer import Deadline, Observer
from pubstorm.play.clean_start.topics import OWN_TOPICS_MAX, Own, own_topics
from pubstorm.quantities import count_text, counted
from pubstorm.result import StaleState
from pubstorm.topology.observer import Login, ObserverError


def remove_retained(
    plan: Plan, target: int, before: dict[str, bytes], deadline: Deadline
) -> list[StaleState]:
    """Clears what this run kept on a target; `before` is what was kept before it."""
    own = own_topics(plan)
    tries: Counter[str] = Counter()
    left: set[str] = set()
    problem = ""
    try:
        while not deadline.is_over:
            look, _ = retained_on(plan, target, deadline)
            left = {t for t, payload in look.retained.items() if own.has(t, payload, before)}
            wanted = {topic for topic in left if tries[topic] < TRIES}
            if not wanted:
                problem = "there were more than could be looked at" if look.truncated else ""
                break
            _clear(plan, target, own, wanted, deadline)
            tries.update(wanted)
    except ObserverError as error:
        problem = str(error)
    if not own.is_complete and not problem:
        problem = f"it keeps more than {count_text(OWN_TOPICS_MAX)}"
    return _said(str(plan.targets[target]), len(tries.keys() - left), left, problem)


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


def _clear(plan: Plan, target: int, own: Own, topics: set[str], deadline: Deadline) -> None:
    """Publishes nothing, retained, to each topic as the client that published to it."""
    shares: dict[Login, list[str]] = defaultdict(list)
    for topic in sorted(topics):
        publisher = own.publishers[topic]
        population = plan.populations[publisher.population]
        shares[Login.of(population, publisher.client)].append(topic)
    for number, (login, share) in enumerate(shares.items()):
        client_id = f"clear-{plan.run_tag:08x}-{number}"
        with Observer(plan.targets[target], login, client_id, deadline, clean=True) as observer:
            observer.clear(share)


def _said(name: str, removed: int, left: set[str], problem: str) -> list[StaleState]:
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
        StaleState.model_validate(
            {"target": name, "when": "after", "what": what, "total": total, "text": text}
        )
        for what, total, text in said
    ]


TRIES = 2
"""Times that a message which returns is cleared."""
