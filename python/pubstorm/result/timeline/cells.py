"""Histograms over time: sums over agents in cells of a grid from the start of the run. An interval
belongs to the cell of its middle."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Generic, TypeVar

from pubstorm.contract.histogram import NOTHING, Histogram, HistogramSum
from pubstorm.result.timeline.rows import bounded, packed, unpacked

GROWING = 12
"""The latest cells, which are not packed: intervals of agents that are behind belong to them."""

K = TypeVar("K")


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

    def growing(self, series: K) -> HistogramSum:
        """Returns the sum of a series, which may be added to."""
        part = self.parts.get(series, b"")
        if isinstance(part, bytes):
            found = HistogramSum()
            if part:
                found.add(_histogram(part))
            part = self.parts[series] = found
        return part

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

    def __init__(self, origin_ns: int, width_ns: int) -> None:
        """Cell 0 begins at `origin_ns`."""
        self.width_ns = width_ns
        self._origin_ns = origin_ns
        self._cells: dict[int, _Cell[K]] = {}
        self._places: list[int] = []
        """Places of the cells in the grid, in order."""

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
            for series in list(cell.parts):
                yield series, cell.growing(series)

    def spans(self) -> Iterator[tuple[int, int, dict[K, Histogram]]]:
        """Yields the cells in the order of time: the span of each, and its histograms."""
        for place in self._places:
            cell = self._cells[place]
            yield cell.from_ns, cell.to_ns, cell.histograms()

    def _cell(self, place: int, from_ns: int, to_ns: int) -> _Cell[K]:
        """Returns the cell of an interval, which covers the interval then."""
        cell = self._cells.get(place)
        if cell is None:
            cell = self._cells[place] = _Cell(from_ns, to_ns)
            insort(self._places, place)
        cell.from_ns, cell.to_ns = min(cell.from_ns, from_ns), max(cell.to_ns, to_ns)
        return cell

    def _pack(self, place: int) -> None:
        """Packs a cell, or drops it if nothing was counted."""
        if self._cells[place].parts:
            self._cells[place].pack()
        else:
            self._places.remove(place)
            del self._cells[place]

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
    places = len(numbers) // 2 + _SUMS // 2
    count, sum_ns, min_ns, max_ns, negative_total, negative_min_ns = numbers[:_SUMS]
    return Histogram.model_construct(
        count=count,
        sum_ns=sum_ns,
        min_ns=min_ns,
        max_ns=max_ns,
        negative_total=negative_total,
        negative_min_ns=negative_min_ns,
        buckets=tuple(zip(accumulate(numbers[_SUMS:places]), numbers[places:], strict=True)),
    )


_SUMS_OF = attrgetter("count", "sum_ns", "min_ns", "max_ns", "negative_total", "negative_min_ns")
_SUMS = 6
"""Numbers of a packed histogram before its buckets."""
