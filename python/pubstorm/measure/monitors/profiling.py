"""The profile that a scenario asks for: one process, in one span of a stage. `perf record` of one
process in a stage: its symbols and its stacks, or the reason why there are none."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from asyncio.subprocess import Process as Child
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from pubstorm.contract.plan import HoldAction, Plan, PublishAction
from pubstorm.host.children import signal_child
from pubstorm.host.ends import killed
from pubstorm.host.machine import last_lines, open_log
from pubstorm.measure.monitors import MonitorError
from pubstorm.measure.monitors.process import PidNow, find
from pubstorm.quantities import SECOND_NS
from pubstorm.result import ProfiledSymbol, ProfileResult
from pubstorm.scenario.monitors import Process

DATA_FILE = "perf.data"
FOLDED_FILE = "folded.txt"
LOG_FILE = "perf.log"
SYMBOLS_MAX = 40
"""Symbols that the result names."""
END_TIMEOUT_S = 10.0
"""Longest time for perf to write its recording."""
PERF_TIMEOUT_S = 60.0
"""Longest time for perf to count an event, or to name the functions, on a host under load."""


class PerfError(Exception):
    """No profile can be made: the reason, and the remedy."""


@dataclass
class StackProfile:
    """Samples of a process, by function and by stack."""

    samples_total: int = 0
    functions: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Samples by command, module and symbol of the innermost function."""
    stacks: Counter[str] = field(default_factory=Counter)
    """Samples by stack, outermost function first: `command;a;b`."""

    def symbols(self) -> tuple[ProfiledSymbol, ...]:
        """The functions with the largest shares, largest first."""
        return tuple(
            ProfiledSymbol(
                share=round(count / self.samples_total, 4),
                command=command,
                module=module,
                symbol=symbol,
            )
            for (command, module, symbol), count in self.functions.most_common(SYMBOLS_MAX)
        )

    def store(self, folder: Path) -> None:
        """Writes the stacks to a folder, if there is room."""
        with contextlib.suppress(OSError):
            (folder / FOLDED_FILE).write_text(self.folded())

    def folded(self) -> str:
        """The stacks as text, as flame graphs are drawn from: `a;b;c count` on each line."""
        return "".join(f"{stack} {count}\n" for stack, count in sorted(self.stacks.items()))


class Perf:
    """One recording, in a folder of its own."""

    def __init__(self, folder: Path, frequency: int, prefix: Sequence[str]) -> None:
        self._folder = folder
        self._frequency = frequency
        self._prefix = tuple(prefix)
        self._program = ""
        self._event = ""
        self._process: Child | None = None

    async def prepare(self) -> None:
        """Finds perf and an event that this machine counts. Raises PerfError if perf may not
        count."""
        program = shutil.which("perf")
        if program is None:
            raise PerfError("perf is not installed: apt-get install linux-perf")
        self._program = program
        counted = await _output(program, "stat", "-x,", "-e", "cycles", "--", "true")
        if reason := _reason_in(counted):
            raise PerfError(reason)
        # A virtual machine may have no counter of cycles.
        self._event = "cycles" if re.match(r"[1-9]\d*,", counted) else "cpu-clock"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PerfError(f"cannot write {self._folder}: {error.strerror}") from error

    async def start(self, process: Process | PidNow) -> None:
        """Begins to record a process."""
        pid = find(process).pid
        options = ("-e", self._event, "-F", str(self._frequency), "-g", "-p", str(pid))
        command = (self._program, "record", *options, "-o", str(self._data))
        with open_log(self._log) as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._prefix,
                *command,
                stdin=DEVNULL,
                stdout=log or DEVNULL,
                stderr=STDOUT if log else DEVNULL,
                start_new_session=True,
            )

    async def stop(self) -> None:
        """Ends the recording; what was recorded is on disk."""
        process = self._process
        if process is None:
            return
        signal_child(process, signal.SIGINT)
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            signal_child(process, signal.SIGKILL)
            await killed(process)

    async def profile(self) -> StackProfile:
        """Stops the recording and returns it; also writes it as folded stacks."""
        words = last_lines(self._log)
        if not self._data.exists() or not self._data.stat().st_size:
            raise PerfError(explained(words))
        # Looking for inlined functions can take minutes.
        options = ("--no-inline", "-F", "comm,ip,sym,dso")
        text = await _output(self._program, "script", "-i", str(self._data), *options)
        profile = parse_script(text.splitlines())
        if not profile.samples_total:
            raise PerfError(f"perf took no sample: the process was idle, or it ended; {words}")
        profile.store(self._folder)
        return profile

    @property
    def event(self) -> str:
        """Event that perf samples by."""
        return self._event

    @property
    def _data(self) -> Path:
        return self._folder / DATA_FILE

    @property
    def _log(self) -> Path:
        return self._folder / LOG_FILE


def explained(words: str) -> str:
    """Why perf recorded nothing, from its last words, and what to do."""
    return _reason_in(words) or f"perf recorded nothing: {words or 'it said nothing'}"


def _reason_in(words: str) -> str | None:
    return next((text for part, text in _REASONS if part in words.lower()), None)


def parse_script(lines: Iterable[str]) -> StackProfile:
    """The samples in the output of `perf script -F comm,ip,sym,dso`."""
    profile = StackProfile()
    for command, frames in _samples(lines):
        module, symbol = frames[0]
        profile.samples_total += 1
        profile.functions[command, module, symbol] += 1
        names = (command, *(name for _, name in reversed(frames)))
        profile.stacks[";".join(name.replace(";", ":") for name in names)] += 1
    return profile


def _samples(lines: Iterable[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Each sample's command and its frames as module and symbol, innermost first."""
    command, frames = "", list[tuple[str, str]]()
    for line in (*lines, ""):
        found = _FRAME.fullmatch(line)
        if found:
            module, symbol = found["module"], found["symbol"]
            unnamed = symbol == "[unknown]" and not module.startswith("[")
            frames.append((module, f"[{Path(module).name}]" if unnamed else symbol))
        elif line.strip():
            command = line.strip()
        elif frames:
            yield command, frames
            frames = []


async def _output(*command: str) -> str:
    """Returns both streams of a short-lived command, as far as they came until its deadline."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    try:
        async with asyncio.timeout(PERF_TIMEOUT_S):
            output, errors = await process.communicate()
    except TimeoutError:
        signal_child(process, signal.SIGKILL)
        await killed(process)
        raise PerfError(f"perf did not end in {PERF_TIMEOUT_S:.0f} s") from None
    return (output or errors).decode(errors="replace")


_FRAME = re.compile(r"\s+[0-9a-f]+ (?P<symbol>.*) \((?P<module>[^()]*(?:\(deleted\))?)\)\s*")

_NOT_ALLOWED = (
    "perf is not allowed for this user: run as root, or sysctl kernel.perf_event_paranoid=1 and "
    "profile a broker that the run starts"
)
_REASONS = (
    ("perf_event_paranoid", _NOT_ALLOWED),
    ("permission", _NOT_ALLOWED),
    ("no such process", "the process had ended before perf could record it"),
)


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
