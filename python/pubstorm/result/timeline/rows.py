"""Rows of the timeline: one interval of one agent, as the agent cut it, or several that were
merged. Older rows are packed in columns, since neighbours are alike."""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import add, attrgetter
from typing import Any, Literal, get_args

from pubstorm.contract.snapshot import ClockState, Snapshot, TargetSnapshot
from pubstorm.result.measures import Rates

Gauge = Literal["connected", "ready", "in_flight", "backlog", "offline", "stalled"]
Count = Literal[
    "sent",
    "acked",
    "received",
    "foreign",
    "skipped",
    "bytes_sent",
    "bytes_received",
    "missing",
    "latency_count",
    "latency_sum_ns",
]
"""`missing` are deliveries that were passed over, less late ones that filled such a gap. Latencies
are those of deliveries and of acknowledgements together, from the intended send."""
GAUGES: tuple[Gauge, ...] = get_args(Gauge)
COUNTS: tuple[Count, ...] = get_args(Count)
_RATES: Mapping[str, Count] = {
    name: count for count in COUNTS if (name := f"{count}_per_s") in Rates.model_fields
}
LARGEST = 2**63 - 1
"""Largest number that a row holds; a larger one counts as this."""


def _array() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Row:
    """One interval of an agent, or several that were merged: gauges at its end, counts of its whole
    length. Numbers of populations lie in columns: all populations of the first gauge or count, then
    of the next."""

    agent: int
    sequence: int
    stage: int | None
    from_ns: int
    to_ns: int
    gauges: array[int] = field(default_factory=_array)
    counts: array[int] = field(default_factory=_array)
    targets: array[int] = field(default_factory=_array)
    """Clients connected at the end, by target; targets beyond its length have none."""
    busy_ns: int = 0
    """Time the agent's loop was not waiting."""
    cpu_ns: int = 0
    """CPU time of the agent."""
    run_delay_ns: int | None = None
    """Time without a processor; None if the agent does not know."""
    starved_ns: int = 0
    """Time without a processor; 0 if the host gave the agent enough of them."""
    rss_bytes: int = 0
    """Resident memory of the agent at the end."""
    clock: ClockState | None = None
    """State of the agent's clock; None if its host has the reference clock."""
    starved: int = 0
    """Intervals in which the host gave the agent too little of its processors."""
    merged: int = 1
    """Number of intervals."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Row:
        """Returns the row of a snapshot."""
        received, missing = Counter[int](), Counter[int]()
        count, sum_ns = Counter[int](), Counter[int]()
        for flow in snapshot.flows:
            received[flow.to] += flow.counters.received_total
            missing[flow.to] += flow.counters.missing_total
            count[flow.to] += flow.latency_intended.count
            sum_ns[flow.to] += flow.latency_intended.sum_ns
        counts = (
            (
                *_SENT(population.counters),
                received[index],
                *_SKIPPED(population.counters),
                missing[index],
                count[index] + population.ack_intended.count,
                sum_ns[index] + population.ack_intended.sum_ns,
            )
            for index, population in enumerate(snapshot.populations)
        )
        load = snapshot.engine
        return cls(
            snapshot.agent,
            snapshot.sequence,
            snapshot.stage,
            snapshot.from_ns,
            snapshot.to_ns,
            _columns(_GAUGES(population.gauges) for population in snapshot.populations),
            _columns(counts),
            _connected_at(snapshot.targets),
            load.busy_ns,
            load.cpu_ns,
            load.run_delay_ns,
            (load.run_delay_ns or 0) if snapshot.starved else 0,
            load.rss_bytes,
            snapshot.clock,
            int(snapshot.starved),
        )

    def emptied(self, at_ns: int, stage: int | None) -> Row:
        """Returns a row without length after this one, at whose end no client is connected."""
        nothing = array("q", bytes(8 * len(self.gauges))), array("q", bytes(8 * len(self.counts)))
        at_ns = max(at_ns, self.to_ns)
        return Row(self.agent, self.sequence + 1, stage, at_ns, at_ns, *nothing)

    def merged_with(self, following: Row) -> Row:
        """Returns the sum with the row that follows: counts add up, gauges are the later ones."""
        delays_ns = [r.run_delay_ns for r in (self, following) if r.run_delay_ns is not None]
        clock = following.clock or self.clock
        if self.clock is not None and following.clock is not None:
            clock = self.clock.merged_with(following.clock)
        return replace(
            following,
            from_ns=self.from_ns,
            counts=_added(self.counts, following.counts),
            busy_ns=self.busy_ns + following.busy_ns,
            cpu_ns=self.cpu_ns + following.cpu_ns,
            run_delay_ns=sum(delays_ns) if delays_ns else None,
            starved_ns=self.starved_ns + following.starved_ns,
            rss_bytes=max(self.rss_bytes, following.rss_bytes),
            clock=clock,
            starved=self.starved + following.starved,
            merged=self.merged + following.merged,
        )

    @property
    def populations(self) -> int:
        """Number of populations."""
        return len(self.gauges) // len(GAUGES)

    @property
    def length_ns(self) -> int:
        """Length of the interval; below 0 if the clock of another host stepped back."""
        return self.to_ns - self.from_ns

    @property
    def busy_share(self) -> float:
        """Share of the interval that the agent's loop was not waiting."""
        return self.busy_ns / self.length_ns if self.length_ns > 0 else 0.0

    @property
    def connected(self) -> int:
        """Clients of all populations that were connected at the end."""
        return sum(self.gauges[: self.populations])

    def column(self, name: Gauge | Count) -> array[int]:
        """Returns a gauge or count of each population."""
        numbers, first = self.gauges if name in GAUGES else self.counts, _PLACES[name]
        return numbers[first * self.populations : (first + 1) * self.populations]

    def gauge(self, name: Gauge, populations: Iterable[int]) -> int:
        """Returns the sum of a gauge over populations."""
        first = _PLACES[name] * self.populations
        return sum(self.gauges[first + population] for population in populations)

    def count(self, name: Count, populations: Iterable[int]) -> int:
        """Returns the sum of a count over populations."""
        return total(self.counts, name, populations)

    def connected_to(self, targets: Iterable[int]) -> int:
        """Clients connected at some targets at the end."""
        reported = len(self.targets)
        return sum(self.targets[target] for target in targets if target < reported)

    def lies_inside(self, from_ns: int, to_ns: int) -> bool:
        """True if it lies wholly in a span, give or take a hundredth."""
        slack_ns = self.length_ns // 100
        starts_inside = self.from_ns >= from_ns - slack_ns
        return starts_inside and from_ns < self.to_ns <= to_ns + slack_ns

    def shares(self, origin_ns: int, width_ns: int, cells: int) -> Iterator[tuple[int, float]]:
        """Yields the cells of a grid from `origin_ns` on that the row overlaps, each with its share
        of the row; none if it has no length. The grid has `cells` of them."""
        if self.length_ns <= 0:
            return
        first = max((self.from_ns - origin_ns) // width_ns, 0)
        end = min((self.to_ns - 1 - origin_ns) // width_ns + 1, cells)
        for cell in range(first, end):
            begin_ns = origin_ns + cell * width_ns
            overlap_ns = min(begin_ns + width_ns, self.to_ns) - max(begin_ns, self.from_ns)
            yield cell, overlap_ns / self.length_ns


@dataclass(slots=True)
class Activity:
    """The sum of some rows of an agent."""

    length_ns: int = 0
    busy_ns: int = 0
    intervals: int = 0
    busy: int = 0
    """Intervals in which the loop was busy for more than the limit: all of a row, or none."""
    starved: int = 0
    """Intervals in which the host gave the agent too little of its processors."""
    busy_starved: int = 0
    """Intervals that were both."""
    starved_ns: int = 0
    """Time without a processor in starved intervals."""
    counts: array[int] = field(default_factory=_array)

    def add(self, row: Row, busy_limit: float = 1.0) -> Activity:
        """Adds a row; `busy_limit` is the share of time above which a loop is busy."""
        busy, starved = (row.merged, row.starved) if row.busy_share > busy_limit else (0, 0)
        times = row.length_ns, row.busy_ns
        counted = row.merged, busy, row.starved, starved
        return self.merge(Activity(*times, *counted, row.starved_ns, row.counts))

    def merge(self, other: Activity) -> Activity:
        """Adds the sum of other rows of the agent."""
        self.length_ns += other.length_ns
        self.busy_ns += other.busy_ns
        self.intervals += other.intervals
        self.busy += other.busy
        self.starved += other.starved
        self.busy_starved += other.busy_starved
        self.starved_ns += other.starved_ns
        self.counts = _added(self.counts, other.counts)
        return self

    @property
    def busy_share(self) -> float:
        """Share of the rows that the agent's loop was not waiting."""
        return self.busy_ns / self.length_ns if self.length_ns > 0 else 0.0

    @property
    def starved_share(self) -> float:
        """Share of the rows for which the host gave the agent no processor."""
        return self.starved_ns / self.length_ns if self.length_ns > 0 else 0.0

    def per_s(self, name: Count, populations: Iterable[int]) -> float:
        """Returns the rate of a count of populations."""
        if self.length_ns <= 0:
            return 0.0
        return 1e9 * total(self.counts, name, populations) / self.length_ns


Activities = dict[int, Activity]
"""Sums of rows by agent."""


def activities(rows: Iterable[Row], busy_limit: float = 1.0) -> Activities:
    """Returns the sum of each agent's rows."""
    found: Activities = {}
    for row in rows:
        found.setdefault(row.agent, Activity()).add(row, busy_limit)
    return found


def rates_of(active: Collection[Activity], populations: Sequence[int]) -> Rates:
    """Returns the rates of populations: the sums over agents of each agent's own."""
    return Rates(
        **{
            name: sum(activity.per_s(count, populations) for activity in active)
            for name, count in _RATES.items()
        }
    )


def total(counts: array[int], name: Count, populations: Iterable[int]) -> int:
    """Returns the sum of a count over populations; 0 if nothing was counted."""
    if not counts:
        return 0
    first = _PLACES[name] * (len(counts) // len(COUNTS))
    return sum(counts[first + population] for population in populations)


@dataclass(frozen=True, slots=True)
class Block:
    """Packed rows of one agent, in the order of their ends."""

    agent: int
    rows: int
    populations: int
    from_ns: int
    """Start of the earliest row."""
    first_ns: int
    """End of the first row."""
    to_ns: int
    """End of the last row."""
    stages: frozenset[int | None]
    packed: bytes

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Block:
        """Packs rows of one agent, in the order of their ends."""
        targets = max(len(row.targets) for row in rows)
        columns = chain.from_iterable(zip(*(_numbers(row, targets) for row in rows), strict=True))
        return cls(
            rows[0].agent,
            len(rows),
            rows[0].populations,
            min(row.from_ns for row in rows),
            rows[0].to_ns,
            rows[-1].to_ns,
            frozenset(row.stage for row in rows),
            packed(array("q", columns)),
        )

    def unpacked(self) -> Iterator[Row]:
        """Yields the rows."""
        numbers = unpacked(self.packed)
        for place in range(self.rows):
            yield _row(self.agent, numbers[place :: self.rows], self.populations)


_GAUGES = attrgetter(*GAUGES)
_SENT = attrgetter("sent_total", "acked_total")
_SKIPPED = attrgetter("foreign_total", "skipped_total", "bytes_sent_total", "bytes_received_total")
_PLACES = {name: place for names in (GAUGES, COUNTS) for place, name in enumerate(names)}
_CLOCK = attrgetter(*ClockState.model_fields)
_NO_CLOCK = (0,) * len(ClockState.model_fields)
_NOTHING = -1
"""Stands for None in packed rows."""
_HEAD = 11
_FIRST_GAUGE = _HEAD + 1 + len(_NO_CLOCK)


def _numbers(row: Row, targets: int) -> array[int]:
    """Returns a row as numbers, with room for so many targets."""
    head = (
        row.sequence,
        _NOTHING if row.stage is None else row.stage,
        row.from_ns,
        row.to_ns,
        row.busy_ns,
        row.cpu_ns,
        _NOTHING if row.run_delay_ns is None else row.run_delay_ns,
        row.starved_ns,
        row.rss_bytes,
        row.starved,
        row.merged,
    )
    clock = (0, *_NO_CLOCK) if row.clock is None else (1, *_CLOCK(row.clock))
    rest = array("q", bytes(8 * (targets - len(row.targets))))
    return bounded((*head, *clock)) + row.gauges + row.counts + row.targets + rest


def _row(agent: int, numbers: array[int], populations: int) -> Row:
    sequence, stage, from_ns, to_ns, busy_ns, cpu_ns, delay_ns, *rest = numbers[:_HEAD]
    starved_ns, rss_bytes, starved, merged = rest
    clock = None
    if numbers[_HEAD]:
        places = numbers[_HEAD + 1 : _FIRST_GAUGE]
        values: dict[str, Any] = dict(zip(ClockState.model_fields, places, strict=True))
        clock = ClockState.model_construct(**values)
    counts = _FIRST_GAUGE + len(GAUGES) * populations
    targets = counts + len(COUNTS) * populations
    return Row(
        agent,
        sequence,
        None if stage == _NOTHING else stage,
        from_ns,
        to_ns,
        numbers[_FIRST_GAUGE:counts],
        numbers[counts:targets],
        numbers[targets:],
        busy_ns,
        cpu_ns,
        None if delay_ns == _NOTHING else delay_ns,
        starved_ns,
        rss_bytes,
        clock,
        starved,
        merged,
    )


def packed(numbers: array[int]) -> bytes:
    """Compresses numbers: first the lowest bytes of all, then the next, since high bytes are
    alike."""
    plain = numbers.tobytes()
    return zlib.compress(b"".join(plain[place::8] for place in range(8)), 1)


def unpacked(found: bytes) -> array[int]:
    """Returns numbers that were packed."""
    plain = zlib.decompress(found)
    count, numbers = len(plain) // 8, bytearray(len(plain))
    for place in range(8):
        numbers[place::8] = plain[place * count : (place + 1) * count]
    return array("q", bytes(numbers))


def _columns(lines: Iterable[tuple[int, ...]]) -> array[int]:
    return bounded(tuple(chain.from_iterable(zip(*lines, strict=True))))


def bounded(numbers: Sequence[int]) -> array[int]:
    """Returns numbers as an array; those that are too large for it as the largest."""
    try:
        return array("q", numbers)
    except OverflowError:
        return array("q", (max(min(number, LARGEST), -LARGEST) for number in numbers))


def _added(some: array[int], more: array[int]) -> array[int]:
    if not some or not more:
        return some or more
    return bounded(tuple(map(add, some, more)))


def _connected_at(targets: Iterable[TargetSnapshot]) -> array[int]:
    connected = {each.target: each.connected for each in targets}
    count = max(connected, default=-1) + 1
    return bounded(tuple(connected.get(target, 0) for target in range(count)))
