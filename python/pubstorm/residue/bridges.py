"""Takes from a target that the run did not start what bridges have left there: the states that they
kept on topics, and their sessions. It knows them by what they are called, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pubstorm.plan import Target
from pubstorm.quantity import counted
from pubstorm.residue.observer import Deadline, Identity, Observer, ObserverError
from pubstorm.result import Residue

AT_ONCE = 16
"""Connections that are made at the same time."""
BUDGET_S = 15.0
"""How long it may take for the bridges of a name."""


@dataclass(frozen=True, slots=True)
class LeftByBridge:
    """What one bridge leaves."""

    client_id: str
    identity: Identity
    has_session: bool
    """Whether its session outlives it."""
    topic: str | None
    """Where its state is kept; None: it tells none."""


async def remove_bridges(
    target: Target, name: str, left: Sequence[LeftByBridge]
) -> tuple[Residue, ...]:
    """Each bridge's own client connects once more with a clean session, which ends the old one, and
    clears its state. What could not be done is said."""
    deadline = Deadline(BUDGET_S)
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(AT_ONCE, "bridges") as pool:
        work = (loop.run_in_executor(pool, _remove, target, each, deadline) for each in left)
        try:
            problems = [problem for problem in await asyncio.gather(*work) if problem is not None]
        finally:
            deadline.give_up()
    what = "bridge state" if not any(each.has_session for each in left) else "session and state"
    removed = len(left) - len(problems)
    said = []
    if removed:
        text = f"removed {what} of {counted(removed, 'bridge')} {name}"
        said.append(_residue(target, "sessions", removed, text))
    if problems:
        text = f"{what} of {counted(len(problems), 'bridge')} {name} may be left: {problems[0]}"
        said.append(_residue(target, "unknown", len(problems), text))
    return tuple(said)


def _remove(target: Target, left: LeftByBridge, deadline: Deadline) -> str | None:
    """What went wrong, if anything did."""
    if deadline.is_over:
        return f"not done within {BUDGET_S:.0f} s"
    if not left.has_session and left.topic is None:
        return None
    try:
        with Observer(target, left.identity, left.client_id, deadline, clean=True) as observer:
            if left.topic is not None:
                observer.clear((left.topic,))
    except ObserverError as error:
        return str(error)
    return None


def _residue(target: Target, what: str, total: int, text: str) -> Residue:
    values = {"target": str(target), "when": "after", "what": what, "total": total, "text": text}
    return Residue.model_validate(values)
