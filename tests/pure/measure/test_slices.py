"""Histograms by time add up in any order, within bounds."""

from __future__ import annotations

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.measure.slices import SECOND_NS, SLICES_MAX, SliceKey, Slices

ADDITIONS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 4000), st.lists(st.integers(-5, 1 << 40), max_size=5)
    ),
    max_size=12,
)


def of(additions: list[tuple[int, int, list[int]]]) -> Slices:
    slices = Slices()
    for population, second, durations_ns in additions:
        series = SliceKey(1, "delivery", population)
        slices.add(series, second * SECOND_NS, Histogram.of(durations_ns))
    return slices


@settings(deadline=None)
@given(ADDITIONS, st.randoms(use_true_random=False))
def test_slices_do_not_depend_on_order(
    additions: list[tuple[int, int, list[int]]], random: object
) -> None:
    shuffled = additions[::-1]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert of(shuffled) == of(additions)


@settings(deadline=None)
@given(ADDITIONS)
def test_nothing_is_lost_in_slices(additions: list[tuple[int, int, list[int]]]) -> None:
    slices = of(additions)
    for population in range(3):
        total = HistogramSum()
        for index, _, durations_ns in additions:
            counted = Histogram.of(durations_ns)
            if index == population and counted.count:
                total.add(counted)
        found = slices.between(SliceKey(1, "delivery", population), 0, 8192 * SECOND_NS)
        assert found == total.value()


def test_slices_get_wider_and_not_more() -> None:
    slices, series = Slices(), SliceKey(1, "lateness")
    for second in range(3600):
        slices.add(series, second * SECOND_NS, Histogram.of([second]))
    assert slices.width_ns == 8 * SECOND_NS
    assert 3600 * SECOND_NS / slices.width_ns < SLICES_MAX
    middle = slices.between(series, 100 * SECOND_NS, 200 * SECOND_NS)
    assert (middle.min_ns, middle.max_ns) == (104, 199)


def test_a_span_shorter_than_a_slice_has_those_that_begin_in_it() -> None:
    slices, series = Slices(), SliceKey(None, "acknowledgement")
    slices.add(series, 10 * SECOND_NS, Histogram.of([7]))
    assert slices.between(series, 10 * SECOND_NS, 10 * SECOND_NS + 5).count == 1
    assert slices.between(series, 20 * SECOND_NS, 30 * SECOND_NS).count == 0


def test_a_slice_takes_a_small_part_of_what_its_buckets_take() -> None:
    buckets = tuple((1000 + index, 1 + index % 50) for index in range(400))
    histogram = Histogram(count=1, sum_ns=1, min_ns=1, max_ns=1, buckets=buckets)
    slices, series = Slices(), SliceKey(0, "delivery", 0)
    tracemalloc.start()
    try:
        for second in range(300):
            slices.add(series, second * SECOND_NS, histogram)
        bytes_each = tracemalloc.get_traced_memory()[0] / 300
    finally:
        tracemalloc.stop()
    assert bytes_each < 1200
    assert slices.between(series, 0, 2 * SECOND_NS).buckets[0] == (1000, 2)
