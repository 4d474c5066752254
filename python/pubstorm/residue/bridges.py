"""Takes from a target that the run did not start what bridges have left there: the states that they
kept on topics, and their sessions. It knows them by what they are called, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pubstorm.quantity import counted
from pubstorm.residue.observer import Deadline, Identity, Observer, ObserverError
from pubstorm.result import Residue
from pubstorm.topology.bridges import BridgesOutside
from pubstorm.topology.bridges.lines import client_id, state_topic

AT_ONCE = 16
"""Connections that are made at the same time."""
BUDGET_S = 15.0
"""How long it may take for the bridges of a name."""


async def remove_bridges(outside: Sequence[BridgesOutside]) -> tuple[Residue, ...]:
    """Each bridge's own client connects once more with a clean session, which ends the old one, and
    clears its state. The small brokers have ended. What could not be done is said."""
    found = [await _removed(bridges) for bridges in outside if _leave_anything(bridges)]
    return tuple(residue for some in found for residue in some)


async def _removed(bridges: BridgesOutside) -> list[Residue]:
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
        said.append(_residue(bridges, "sessions", removed, text))
    if problems:
        text = f"sessions and states of {counted(len(problems), 'bridge')} {bridges.name} may be"
        said.append(_residue(bridges, "unknown", len(problems), f"{text} left: {problems[0]}"))
    return said


def _leave_anything(bridges: BridgesOutside) -> bool:
    return bridges.spec.notifications or not bridges.spec.clean_session


def _remove(bridges: BridgesOutside, number: int, deadline: Deadline) -> str | None:
    """What went wrong, if anything did."""
    if deadline.is_over:
        return f"not done within {BUDGET_S:.0f} s"
    name, spec, target = bridges.name, bridges.spec, bridges.target
    identity = Identity.numbered(spec.username, spec.password, bridges.tls(), number)
    own_id = client_id(name, spec, number)
    try:
        with Observer(target, identity, own_id, deadline, clean=True) as observer:
            if spec.notifications:
                observer.clear((state_topic(name, number),))
    except ObserverError as error:
        return str(error)
    return None


def _residue(bridges: BridgesOutside, what: str, total: int, text: str) -> Residue:
    values = {"target": str(bridges.target), "when": "after", "what": what, "total": total}
    return Residue.model_validate({**values, "text": text})
