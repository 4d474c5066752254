"""Comparisons of runs: what they call different, what they can show, and what they withhold."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract.histogram import Histogram
from pubstorm.metrics.expressions import parse_expression
from pubstorm.quantities import UnfitError
from pubstorm.result import HistogramPair, LatencyPair, Measured, PhaseStatus, Rates, Status
from pubstorm.result.comparison import Comparison, Group, compare, default_figures, parse_condition
from pubstorm.result.interval import POWER, Difference, Repeats, difference
from tests.kit.measured import ENVIRONMENT, MeasuredMaker, backend, device, latency, phase

COMPARISONS = 100
LEVEL = 0.05


def run(good: Measured, random_: random.Random, slower: float = 1.0) -> Measured:
    """A simulated run: its latencies, rates and connect times vary from run to run."""
    of_run = slower * random_.lognormvariate(0, 0.028)
    found = latency().model_copy(
        update={"p50": 50 * of_run, "p99": 200 * of_run * random_.lognormvariate(0, 0.1)}
    )
    receiver = backend(
        latency_us=LatencyPair(intended=found, actual=found),
        rates=Rates(received_per_s=random_.gauss(1000, 5)),
        lost_total=random_.choice((0, 0, 0, 1)),
        connect_time_us=latency(100, p99=random_.lognormvariate(6, 0.1)),
    )
    sender = device(connect_time_us=latency(100, p99=random_.lognormvariate(6, 0.1)))
    return good.model_copy(update={"populations": {"device": sender, "backend": receiver}})


def compared(
    baseline: Sequence[Measured], candidate: Sequence[Measured], *conditions: str
) -> Comparison:
    """The comparison of two groups in their default figures."""
    groups = [
        Group(name, results, [f"{name}/{n}" for n in range(len(results))])
        for name, results in (("baseline", baseline), ("candidate", candidate))
    ]
    figures = default_figures((*baseline, *candidate))
    return compare(groups[0], groups[1], figures, [parse_condition(c) for c in conditions], "")


def outcome(comparison: Comparison, figure: str) -> str:
    return next(each.outcome for each in comparison.figures if each.figure == figure)


@pytest.mark.parametrize("repeats", [3, 5])
def test_equal_runs_are_rarely_called_different(measured: MeasuredMaker, repeats: int) -> None:
    good, random_, called = measured(), random.Random(repeats), 0
    for _ in range(COMPARISONS):
        one, other = ([run(good, random_) for _ in range(repeats)] for _ in range(2))
        found = compared(one, other)
        assert len(found.figures) == 7, "all figures are compared"
        called += any(each.outcome in {"better", "worse"} for each in found.figures)
    assert called <= LEVEL * COMPARISONS


def test_a_planted_slowdown_of_5_percent_is_found(measured: MeasuredMaker) -> None:
    good, random_ = measured(), random.Random(7)
    figure = parse_expression("latency.p50")
    found = []
    for _ in range(COMPARISONS):
        one, other = (
            Group(str(slower), [run(good, random_, slower) for _ in range(8)], [])
            for slower in (1.0, 1.05)
        )
        found.append(compare(one, other, [figure], [], "").figures[0])
    stated = sorted(each.smallest or 0 for each in found)[COMPARISONS // 2]
    assert stated < 0.05, "8 runs that vary so much show 5 %"
    assert sum(each.outcome == "worse" for each in found) / COMPARISONS >= POWER
    assert not any(each.outcome == "better" for each in found)


@pytest.mark.parametrize("repeats", [4, 10])
def test_the_smallest_difference_is_found_as_often_as_stated(repeats: int) -> None:
    """The stated size comes from the spread that was found, which varies itself, so the probability
    is 80 % only about."""
    random_ = random.Random(repeats)

    def found(by: float) -> Difference:
        one, other = ([random_.gauss(mean) for _ in range(repeats)] for mean in (0.0, by))
        return difference(Repeats(one), Repeats(other), 1 - LEVEL)

    smallest = sorted(found(0.0).smallest for _ in range(1000))[500]
    assert sum(found(smallest).low > 0 for _ in range(1000)) / 1000 == pytest.approx(POWER, abs=0.1)
    assert sum(found(0.0).is_shown for _ in range(1000)) / 1000 <= LEVEL + 0.015


def test_a_difference_needs_two_runs_of_each_side(measured: MeasuredMaker) -> None:
    random_ = random.Random(1)
    runs = [run(measured(), random_) for _ in range(3)]
    found = compared(runs[:1], runs[1:], "latency.p99 worse by 5%")
    assert {each.outcome for each in found.figures} == {"not known"}
    assert {each.difference for each in found.figures} == {None}
    assert found.status is Status.INVALID, "nothing was shown, so nothing passes"
    assert "2 runs of each side" in found.text


def test_runs_that_are_all_equal_are_equal(measured: MeasuredMaker) -> None:
    found = compared([measured()] * 3, [measured()] * 3, "loss worse by 1%")
    assert {each.outcome for each in found.figures} == {"equal"}
    assert found.status is Status.PASS


def test_one_bucket_of_a_histogram_is_no_difference(measured: MeasuredMaker) -> None:
    """Percentiles are rounded to buckets: runs on two sides of an edge may be as good as equal."""
    one, other = ([measured(backend={"latency_us": _at(ns)})] * 3 for ns in (100_000, 100_700))
    assert outcome(compared(one, other), "latency.p50") == "no difference detectable"


def _at(duration_ns: int) -> object:
    histogram = Histogram.of([duration_ns] * 10)
    return HistogramPair(intended=histogram, actual=histogram).latency_us()


def test_loss_that_appears_is_worse_than_none(measured: MeasuredMaker) -> None:
    lossy = [measured(backend={"lost_total": lost}) for lost in (10, 12, 11)]
    found = compared([measured()] * 3, lossy, "loss worse by 50%")
    assert outcome(found, "loss") == "worse"
    assert found.status is Status.FAIL


def test_more_throughput_and_less_latency_are_better(measured: MeasuredMaker) -> None:
    random_ = random.Random(2)
    slow = [run(measured(), random_, 2.0) for _ in range(4)]
    fast = [run(measured(), random_) for _ in range(4)]
    assert outcome(compared(slow, fast), "latency.p99") == "better"
    assert outcome(compared(fast, slow), "latency.p99") == "worse"
    fewer = [
        r.model_copy(
            update={"populations": {"backend": backend(rates=Rates(received_per_s=900 + n))}}
        )
        for n, r in enumerate(fast)
    ]
    assert outcome(compared(fast, fewer), "received_per_s") == "worse"


@pytest.mark.parametrize(
    ("factor", "condition", "status"),
    [
        (2.0, "latency.p99 worse by 50%", Status.FAIL),
        (2.0, "latency.p99 higher by 50%", Status.FAIL),
        (2.0, "latency.p99 lower by 5%", Status.PASS),
        (1.0, "latency.p99 worse by 50%", Status.PASS),
        (1.0, "latency.p99 worse by 1%", Status.INVALID),
        (2.0, "latency.p99 worse by 150%", Status.INVALID),
    ],
)
def test_a_condition_is_decided_by_the_interval(
    measured: MeasuredMaker, factor: float, condition: str, status: Status
) -> None:
    random_ = random.Random(9)
    one, other = ([run(measured(), random_, by) for _ in range(4)] for by in (1.0, factor))
    found = compared(one, other, condition)
    assert found.status is status, found.conditions
    if status is Status.INVALID:
        assert "decide it" in found.conditions[0].text


def test_publishers_alone_are_compared_by_what_was_acknowledged(measured: MeasuredMaker) -> None:
    alone = measured(backend={"rates": Rates()})
    figures = [str(each) for each in default_figures([alone])]
    assert "acked_per_s" in figures
    assert "received_per_s" not in figures, "no client receives"


def test_any_percentile_is_compared_without_a_scenario_that_names_it(
    measured: MeasuredMaker,
) -> None:
    one, other = (
        [measured(**_spread(random.Random(slow * 10 + n), slow)) for n in range(4)]
        for slow in (1, 2)
    )
    found = compared(one, other, "backend.latency.p95 worse by 10%", "latency.p99.5 worse by 10%")
    assert found.status is Status.FAIL
    assert [each.status for each in found.conditions] == [Status.FAIL, Status.FAIL]
    assert outcome(found, "backend.latency.p95") == "worse"


def _spread(random_: random.Random, slow: float) -> dict[str, object]:
    """Receivers whose latencies vary in each run."""
    durations = [round(slow * random_.lognormvariate(12, 0.5)) for _ in range(500)]
    histogram = Histogram.of(durations)
    pair = HistogramPair(intended=histogram, actual=histogram)
    latency_us = pair.latency_us()
    return {"backend": {"latency_us": latency_us}, "flow": {"histogram_ns": pair}}


def test_steps_of_series_are_paired_and_are_no_repeats(measured: MeasuredMaker) -> None:
    """Steps differ tenfold. Their latencies are 1.3 times as long on the other side, in each."""
    random_ = random.Random(3)
    one, other = (
        {
            f"step {level}": [run(measured(), random_, level * slow * random_.gauss(1, 0.01))]
            for level in (1, 10, 100)
        }
        for slow in (1.0, 1.3)
    )
    groups = [
        Group(name, [each for runs in steps.values() for each in runs], [], steps=steps)
        for name, steps in (("baseline", one), ("candidate", {**other, "step 7": one["step 1"]}))
    ]
    found = compare(groups[0], groups[1], [parse_expression("latency.p50")], [], "")
    every, *steps = found.figures
    assert (every.step, every.pairs, every.pairs_higher) == ("all steps", 3, 3)
    assert every.outcome == "worse"
    assert every.difference == pytest.approx(0.3, abs=0.1)
    assert [each.outcome for each in steps] == ["not known"] * 3
    pooled = compared(groups[0].results, groups[1].results)  # type: ignore[arg-type]
    assert outcome(pooled, "latency.p50") == "no difference detectable"


def test_the_repeats_that_would_decide_decide_it() -> None:
    chance = random.Random(4)

    def found(repeats: int) -> Difference:
        one, other = ([chance.gauss(mean) for _ in range(repeats)] for mean in (0.0, 1.0))
        return difference(Repeats(one), Repeats(other), 0.95)

    needed = [each.repeats(1.0, 0.95, 5) for each in (found(5) for _ in range(200))]
    repeats = sorted(each or 0 for each in needed)[100]
    assert 12 <= repeats <= 22, "17 of each side show one deviation with 80 %"
    assert sum(found(repeats).is_shown for _ in range(200)) >= 140
    assert found(5).repeats(1e-6, 0.95, 5) is None
    assert found(5).repeats(0.0, 0.95, 5) is None


def test_a_linear_drift_is_no_spread_where_the_sides_were_played_in_turn() -> None:
    chance = random.Random(6)
    turns = ([0.0, 3, 4, 7, 8], [1.0, 2, 5, 6, 9])
    one, other = ([turn + chance.gauss(0, 0.1) for turn in each] for each in turns)
    plain = difference(Repeats(one), Repeats(other), 0.95)
    drifting = difference(Repeats(one, turns[0]), Repeats(other, turns[1]), 0.95)
    assert drifting.low <= 0 <= drifting.high
    assert drifting.high - drifting.low < (plain.high - plain.low) / 10
    apart = difference(Repeats(one, range(5)), Repeats(other, range(5, 10)), 0.95)
    assert apart == plain, "sides one after the other: a drift looks like a difference"


def test_a_percentile_of_few_messages_is_never_more_exact_than_their_number(
    measured: MeasuredMaker,
) -> None:
    """Two runs of each side agree by chance in the 99th percentile of 200 messages."""
    histogram = Histogram.of([*range(1_000_000, 1_990_000, 5_000), *[9_000_000] * 3])
    slower = Histogram.of([*range(1_000_000, 1_990_000, 5_000), *[12_000_000] * 3])
    runs = []
    for each in (histogram, slower):
        pair = HistogramPair(intended=each, actual=each)
        parts = {"backend": {"latency_us": pair.latency_us()}, "flow": {"histogram_ns": pair}}
        runs.append([measured(**parts), measured(**parts)])
    found = compared(runs[0], runs[1])
    assert outcome(found, "latency.p99") == "no difference detectable"


def test_a_longer_recovery_is_worse(measured: MeasuredMaker) -> None:
    killed = phase(name="kill cloud", status=PhaseStatus.COLLAPSED, collapsed_at_s=20)
    one, other = (
        [
            measured(phases=(killed.model_copy(update={"recovered_after_s": slow + n / 10}),))
            for n in range(4)
        ]
        for slow in (3, 6)
    )
    condition = "recovery@kill cloud worse by 10%"
    found = compared(one, other, condition)
    assert outcome(found, "recovery@kill cloud") == "worse"
    assert found.status is Status.FAIL


def test_what_else_differs_is_named(measured: MeasuredMaker) -> None:
    other = measured(environment=ENVIRONMENT.model_copy(update={"host": "other", "cores": 4}))
    found = compared([measured()] * 2, [other] * 2)
    assert found.unlike == ("host: box and other", "cores: 2 and 4")


@pytest.mark.parametrize(
    "source",
    [
        "latency.p99",
        "latency.p99 worse",
        "latency worse by 5%",
        "latency.p99 worse by much",
        "clients worse by 5%",
        "latency.p99 slower by 5%",
        "latency.p99 worse by 5",
        "latency.p99 worse by -5%",
        "latency.p99 worse by 1e-400%%",
        "",
    ],
)
def test_a_wrong_condition_says_what_is_allowed(source: str) -> None:
    with pytest.raises(UnfitError, match="allowed"):
        parse_condition(source)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8),
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8),
)
def test_the_difference_mirrors(first: list[float], second: list[float]) -> None:
    one, other = Repeats(first), Repeats(second)
    there, back = difference(one, other, 0.95), difference(other, one, 0.95)
    assert there == replace(back, value=-back.value, low=-back.high, high=-back.low)
    assert there.low <= there.value <= there.high


def test_the_interval_is_that_of_welch() -> None:
    """The data are `sleep` of R, and the interval is that of `t.test(extra ~ group)`, with 17.776
    degrees of freedom."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = difference(Repeats(first), Repeats(second), 0.95)
    assert found.value == pytest.approx(1.58)
    assert (found.low, found.high) == pytest.approx((-0.2054832, 3.3654832), abs=1e-3)
    assert found.degrees == pytest.approx(17.776, abs=1e-3)
