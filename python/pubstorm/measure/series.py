"""The load of a run over time, filled once from the agents' snapshots. Counts are shared out by
overlap, gauges hold until the agent's next interval, and histograms are kept in slices of time."""

from __future__ import annotations

import marshal
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Literal

from pubstorm.contract.snapshot import ClockState, Snapshot, TargetSnapshot
from pubstorm.measure.slices import SliceKey, Slices

BLOCK = 64
"""Intervals that are compressed together: neighbours are alike."""

Gauge = Literal["connected", "ready", "in_flight", "backlog", "offline", "stalled"]
Count = Literal["sent", "acked", "received", "bytes_sent", "bytes_received"]
Row = tuple[Any, ...]
Step = tuple[float, int]
"""An instant, and a sum that holds from then on."""


@dataclass(frozen=True, slots=True)
class PopulationInterval:
    """One population in one interval of an agent: gauges at its end, counts of its whole length."""

    connected: int
    ready: int
    in_flight: int
    backlog: int
    offline: int
    stalled: int
    sent: int
    acked: int
    received: int
    bytes_sent: int
    bytes_received: int
    missing: int
    """Deliveries to it that were passed over, less late ones that filled such a gap."""
    latency_count: int
    """Deliveries to it and acknowledgements of its messages, together."""
    latency_sum_ns: int
    """Sum of their latencies from the intended send, in nanoseconds."""

    @classmethod
    def nothing(cls) -> PopulationInterval:
        """No client and no message."""
        return cls(*(0 for _ in fields(cls)))


@dataclass(frozen=True, slots=True)
class Interval:
    """One interval of an agent, as the time series keeps it."""

    agent: int
    sequence: int
    stage: int | None
    from_ns: int
    to_ns: int
    busy_ns: int
    populations: tuple[PopulationInterval, ...]
    connected_at: array[int] = field(default_factory=lambda: array("Q"))
    """Clients connected at the end, by target; targets beyond its length have none."""
    clock: ClockState | None = None
    """State of the agent's clock; None if its host has the reference clock."""
    starved_ns: int = 0
    """Time without a processor, in nanoseconds; 0 if the host gave the agent enough of them."""

    @property
    def starved(self) -> bool:
        """True if the host gave the agent too little of its processors."""
        return self.starved_ns > 0

    @property
    def connected(self) -> int:
        """Clients of all populations that were connected at the end."""
        return sum(population.connected for population in self.populations)

    def connected_to(self, targets: Iterable[int]) -> int:
        """Clients connected at some targets at the end."""
        reported = len(self.connected_at)
        return sum(self.connected_at[target] for target in targets if target < reported)

    def emptied(self, at_ns: int, stage: int) -> Interval:
        """An interval without length after this one, at whose end no client is connected."""
        nothing = tuple(PopulationInterval.nothing() for _ in self.populations)
        return Interval(self.agent, self.sequence + 1, stage, at_ns, at_ns, 0, nothing)

    def lies_inside(self, from_ns: int, to_ns: int) -> bool:
        """True if it lies wholly in a span, give or take a hundredth."""
        slack_ns = (self.to_ns - self.from_ns) // 100
        starts_inside = self.from_ns >= from_ns - slack_ns
        return starts_inside and from_ns < self.to_ns <= to_ns + slack_ns

    def row(self) -> Row:
        """All of it as plain numbers."""
        clock = None if self.clock is None else tuple(self.clock.model_dump().values())
        populations = tuple(map(_NUMBERS, self.populations))
        return *_HEAD(self), populations, self.connected_at.tobytes(), clock

    @classmethod
    def of_row(cls, row: Row) -> Interval:
        """The interval that a row was made of."""
        *head, populations, connected_at, clock = row
        state = None if clock is None else dict(zip(ClockState.model_fields, clock, strict=True))
        return cls(
            **dict(zip(_HEAD_FIELDS, head, strict=True)),
            populations=tuple(PopulationInterval(*numbers) for numbers in populations),
            connected_at=array("Q", connected_at),
            clock=None if state is None else ClockState.model_construct(**state),
        )

    @classmethod
    def of(cls, snapshot: Snapshot) -> Interval:
        """The part of a snapshot that the time series keeps."""
        received, missing = Counter[int](), Counter[int]()
        count, sum_ns = Counter[int](), Counter[int]()
        for flow in snapshot.flows:
            received[flow.to] += flow.counters.received_total
            missing[flow.to] += flow.counters.missing_total
            count[flow.to] += flow.latency_intended.count
            sum_ns[flow.to] += flow.latency_intended.sum_ns
        populations = (
            PopulationInterval(
                **dict(zip(GAUGES, _GAUGES(population.gauges), strict=True)),
                sent=population.counters.sent_total,
                acked=population.counters.acked_total,
                received=received[index],
                bytes_sent=population.counters.bytes_sent_total,
                bytes_received=population.counters.bytes_received_total,
                missing=missing[index],
                latency_count=count[index] + population.ack_intended.count,
                latency_sum_ns=sum_ns[index] + population.ack_intended.sum_ns,
            )
            for index, population in enumerate(snapshot.populations)
        )
        return cls(
            agent=snapshot.agent,
            sequence=snapshot.sequence,
            stage=snapshot.stage,
            from_ns=snapshot.from_ns,
            to_ns=snapshot.to_ns,
            busy_ns=snapshot.engine.busy_ns,
            populations=tuple(populations),
            connected_at=_connected_at(snapshot.targets),
            clock=snapshot.clock,
            starved_ns=(snapshot.engine.run_delay_ns or 0) if snapshot.starved else 0,
        )


