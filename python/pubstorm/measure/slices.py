"""Histograms by time: sums over agents in slices of equal width, so that any span of a run has its
percentiles. Memory is bounded: with the length of the run the slices get wider, not more. It
knows neither plan nor phase."""

from __future__ import annotations

import marshal
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from pubstorm.contract.histogram import Histogram, HistogramSum

SECOND_NS = 10**9
SLICES_MAX = 512
"""Slices of a series at most: an hour has 450 of 8 s. One of 400 buckets takes half a kB, so that
ten series take 3 MB."""

Measure = Literal["delivery", "acknowledgement", "lateness"]


@dataclass(frozen=True, slots=True)
class SliceKey:
    """One histogram over time."""

    stage: int | None
    measure: Measure
    population: int = 0
    """Index of the population; 0 for lateness, which is the engine's."""


def _packed(histogram: Histogram) -> bytes:
    """A histogram in one or two bytes a bucket: neighbours are alike, and compress well."""
    indices = [index for index, _ in histogram.buckets]
    steps = array("H", (high - low for low, high in pairwise([0, *indices])))
    numbers = array("Q", (number for _, number in histogram.buckets))
    sums = histogram.model_copy(update={"buckets": ()}).model_dump()
    return zlib.compress(marshal.dumps((sums, steps.tobytes(), numbers.tobytes())), 1)


def _unpacked(packed: bytes) -> Histogram:
    sums, steps, numbers = marshal.loads(zlib.decompress(packed))
    indices = accumulate(array("H", steps))
    return Histogram.model_construct(
        **{**sums, "buckets": tuple(zip(indices, array("Q", numbers), strict=True))}
    )


class Slices:
    """Histograms of any number of series, cut into slices of one width. They add up in any order:
    the width follows from the earliest and the latest interval alone."""

    def __init__(self) -> None:
        self.width_ns = SECOND_NS
        """Width of a slice; slices begin at its multiples."""
        self._first_ns: int | None = None
        self._last_ns = 0
        self._growing: dict[_Key, HistogramSum] = {}
        self._packed: dict[_Key, bytes] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slices):
            return NotImplemented
        same_width = self.width_ns == other.width_ns
        return same_width and dict(self._histograms()) == dict(other._histograms())

    __hash__ = None  # type: ignore[assignment]

    def add(self, series: SliceKey, to_ns: int, histogram: Histogram) -> None:
        """Adds what was counted in an interval that ended at `to_ns`."""
        if histogram.count:
            self._stretch(to_ns, to_ns)
            self._put((series, to_ns // self.width_ns), histogram)

    def between(self, series: SliceKey, from_ns: int, to_ns: int) -> Histogram:
        """The sum of the slices that lie wholly in a span; of those that begin in it where it is
        too short to hold one."""
        inside = range(-(-from_ns // self.width_ns), to_ns // self.width_ns)
        begun = range(from_ns // self.width_ns, to_ns // self.width_ns + 1)
        total = HistogramSum()
        for place in inside or begun:
            histogram = self._histogram((series, place))
            if histogram is not None:
                total.add(histogram)
        return total.value()

    def _put(self, key: _Key, histogram: Histogram) -> None:
        growing = self._growing.get(key)
        if growing is None:
            self._pack(before=key[1] - 1)
            growing = self._growing[key] = HistogramSum()
            packed = self._packed.pop(key, None)
            if packed is not None:
                growing.add(_unpacked(packed))
        growing.add(histogram)

    def _pack(self, before: int) -> None:
        """Packs the slices before a place: only late intervals still come to them."""
        for key in [key for key in self._growing if key[1] < before]:
            self._packed[key] = _packed(self._growing.pop(key).value())

    def _histogram(self, key: _Key) -> Histogram | None:
        growing, packed = self._growing.get(key), self._packed.get(key)
        if growing is not None:
            return growing.value()
        return None if packed is None else _unpacked(packed)

    def _histograms(self) -> Iterator[tuple[_Key, Histogram]]:
        for key, growing in self._growing.items():
            yield key, growing.value()
        for key, packed in self._packed.items():
            yield key, _unpacked(packed)

    def _stretch(self, first_ns: int, last_ns: int) -> None:
        """Makes room for a span, in wider slices where it takes too many."""
        self._first_ns = first_ns if self._first_ns is None else min(self._first_ns, first_ns)
        self._last_ns = max(self._last_ns, last_ns)
        width_ns = self.width_ns
        while self._last_ns // width_ns - self._first_ns // width_ns >= SLICES_MAX:
            width_ns *= 2
        if width_ns == self.width_ns:
            return
        self._pack(before=self._last_ns)
        narrow, narrow_ns = self._packed, self.width_ns
        self._packed, self.width_ns = {}, width_ns
        for series, place in sorted(narrow, key=lambda key: key[1]):
            histogram = _unpacked(narrow.pop((series, place)))
            self._put((series, place * narrow_ns // width_ns), histogram)


_Key = tuple[SliceKey, int]
"""A series and the place of a slice in it, in widths."""
