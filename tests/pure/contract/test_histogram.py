"""Histograms keep what they count, whatever the order it comes in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract.histogram import (
    MAX_NS,
    Histogram,
    bucket_index,
    bucket_lower_ns,
    bucket_upper_ns,
)

DURATIONS = st.lists(st.integers(-1000, 1 << 46), max_size=40)


@given(st.integers(0, MAX_NS))
def test_a_duration_lies_in_its_bucket_and_the_bucket_is_narrow(duration_ns: int) -> None:
    index = bucket_index(duration_ns)
    assert bucket_lower_ns(index) <= duration_ns <= bucket_upper_ns(index)
    assert bucket_upper_ns(index) - bucket_lower_ns(index) <= duration_ns // 128


@given(DURATIONS, DURATIONS, DURATIONS)
def test_adding_is_associative_commutative_and_loses_nothing(
    a: list[int], b: list[int], c: list[int]
) -> None:
    x, y, z = (Histogram.of(durations) for durations in (a, b, c))
    assert x.plus(y) == y.plus(x)
    assert x.plus(y).plus(z) == x.plus(y.plus(z)) == Histogram.of(a + b + c)
    assert x.plus(Histogram()) == x


@given(DURATIONS, DURATIONS)
def test_a_sum_less_a_part_is_the_rest_but_for_its_ends(part: list[int], rest: list[int]) -> None:
    removed, kept = Histogram.of(part), Histogram.of(rest)
    left = removed.plus(kept).minus(removed)
    exact = {"count", "sum_ns", "buckets", "negative_total"}
    assert left.model_dump(include=exact) == kept.model_dump(include=exact)
    assert bucket_index(left.min_ns) == bucket_index(kept.min_ns)
    assert bucket_index(left.max_ns) == bucket_index(kept.max_ns)
    assert left.min_ns <= kept.min_ns <= kept.max_ns <= max(left.max_ns, kept.max_ns)
    assert kept.minus(Histogram()) == kept
    assert kept.minus(kept) == Histogram()


@given(DURATIONS.filter(lambda durations: any(0 <= d <= MAX_NS for d in durations)))
def test_a_quantile_is_close_above_the_exact_one(durations: list[int]) -> None:
    kept = sorted(d for d in durations if 0 <= d <= MAX_NS)
    histogram = Histogram.of(kept)
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        exact = kept[max(-(-len(kept) * round(share * 10) // 10), 1) - 1]
        assert exact <= histogram.quantile_ns(share) <= exact + exact // 128


@given(DURATIONS)
def test_negative_durations_are_counted_apart(durations: list[int]) -> None:
    histogram = Histogram.of(durations)
    assert histogram.negative_total == sum(d < 0 for d in durations)
    assert histogram.count == sum(d >= 0 for d in durations)
    assert histogram.negative_min_ns == min([0, *durations])


def test_an_empty_histogram_has_zeros_and_no_division() -> None:
    empty = Histogram()
    assert (empty.mean_ns(), empty.quantile_ns(0.99), empty.count_above(0)) == (0, 0, 0)


def test_counts_above_a_duration_leave_its_own_bucket_out() -> None:
    histogram = Histogram.of([10, 20, 30])
    assert histogram.count_above(10) == 2
    assert histogram.count_above(30) == 0
