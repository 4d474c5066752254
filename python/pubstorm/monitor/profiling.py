"""The profile that a scenario asks for: which process, from when to when, and what came of it. It
knows stages by number only."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import psutil

from pubstorm.monitor import MonitorError
from pubstorm.monitor.perf import FOLDED_FILE, Perf, PerfError, Profile
from pubstorm.monitor.process import PidNow, find
from pubstorm.plan import HoldAction, Plan, PublishAction
from pubstorm.result import ProfileResult
from pubstorm.scenario.monitors import Process

SECOND_NS = 10**9
FOLDER = "profile"
"""Folder of the profile in the run directory."""


@dataclass(frozen=True)
class ProfileSpec:
    """What is to be profiled."""

    broker: str
    """Its name."""
    process: Process | PidNow
    """Where its process is found."""
    stage: int
    """Index of the stage."""
    after_ns: int
    """When it begins, after the start of the stage."""
    duration_ns: int
    """How long, at most until the load of the stage ends."""
    frequency: int
    """Samples a second."""


class Profiler:
    """Profiles one process in one stage. Whatever goes wrong ends in the result."""

    def __init__(self, spec: ProfileSpec, plan: Plan, perf: Perf) -> None:
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
        """Ends the recording, if it still goes on, and reads it."""
        self._over.set()
        profile = Profile()
        if self._recording is not None:
            await self._recording

            async def read() -> None:
                nonlocal profile
                profile = await self._perf.profile()

            await self._guarded(read)
        return self._result(profile)

    def _result(self, profile: Profile) -> ProfileResult:
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
        await self._perf.start(find(self._spec.process).pid)
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
            await asyncio.wait_for(self._over.wait(), max(wait_ns, 0) / SECOND_NS)

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
