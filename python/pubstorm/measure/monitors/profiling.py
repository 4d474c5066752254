"""The profile that a scenario asks for: one process, in one span of a stage."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import psutil

from pubstorm.contract.plan import HoldAction, Plan, PublishAction
from pubstorm.measure.monitors import MonitorError
from pubstorm.measure.monitors.perf import FOLDED_FILE, PerfError, StackProfile
from pubstorm.measure.monitors.process import PidNow
from pubstorm.quantities import SECOND_NS
from pubstorm.result import ProfileResult
from pubstorm.scenario.monitors import Process

FOLDER = "profile"
"""Folder of the profile in the run directory."""


@dataclass(frozen=True)
class ProfileSpec:
    """The process and the span of a profile."""

    broker: str
    """Its name."""
    process: Process | PidNow
    """The process."""
    stage: int
    """Index of the stage."""
    after_ns: int
    """Its beginning, in nanoseconds after the start of the stage."""
    duration_ns: int
    """Its length in nanoseconds, at most until the load of the stage ends."""
    frequency: int
    """Samples a second."""


class Recording(Protocol):
    """Records one process by `perf`, on this host or on another. Raises PerfError or MonitorError
    if it cannot."""

    async def prepare(self) -> None:
        """Checks what can be checked before the run."""

    async def start(self, process: Process | PidNow) -> None:
        """Begins to record a process."""

    async def stop(self) -> None:
        """Ends the recording."""

    async def profile(self) -> StackProfile:
        """Returns the samples, and stores the stacks."""

    @property
    def event(self) -> str:
        """Event that perf samples by."""


class Profiler:
    """Profiles one process in one stage. Whatever goes wrong ends in the result."""

    def __init__(self, spec: ProfileSpec, plan: Plan, perf: Recording) -> None:
        self._spec = spec
        self._plan = plan
        self._perf = perf
        self._recording: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._recorded_ns = 0
        self._missing: str | None = None

    async def prepare(self) -> None:
        """Looks whether a profile can be made, before the first stage."""
        await self._guarded(self._perf.prepare)

    def enter_stage(self, index: int, at_ns: int) -> None:
        """A stage begins at an instant of the monotonic clock; the one before is over."""
        if self._recording is not None:
            self._over.set()
        elif index == self._spec.stage and self._missing is None:
            self._recording = asyncio.create_task(self._guarded(lambda: self._record(at_ns)))

    async def finish(self) -> ProfileResult:
        """Ends a recording that is not over, and reads it."""
        self._over.set()
        profile = StackProfile()
        if self._recording is not None:
            await self._recording

            async def read() -> None:
                nonlocal profile
                profile = await self._perf.profile()

            await self._guarded(read)
        return self._result(profile)

    def _result(self, profile: StackProfile) -> ProfileResult:
        stage = self._plan.stages[self._spec.stage].name
        missing = self._missing
        if missing is None and self._recording is None:
            missing = f"the run ended before stage {stage}"
        done = f"perf record by {self._perf.event} for {self._recorded_ns / SECOND_NS:.1f} s"
        return ProfileResult(
            broker=self._spec.broker,
            stage=stage,
            status="recorded" if missing is None else "missing",
            text=f"{done}: {profile.samples_total} samples" if missing is None else missing,
            samples_total=profile.samples_total,
            symbols=profile.symbols(),
            folded_file=f"{FOLDER}/{FOLDED_FILE}" if missing is None else None,
        )

    async def _record(self, stage_at_ns: int) -> None:
        action = self._plan.stages[self._spec.stage].action
        from_ns = stage_at_ns + self._spec.after_ns
        to_ns = from_ns + self._spec.duration_ns
        if isinstance(action, PublishAction | HoldAction):
            to_ns = min(to_ns, stage_at_ns + action.duration_ns)
        await self._wait_until(from_ns)
        if from_ns >= to_ns or self._over.is_set():
            raise PerfError("the stage was over before the profile was to begin: lower after")
        await self._perf.start(self._spec.process)
        started_ns = time.monotonic_ns()
        try:
            await self._wait_until(to_ns)
        finally:
            await self._perf.stop()
        self._recorded_ns = time.monotonic_ns() - started_ns

    async def _wait_until(self, instant_ns: int) -> None:
        """Until an instant, or until the stage is over."""
        wait_ns = instant_ns - time.monotonic_ns()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(wait_ns, 0) / SECOND_NS):
                await self._over.wait()

    async def _guarded(self, step: Callable[[], Awaitable[None]]) -> None:
        """Takes a step, unless one before has failed; a failure is kept as words."""
        if self._missing is not None:
            return
        try:
            await step()
        except (PerfError, MonitorError) as error:
            self._missing = str(error)
        except (OSError, psutil.Error) as error:
            self._missing = f"perf could not be run: {error}"
