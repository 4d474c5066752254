"""The time series of a load: intervals come back as they were, in order, and take little room."""

from __future__ import annotations

import tracemalloc
from array import array

from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract.snapshot import ClockState
from pubstorm.measure.series import BLOCK, Interval, PopulationInterval, TimeSeries, overlaps, steps

NUMBERS = st.integers(0, 2**64 - 1)
POPULATIONS = st.builds(PopulationInterval, *(NUMBERS for _ in PopulationInterval.__slots__))
CLOCKS = st.builds(
    ClockState,
    offset_ns=st.integers(-(2**63), 2**63),
    drift_ppb=st.integers(-1000, 1000),
    bound_ns=NUMBERS,
    round_trip_ns=NUMBERS,
    exchanges_total=NUMBERS,
)
INTERVALS = st.builds(
    Interval,
    agent=NUMBERS,
    sequence=NUMBERS,
    stage=st.none() | NUMBERS,
    from_ns=NUMBERS,
    to_ns=NUMBERS,
    busy_ns=NUMBERS,
    populations=st.lists(POPULATIONS, max_size=2).map(tuple),
    connected_at=st.lists(NUMBERS, max_size=3).map(lambda some: array("Q", some)),
    clock=st.none() | CLOCKS,
    starved_ns=NUMBERS,
)


@given(st.lists(INTERVALS, max_size=4))
def test_intervals_come_back_as_they_were(intervals: list[Interval]) -> None:
    assert [Interval.of_row(interval.row()) for interval in intervals] == intervals


def test_intervals_keep_their_order_over_blocks() -> None:
    count = 3 * BLOCK + 7
    made, other = TimeSeries(), TimeSeries()
    for n in range(count):
        made.add(Interval(0, n, 1, n, n + 1, 0, ()))
        other.add(Interval(0, count - 1 - n, 1, count - 1 - n, count - n, 0, ()))
    assert len(made) == count
    assert [each.sequence for each in made.intervals()] == list(range(count))
    assert made == other
    other.add(Interval(0, count, 1, count, count + 1, 0, ()))
    assert made != other


@given(st.tuples(st.integers(-50, 50), st.integers(0, 50)), st.integers(-20, 20), st.integers(1, 9))
def test_overlaps_share_a_span_out_without_rest(
    span: tuple[int, int], origin: int, width: int
) -> None:
    start, length = span
    found = list(overlaps((start, start + length), origin, width))
    assert sum(overlap for _, overlap in found) == length
    assert all(0 < overlap <= width for _, overlap in found) or not length
    assert [cell for cell, _ in found] == sorted({cell for cell, _ in found})


def test_the_values_of_one_instant_make_one_step() -> None:
    values = [(0.0, "a", 3), (1.0, "a", 0), (1.0, "b", 5), (2.0, "b", 4)]
    assert list(steps(values)) == [(0.0, 3), (1.0, 5), (2.0, 4)]
    assert list(steps([])) == []


def test_an_interval_takes_a_hundred_bytes() -> None:
    """With counts that vary by chance, as those of a load do."""
    series, count = TimeSeries(), 100 * BLOCK
    population = PopulationInterval(50, 50, 3, 0, 0, 0, *(0 for _ in range(8)))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for n in range(count):
        sent = 20_000 + 7919 * n % 201
        busy = PopulationInterval(
            50, 50, n * 31 % 7, 0, 0, 0, sent, sent, 0, 60 * sent, 4 * sent, 0, sent, 911 * sent
        )
        spans = (10**18 + n * 10**9 + 7919 * n % 1009, 10**18 + (n + 1) * 10**9, 7919 * n % 10**7)
        series.add(Interval(0, n, 1, *spans, (busy, population)))
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert held < 100 * count
    assert len(series.intervals()) == count
