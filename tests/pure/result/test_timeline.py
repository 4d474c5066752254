"""The timeline of a load: rows come back as they were, in order, and take little room; histograms
add up in any order."""

from __future__ import annotations

import gc
import tracemalloc
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.contract.snapshot import ClockState
from pubstorm.result.timeline import Timeline, steps
from pubstorm.result.timeline.cells import HistogramCells
from pubstorm.result.timeline.lane import BLOCK
from pubstorm.result.timeline.rows import COUNTS, GAUGES, LARGEST, Block, Row
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS

NUMBERS = st.integers(0, 2**63 - 1)
CLOCKS = st.builds(
    ClockState,
    offset_ns=st.integers(-(2**63), 2**63 - 1),
    drift_ppb=st.integers(-1000, 1000),
    bound_ns=NUMBERS,
    round_trip_ns=NUMBERS,
    exchanges_total=NUMBERS,
)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Rows of one agent, in the order of their ends."""

    def numbers(count: int) -> array[int]:
        return array("q", draw(st.lists(NUMBERS, min_size=count, max_size=count)))

    populations = draw(st.integers(0, 2))
    found = [
        Row(
            7,
            draw(NUMBERS),
            draw(st.none() | NUMBERS),
            draw(NUMBERS),
            draw(NUMBERS),
            numbers(len(GAUGES) * populations),
            numbers(len(COUNTS) * populations),
            numbers(3),
            busy_ns=draw(NUMBERS),
            cpu_ns=draw(NUMBERS),
            run_delay_ns=draw(st.none() | NUMBERS),
            starved_ns=draw(NUMBERS),
            rss_bytes=draw(NUMBERS),
            clock=draw(st.none() | CLOCKS),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]
    return sorted(found, key=lambda row: row.to_ns)


@given(rows())
def test_rows_come_back_as_they_were(some: list[Row]) -> None:
    assert list(Block.of(some).unpacked()) == some


def test_a_number_that_is_too_large_for_a_row_is_the_largest() -> None:
    plan = made.plan(made.clients("device"))
    snapshot = made.snapshot(made.population(sent_total=2**64 - 1), from_ns=START_NS)
    line = made.timeline(plan, [snapshot] * (2 * BLOCK))
    assert {row.count("sent", [0]) for row in line.rows()} == {LARGEST}


def test_rows_keep_their_order_over_blocks() -> None:
    plan, count = made.plan(made.clients("device")), 3 * BLOCK + 7
    snapshots = [
        made.snapshot(
            made.population(connected=n),
            from_ns=START_NS + n * SECOND_NS + agent,
            agent=agent,
            sequence=n,
            stage=n // 100,
        )
        for n in range(count)
        for agent in range(2)
    ]
    line = made.timeline(plan, snapshots)
    assert [row.sequence for row in line.rows_of(0)] == list(range(count))
    assert [(row.sequence, row.agent) for row in line.rows()] == [
        (n, agent) for n in range(count) for agent in range(2)
    ]
    assert [row.sequence for row in line.rows_of(1, stage=1)] == list(range(100, count))
    at_ns = START_NS + 70 * SECOND_NS
    assert [r.sequence for r in line.rows_of(0, None, at_ns + 1, at_ns + 2)] == [70]
    # The first agent's interval ends just then, that of the second a nanosecond later.
    assert line.connected_at(at_ns) == 69 + 68
    assert line.at_end(1, at_ns, [0], "connected") == 0
    assert line.peaks().connected == 2 * (count - 1)


@given(
    st.tuples(st.integers(0, 100), st.integers(0, 50)),
    st.integers(30, 70),
    st.tuples(st.integers(1, 9), st.integers(0, 9)),
)
def test_the_shares_of_a_row_are_its_parts_within_the_cells(
    span: tuple[int, int], origin: int, grid: tuple[int, int]
) -> None:
    (start, length), (width, cells) = span, grid
    found = list(made.row(0, start, start + length).shares(origin, width, cells))
    inside = min(start + length, origin + cells * width) - max(start, origin)
    assert length * sum(share for _, share in found) == pytest.approx(max(inside, 0))
    assert all(0 < share * length <= width + 1e-9 for _, share in found)
    assert [cell for cell, _ in found] == sorted({cell for cell, _ in found})
    assert {cell for cell, _ in found} <= {*range(cells)}


def test_a_row_without_an_end_overlaps_no_more_cells_than_there_are() -> None:
    assert len(list(made.row(0, 0, 2**63).shares(10, 1, 5))) == 5


def test_the_values_of_one_instant_make_one_step() -> None:
    values = [(0.0, "a", 3), (1.0, "a", 0), (1.0, "b", 5), (2.0, "b", 4)]
    assert list(steps(values)) == [(0.0, 3), (1.0, 5), (2.0, 4)]
    assert list(steps([])) == []


def test_an_interval_takes_a_hundred_bytes() -> None:
    """With counts that vary by chance, as those of a load do."""
    line, count = Timeline(made.plan(made.clients("a"), made.clients("b")), 10**18), 100 * BLOCK
    idle = made.population(connected=50, ready=50)
    line.take(made.snapshot(idle, idle, from_ns=10**18))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for n in range(count):
        sent = 20_000 + 7919 * n % 201
        busy = made.population(
            connected=50,
            ready=50,
            in_flight=n * 31 % 7,
            sent_total=sent,
            acked_total=sent,
            bytes_sent_total=60 * sent,
            bytes_received_total=4 * sent,
        )
        from_ns = 10**18 + n * SECOND_NS + 7919 * n % 1009
        load = made.load(busy_ns=7919 * n % 10**7, cpu_ns=7907 * n % 10**7, rss_bytes=10**7)
        line.take(made.snapshot(busy, idle, from_ns=from_ns, sequence=n, engine=load))
    # Python keeps tuples for later use until then.
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert held < 100 * count
    assert len(list(line.rows())) == count + 1


ADDITIONS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 4000), st.lists(st.integers(-5, 1 << 40), max_size=5)
    ),
    max_size=12,
)


def cells_of(additions: list[tuple[int, int, list[int]]]) -> HistogramCells[int]:
    cells = HistogramCells[int](0, SECOND_NS)
    for population, second, durations_ns in additions:
        span = second * SECOND_NS, (second + 1) * SECOND_NS
        cells.add(span, [(population, Histogram.of(durations_ns))])
    return cells


@settings(deadline=None)
@given(ADDITIONS, st.randoms(use_true_random=False))
def test_cells_do_not_depend_on_order(
    additions: list[tuple[int, int, list[int]]], random: object
) -> None:
    shuffled = additions[::-1]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert list(cells_of(shuffled).spans()) == list(cells_of(additions).spans())


@settings(deadline=None)
@given(ADDITIONS)
def test_nothing_is_lost_in_cells(additions: list[tuple[int, int, list[int]]]) -> None:
    cells = cells_of(additions)
    for population in range(3):
        total = HistogramSum()
        for index, _, durations_ns in additions:
            if index == population:
                total.add(Histogram.of(durations_ns))
        assert cells.between(population, 0, 8192 * SECOND_NS) == total.value()


def test_a_span_has_the_cells_whose_middle_lies_in_it() -> None:
    cells = HistogramCells[str](0, SECOND_NS)
    for second in range(3600):
        span = second * SECOND_NS, (second + 1) * SECOND_NS
        cells.add(span, [("late", Histogram.of([second]))])
    found = cells.between("late", 100 * SECOND_NS + 1, 200 * SECOND_NS - 1)
    assert (found.min_ns, found.max_ns) == (100, 199)
    assert cells.between("late", 10 * SECOND_NS, 10 * SECOND_NS + 5).max_ns == 10
    assert cells.between("late", 9999 * SECOND_NS, 99999 * SECOND_NS).count == 0


def test_a_cell_takes_a_small_part_of_what_its_buckets_take() -> None:
    buckets = tuple((1000 + index, 1 + index % 50) for index in range(400))
    histogram = Histogram(count=1, sum_ns=1, min_ns=1, max_ns=1, buckets=buckets)
    cells = HistogramCells[str](0, SECOND_NS)
    tracemalloc.start()
    try:
        for second in range(300):
            span = second * SECOND_NS, (second + 1) * SECOND_NS
            cells.add(span, [("late", histogram)])
        bytes_each = tracemalloc.get_traced_memory()[0] / 300
    finally:
        tracemalloc.stop()
    assert bytes_each < 1500
    assert cells.between("late", 0, 2 * SECOND_NS).buckets[0] == (1000, 2)
