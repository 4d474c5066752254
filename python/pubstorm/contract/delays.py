"""Delays of messages before their send: sums for each range of latencies, with the arithmetic of
the agents (`crates/plan/src/record/delays.rs`). Sums are exact.
Percentiles do not add up, so the parts of a percentile are means of the messages near it."""

from __future__ import annotations

from pubstorm.contract.histogram import Histogram, bucket_index, bucket_lower_ns, bucket_upper_ns

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
