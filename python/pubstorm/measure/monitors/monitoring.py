"""Reads every monitor of a run on one absolute schedule, each in a thread of its own, and hands
over samples on the time axis of the run. Nothing that a monitor does ends or stalls the run."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pubstorm.contract import Sample, Source
from pubstorm.errors import PubstormError
from pubstorm.host.sockets import load_library
from pubstorm.measure.monitors import Monitor, MonitorError, Reading
from pubstorm.measure.monitors.host import BridgeMonitor
from pubstorm.measure.monitors.profiling import Profiler
from pubstorm.measure.monitors.sys_topics import SysTopicsMonitor
from pubstorm.output import name_of
from pubstorm.quantities import SECOND_NS
from pubstorm.result import MonitorGap, MonitorProblem, ObserverTraffic, ProfileResult
from pubstorm.result.samples import VALUE_MAX, is_in_range

STOP_GRACE_S = 3.0
"""Longest time for all monitors to stop."""
GAP_NS = 2 * SECOND_NS
"""Time by which a thread must wake too late for a gap in the readings."""
NAME_CHARS_MAX = 4096
"""Longest name of a metric."""
PROBLEMS_MAX = 100
"""Problems that are kept."""


@dataclass(frozen=True)
class Monitored:
    """Findings of the monitors of a run beside their samples."""

    observers: tuple[ObserverTraffic, ...] = ()
    """Clients that only observe."""
    problems: tuple[MonitorProblem, ...] = ()
    """Problems of the monitors, each once."""
    gaps: tuple[MonitorGap, ...] = ()
    """Times in which no thread of the controller ran, in order."""
    profile: ProfileResult | None = None
    """The profile of a broker; None if none was made."""


class Monitoring:
    """All monitors of one run."""

    def __init__(
        self,
        monitors: Sequence[Monitor],
        interval_ns: int,
        warn: Callable[[str], None],
        profiler: Profiler | None = None,
    ) -> None:
        self._monitors = tuple(monitors)
        self._interval_ns = interval_ns
        self._warn = warn
        self._profiler = profiler
        self._add: Callable[[Sequence[Sample]], None] = lambda _: None
        self._readers: list[_Reader] = []
        self._started_ns = 0
        self._problems: list[MonitorProblem] = []
        self._gaps: list[MonitorGap] = []
        self._profile: ProfileResult | None = None

    async def prepare(self) -> None:
        """Checks that the profiler can work, before the run, and loads what first readings need: on
        a busy host, that takes longer than an interval."""
        if self._monitors:
            await asyncio.to_thread(load_library)
        if self._profiler is not None:
            await self._profiler.prepare()

    def begin(self, started_ns: int, add: Callable[[Sequence[Sample]], None]) -> None:
        """Reads the monitors from now on; `add` gets their samples."""
        self._started_ns = started_ns
        self._add = add
        loop = asyncio.get_running_loop()
        outbox = self._outbox(loop)

        def on_gap(from_ns: int, to_ns: int) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._add_gap, from_ns, to_ns)

        self._readers = [_Reader(m, self._interval_ns, outbox, on_gap) for m in self._monitors]
        for reader in self._readers:
            try:
                reader.start()
            except RuntimeError as error:
                self._note(reader.monitor.source, started_ns, f"is not watched: {error}")

    def enter_stage(self, index: int, at_ns: int) -> None:
        """Begins the profile of a stage, if there is one."""
        if self._profiler is not None:
            self._profiler.enter_stage(index, at_ns)

    async def end(self) -> None:
        """Takes the last samples and stops all monitors."""
        for reader in self._readers:
            reader.stop()
        deadline_s = time.monotonic() + STOP_GRACE_S
        while any(reader.is_alive() for reader in self._readers):
            if time.monotonic() >= deadline_s:
                break
            await asyncio.sleep(POLL_S)
        await asyncio.sleep(0)
        for reader in self._readers:
            if reader.is_alive() and reader.reading:
                text = f"did not answer for {STOP_GRACE_S:.0f} s at the end of the run"
                self._note(reader.monitor.source, time.monotonic_ns(), text)
        if self._profiler is not None:
            self._profile = await self._profiler.finish()

    def found(self) -> Monitored:
        """Returns what the monitors found, once they have ended."""
        clients = (SysTopicsMonitor, BridgeMonitor)
        observers = tuple(m.observer() for m in self._monitors if isinstance(m, clients))
        return Monitored(observers, tuple(self._problems), tuple(self._gaps), self._profile)

    def _outbox(self, loop: asyncio.AbstractEventLoop) -> _Outbox:
        """Hands what a reader has over to the loop; nothing happens once that is closed."""

        def hand_over(reader: _Reader, readings: Sequence[Reading], problem: str | None) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._accept, reader, readings, problem)

        return hand_over

    def _accept(self, reader: _Reader, readings: Sequence[Reading], problem: str | None) -> None:
        source = reader.monitor.source
        samples = []
        for each in readings:
            at_s, metric = self._at_s(each.at_ns), name_of(each.metric)
            if len(metric) > NAME_CHARS_MAX:
                text = f"metrics with names of more than {NAME_CHARS_MAX} characters are left out"
                self._note(source, time.monotonic_ns(), text)
            elif is_in_range(at_s, each.value):
                samples.append(Sample(source, metric, at_s, each.value, each.held))
            else:
                text = f"{metric} is left out where it is no number below {VALUE_MAX:g}"
                self._note(source, time.monotonic_ns(), text)
        self._add(samples)
        if problem is not None:
            self._note(source, time.monotonic_ns(), problem)

    def _add_gap(self, from_ns: int, to_ns: int) -> None:
        """Adds a gap, unless another reader has seen the same one."""
        gap = MonitorGap(from_s=self._at_s(from_ns), to_s=self._at_s(to_ns))
        if not self._gaps or self._gaps[-1].to_s <= gap.from_s:
            self._gaps.append(gap)

    def _note(self, source: Source, at_ns: int, text: str) -> None:
        known = any((p.source, p.text) == (source.name, text) for p in self._problems)
        if not known and len(self._problems) < PROBLEMS_MAX:
            problem = MonitorProblem(
                source=source.name, group=source.group, at_s=self._at_s(at_ns), text=text
            )
            self._problems.append(problem)
            self._warn(f"{source.name}: {text}")

    def _at_s(self, at_ns: int) -> float:
        return round(max(at_ns - self._started_ns, 0) / SECOND_NS, 3)


class _Reader(threading.Thread):
    """Reads one monitor until it is stopped. A daemon: one that hangs holds up no exit."""

    def __init__(
        self,
        monitor: Monitor,
        interval_ns: int,
        hand_over: _Outbox,
        on_gap: Callable[[int, int], None],
    ) -> None:
        super().__init__(name=f"monitor {monitor.source.name}", daemon=True)
        self.monitor = monitor
        self.reading = False
        """True while the monitor works."""
        self._interval_ns = interval_ns
        self._hand_over = hand_over
        self._on_gap = on_gap
        self._stopping = threading.Event()
        self._started_ns = time.monotonic_ns()

    def run(self) -> None:
        """Starts the monitor, reads it at each instant of the schedule, stops it."""
        self._take(self.monitor.start)
        while not self._waited(left_s := self._until_next_s()):
            self._take(self.monitor.read)
        # Shares and rates of a much shorter time would say little.
        if self._until_next_s() < left_s / 2:
            self._take(self.monitor.read)
        self._take(self.monitor.stop)

    def stop(self) -> None:
        """After the reading that it is at, one more where half the interval is over, then the
        end."""
        self._stopping.set()

    def _waited(self, for_s: float) -> bool:
        """Waits; whether the end came meanwhile. A thread that wakes much too late did not run."""
        due_ns = time.monotonic_ns() + round(for_s * SECOND_NS)
        is_over = self._stopping.wait(for_s)
        now_ns = time.monotonic_ns()
        if now_ns - due_ns >= GAP_NS:
            self._on_gap(due_ns, now_ns)
        return is_over

    def _until_next_s(self) -> float:
        """Until the next instant of the schedule; those that were missed are left out."""
        passed_ns = time.monotonic_ns() - self._started_ns
        return (self._interval_ns - passed_ns % self._interval_ns) / SECOND_NS

    def _take(self, step: Callable[[], Iterable[Reading] | None]) -> None:
        """Takes a step; what it read counts, however it ends."""
        readings: list[Reading] = []
        problem: str | None = None
        self.reading = True
        try:
            for reading in step() or ():
                readings.append(reading)
        except MonitorError as error:
            problem = str(error)
        except PubstormError as error:
            problem = error.message
        except Exception as error:
            problem = f"failed unexpectedly: {type(error).__name__}: {error}"
        self.reading = False
        if readings or problem is not None:
            self._hand_over(self, readings, problem)


_Outbox = Callable[[_Reader, Sequence[Reading], str | None], None]
POLL_S = 0.001
"""Polling interval while the readers end."""
