"""Clean start: what earlier runs left on the targets is looked for before a run, and what this run
leaves is removed after it. Brokers that the run has just started need none of it. Every step has a
deadline, and what cannot be found out is said so; a run never waits long for it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pubstorm.plan import Plan
from pubstorm.residue.look import Findings, look_before
from pubstorm.residue.remove import has_own_retained, remove_retained, verify_sessions
from pubstorm.residue.sessions import end_sessions, persistent_clients
from pubstorm.result import Residue

LOOK_S = 2.0
"""How long looking at a target may take."""
REMOVE_S = 15.0
"""How long removing from a target may take."""
GRACE_S = 1.0
"""What a step may take beyond its deadline until it is given up."""
TARGETS_MAX = 16
"""Targets that are looked at."""


class CleanStart:
    """The residue on the targets of one plan."""

    def __init__(self, plan: Plan, mode: Literal["report", "require", "skip"]) -> None:
        self._plan = plan
        self._mode = mode
        self._targets = range(min(len(plan.targets), TARGETS_MAX)) if mode != "skip" else range(0)
        self._found: dict[int, Findings] = {}

    async def before(self) -> tuple[Residue, ...]:
        """What earlier runs left."""
        looks = [
            self._step(target, "before", functools.partial(self._look, target), LOOK_S)
            for target in self._targets
        ]
        found = [residue for each in await asyncio.gather(*looks) for residue in each]
        left_out = len(self._plan.targets) - len(self._targets)
        if self._mode != "skip" and left_out:
            text = f"{left_out} more targets were not looked at"
            name = str(self._plan.targets[TARGETS_MAX])
            found.append(Residue(target=name, when="before", what="unknown", total=0, text=text))
        return tuple(found)

    def refuses(self, found: Sequence[Residue]) -> bool:
        """Whether the run may not be played on what was found."""
        return self._mode == "require" and any(residue.what != "queued" for residue in found)

    async def after(self, engine: Path, log: Path) -> tuple[Residue, ...]:
        """Removes what this run left, and looks again; the engine ends its sessions."""
        removed: list[Residue] = []
        if has_own_retained(self._plan):
            steps = [
                self._step(target, "after", functools.partial(self._remove, target), REMOVE_S)
                for target in self._targets
            ]
            removed += [residue for each in await asyncio.gather(*steps) for residue in each]
        if self._targets and persistent_clients(self._plan):
            problem = await end_sessions(self._plan, engine, log)
            steps = [
                self._step(
                    target,
                    "after",
                    functools.partial(verify_sessions, self._plan, target, problem),
                    LOOK_S,
                )
                for target in self._targets
            ]
            removed += [residue for each in await asyncio.gather(*steps) for residue in each]
        return tuple(removed)

    def interrupted(self) -> Residue:
        """What is said where removing was interrupted."""
        text = "interrupted: what this run left is not all removed"
        name = str(self._plan.targets[0])
        return Residue(target=name, when="after", what="unknown", total=0, text=text)

    def _look(self, target: int, budget_s: float) -> list[Residue]:
        self._found[target] = look_before(self._plan, target, budget_s)
        return self._found[target].residue

    def _remove(self, target: int, budget_s: float) -> list[Residue]:
        before = self._found.get(target, Findings())
        return remove_retained(self._plan, target, before.retained, budget_s)

    async def _step(
        self,
        target: int,
        when: Literal["before", "after"],
        work: Callable[[float], list[Residue]],
        budget_s: float,
    ) -> list[Residue]:
        """Does blocking work in a thread; it is given up when it does not keep its deadline."""
        try:
            return await asyncio.wait_for(asyncio.to_thread(work, budget_s), budget_s + GRACE_S)
        except TimeoutError:
            text = f"the broker did not answer within {budget_s:.0f} s"
        except RuntimeError as error:
            text = f"this host has no thread left to look: {error}"
        name = str(self._plan.targets[target])
        return [Residue(target=name, when=when, what="unknown", total=0, text=text)]


__all__ = ["CleanStart"]
