"""Removes the state of bridges from a target that the run did not start: their states kept on
topics, and their sessions. Names identify them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pubstorm.play.clean_start.observer import Deadline, TargetObserver
from pubstorm.quantities import counted
from pubstorm.result import StaleState
from pubstorm.topology.bridge_lines import client_id, state_topic
from pubstorm.topology.bridges import BridgesOutside
from pubstorm.topology.observer import Login, ObserverError

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
            if spec.notifications:
                observer.clear((state_topic(name, number),))
    except ObserverError as error:
        return str(error)
    return None


def _stale_state(bridges: BridgesOutside, what: str, total: int, text: str) -> StaleState:
    values = {"target": str(bridges.target), "when": "after", "what": what, "total": total}
    return StaleState.model_validate({**values, "text": text})
