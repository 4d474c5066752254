"""`perf record` of one process in a stage: its symbols and its stacks, or the reason why there are
none."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from asyncio.subprocess import Process as Child
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pubstorm.host.children import signal_child
from pubstorm.host.ends import killed
from pubstorm.host.log_tail import last_lines, open_log
from pubstorm.measure.monitors.process import PidNow, find
from pubstorm.result import ProfiledSymbol
from pubstorm.scenario.monitors import Process

DATA_FILE = "perf.data"
FOLDED_FILE = "folded.txt"
LOG_FILE = "perf.log"
SYMBOLS_MAX = 40
"""Symbols that the result names."""
PROBE_TIMEOUT_S = 5.0
END_TIMEOUT_S = 10.0
"""Longest time for perf to write its recording."""
SCRIPT_TIMEOUT_S = 60.0
"""Longest time for perf to name the functions."""


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
    deadline_s = SCRIPT_TIMEOUT_S if "script" in command else PROBE_TIMEOUT_S
    try:
        async with asyncio.timeout(deadline_s):
            output, errors = await process.communicate()
    except TimeoutError:
        signal_child(process, signal.SIGKILL)
        await killed(process)
        raise PerfError(f"perf did not end in {deadline_s:.0f} s") from None
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
