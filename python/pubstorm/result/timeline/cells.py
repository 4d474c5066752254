"""Histograms and readings over time, in cells of a grid from the start of the run. An interval
belongs to the cell of its middle. Old cells are merged into minutes, and then into hours: sums and
statistics stay exact, and a few readings of each cell stay as points."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from typing import Any, Final, Generic, TypeAlias, TypeVar

from pubstorm.contract.histogram import NOTHING, Histogram, HistogramSum
from pubstorm.contract.snapshot import Snapshot
from pubstorm.metrics.charts import lines_of
from pubstorm.result.timeline.lane import HOUR_NS, MINUTE_NS, Edges
from pubstorm.result.timeline.rows import bounded, packed, unpacked

GROWING = 3
"""The latest cells, which are not packed: intervals of late agents belong to them."""

OWN_MAX = 60_000
"""Histograms of single cells that are kept before they become minutes: 30 MB of half a kB each."""
MINUTES_MAX = 20_000
"""Histograms of minutes that are kept, before they become hours."""
CELLS_MIN = 100
"""Cells of each length that are kept in any case."""

K = TypeVar("K")
Measure: TypeAlias = str
"""`delivery`, `acknowledgement`, `round trip`, `lateness`, or a phase of connecting."""
CONNECT_MEASURES: tuple[Measure, ...] = tuple(
    line.metric.name for line in lines_of("page", "connecting")
)
"""Phases of connecting, with the names of their histograms in a snapshot."""


@dataclass(frozen=True, slots=True)
class HistogramKey:
    """One histogram over time."""

    stage: int | None
    measure: Measure
    population: int = 0
    """Index of the population; 0 for lateness, which is the generator's."""


def over_time(
    snapshot: Snapshot, publishers: Collection[int]
) -> Iterator[tuple[HistogramKey, Histogram]]:
    """Yields the histograms of a snapshot that are kept over time; `publishers` are agents under
    test, whose lateness is not the generator's."""
    stage = snapshot.stage
    for index, population in enumerate(snapshot.populations):
        yield HistogramKey(stage, "acknowledgement", index), population.ack_intended
        yield HistogramKey(stage, "round trip", index), population.round_trip
        for measure in CONNECT_MEASURES:
            yield HistogramKey(stage, measure, index), getattr(population, measure)
    for flow in snapshot.flows:
        yield HistogramKey(stage, "delivery", flow.to), flow.latency_intended
    if snapshot.agent not in publishers:
        yield HistogramKey(stage, "lateness"), snapshot.engine.lateness


def latency_of(snapshots: Iterable[Snapshot], *measures: Measure) -> Histogram:
    """Returns the durations of a measure in some snapshots: of the first that has any."""
    sums = {measure: HistogramSum() for measure in measures}
    for snapshot in snapshots:
        for key, histogram in over_time(snapshot, ()):
            if key.measure in sums:
                sums[key.measure].add(histogram)
    return next((found for each in sums.values() if (found := each.value()).count), NOTHING)


@dataclass(slots=True)
class _Cell(Generic[K]):
    """The histograms of all agents in one cell."""

    from_ns: int
    """Start of the earliest interval that belongs to it."""
    to_ns: int
    """End of the latest."""
    parts: dict[K, HistogramSum | bytes] = field(default_factory=dict)
    """The sum of each series, packed where it does not grow."""

    @property
    def middle_ns(self) -> int:
        """The middle of the time that its intervals cover."""
        return (self.from_ns + self.to_ns) // 2

    def sum_of(self, series: K) -> HistogramSum:
        """Returns the sum of a series."""
        part = self.parts.get(series)
        if isinstance(part, HistogramSum):
            return part
        found = HistogramSum()
        if part is not None:
            found.add(_histogram(part))
        return found

    def growing(self, series: K) -> HistogramSum:
        """Returns the sum of a series, to be added to."""
        found = self.parts[series] = self.sum_of(series)
        return found

    def may_take(self, following: _Cell[K], edges: Edges, length_ns: int) -> bool:
        """True if the cell that follows may become a part of this one."""
        spans = (self.from_ns, self.to_ns), (following.from_ns, following.to_ns)
        return edges.may_merge(*spans, length_ns)

    def merge(self, following: _Cell[K]) -> None:
        """Adds the cell that follows."""
        self.from_ns = min(self.from_ns, following.from_ns)
        self.to_ns = max(self.to_ns, following.to_ns)
        for series in following.parts:
            self.growing(series).merge(following.sum_of(series))

    def pack(self) -> None:
        """Makes it small, until something is added."""
        for series, part in self.parts.items():
            if isinstance(part, HistogramSum):
                self.parts[series] = _packed(part.value())

    def histogram(self, series: K) -> Histogram:
        """Returns the histogram of a series."""
        part = self.parts.get(series)
        return NOTHING if part is None else _histogram(part)

    def histograms(self) -> dict[K, Histogram]:
        """Returns the histogram of each series that has any counts."""
        return {series: _histogram(part) for series, part in self.parts.items()}