GAUGES: tuple[Gauge, ...] = ("connected", "ready", "in_flight", "backlog", "offline", "stalled")
_GAUGES = attrgetter(*GAUGES)
_HEAD_FIELDS = ("agent", "sequence", "stage", "from_ns", "to_ns", "busy_ns", "starved_ns")
_HEAD = attrgetter(*_HEAD_FIELDS)
_NUMBERS = attrgetter(*(each.name for each in fields(PopulationInterval)))


class TimeSeries:
    """The load of all agents over time. Two are equal if they hold the same intervals."""

    def __init__(self, publishers: Collection[int] = ()) -> None:
        """`publishers` are agents under test: their load is not the generator's."""
        self.histograms = Slices()
        """Latency and lateness by stage and population."""
        self._publishers = publishers
        self._blocks: list[bytes] = []
        self._open: list[Row] = []
        self._latest: dict[int, Interval] = {}
        self._sorted: list[Interval] = []

    def __len__(self) -> int:
        return BLOCK * len(self._blocks) + len(self._open)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TimeSeries):
            return NotImplemented
        same = Counter(self._rows()) == Counter(other._rows())
        return same and self.histograms == other.histograms

    __hash__ = None  # type: ignore[assignment]

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Adds an interval of an agent."""
        self.add(Interval.of(snapshot))
        stage, to_ns, slices = snapshot.stage, snapshot.to_ns, self.histograms
        for index, population in enumerate(snapshot.populations):
            slices.add(SliceKey(stage, "acknowledgement", index), to_ns, population.ack_intended)
        for flow in snapshot.flows:
            slices.add(SliceKey(stage, "delivery", flow.to), to_ns, flow.latency_intended)
        if snapshot.agent not in self._publishers:
            slices.add(SliceKey(stage, "lateness"), to_ns, snapshot.engine.lateness)

    def add(self, interval: Interval) -> None:
        """Adds an interval without its histograms: about 100 bytes, compressed."""
        self._open.append(interval.row())
        if len(self._open) == BLOCK:
            self._blocks.append(zlib.compress(marshal.dumps(self._open), 1))
            self._open = []
        latest = self._latest.get(interval.agent, interval)
        self._latest[interval.agent] = max(latest, interval, key=lambda each: each.to_ns)

    def fail(self, agent: int, at_ns: int, stage: int) -> None:
        """Empties the gauges of an agent that failed, until its replacement reports."""
        latest = self._latest.get(agent)
        if latest is not None:
            self.add(latest.emptied(max(at_ns, latest.to_ns), stage))

    def intervals(self, stage: int | None = None) -> list[Interval]:
        """All intervals, or those of one stage, in the order of their ends."""
        # Intervals are only ever added.
        if len(self._sorted) != len(self):
            found = map(Interval.of_row, self._rows())
            self._sorted = sorted(found, key=lambda i: (i.to_ns, i.agent, i.sequence))
        return [i for i in self._sorted if i.stage == stage] if stage is not None else self._sorted

    def inside(self, stage: int, from_ns: int, to_ns: int) -> list[Interval]:
        """The intervals of a stage that lie wholly in a span, give or take a hundredth."""
        return [
            interval
            for interval in self.intervals(stage)
            if interval.from_ns < interval.to_ns and interval.lies_inside(from_ns, to_ns)
        ]

    def sums(self, value: Callable[[Interval], int]) -> list[Step]:
        """The sum over agents of a value that holds until the agent's next interval."""
        return list(steps((i.to_ns, i.agent, value(i)) for i in self.intervals()))

    def peak(self, populations: Collection[int], *gauges: Gauge) -> int:
        """The largest sum over agents, populations and gauges."""

        def value(interval: Interval) -> int:
            parts = (interval.populations[population] for population in populations)
            return sum(getattr(part, gauge) for part in parts for gauge in gauges)

        return _largest(self.sums(value))

    def connected_peak(self) -> int:
        """The most clients of the generator that were connected at once."""
        return _largest(self.sums(self._connected))

    def connected_at(self, instant_ns: int) -> int:
        """Clients of the generator that were connected at an instant."""
        before = [i for i in self.intervals() if i.to_ns <= instant_ns]
        return _last(steps((i.to_ns, i.agent, self._connected(i)) for i in before))

    def connected_peaks(self) -> dict[int, int]:
        """The most clients that were connected at once, by target."""
        sums = defaultdict[int, RunningSum](RunningSum)
        peaks = Counter[int]()
        latest: dict[int, array[int]] = {}
        for interval in self.intervals():
            now = interval.connected_at
            before = latest.get(interval.agent, array("Q"))
            latest[interval.agent] = now
            for target in range(max(len(before), len(now))):
                count = now[target] if target < len(now) else 0
                peaks[target] = max(peaks[target], sums[target].report(interval.agent, count))
        return peaks

    def at_end(self, stage: int, until_ns: int, populations: Collection[int], gauge: Gauge) -> int:
        """The sum over agents and populations of a gauge at the end of a stage. Later intervals of
        the stage are those of agents that end."""
        inside = (i for i in self.intervals(stage) if i.to_ns <= until_ns)
        return _last(
            steps(
                (i.to_ns, i.agent, sum(getattr(i.populations[p], gauge) for p in populations))
                for i in inside
            )
        )

    def _connected(self, interval: Interval) -> int:
        return 0 if interval.agent in self._publishers else interval.connected

    def _rows(self) -> Iterator[Row]:
        for block in self._blocks:
            yield from marshal.loads(zlib.decompress(block))
        yield from self._open


