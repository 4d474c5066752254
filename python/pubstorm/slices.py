"""Histograms by time: sums over agents in slices of equal width, so that any span of a run has its
percentiles. Memory is bounded: with the length of the run the slices get wider, not more. It
knows neither plan nor phase."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Literal

from pubstorm.histogram import Histogram, HistogramSum

SECOND_NS = 10**9
SLICES_MAX = 512
"""Slices of a series at most: an hour has 450 of 8 s. One of 400 buckets takes 4 kB."""

Measure = Literal["delivery", "acknowledgement", "lateness"]


@dataclass(frozen=True, slots=True)
class Series:
    """What is kept by time."""

    stage: int | None
    measure: Measure
    population: int = 0
    """Index of the population; 0 for lateness, which is the engine's."""


@dataclass(frozen=True, slots=True)
class _Packed:
    """A histogram in ten bytes a bucket."""

    counts: tuple[int, int, int, int, int, int]
    indices: array[int]
    numbers: array[int]

    @classmethod
    def of(cls, histogram: Histogram) -> _Packed:
        return cls(
            (
                histogram.count,
                histogram.sum_ns,
                histogram.min_ns,
                histogram.max_ns,
                histogram.negative_total,
                histogram.negative_min_ns,
            ),
            array("H", (index for index, _ in histogram.buckets)),
            array("Q", (number for _, number in histogram.buckets)),
        )

    def histogram(self) -> Histogram:
        count, sum_ns, min_ns, max_ns, negative_total, negative_min_ns = self.counts
        return Histogram.model_construct(
            count=count,
            sum_ns=sum_ns,
            min_ns=min_ns,
            max_ns=max_ns,
            negative_total=negative_total,
            negative_min_ns=negative_min_ns,
            buckets=tuple(zip(self.indices, self.numbers, strict=True)),
        )


@dataclass
class Slices:
    """Histograms of any number of series, cut into slices of one width. They add up in any order:
    the width follows from the earliest and the latest interval alone."""

    width_ns: int = SECOND_NS
    """Width of a slice; slices begin at its multiples."""
    _first_ns: int | None = None
    _last_ns: int = 0
    _slices: dict[tuple[Series, int], _Packed] = field(default_factory=dict)

    def add_interval(self, series: Series, to_ns: int, histogram: Histogram) -> None:
        """Adds what was counted in an interval that ended at `to_ns`."""
        if not histogram.count:
            return
        self._stretch(to_ns, to_ns)
        self._put((series, to_ns // self.width_ns), histogram)

    def add(self, other: Slices) -> None:
        """Adds other slices."""
        if other._first_ns is None:
            return
        self._stretch(other._first_ns, other._last_ns)
        for (series, place), packed in other._slices.items():
            place_here = place * other.width_ns // self.width_ns
            self._put((series, place_here), packed.histogram())

    def between(self, series: Series, from_ns: int, to_ns: int) -> Histogram:
        """The sum of the slices that lie wholly in a span; of those that begin in it where it is
        too short to hold one."""
        inside = range(-(-from_ns // self.width_ns), to_ns // self.width_ns)
        begun = range(from_ns // self.width_ns, to_ns // self.width_ns + 1)
        total = HistogramSum()
        for place in inside or begun:
            packed = self._slices.get((series, place))
            if packed is not None:
                total.add(packed.histogram())
        return total.value()

    def _put(self, key: tuple[Series, int], histogram: Histogram) -> None:
        known = self._slices.get(key)
        whole = histogram if known is None else known.histogram().plus(histogram)
        self._slices[key] = _Packed.of(whole)

    def _stretch(self, first_ns: int, last_ns: int) -> None:
        """Makes room for a span, in wider slices where it takes too many."""
        self._first_ns = first_ns if self._first_ns is None else min(self._first_ns, first_ns)
        self._last_ns = max(self._last_ns, last_ns)
        width_ns = self.width_ns
        while self._last_ns // width_ns - self._first_ns // width_ns >= SLICES_MAX:
            width_ns *= 2
        if width_ns == self.width_ns:
            return
        narrow, factor = self._slices, width_ns // self.width_ns
        self._slices, self.width_ns = {}, width_ns
        for (series, place), packed in narrow.items():
            self._put((series, place // factor), packed.histogram())
