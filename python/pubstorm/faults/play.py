"""Plays the faults of a run: each begins and is mended at its instant on the monotonic clock, in a
task of its own, so that nothing that takes long holds another up. It knows no stage's purpose, and
leaves how something is broken to whoever breaks it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pubstorm.plan.faults import PlannedFault
from pubstorm.quantity import counted
from pubstorm.scenario.faults import BROKER_FAULTS

SECOND_NS = 10**9


class Breaker(Protocol):
    """What begins a fault and mends it; each returns what could not be done, in words."""

    async def begin(self, fault: PlannedFault) -> tuple[str, ...]:
        """Breaks the victims."""

    async def mend(self, fault: PlannedFault) -> tuple[str, ...]:
        """Undoes it."""


@dataclass
class AppliedFault:
    """A fault as it took effect, in nanoseconds on the monotonic clock."""

    planned: PlannedFault
    began_ns: int
    """When its victims began to be broken."""
    mended_ns: int | None = None
    """When all were mended; None: never in this run."""
    problems: list[str] = field(default_factory=list)
    """What could not be done."""

    @property
    def stage(self) -> int:
        """Index of the stage."""
        return self.planned.stage

    @property
    def name(self) -> str:
        """Name of the phase that begins with it."""
        return self.planned.name


@dataclass(frozen=True)
class FaultNews:
    """A fault began, was mended, or could not be."""

    at_ns: int
    text: str


class FaultPlay:
    """The faults of a run, stage by stage."""

    def __init__(
        self,
        planned: Sequence[PlannedFault],
        breaker: Breaker,
        tell: Callable[[FaultNews], None],
    ) -> None:
        self._planned = planned
        self._breaker = breaker
        self._tell = tell
        self._tasks: list[asyncio.Task[None]] = []
        self.applied: list[AppliedFault] = []
        """What really happened, in the order of time."""

    def names(self, stage: int) -> list[str]:
        """Names of the faults of a stage."""
        return [fault.name for fault in self._planned if fault.stage == stage]

    def enter(self, stage: int, at_ns: int) -> None:
        """A stage begins, and its faults with it."""
        self._tasks = [
            asyncio.create_task(self._play(fault, at_ns))
            for fault in self._planned
            if fault.stage == stage
        ]

    def done(self) -> bool:
        """Whether every fault of the stage is mended that is to be."""
        return all(task.done() for task in self._tasks)

    async def stop(self) -> None:
        """No fault begins any more, and what is broken stays so."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _play(self, fault: PlannedFault, stage_at_ns: int) -> None:
        await _until(stage_at_ns + fault.after_ns)
        applied = AppliedFault(fault, time.monotonic_ns())
        self.applied.append(applied)
        problems = await self._breaker.begin(fault)
        applied.problems += problems
        self._tell(FaultNews(applied.began_ns, _begun(fault)))
        self._tell_problems(fault, problems)
        if fault.lasts_ns is None:
            return
        await _until(applied.began_ns + fault.lasts_ns)
        problems = await self._breaker.mend(fault)
        applied.problems += problems
        now_ns = time.monotonic_ns()
        if len(problems) < (len(fault.victims) if fault.kind in BROKER_FAULTS else 1):
            applied.mended_ns = now_ns
            self._tell(FaultNews(now_ns, f"{fault.name}: {_mended(fault)}"))
        self._tell_problems(fault, problems)

    def _tell_problems(self, fault: PlannedFault, problems: Sequence[str]) -> None:
        now_ns = time.monotonic_ns()
        for text in problems[:PROBLEMS_TOLD]:
            self._tell(FaultNews(now_ns, f"{fault.name}: {text}"))
        left = len(problems) - PROBLEMS_TOLD
        if left > 0:
            self._tell(FaultNews(now_ns, f"{fault.name}: {counted(left, 'problem')} more"))


async def _until(at_ns: int) -> None:
    while (left_ns := at_ns - time.monotonic_ns()) > 0:
        await asyncio.sleep(left_ns / SECOND_NS)


def _begun(fault: PlannedFault) -> str:
    """What it is called, and what is done where its name does not say so."""
    done = f"{fault.kind} {fault.group}"
    return fault.name if fault.name.startswith(fault.kind) else f"{fault.name}: {done}"


def _mended(fault: PlannedFault) -> str:
    """What was done to mend it."""
    words, noun = _MENDED[fault.kind]
    count = len(fault.victims)
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'} {words}"


_MENDED = {
    "stop": ("up again", "broker"),
    "kill": ("up again", "broker"),
    "freeze": ("going on", "broker"),
    "cut": ("whole again", "bridge"),
    "delay": ("undelayed again", "bridge"),
}
PROBLEMS_TOLD = 5
"""Problems of a fault that are told one by one."""
