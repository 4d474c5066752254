"""Histograms over time: sums over agents in cells of a grid from the start of the run. An interval
belongs to the cell of its middle. Old cells are merged into minutes, and then into hours."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

from pubstorm.contract.histogram import NOTHING, Histogram, HistogramSum
from pubstorm.contract.snapshot import Snapshot
from pubstorm.result.timeline.ages import HOUR_NS, MINUTE_NS, Edges
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
Measure = Literal["delivery", "acknowledgement", "round trip", "lateness"]


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
