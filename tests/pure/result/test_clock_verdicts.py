"""Conditions on times that are off by a bound, and what clocks bear on the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.contract.histogram import Histogram
from pubstorm.experiment.search.trial import evaluated as evaluated_trial
from pubstorm.result import (
    AgentResult,
    ClockResult,
    HistogramPair,
    Measured,
    Phase,
    PhasePopulation,
    PhaseStatus,
    Result,
    Trial,
    Verdict,
)
from pubstorm.result.figures.table import cells
from pubstorm.result.figures.thresholds import parse_threshold
from pubstorm.result.verdict import evaluate_run, evaluate_threshold
from tests.kit.measured import DELIVERIES, MeasuredMaker, fleet, latency

NB = "\u202f"


def far_apart(measured: MeasuredMaker, bound_us: float = 100, **changes: Any) -> Measured:
    """A good run whose deliveries take up to 10 ms, by clocks of two hosts."""
    pair = DELIVERIES.latency_us(bound_us)
    fleet = {"clock_bound_us": bound_us, **changes.pop("fleet", {})}
    return measured(backend={"latency_us": pair}, fleet=fleet, **changes)


def evaluated(measured: Measured, *thresholds: str) -> Verdict:
    return evaluate_run(measured, [parse_threshold(line) for line in thresholds])


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        ("< 10.1ms", "passed"),
        ("< 10.04ms", "undecided"),
        ("< 9.9ms", "undecided"),
        ("< 9.8ms", "failed"),
        ("<= 10.1ms", "passed"),
        ("<= 9.7ms", "failed"),
        ("> 9.8ms", "passed"),
        ("> 9.9ms", "undecided"),
        (">= 10ms", "undecided"),
        ("> 10.1ms", "failed"),
        ("== 9.9ms", "undecided"),
        ("== 5ms", "failed"),
        ("!= 9.9ms", "undecided"),
        ("!= 5ms", "passed"),
    ],
)
def test_a_condition_holds_only_where_it_holds_all_the_way(
    condition: str, outcome: str, measured: MeasuredMaker
) -> None:
    line = f"backend.latency.p99 {condition}"
    found = evaluate_threshold(far_apart(measured), parse_threshold(line))
    words = {"passed": found.passed, "undecided": found.undecided, "failed": found.missed}
    assert [word for word, is_so in words.items() if is_so] == [outcome], found


def test_no_time_is_less_than_nothing(measured: MeasuredMaker) -> None:
    run = far_apart(measured, bound_us=1e6)
    assert evaluate_threshold(run, parse_threshold("backend.latency.min >= 0us")).passed


@pytest.mark.parametrize(
    "expression",
    [
        "latency.p99",
        "latency.actual.p99",
        "backend.latency.mean",
        "backend.latency.actual.max",
    ],
)
def test_every_delivery_latency_has_the_bound(expression: str, measured: MeasuredMaker) -> None:
    outcome = evaluate_threshold(far_apart(measured), parse_threshold(f"{expression} < 1s"))
    assert outcome.text.endswith("± 100 µs")


@pytest.mark.parametrize("expression", ["ack_latency.p99", "connect_time.p99"])
def test_what_one_clock_measures_has_none(expression: str, measured: MeasuredMaker) -> None:
    outcome = evaluate_threshold(far_apart(measured), parse_threshold(f"device.{expression} < 1s"))
    assert outcome.text == "found 200 µs"


def test_the_latency_of_a_phase_has_the_bound_too(measured: MeasuredMaker) -> None:
    delivered = latency().model_copy(update={"bound_us": 30.0})
    phase = Phase(
        stage="publish",
        name="more",
        start_s=1,
        duration_s=9,
        clients=100,
        due_per_s=0,
        sent_per_s=0,
        acked_per_s=0,
        received_per_s=0,
        queue_growth_per_s=0,
        latency_us=delivered,
        populations={"backend": PhasePopulation(latency_us=delivered, ack_latency_us=latency())},
        status=PhaseStatus.HELD,
    )
    run = measured(phases=(phase,))
    texts = [
        evaluate_threshold(run, parse_threshold(f"backend.{metric}.p99@more < 1s")).text
        for metric in ("latency", "ack_latency")
    ]
    assert texts == ["found 200 µs ± 30.0 µs", "found 200 µs"]


def test_an_undecided_condition_makes_the_run_invalid(measured: MeasuredMaker) -> None:
    verdict = evaluated(far_apart(measured), "backend.latency.p99 < 9.9ms", "backend.lost == 0")
    assert (str(verdict.status), str(verdict.limited_by)) == ("invalid", "generator")
    assert verdict.facts == (
        "backend.latency.p99 < 9.9ms: found 9.96 ms ± 100 µs: the clocks are too inexact to decide",
    )


def test_conditions_that_are_far_away_are_evaluated_as_ever(measured: MeasuredMaker) -> None:
    run = far_apart(measured)
    assert str(evaluated(run, "backend.latency.p99 < 20ms").status) == "pass"
    assert str(evaluated(run, "backend.latency.p99 < 2ms").status) == "fail"


def test_what_surely_failed_decides_the_run(measured: MeasuredMaker) -> None:
    """It fails whatever the undecided condition would have come to."""
    run = far_apart(measured)
    verdict = evaluated(run, "backend.latency.p99 < 9.9ms", "backend.latency.p99 < 2ms")
    assert (str(verdict.status), str(verdict.limited_by)) == ("fail", "broker")
    assert verdict.facts[0] == "backend.latency.p99 < 2ms: found 9.96 ms ± 100 µs"


def test_a_search_does_not_count_what_is_undecided(measured: MeasuredMaker) -> None:
    run = far_apart(measured)
    result = Result.of(run, evaluated(run, "backend.latency.p99 < 9.9ms"))
    trial = Trial(number=1, value=1, written="1", folder="1", phase="grow")
    found = evaluated_trial(trial, result, None)
    assert not found.counted
    assert found.why is not None
    assert found.why.startswith("the load generator was the limit: backend.latency.p99 < 9.9ms")


def test_a_table_shows_the_bound(measured: MeasuredMaker) -> None:
    run = far_apart(measured)
    table = {"p99": "backend.latency.p99", "acks": "device.ack_latency.p99"}
    shown = cells(table, Result.of(run, evaluated(run)))
    assert {name: cell.text for name, cell in shown.items()} == {
        "p99": "9.96 ms ± 100 µs",
        "acks": "200 µs",
    }


def test_what_the_bound_explains_is_reported(measured: MeasuredMaker) -> None:
    pair = early(-40_000)
    run = far_apart(measured, flow={"histogram_ns": pair, "latency_us": pair.latency_us(100)})
    verdict = evaluated(run)
    assert str(verdict.status) == "pass"
    assert verdict.evidence == (
        f"device → backend: 2 of 1{NB}002 deliveries seem to have come before they were sent, by "
        "up to 40.0 µs: the clocks are known to ± 100 µs, so they count as 0",
    )


@pytest.mark.parametrize(
    ("bound_us", "why"),
    [
        (100, "more than the ± 100 µs that the clocks are known to: a clock is wrong"),
        (0, "though all agents are said to have one clock: a clock is wrong"),
    ],
)
def test_what_it_does_not_explain_makes_the_run_invalid(
    bound_us: float, why: str, measured: MeasuredMaker
) -> None:
    verdict = evaluated(far_apart(measured, bound_us, flow={"histogram_ns": early(-3 * 10**9)}))
    assert (str(verdict.status), str(verdict.limited_by)) == ("invalid", "generator")
    assert verdict.evidence[0].endswith(f"sent, by up to 3.00 s, {why}")


def early(most_ns: int) -> HistogramPair:
    """Deliveries of which two seem to have come before they were sent."""
    durations = [most_ns, -1000, *(n * 10_000 for n in range(1, 1001))]
    return HistogramPair(intended=DELIVERIES.intended, actual=Histogram.of(durations))


@pytest.mark.parametrize(
    ("unanswered_s", "said"),
    [
        ((0.5, 2.9), None),
        ((0.5, 12.0), "agent 1 on 10.0.0.3 had no answer of the reference clock for 12.0 s; its "),
        ((4.0, 12.0), "2 of 2 agents, such as agent 1 on 10.0.0.3, had no answer of the reference"),
    ],
)
def test_agents_without_an_answer_are_reported(
    unanswered_s: tuple[float, float], said: str | None, measured: MeasuredMaker
) -> None:
    (local,) = fleet().agents
    agents = (local, *(remote(agent, unanswered_s[agent]) for agent in (0, 1)))
    verdict = evaluated(far_apart(measured, fleet={"agents": agents}))
    assert str(verdict.status) == "pass"
    assert (verdict.evidence[0].startswith(said)) if said else not verdict.evidence


def remote(agent: int, unanswered_s: float) -> AgentResult:
    (local,) = fleet().agents
    clock = ClockResult(
        offset_us=-3.6e9,
        drift_ppm=12.5,
        bound_us=50,
        round_trip_us=80,
        exchanges_total=320,
        unanswered_s=unanswered_s,
    )
    changes = {"agent": agent, "host": f"10.0.0.{2 + agent}", "clock": clock}
    return local.model_copy(update=changes)
