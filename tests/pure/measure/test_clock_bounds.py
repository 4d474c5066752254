"""Times between hosts with clocks of their own: the bound, and figures within it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract.commands import Hello
from pubstorm.contract.histogram import Histogram
from pubstorm.contract.snapshot import ClockState
from pubstorm.measure.run_log import clock_bound_us, clock_result
from pubstorm.result import ClockResult, Latency
from pubstorm.result.timeline.rows import Row
from tests.kit import made
from tests.kit.made import SECOND_NS

CONNECT, PUBLISH = 0, 1


def state(bound_us: float, exchanges: int = 0, **changes: int) -> ClockState:
    values = {"offset_ns": -5_000_000, "drift_ppb": 12_500, "round_trip_ns": 80_000, **changes}
    return ClockState(bound_ns=round(bound_us * 1000), exchanges_total=exchanges, **values)


def interval(second: int, stage: int, clock: ClockState | None) -> Row:
    from_ns = second * SECOND_NS
    return made.row(1, from_ns, from_ns + SECOND_NS, stage=stage, clock=clock)


def hello(clock: ClockState | None) -> Hello:
    return made.hello(1, 2, clock=clock)


def clock(bound_us: float) -> ClockResult:
    return ClockResult(
        offset_us=0, drift_ppm=0, bound_us=bound_us, round_trip_us=1, exchanges_total=1
    )


def test_the_bound_is_that_of_the_stages_in_which_messages_are_stamped() -> None:
    intervals = [
        interval(0, CONNECT, state(400, 8)),
        interval(1, PUBLISH, state(30, 24, offset_ns=-4_000_000, round_trip_ns=60_000)),
        interval(2, PUBLISH, state(20, 40, offset_ns=-3_000_000, drift_ppb=10_250)),
    ]
    found = clock_result(hello(state(900, 4)), intervals, {PUBLISH})
    assert found == ClockResult(
        offset_us=-3000, drift_ppm=10.25, bound_us=30, round_trip_us=60, exchanges_total=40
    )


@pytest.mark.parametrize(
    ("first", "intervals", "bound_us"),
    [(state(900), [interval(0, CONNECT, state(400))], 900), (state(7), [], 7)],
)
def test_without_a_publish_stage_it_is_that_of_the_whole_run(
    first: ClockState, intervals: list[Row], bound_us: float
) -> None:
    found = clock_result(hello(first), intervals, {PUBLISH})
    assert found is not None and found.bound_us == bound_us


def test_an_agent_on_the_host_of_the_reference_has_no_bound() -> None:
    assert clock_result(hello(None), [interval(0, PUBLISH, None)], {PUBLISH}) is None


def test_the_longest_time_without_an_answer_is_reported() -> None:
    counts = [8, 16, 16, 16, 24, 24, 5, 5, 5, 5]
    intervals = [interval(n, PUBLISH, state(1, count)) for n, count in enumerate(counts)]
    found = clock_result(hello(state(1, 8)), intervals, {PUBLISH})
    assert found is not None
    assert found.unanswered_s == 3


@pytest.mark.parametrize(
    ("bounds", "found"),
    [([3, None, 20, 15], 35), ([20, None], 20), ([20], 0), ([None, None], 0), ([], 0)],
)
def test_times_between_agents_are_off_by_the_two_largest_bounds(
    bounds: list[float | None], found: float
) -> None:
    assert clock_bound_us([None if each is None else clock(each) for each in bounds]) == found


def test_an_empty_latency_has_no_bound() -> None:
    assert Latency.of(Histogram(), 12.5) == Latency()


def test_without_a_bound_negative_times_are_in_no_other_figure() -> None:
    found = Latency.of(Histogram.of([-500, 1000, 3000]))
    assert (found.count, found.negative_total, found.mean, found.min) == (2, 1, 2.0, 1.0)


def test_within_a_bound_negative_times_count_as_nothing() -> None:
    found = Latency.of(Histogram.of([-500, 1000, 3500]), 10)
    assert (found.count, found.negative_total, found.mean, found.min) == (3, 1, 1.5, 0.0)
    assert (found.p50, found.bound_us) == (1.003, 10)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(-20_000, 20_000)), min_size=1))
def test_every_figure_is_off_by_the_bound_at_most(durations: list[tuple[int, int]]) -> None:
    bound_us = 20.0
    true = Latency.of(Histogram.of(each for each, _ in durations))
    found = Latency.of(Histogram.of(each + error for each, error in durations), bound_us)
    assert found.count == true.count
    for name in ("mean", "min", "p50", "p90", "p99", "p999", "max"):
        # Buckets are at most 0.8 % wide.
        slack_us = 0.01 * getattr(true, name) + 0.01 * bound_us + 0.01
        assert abs(getattr(found, name) - getattr(true, name)) <= bound_us + slack_us, name


@given(st.lists(st.integers(-(10**12), 10**12)))
def test_counted_from_zero_is_the_sum_with_each_negative_one_as_zero(durations: list[int]) -> None:
    raised = Histogram.of(durations).from_zero()
    assert raised == Histogram.of(max(each, 0) for each in durations)