class HistogramCells(Generic[K]):
    """Histograms of any number of series over time. They add up in any order."""

    def __init__(self, origin_ns: int, width_ns: int, edges: Edges | None = None) -> None:
        """Cell 0 begins at `origin_ns`. Without edges, cells are not merged."""
        self.width_ns = width_ns
        self._edges = edges
        self._origin_ns = origin_ns
        self._cells: dict[int, _Cell[K]] = {}
        self._places: list[int] = []
        """Places of the cells in the grid, in order; of a merged cell that of its first part."""
        self._hours = self._minutes = 0
        """Cells that are hours, and those after them that are minutes."""
        self._series = 1
        """Most series of a cell."""

    def add(self, span: tuple[int, int], histograms: Iterable[tuple[K, Histogram]]) -> None:
        """Adds what was counted in an interval."""
        place = (sum(span) // 2 - self._origin_ns) // self.width_ns
        cell = self._cell(place, *span)
        for series, histogram in histograms:
            if histogram.count or histogram.negative_total:
                cell.growing(series).add(histogram)
        for older in {place, *self._places[-GROWING - 1 : -GROWING]}:
            if older < self._places[-GROWING:][0]:
                self._pack(older)
        self._series = max(self._series, len(cell.parts))
        if self._edges is not None:
            self._age(self._edges)

    def resolution_ns(self, from_ns: int, to_ns: int) -> int:
        """Returns the length of the cells in a span that were merged; 0 if none was."""
        merged = (HOUR_NS, self._places[: self._hours]), (MINUTE_NS, self._places[: self._merged])
        for length_ns, places in merged:
            cells = (self._cells[place] for place in places)
            if any(cell.from_ns < to_ns and cell.to_ns > from_ns for cell in cells):
                return length_ns
        return 0

    def between(self, series: K, from_ns: int, to_ns: int) -> Histogram:
        """Returns the sum of the cells whose middle lies in a span; of those that reach into it if
        it is too short to hold one."""
        cells = self._reaching_into(from_ns, to_ns)
        inside = [cell for cell in cells if from_ns <= cell.middle_ns < to_ns]
        found = HistogramSum()
        for cell in inside or cells:
            found.add(cell.histogram(series))
        return found.value()

    def at(self, place: int) -> Iterator[tuple[K, HistogramSum]]:
        """Yields the sums of a cell, by its number from the origin on."""
        cell = self._cells.get(place)
        if cell is not None:
            for series in cell.parts:
                yield series, cell.sum_of(series)

    def spans(self) -> Iterator[tuple[int, int, dict[K, Histogram]]]:
        """Yields the cells in the order of time: the span of each, and its histograms."""
        for place in self._places:
            cell = self._cells[place]
            yield cell.from_ns, cell.to_ns, cell.histograms()

    @property
    def _merged(self) -> int:
        return self._hours + self._minutes

    def _cell(self, place: int, from_ns: int, to_ns: int) -> _Cell[K]:
        """Returns the cell of an interval, which covers the interval then."""
        before = max(bisect_right(self._places, place) - 1, 0)
        known = place in self._cells
        if not known and before >= self._merged:
            self._cells[place] = _Cell(from_ns, to_ns)
            insort(self._places, place)
        cell = self._cells[place if known or before >= self._merged else self._places[before]]
        cell.from_ns, cell.to_ns = min(cell.from_ns, from_ns), max(cell.to_ns, to_ns)
        return cell

    def _pack(self, place: int) -> None:
        """Packs a cell, or drops it if nothing was counted."""
        cell = self._cells.get(place)
        if cell is not None and cell.parts:
            cell.pack()
        elif cell is not None:
            self._places.remove(place)
            del self._cells[place]

    def _age(self, edges: Edges) -> None:
        """Merges the oldest cells into minutes, and minutes into hours, until few enough are
        left."""
        while len(self._places) - self._merged > max(OWN_MAX // self._series, CELLS_MIN):
            if not self._joins(self._merged, self._hours, edges, MINUTE_NS):
                self._minutes += 1
        while self._minutes > max(MINUTES_MAX // self._series, CELLS_MIN):
            self._minutes -= 1
            if not self._joins(self._hours, 0, edges, HOUR_NS):
                self._hours += 1

    def _joins(self, index: int, first: int, edges: Edges, length_ns: int) -> bool:
        """Adds a cell to the one before it, if that is at `first` or later and may take it."""
        if index == first:
            return False
        cell, before = (self._cells[self._places[n]] for n in (index, index - 1))
        if not before.may_take(cell, edges, length_ns):
            before.pack()
            return False
        before.merge(cell)
        del self._cells[self._places.pop(index)]
        return True

    def _reaching_into(self, from_ns: int, to_ns: int) -> list[_Cell[K]]:
        """Returns the cells that overlap a span, in the order of time."""
        first, last = (
            bisect_right(self._places, (at_ns - self._origin_ns) // self.width_ns)
            for at_ns in (from_ns, to_ns)
        )
        cells = (self._cells[place] for place in self._places[max(first - 2, 0) : last + 1])
        return [cell for cell in cells if cell.from_ns <= to_ns and cell.to_ns >= from_ns]


def _packed(histogram: Histogram) -> bytes:
    """A histogram in one or two bytes a bucket: neighbours are alike, and compress well."""
    indices = [index for index, _ in histogram.buckets]
    steps = (high - low for low, high in pairwise([0, *indices]))
    counts = (count for _, count in histogram.buckets)
    return packed(bounded((*_SUMS_OF(histogram), *steps, *counts)))


def _histogram(part: HistogramSum | bytes) -> Histogram:
    if isinstance(part, HistogramSum):
        return part.value()
    numbers = unpacked(part)
    first = len(_SUMS)
    places = (len(numbers) + first) // 2
    buckets = tuple(zip(accumulate(numbers[first:places]), numbers[places:], strict=True))
    sums: dict[str, Any] = dict(zip(_SUMS, numbers[:first], strict=True))
    return Histogram.model_construct(**sums, buckets=buckets)


_SUMS = tuple(name for name in Histogram.model_fields if name != "buckets")
"""Numbers of a packed histogram before its buckets."""
_SUMS_OF = attrgetter(*_SUMS)


READINGS_MAX: Final = 2_000_000
"""Readings that are kept one by one, of all tracks together: 34 MB of 17 bytes each."""
OWN_MIN: Final = 900
"""Readings of a track that are kept one by one in any case."""
TRACK_MINUTES_MAX: Final = 100_000
"""Cells of a minute that are kept, of all tracks together: 10 MB of 100 bytes each."""
MINUTES_MIN: Final = 60
"""Cells of a minute of a track that are kept in any case."""
LATE_SHARE: Final = 0.1
"""Share of an interval by which a reading may be late and the next one not."""
POINTS_MAX: Final = 6
"""Points of a cell."""
FIELDS: Final = 4
"""Numbers of a cell beside its points: points, readings, their sum, and the growth of a count."""

Readings: TypeAlias = "tuple[array[float], array[float], array[int]]"
"""Instants, values, and 1 for a reading that repeats the last known value."""


@dataclass(frozen=True, slots=True)
class ReadingCell:
    """Readings that follow each other, with those that are kept as points: the first, the last, the
    smallest, the largest, and the first and the last that are news."""

    at_s: array[float]
    values: array[float]
    held: array[int]
    """1 for a reading that repeats the last known value."""
    count: int
    """Readings."""
    total: float
    """Sum of their values."""
    amount: float = 0.0
    """Growth of a count from its first news to its last."""
    late: Counter[int] = field(default_factory=Counter)
    """Steps between readings that are longer than an interval: their number by their length, in
    intervals."""

    @classmethod
    def of(cls, readings: Readings, interval_s: float) -> ReadingCell:
        """Returns readings as a cell; `interval_s` is the shortest time between two that are
        due."""
        at_s, values, held = readings
        read = zip(at_s, values, held, strict=True)
        news = {at: value for at, value, is_held in read if not is_held}
        late = Counter(_intervals(after - at, interval_s) for at, after in pairwise(at_s))
        places = _points(values, held)
        return cls(
            array("d", (at_s[n] for n in places)),
            array("d", (values[n] for n in places)),
            array("b", (held[n] for n in places)),
            len(at_s),
            math.fsum(values),
            math.fsum(grown(*pair) for pair in pairwise(news.values())),
            _long(late),
        )

    def merged_with(self, following: ReadingCell, interval_s: float) -> ReadingCell:
        """Returns the sum with the cell that follows."""
        at_s, values = self.at_s + following.at_s, self.values + following.values
        held = self.held + following.held
        places = _points(values, held)
        before, after = self.news(last=True), following.news()
        between = 0.0 if before is None or after is None else grown(before[1], after[1])
        step = Counter([_intervals(following.at_s[0] - self.at_s[-1], interval_s)])
        return ReadingCell(
            array("d", (at_s[n] for n in places)),
            array("d", (values[n] for n in places)),
            array("b", (held[n] for n in places)),
            self.count + following.count,
            self.total + following.total,
            self.amount + between + following.amount,
            self.late + following.late + _long(step),
        )

    def news(self, *, last: bool = False) -> tuple[float, float] | None:
        """Returns the first or the last reading that is news; None if there is none."""
        places = [n for n, is_held in enumerate(self.held) if not is_held]
        if not places:
            return None
        place = places[-1 if last else 0]
        return self.at_s[place], self.values[place]

    def between(self, from_s: float, to_s: float) -> ReadingCell | None:
        """Returns the part of the cell in a span: a share by time of its readings, if the span cuts
        it; None if the span has none of its points."""
        places = [n for n, at_s in enumerate(self.at_s) if from_s <= at_s <= to_s]
        if len(places) == len(self.at_s):
            return self
        if not places:
            return None
        cut = slice(places[0], places[-1] + 1)
        at_s, values, held = self.at_s[cut], self.values[cut], self.held[cut]
        share = (at_s[-1] - at_s[0]) / (self.at_s[-1] - self.at_s[0])
        count = max(round(self.count * share), len(at_s))
        mean = min(max(self.total / self.count, min(values)), max(values))
        news = [value for value, is_held in zip(values, held, strict=True) if not is_held]
        amount = math.fsum(grown(*pair) for pair in pairwise(news))
        return ReadingCell(at_s, values, held, count, count * mean, amount)

    def steps(self, interval_s: float) -> Iterator[tuple[float, float]]:
        """Yields its steps between readings that are longer than an interval, all from its
        start."""
        for length, number in self.late.items():
            for _ in range(number):
                yield self.at_s[0], self.at_s[0] + length * interval_s


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of a count between two readings."""

    from_s: float
    to_s: float
    amount: float

    @property
    def per_s(self) -> float:
        """Growth per second."""
        return self.amount / (self.to_s - self.from_s)

    def within(self, from_s: float, to_s: float) -> float:
        """The share of the growth that belongs to a span, by overlap in time."""
        overlap_s = min(self.to_s, to_s) - max(self.from_s, from_s)
        return self.amount * max(overlap_s, 0.0) / (self.to_s - self.from_s)


def growth(at_s: Sequence[float], values: Sequence[float]) -> list[Growth]:
    """Growth of a count from each distinct reading to the next; a count that fell started again
    at zero. The definition behind every rate of a count: in tables, thresholds and plots."""
    latest_at = dict(zip(at_s, values, strict=True))
    return [
        Growth(from_s, to_s, grown(before, value))
        for (from_s, before), (to_s, value) in pairwise(latest_at.items())
    ]


def grown(before: float, value: float) -> float:
    """Returns the growth of a count between two readings; one that fell started again at zero."""
    return value - before if value >= before else value


def own_cells(readings: Readings, grid: Merging) -> Iterator[ReadingCell]:
    """Yields readings of one track, merged into minutes."""
    at_s, values, held = readings
    for _, places in groupby(range(len(at_s)), lambda n: grid.place(at_s[n], MINUTE_NS)):
        found = list(places)
        part = slice(found[0], found[-1] + 1)
        yield ReadingCell.of((at_s[part], values[part], held[part]), grid.interval_s)


def in_minutes(cells: Iterable[ReadingCell], grid: Merging) -> list[ReadingCell]:
    """Returns cells of one track, merged into minutes."""
    return _merged(cells, grid, MINUTE_NS)


def in_hours(cells: Iterable[ReadingCell], grid: Merging) -> list[ReadingCell]:
    """Returns cells of one track, merged into hours."""
    return _merged(cells, grid, HOUR_NS)


def _merged(cells: Iterable[ReadingCell], grid: Merging, cell_ns: int) -> list[ReadingCell]:
    groups = groupby(cells, lambda cell: grid.place(cell.at_s[0], cell_ns))
    return [
        reduce(lambda one, following: one.merged_with(following, grid.interval_s), found)
        for _, found in groups
    ]


@dataclass(frozen=True, slots=True)
class Merging:
    """The rule by which readings are merged."""

    edges: Edges
    interval_s: float
    """Shortest time between two readings that are due."""

    def place(self, at_s: float, cell_ns: int) -> tuple[int, int]:
        """Returns the place of an instant: those of one place may be merged."""
        return self.edges.place(at_s, cell_ns)


def _points(values: Sequence[float], held: Sequence[int]) -> list[int]:
    """Returns the places of the readings that a cell keeps."""
    news = [n for n, is_held in enumerate(held) if not is_held]
    extremes = {values.index(min(values)), values.index(max(values))}
    return sorted({0, len(values) - 1, *extremes, *news[:1], *news[-1:]})


def _intervals(step_s: float, interval_s: float) -> int:
    return math.floor(step_s / interval_s + LATE_SHARE)


def _long(steps: Counter[int]) -> Counter[int]:
    return Counter({length: number for length, number in steps.items() if length > 1})
