"""Readings that were merged, in cells of a minute or an hour. A cell keeps a few of its readings as
points, and the exact sums of all: statistics of whole cells are those of their readings."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby, pairwise
from typing import Final, TypeAlias

from pubstorm.result.timeline.ages import HOUR_NS, MINUTE_NS, Edges

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
