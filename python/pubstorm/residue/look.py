"""What earlier runs left on one target: retained messages under the plan's topics, sessions of its
clients, and what the broker says of queued messages. It removes nothing but what it made itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from pubstorm.plan import Plan, Population
from pubstorm.quantity import count_text, counted
from pubstorm.residue.observer import Identity, Look, Observer, ObserverError
from pubstorm.residue.topics import looked_at
from pubstorm.result import Residue
from pubstorm.template import Template

SESSIONS_SAMPLED = 20
"""Client identifiers of a population and a target whose session is looked for."""
FILTERS_MAX = 64
"""Filters that are looked at."""
STORED = "$SYS/broker/store/messages/count"
"""mosquitto's count of all messages that it stores."""
STORED_OLD = "$SYS/broker/messages/stored"
"""The same before mosquitto 1.6."""
RETAINED = "$SYS/broker/retained messages/count"
"""mosquitto's count of retained messages, which are part of the stored ones."""
COUNTS = (STORED, STORED_OLD, RETAINED)


@dataclass(slots=True)
class Findings:
    """What was found on a target."""

    residue: list[Residue] = field(default_factory=list)
    retained: dict[str, bytes] = field(default_factory=dict)
    """Retained messages by topic."""


def look_before(plan: Plan, target: int, budget_s: float) -> Findings:
    """What earlier runs left on a target."""
    until_s = time.monotonic() + budget_s
    name = str(plan.targets[target])
    found = Findings()

    def add(what: str, total: int, text: str) -> None:
        values = {"target": name, "when": "before", "what": what, "total": total, "text": text}
        found.residue.append(Residue.model_validate(values))

    try:
        look, stored = retained_on(plan, target, until_s)
        found.retained = look.retained
        if look.retained:
            add("retained", len(look.retained), _retained_text(look))
        for refused in sorted(look.denied):
            add("unknown", 0, f"the broker does not let its clients look at {refused}")
        if stored > 0:
            add("queued", stored, f"it stores {counted(stored, 'message')} for absent clients")
        for population, present, asked in sessions_on(plan, target, until_s):
            if present:
                text = f"{present} of {counted(asked, 'client')} asked of {population.name} have a"
                add("sessions", present, f"{text} session from before")
    except ObserverError as error:
        add("unknown", 0, str(error))
    return found


def retained_on(plan: Plan, target: int, until_s: float) -> tuple[Look, int]:
    """Retained messages that the plan's identities see, and the number of messages that the broker
    says it keeps for absent clients."""
    filters = looked_at(plan)[:FILTERS_MAX]
    found, stored = Look(denied=set(filters)), 0
    for number, identity in enumerate(_identities(plan)):
        client_id = f"look-{plan.run_tag:08x}-{number}"
        address = plan.targets[target]
        with Observer(address, identity, client_id, clean=True, until_s=until_s) as observer:
            look = observer.look((*filters, *COUNTS))
        said = {topic: look.retained.pop(topic, b"") for topic in COUNTS}
        stored = max(stored, _queued(said))
        found.retained.update(look.retained)
        found.denied &= look.denied
        found.truncated |= look.truncated
    return found, stored


def sessions_on(plan: Plan, target: int, until_s: float) -> Iterator[tuple[Population, int, int]]:
    """For each population with persistent sessions: how many of a sample of its clients have one,
    and how many were asked. A session that the question made is ended again."""
    targets = len(plan.targets)
    for population in plan.populations:
        clients = range(target, population.clients, targets)
        if population.clean_session or not clients:
            continue
        step = max(1, len(clients) // SESSIONS_SAMPLED)
        present = asked = 0
        for client in clients[::step][:SESSIONS_SAMPLED]:
            if time.monotonic() >= until_s:
                break
            asked += 1
            present += _has_session(plan, target, population, client, until_s)
        yield population, present, asked


def _has_session(
    plan: Plan, target: int, population: Population, client: int, until_s: float
) -> bool:
    identity = Identity.of(population, client)
    client_id = Template.parse(population.client_id).text(identity.number)
    address = plan.targets[target]
    with Observer(address, identity, client_id, clean=False, until_s=until_s) as observer:
        present = observer.session_present
    if not present:
        with Observer(address, identity, client_id, clean=True, until_s=until_s):
            pass
    return present


def _identities(plan: Plan) -> list[Identity]:
    """One identity for each way in which populations log in."""
    ways: dict[tuple[object, ...], Identity] = {}
    for population in plan.populations:
        way = population.username, population.password, population.tls
        ways.setdefault(way, Identity.of(population))
    return list(ways.values())


def _retained_text(look: Look) -> str:
    example = min(look.retained)
    more = "or more " if look.truncated else ""
    roots = sorted({topic.partition("/")[0] for topic in look.retained})
    shown = ", ".join(f"{root}/#" for root in roots[:ROOTS_SHOWN])
    if len(roots) > ROOTS_SHOWN:
        shown += f" and {count_text(len(roots) - ROOTS_SHOWN)} more"
    noun = "retained message" if len(look.retained) == 1 else "retained messages"
    return f"{count_text(len(look.retained))} {more}{noun} under {shown}, such as {example}"


def _queued(said: dict[str, bytes]) -> int:
    try:
        return max(0, int(said[STORED] or said[STORED_OLD]) - int(said[RETAINED]))
    except ValueError:
        return 0


ROOTS_SHOWN = 3
