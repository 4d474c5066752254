"""Looks for stale state on one target: retained messages under the plan's topics, sessions of its
clients, and queued messages as the broker reports them. Removes only its own state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pubstorm.contract.attachment import clients_at
from pubstorm.contract.plan import Plan, PlannedPopulation
from pubstorm.contract.texts import template_of
from pubstorm.play.clean_start.observer import Deadline, Observation, TargetObserver, Wanted
from pubstorm.play.clean_start.topics import looked_at
from pubstorm.quantities import count_text, counted
from pubstorm.result import StaleState
from pubstorm.topology.observer import Login, ObserverError

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
class TargetFindings:
    """Stale state of a target."""

    stale_state: list[StaleState] = field(default_factory=list)
    retained: dict[str, bytes] = field(default_factory=dict)
    """Retained messages by topic."""


def look_before(plan: Plan, target: int, deadline: Deadline) -> TargetFindings:
    """Returns the stale state of a target."""
    name = str(plan.targets[target])
    found = TargetFindings()

    def add(what: str, total: int, text: str) -> None:
        values = {"target": name, "when": "before", "what": what, "total": total, "text": text}
        found.stale_state.append(StaleState.model_validate(values))

    try:
        look, stored = retained_on(plan, target, deadline)
        found.retained = look.retained
        if look.retained:
            add("retained", len(look.retained), _retained_text(look))
        for refused in sorted(look.denied):
            add("unknown", 0, f"the broker does not let its clients look at {refused}")
        if stored > 0:
            add("queued", stored, f"it stores {counted(stored, 'message')} for absent clients")
        for population, present, asked in sessions_on(plan, target, deadline):
            if present:
                text = f"{present} of {counted(asked, 'client')} asked of {population.name} have a"
                add("sessions", present, f"{text} session from before")
    except ObserverError as error:
        add("unknown", 0, str(error))
    return found


def retained_on(
    plan: Plan, target: int, deadline: Deadline, own: Wanted | None = None
) -> tuple[Observation, int]:
    """Returns retained messages that the plan's logins see, with `own` all that it wants, and the
    number of messages that the broker keeps for absent clients by its own report."""
    filters = looked_at(plan)[:FILTERS_MAX]
    found, stored = Observation(denied=set(filters)), 0
    problems = []
    populations = (each for each in plan.populations if each.can.keeps_state)
    logins = dict.fromkeys(map(Login.of, populations))
    for number, login in enumerate(logins):
        client_id = f"look-{plan.run_tag:08x}-{number}"
        try:
            with TargetObserver(
                plan.targets[target], login, client_id, deadline, clean=True
            ) as one:
                look = one.look((*filters, *COUNTS), own)
        except ObserverError as error:
            problems.append(error)
            continue
        said = {topic: look.retained.pop(topic, b"") for topic in COUNTS}
        stored = max(stored, _queued(said))
        found.retained.update(look.retained)
        found.denied &= look.denied
        found.truncated |= look.truncated
    if problems and len(problems) == len(logins):
        raise problems[0]
    return found, stored


def sessions_on(
    plan: Plan, target: int, deadline: Deadline
) -> Iterator[tuple[PlannedPopulation, int, int]]:
    """For each population with persistent sessions: how many of a sample of its clients have one,
    and how many were asked. A session that the question made is ended again. Identifiers that the
    broker chooses are unknown here, and so are their sessions."""
    for index, population in enumerate(plan.populations):
        clients = clients_at(plan, index, target)
        if not population.keeps_session or not population.client_id or not clients:
            continue
        step = max(1, len(clients) // SESSIONS_SAMPLED)
        present = asked = 0
        for client in clients[::step][:SESSIONS_SAMPLED]:
            if deadline.is_over:
                break
            asked += 1
            present += _has_session(plan, target, population, client, deadline)
        yield population, present, asked


def _has_session(
    plan: Plan, target: int, population: PlannedPopulation, client: int, deadline: Deadline
) -> bool:
    login = Login.of(population, client)
    client_id = template_of(population, population.client_id).text(population.first + client)
    address = plan.targets[target]
    with TargetObserver(address, login, client_id, deadline, clean=False) as observer:
        present = observer.session_present
    if not present:
        with TargetObserver(address, login, client_id, deadline, clean=True):
            pass
    return present


def _retained_text(look: Observation) -> str:
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
