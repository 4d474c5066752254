"""Clean start: what earlier runs left on the targets is looked for before a run, and what this run
leaves is removed after it. Brokers that the run has just started need none of it. Every step has a
deadline, and what cannot be found out is said so; a run never waits long for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from pubstorm.plan import ZMTP, Plan
from pubstorm.residue.look import Findings, look_before
from pubstorm.residue.observer import Deadline
from pubstorm.residue.remove import remove_retained, verify_sessions
from pubstorm.residue.sessions import end_sessions, persistent_clients
from pubstorm.residue.topics import keeps_messages
from pubstorm.result import Residue

LOOK_S = 2.0
"""How long looking at a target may take."""
REMOVE_S = 15.0
"""How long removing from a target may take."""
SESSION_TRIES = 2
"""Attempts to end sessions that remain."""
GRACE_S = 1.0
"""What a step may take beyond its deadline until it is given up."""
TARGETS_MAX = 16
"""Targets that are looked at."""

When = Literal["before", "after"]
Work = Callable[[int, Deadline], list[Residue]]
"""What is done at a target, by its index."""


class CleanStart:
    """The residue on the targets of one plan."""

    def __init__(
        self, plan: Plan, mode: Literal["report", "require", "skip"], targets: Sequence[int]
    ) -> None:
        self._plan = plan
        self._mode = mode
        zeromq = {at for p in plan.populations if p.version == ZMTP for at in p.at.targets}
        self._all = [t for t in targets if t not in zeromq] if mode != "skip" else ()
        """Indices of the targets that may hold anything."""
        self._targets = self._all[:TARGETS_MAX]
        self._found: dict[int, Findings] = {}

    async def before(self) -> tuple[Residue, ...]:
        """What earlier runs left."""
        found = await self._at_each_target("before", self._look, LOOK_S)
        left_out = self._all[TARGETS_MAX:]
        if left_out:
            text = f"{len(left_out)} more targets were not looked at"
            name = str(self._plan.targets[left_out[0]])
            found.append(Residue(target=name, when="before", what="unknown", total=0, text=text))
        return tuple(found)

    def refuses(self, found: Sequence[Residue]) -> bool:
        """Whether the run may not be played on what was found."""
        return self._mode == "require" and any(residue.what != "queued" for residue in found)

    @property
    def has_work_after(self) -> bool:
        """Whether the run may leave anything that is to be removed."""
        leaves = keeps_messages(self._plan) or persistent_clients(self._plan) > 0
        return bool(self._targets) and leaves

    async def after(self, engine: Path, log: Path) -> tuple[Residue, ...]:
        """Removes what this run left, and looks again; the engine ends its sessions."""
        removed: list[Residue] = []
        if keeps_messages(self._plan):
            removed += await self._at_each_target("after", self._remove, REMOVE_S)
        if persistent_clients(self._plan):
            removed += await self._end_sessions(engine, log)
        return tuple(removed)

    async def _end_sessions(self, engine: Path, log: Path) -> list[Residue]:
        """Ends the sessions and looks for them, twice where some are left: a broker that has not
        handled the DISCONNECT of a client yet says that the client has a session."""
        found: list[Residue] = []
        for _ in range(SESSION_TRIES):
            problem = await end_sessions(self._plan, engine, log)
            verify = partial(verify_sessions, self._plan, problem)
            found = await self._at_each_target("after", verify, LOOK_S)
            if all(residue.what == "sessions" for residue in found):
                break
        return found

    def interrupted(self) -> Residue:
        """What is said where removing was interrupted."""
        text = "interrupted: what this run left is not all removed"
        name = str(self._plan.targets[0])
        return Residue(target=name, when="after", what="unknown", total=0, text=text)

    def _look(self, target: int, deadline: Deadline) -> list[Residue]:
        self._found[target] = look_before(self._plan, target, deadline)
        return self._found[target].residue

    def _remove(self, target: int, deadline: Deadline) -> list[Residue]:
        before = self._found.get(target, Findings())
        return remove_retained(self._plan, target, before.retained, deadline)

    async def _at_each_target(self, when: When, work: Work, budget_s: float) -> list[Residue]:
        """Does the work at all targets at once."""
        steps = (self._step(target, when, work, budget_s) for target in self._targets)
        return [residue for found in await asyncio.gather(*steps) for residue in found]

    async def _step(self, target: int, when: When, work: Work, budget_s: float) -> list[Residue]:
        """Does blocking work in a thread; it is given up when it does not keep its deadline."""
        deadline = Deadline(budget_s)
        doing = asyncio.to_thread(work, target, deadline)
        try:
            return await asyncio.wait_for(doing, budget_s + GRACE_S)
        except TimeoutError:
            text = f"the broker did not answer within {budget_s:.0f} s"
        except RuntimeError as error:
            text = f"this host has no thread left to look: {error}"
        finally:
            deadline.give_up()
        name = str(self._plan.targets[target])
        return [Residue(target=name, when=when, what="unknown", total=0, text=text)]


__all__ = ["CleanStart"]
