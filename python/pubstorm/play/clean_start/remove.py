"""Removes from one target the stale state of this run: retained messages, found by topic and stamp,
sessions of clients, and states and sessions of bridges, found by name. An agent connects each
client once more with a clean session. The target is examined again afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from pubstorm.contract.offered_load import clients_at
from pubstorm.contract.plan import ConnectAction, DisconnectAction, Plan, PlannedStage
from pubstorm.contract.protocol import Mqtt
from pubstorm.errors import PubstormError
from pubstorm.fleet import SnapshotReceived
from pubstorm.play.alone import play_alone
from pubstorm.play.clean_start.observer import Deadline, TargetObserver, retained_on, sessions_on
from pubstorm.play.clean_start.topics import OWN_TOPICS_MAX, Own, own_topics
from pubstorm.quantities import SECOND_NS, count_text, counted
from pubstorm.result import StaleState
from pubstorm.topology.bridge_lines import client_id, state_topic
from pubstorm.topology.bridges import BridgesOutside
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
    topics for which there was time, and whose broker answered."""
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


PARALLELISM = 100
TIMEOUT_S = 5.0
"""Longest time for a broker to answer the last client."""
CLIENTS_PER_S = 1000
"""Rate that a slow broker can take."""


def persistent_clients(plan: Plan) -> int:
    """Clients whose sessions outlive their connection."""
    return sum(p.clients for p in plan.populations if p.keeps_session and p.can.keeps_state)


async def end_sessions(plan: Plan, engine: Path, log: Path) -> str | None:
    """Ends every persistent session of the plan; what went wrong, if anything did."""
    ending = _ending_plan(plan)
    connected = 0

    def count(received: SnapshotReceived) -> None:
        nonlocal connected
        populations = received.snapshot.populations
        connected += sum(population.counters.connected_total for population in populations)

    try:
        async with asyncio.timeout(3 * TIMEOUT_S + ending.clients / CLIENTS_PER_S):
            await play_alone(ending, engine, log, count)
    except PubstormError as error:
        return error.message
    except TimeoutError:
        return "the broker did not answer in time"
    missing = ending.clients - connected
    return f"{missing} of {ending.clients} clients could not connect" if missing else None


def _ending_plan(plan: Plan) -> Plan:
    """All clients with persistent sessions, each connected once with a clean one."""
    quiet = {"subscriptions": (), "publications": (), "reconnect": None}
    quiet |= {"lifetime": None, "flapping": None}
    populations = tuple(
        population.model_copy(update={**quiet, "protocol": _clean(mqtt)})
        for population in plan.populations
        if (mqtt := population.mqtt) is not None and not mqtt.clean_session
    )
    everybody = tuple(range(len(populations)))
    connect = ConnectAction(
        rate_per_s=None, parallelism=PARALLELISM, timeout_ns=round(TIMEOUT_S * SECOND_NS)
    )
    leave = DisconnectAction(rate_per_s=None)
    stages = (
        PlannedStage(name="connect", action=connect, populations=everybody),
        PlannedStage(name="disconnect", action=leave, populations=everybody),
    )
    return plan.model_copy(update={"populations": populations, "stages": stages})


def _clean(mqtt: Mqtt) -> Mqtt:
    """Returns the options of clients whose session ends with their connection: in MQTT 5, a session
    without an expiry interval does [MQTT-3.1.2.11.2]."""
    properties = tuple(each for each in mqtt.properties if each.name != "session_expiry_interval")
    clean = {"clean_session": True, "will": None, "properties": properties}
    return mqtt.model_copy(update=clean)


AT_ONCE = 16
"""Connections that are made at the same time."""
BUDGET_S = 15.0
"""Longest time for the bridges of a name."""


async def remove_bridges(outside: Sequence[BridgesOutside]) -> tuple[StaleState, ...]:
    """Connects each bridge's client once more with a clean session, which ends the old one, and
    clears its state. The small brokers have ended. Returns what could not be done."""
    found = [
        await _removed(bridges)
        for bridges in outside
        if bridges.spec.notifications or not bridges.spec.clean_session
    ]
    return tuple(stale_state for some in found for stale_state in some)


async def _removed(bridges: BridgesOutside) -> list[StaleState]:
    deadline, loop = Deadline(BUDGET_S), asyncio.get_running_loop()
    with ThreadPoolExecutor(AT_ONCE, "bridges") as pool:
        numbers = range(bridges.count)
        work = (loop.run_in_executor(pool, _remove, bridges, n, deadline) for n in numbers)
        try:
            problems = [problem for problem in await asyncio.gather(*work) if problem is not None]
        finally:
            deadline.give_up()
    removed = bridges.count - len(problems)
    said = []
    if removed:
        text = f"removed sessions and states of {counted(removed, 'bridge')} {bridges.name}"
        said.append(_stale_state(bridges, "sessions", removed, text))
    if problems:
        text = f"sessions and states of {counted(len(problems), 'bridge')} {bridges.name} may be"
        said.append(_stale_state(bridges, "unknown", len(problems), f"{text} left: {problems[0]}"))
    return said


def _remove(bridges: BridgesOutside, number: int, deadline: Deadline) -> str | None:
    """Returns the problem, if there was one."""
    if deadline.is_over:
        return f"not done within {BUDGET_S:.0f} s"
    name, spec, target = bridges.name, bridges.spec, bridges.target
    login = Login.numbered(spec.username, spec.password, bridges.tls(), number)
    own_id = client_id(name, spec, number)
    try:
        with TargetObserver(target, login, own_id, deadline, clean=True) as observer:
            if spec.notifications and not observer.clear((state_topic(name, number),)):
                return "the broker did not answer"
    except ObserverError as error:
        return str(error)
    return None


def _stale_state(bridges: BridgesOutside, what: str, total: int, text: str) -> StaleState:
    values = {"target": str(bridges.target), "when": "after", "what": what, "total": total}
    return StaleState.model_validate({**values, "text": text})
