"""Counts of durations in log-linear buckets: exact below 256 ns, then 128 buckets to each power of
two. This is the layout of HdrHistogram with seven bits, with the engine's arithmetic. Sums are
exact, and percentiles come from sums only. Percentiles do not add up, so the parts of a delay
before the send are means of the messages near a percentile (`crates/plan/src/record/delays.rs`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated

from pydantic import Field

from pubstorm.contract import U64, Value

_SUB_BITS = 7
_LINEAR = 1 << (_SUB_BITS + 1)

MAX_NS = (1 << 44) - 1
"""Longest duration with a bucket of its own; longer ones count in the last bucket."""


COUNT_MAX = 1 << 48
"""Most durations of a histogram: those of 30 days with a hundred million messages a second."""
SUM_MAX_NS = 1 << 112
"""Largest sum of such durations."""
Bucket = Annotated[int, Field(ge=0, le=(44 - _SUB_BITS << _SUB_BITS) + _LINEAR // 2 - 1)]
"""Index of a bucket. The last one holds MAX_NS."""
Counted = Annotated[int, Field(ge=0, le=COUNT_MAX)]


def bucket_index(duration_ns: int) -> int:
    """Index of the bucket that holds a duration of 0 ns or more."""
    duration_ns = min(duration_ns, MAX_NS)
    if duration_ns < _LINEAR:
        return duration_ns
    shift = duration_ns.bit_length() - 1 - _SUB_BITS
    return (shift << _SUB_BITS) + (duration_ns >> shift)


def bucket_upper_ns(index: int) -> int:
    """Largest duration in a bucket."""
    if index < _LINEAR:
        return index
    shift = (index >> _SUB_BITS) - 1
    mantissa = index - (shift << _SUB_BITS)
    return ((mantissa + 1) << shift) - 1


def bucket_lower_ns(index: int) -> int:
    """Smallest duration in a bucket."""
    return 0 if index == 0 else bucket_upper_ns(index - 1) + 1


class Histogram(Value):
    """Counted durations. Negative ones, which only wrong clocks make, are counted apart."""

    count: Counted = 0
    """Durations counted, without the negative ones."""
    sum_ns: Annotated[int, Field(ge=0, le=SUM_MAX_NS)] = 0
    """Their sum, in nanoseconds."""
    min_ns: U64 = 0
    """The smallest; 0 when empty."""
    max_ns: U64 = 0
    """The largest; 0 when empty."""
    negative_total: Counted = 0
    """Negative durations."""
    negative_min_ns: Annotated[int, Field(ge=-(2**64), le=0)] = 0
    """The most negative one; 0 when there is none."""
    buckets: tuple[tuple[Bucket, Counted], ...] = ()
    """Pairs of bucket index and count, by index, empty buckets left out."""

    @classmethod
    def of(cls, durations_ns: Iterable[int]) -> Histogram:
        """Counts durations given in nanoseconds."""
        tally = HistogramSum()
        for duration_ns in durations_ns:
            tally.record(duration_ns)
        return tally.value()

    def plus(self, other: Histogram) -> Histogram:
        """The counts of both."""
        tally = HistogramSum()
        tally.add(self)
        tally.add(other)
        return tally.value()

    def minus(self, part: Histogram) -> Histogram:
        """The counts without those of a part of them. The smallest and the largest duration are
        known to a bucket."""
        if not part.count and not part.negative_total:
            return self
        left = Counter(dict(self.buckets)) - Counter(dict(part.buckets))
        buckets = tuple(sorted(left.items()))
        ends_ns = (
            (bucket_lower_ns(buckets[0][0]), bucket_upper_ns(buckets[-1][0])) if buckets else (0, 0)
        )
        negative_total = max(self.negative_total - part.negative_total, 0)
        return Histogram(
            count=sum(left.values()),
            sum_ns=max(self.sum_ns - part.sum_ns, 0) if buckets else 0,
            min_ns=max(ends_ns[0], self.min_ns) if buckets else 0,
            max_ns=min(ends_ns[1], self.max_ns),
            negative_total=negative_total,
            negative_min_ns=self.negative_min_ns if negative_total else 0,
            buckets=buckets,
        )

    def from_zero(self) -> Histogram:
        """The same durations, the negative ones as 0."""
        if not self.negative_total:
            return self
        zeros = Histogram(count=self.negative_total, buckets=((0, self.negative_total),))
        return self.model_copy(update={"negative_total": 0, "negative_min_ns": 0}).plus(zeros)

    def quantile_ns(self, quantile: float) -> int:
        """The duration that a share `quantile` (0 to 1) of the counts does not exceed: the upper
        end of its bucket, at most the largest duration. 0 when empty."""
        rank = max(math.ceil(min(max(quantile, 0.0), 1.0) * self.count), 1)
        seen = 0
        for index, count in self.buckets:
            seen += count
            if seen >= rank:
                return min(bucket_upper_ns(index), self.max_ns)
        return self.max_ns

    def mean_ns(self) -> float:
        """Arithmetic mean; 0 when empty."""
        return self.sum_ns / self.count if self.count else 0.0

    def count_above(self, duration_ns: int) -> int:
        """Returns the number of durations in buckets that start above `duration_ns`."""
        first = bucket_index(duration_ns) + 1
        return sum(count for index, count in self.buckets if index >= first)


NOTHING = Histogram()


class HistogramSum:
    """A growing sum of histograms; `value` is the sum so far."""

    __slots__ = (
        "_buckets",
        "_count",
        "_max_ns",
        "_min_ns",
        "_negative_min_ns",
        "_negative_total",
        "_sum_ns",
    )

    def __init__(self) -> None:
        self._count = 0
        self._sum_ns = 0
        self._min_ns: int | None = None
        self._max_ns = 0
        self._negative_total = 0
        self._negative_min_ns = 0
        self._buckets: dict[int, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HistogramSum) and self.value() == other.value()

    __hash__ = None  # type: ignore[assignment]

    def record(self, duration_ns: int) -> None:
        """Counts one duration."""
        if duration_ns < 0:
            self._negative_total += 1
            self._negative_min_ns = min(self._negative_min_ns, duration_ns)
            return
        self._add_range(1, duration_ns, duration_ns, duration_ns)
        index = bucket_index(duration_ns)
        self._buckets[index] = self._buckets.get(index, 0) + 1

    def record_all(self, durations_ns: Sequence[int]) -> None:
        """Counts several durations that are alike, at a fraction of what each by itself costs."""
        low_ns, high_ns = min(durations_ns), max(durations_ns)
        shift = max(high_ns.bit_length() - 1 - _SUB_BITS, 0)
        if low_ns < 0 or high_ns > MAX_NS or max(low_ns.bit_length() - 1 - _SUB_BITS, 0) != shift:
            for duration_ns in durations_ns:
                self.record(duration_ns)
            return
        self._add_range(len(durations_ns), sum(durations_ns), low_ns, high_ns)
        first = shift << _SUB_BITS
        indices = Counter([first + (duration_ns >> shift) for duration_ns in durations_ns])
        for index, count in indices.items():
            self._buckets[index] = self._buckets.get(index, 0) + count

    def add(self, other: Histogram) -> None:
        """Adds a histogram."""
        if other.negative_total:
            self._negative_total += other.negative_total
            self._negative_min_ns = min(self._negative_min_ns, other.negative_min_ns)
        if other.count:
            self._add_range(other.count, other.sum_ns, other.min_ns, other.max_ns)
            self._add_buckets(other.buckets)

    def merge(self, other: HistogramSum) -> None:
        """Adds another sum."""
        self._negative_total += other._negative_total
        self._negative_min_ns = min(self._negative_min_ns, other._negative_min_ns)
        if other._min_ns is not None:
            self._add_range(other._count, other._sum_ns, other._min_ns, other._max_ns)
            self._add_buckets(other._buckets.items())

    def value(self) -> Histogram:
        """The sum so far."""
        if not self._count and not self._negative_total:
            return NOTHING
        buckets, indices = self._buckets, sorted(self._buckets)
        if max(self._count, self._negative_total) > COUNT_MAX:
            buckets = {index: min(count, COUNT_MAX) for index, count in buckets.items()}
        return Histogram.model_construct(
            count=min(self._count, COUNT_MAX),
            sum_ns=min(self._sum_ns, SUM_MAX_NS),
            min_ns=self._min_ns or 0,
            max_ns=self._max_ns,
            negative_total=min(self._negative_total, COUNT_MAX),
            negative_min_ns=self._negative_min_ns,
            buckets=tuple(zip(indices, map(buckets.__getitem__, indices), strict=True)),
        )

    def _add_buckets(self, added: Collection[tuple[int, int]]) -> None:
        buckets = self._buckets
        if not buckets:
            buckets.update(added)
            return
        for index, count in added:
            buckets[index] = buckets.get(index, 0) + count

    def _add_range(self, count: int, sum_ns: int, min_ns: int, max_ns: int) -> None:
        self._count += count
        self._sum_ns += sum_ns
        self._min_ns = min_ns if self._min_ns is None else min(self._min_ns, min_ns)
        self._max_ns = max(self._max_ns, max_ns)


CELL_BITS = 4
"""Buckets of a histogram in one cell, as a power of two: a cell is 6 to 12 % wide."""
DELAYS = ("generator", "window", "socket", "connection")
"""Parts of a latency before the send, in the order of a cell."""
REST = "rest"
"""The part of a latency after the send."""

_Sums = tuple[int, int, int, int]
Cell = tuple[int, int, int, int, int]
"""Index of a cell, which is that of its first bucket divided by 16; then the sums of its delays, in
nanoseconds."""
Delays = tuple[Cell, ...]
"""The cells with a delay, by index."""


class DelaySum:
    """A growing sum of delays; `value` is the sum so far."""

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells: dict[int, _Sums] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DelaySum) and self.value() == other.value()

    __hash__ = None  # type: ignore[assignment]

    def add(self, delays: Delays) -> None:
        """Adds the delays of further messages."""
        for index, a, b, c, d in delays:
            self._add_cell(index, (a, b, c, d))

    def merge(self, other: DelaySum) -> None:
        """Adds another sum."""
        for index, delays_ns in other._cells.items():
            self._add_cell(index, delays_ns)

    def value(self) -> Delays:
        """Returns the sum so far."""
        return tuple((index, *delays_ns) for index, delays_ns in sorted(self._cells.items()))

    def _add_cell(self, index: int, delays_ns: _Sums) -> None:
        a, b, c, d = self._cells.get(index, (0, 0, 0, 0))
        e, f, g, h = delays_ns
        self._cells[index] = (a + e, b + f, c + g, d + h)


def parts_ns(delays: Delays, histogram: Histogram, quantile: float) -> dict[str, float]:
    """Returns the parts of a percentile, which add up to it: the shares of the delays of the
    messages in the cell of the percentile, and the rest. Nothing without delays or latencies."""
    if not delays or not histogram.count:
        return {}
    whole_ns = histogram.quantile_ns(quantile)
    cell = bucket_index(whole_ns) >> CELL_BITS
    near = [(index, count) for index, count in histogram.buckets if index >> CELL_BITS == cell]
    sum_ns = sum(count * _middle_ns(index) for index, count in near)
    delays_ns = next((sums_ns for index, *sums_ns in delays if index == cell), [0] * len(DELAYS))
    # Clocks of several hosts may disagree: all delays together are at most the latency.
    scale = whole_ns / max(sum_ns, sum(delays_ns), 1)
    parts = {name: delay_ns * scale for name, delay_ns in zip(DELAYS, delays_ns, strict=True)}
    return {**parts, REST: max(whole_ns - sum(parts.values()), 0.0)}


def _middle_ns(index: int) -> float:
    return (bucket_lower_ns(index) + bucket_upper_ns(index)) / 2
