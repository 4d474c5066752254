"""Rows in compressed blocks: what goes in comes out, in order, and takes little room."""

from __future__ import annotations

import tracemalloc
from array import array

from hypothesis import given
from hypothesis import strategies as st

from pubstorm.merge import Interval, PopulationInterval, Totals
from pubstorm.packed import BLOCK, Packed
from pubstorm.snapshot import ClockState

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


def packed(values: range) -> Packed[int]:
    made = Packed[int](lambda value: (value,), lambda row: int(row[0]))
    for value in values:
        made.append(value)
    return made


def test_values_keep_their_order_over_blocks() -> None:
    count = 3 * BLOCK + 7
    made = packed(range(10))
    made.extend(packed(range(10, count)))
    assert (len(made), list(made)) == (count, list(range(count)))
    assert made == packed(range(count))
    assert packed(range(2)) != packed(range(3))
    assert made != packed(range(1, count + 1))


def test_an_interval_takes_a_hundred_bytes() -> None:
    """With counts that vary by chance, as those of a load do."""
    totals, count = Totals(), 100 * BLOCK
    population = PopulationInterval(50, 50, 3, 0, 0, 0, *(0 for _ in range(8)))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for n in range(count):
        sent = 20_000 + 7919 * n % 201
        busy = PopulationInterval(
            50, 50, n * 31 % 7, 0, 0, 0, sent, sent, 0, 60 * sent, 4 * sent, 0, sent, 911 * sent
        )
        spans = (10**18 + n * 10**9 + 7919 * n % 1009, 10**18 + (n + 1) * 10**9, 7919 * n % 10**7)
        totals.intervals.append(Interval(0, n, 1, *spans, (busy, population)))
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert held < 100 * count
    assert len(totals.time_line()) == count
