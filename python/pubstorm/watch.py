"""What is watched while a run goes on: every monitor read on one absolute schedule in a thread of
its own, the load beside it, all as samples on the time axis of the run. Nothing that a monitor does
ends or stalls the run. It knows no kind of monitor."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from pubstorm.live import Live
from pubstorm.metrics import RATES
from pubstorm.monitor import Monitor, MonitorError, Reading
from pubstorm.monitor.bridges import BridgeMonitor
from pubstorm.monitor.profiling import Profiler
from pubstorm.monitor.sys_topics import SysTopicsMonitor
from pubstorm.readings import Readings, Span
from pubstorm.result import MonitorGap, MonitorProblem, Observer, ProfileResult, Watched
from pubstorm.samples import Sample
from pubstorm.snapshot import Snapshot
from pubstorm.timeline import PUBLISHER_FIGURES, LoadTimeline

SECOND_NS = 10**9
STOP_GRACE_S = 3.0
"""How long monitors may take to let go."""
KEPT = frozenset({*RATES, *PUBLISHER_FIGURES})
"""Figures of populations and publishers that are summed up; all are stored."""
GAP_NS = 2 * SECOND_NS
"""Time by which a thread must wake too late for a gap in the readings."""
PROBLEMS_MAX = 100
"""Problems that are kept."""


def is_summed_up(sample: Sample) -> bool:
    """Returns True if the result sums up a sample of the load. Populations have too many."""
    return sample.source.startswith("agent-") or sample.metric in KEPT


class Watch:
    """Everything that is watched in one run."""

    def __init__(
        self,
        monitors: Sequence[Monitor],
        interval_ns: int,
        keep: Callable[[Sequence[Sample]], None],
        live: Live,
        profiler: Profiler | None = None,
    ) -> None:
        self._monitors = tuple(monitors)
        self._interval_ns = interval_ns
        self._keep = keep
        self._live = live
        self._profiler = profiler
        self._timeline: LoadTimeline | None = None
        self._readings = Readings()
        self._readers: list[_Reader] = []
        self._started_ns = 0
        self._problems: list[MonitorProblem] = []
        self._gaps: list[MonitorGap] = []
        self.profile: ProfileResult | None = None
        """What the profile found, once the run is over."""

    async def prepare(self) -> None:
        """Looks what can be watched, before the run begins."""
        if self._profiler is not None:
            await self._profiler.prepare()

    def begin(self, timeline: LoadTimeline, started_ns: int) -> None:
        """The run begins: readings are taken from now on."""
        self._timeline = timeline
        self._started_ns = started_ns
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
        """A stage begins."""
        if self._profiler is not None:
            self._profiler.enter_stage(index, at_ns)

    def take(self, snapshot: Snapshot) -> None:
        """An agent's snapshot has come."""
        if self._timeline is not None:
            self._add_load(self._timeline.take(snapshot))

    def lose(self, agent: int, at_ns: int) -> None:
        """An agent is lost, and its clients with it."""
        if self._timeline is not None:
            self._timeline.lose(agent, at_ns)

    async def end(self) -> None:
        """The run is over: the last readings are kept, nothing is watched any more."""
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
        if self._timeline is not None:
            self._add_load(self._timeline.finish())
        if self._profiler is not None:
            self.profile = await self._profiler.finish()

    def watched(self, spans: Sequence[Span], load: Sequence[Span]) -> tuple[Watched, ...]:
        """What was watched beside the clients, in short."""
        return self._readings.watched(spans, load)

    def observers(self) -> tuple[Observer, ...]:
        """The clients that only watch."""
        clients = (SysTopicsMonitor, BridgeMonitor)
        return tuple(m.observer() for m in self._monitors if isinstance(m, clients))

    @property
    def problems(self) -> tuple[MonitorProblem, ...]:
        """What could not be watched, each once."""
        return tuple(self._problems)

    @property
    def gaps(self) -> tuple[MonitorGap, ...]:
        """Times in which no thread of this process ran, in order."""
        return tuple(self._gaps)

    def _add_load(self, samples: Sequence[Sample]) -> None:
        self._keep(samples)
        self._readings.add(sample for sample in samples if is_summed_up(sample))

    def _outbox(self, loop: asyncio.AbstractEventLoop) -> _Outbox:
        """Hands what a reader has over to the loop; nothing happens once that is closed."""

        def hand_over(reader: _Reader, readings: Sequence[Reading], problem: str | None) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._accept, reader, readings, problem)

        return hand_over

    def _accept(self, reader: _Reader, readings: Sequence[Reading], problem: str | None) -> None:
        source = reader.monitor.source
        samples = [
            Sample(self._at_s(reading.at_ns), source, reading.metric, reading.value, reading.held)
            for reading in readings
        ]
        self._keep(samples)
        self._readings.add(samples)
        if problem is not None:
            self._note(source, time.monotonic_ns(), problem)

    def _add_gap(self, from_ns: int, to_ns: int) -> None:
        """Adds a gap, unless another reader has seen the same one."""
        gap = MonitorGap(from_s=self._at_s(from_ns), to_s=self._at_s(to_ns))
        if not self._gaps or self._gaps[-1].to_s <= gap.from_s:
            self._gaps.append(gap)

    def _note(self, source: str, at_ns: int, text: str) -> None:
        known = any((p.source, p.text) == (source, text) for p in self._problems)
        if not known and len(self._problems) < PROBLEMS_MAX:
            problem = MonitorProblem(source=source, at_s=self._at_s(at_ns), text=text)
            self._problems.append(problem)
            self._live.note(f"{source}: {text}")

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
        super().__init__(name=f"monitor {monitor.source}", daemon=True)
        self.monitor = monitor
        self.reading = False
        """Whether the monitor is at work."""
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
        except Exception as error:
            problem = f"failed unexpectedly: {type(error).__name__}: {error}"
        self.reading = False
        if readings or problem is not None:
            self._hand_over(self, readings, problem)


_Outbox = Callable[[_Reader, Sequence[Reading], str | None], None]
POLL_S = 0.01
"""How often it is looked whether the readers have ended."""
