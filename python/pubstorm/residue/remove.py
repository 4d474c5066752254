"""Removes the retained messages that this run left on one target, and nothing else: each is told
by its topic and its stamp. It looks again afterwards; sessions are ended by `sessions`."""

from __future__ import annotations

from collections import Counter, defaultdict

from pubstorm.plan import Plan, clients_at
from pubstorm.quantity import count_text, counted
from pubstorm.residue.look import retained_on, sessions_on
from pubstorm.residue.observer import Deadline, Identity, Observer, ObserverError
from pubstorm.residue.topics import OWN_TOPICS_MAX, Own, own_topics
from pubstorm.result import Residue


def remove_retained(
    plan: Plan, target: int, before: dict[str, bytes], deadline: Deadline
) -> list[Residue]:
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
) -> list[Residue]:
    """Looks whether sessions of this run's clients are left on a target."""
    name = str(plan.targets[target])
    said: list[Residue] = []
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
            said.append(Residue.model_validate({"target": name, "when": "after", **values}))
    except ObserverError as error:
        text = f"whether sessions are left is not known: {error}"
        said.append(Residue(target=name, when="after", what="unknown", total=0, text=text))
    return said


def _clear(plan: Plan, target: int, own: Own, topics: set[str], deadline: Deadline) -> None:
    """Publishes nothing, retained, to each topic as the client that published to it."""
    shares: dict[Identity, list[str]] = defaultdict(list)
    for topic in sorted(topics):
        publisher = own.publishers[topic]
        population = plan.populations[publisher.population]
        shares[Identity.of(population, publisher.client)].append(topic)
    for number, (identity, share) in enumerate(shares.items()):
        client_id = f"clear-{plan.run_tag:08x}-{number}"
        with Observer(plan.targets[target], identity, client_id, deadline, clean=True) as observer:
            observer.clear(share)


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