class RunningSum:
    """The sum over sources of the value that each reported last."""

    def __init__(self) -> None:
        self.total = 0
        self._latest = Counter[Hashable]()

    def report(self, source: Hashable, value: int) -> int:
        """Replaces the value of a source and returns the sum."""
        self.total += value - self._latest[source]
        self._latest[source] = value
        return self.total


def steps(values: Iterable[tuple[float, Hashable, int]]) -> Iterator[Step]:
    """Yields the running sum of values `(instant, source, value)` in the order of time. The values
    of one instant make one step."""
    running, at = RunningSum(), None
    for instant, source, value in values:
        if at is not None and instant != at:
            yield at, running.total
        at = instant
        running.report(source, value)
    if at is not None:
        yield at, running.total


def overlaps(span: tuple[int, int], origin: int, width: int) -> Iterator[tuple[int, int]]:
    """Yields the cells of a grid that a span overlaps: their numbers, and the overlaps. Cell 0
    begins at `origin`; a span before it overlaps cells with negative numbers."""
    start, end = span
    for cell in range((start - origin) // width, (end - 1 - origin) // width + 1):
        begin = origin + cell * width
        yield cell, min(begin + width, end) - max(begin, start)


def rate_per_s(intervals: Iterable[Interval], populations: Collection[int], count: Count) -> float:
    """Rate of populations over some intervals: the sum over agents of each agent's own."""
    counts = Counter[int]()
    spans_ns = Counter[int]()
    for interval in intervals:
        counts[interval.agent] += sum(getattr(interval.populations[p], count) for p in populations)
        spans_ns[interval.agent] += interval.to_ns - interval.from_ns
    return sum(1e9 * counts[agent] / span for agent, span in spans_ns.items() if span > 0)


def busy_share(intervals: Collection[Interval]) -> float:
    """Share of some intervals that an agent's loop was not waiting."""
    span_ns = sum(interval.to_ns - interval.from_ns for interval in intervals)
    return sum(i.busy_ns for i in intervals) / span_ns if span_ns > 0 else 0.0


def _largest(sums: Iterable[Step]) -> int:
    return max((total for _, total in sums), default=0)


def _last(sums: Iterable[Step]) -> int:
    found = list(sums)
    return found[-1][1] if found else 0


def _connected_at(targets: Iterable[TargetSnapshot]) -> array[int]:
    connected = {each.target: each.connected for each in targets}
    count = max(connected, default=-1) + 1
    return array("Q", (connected.get(target, 0) for target in range(count)))
