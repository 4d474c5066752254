"""Conditions on times that are off by a bound, and what clocks bear on the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.experiment.search.answer import evaluated as evaluated_trial
from pubstorm.metrics.expressions import parse_threshold
from pubstorm.result import Measured, PhasePopulation, RunResult, Trial, Verdict
from pubstorm.result.figures import evaluate_threshold
from pubstorm.result.figures.table import cells
from pubstorm.result.verdict import evaluate_run
from tests.kit.measured import DELIVERIES, MeasuredMaker, latency, phase


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
    ["latency.p99", "latency.actual.p99", "backend.latency.mean", "backend.latency.actual.max"],
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
    populations = {"backend": PhasePopulation(latency_us=delivered, ack_latency_us=latency())}
    run = measured(phases=(phase(latency_us=delivered, populations=populations),))
    texts = [
        evaluate_threshold(run, parse_threshold(f"backend.{metric}.p99@more < 1s")).text
        for metric in ("latency", "ack_latency")
    ]
    assert texts == ["found 200 µs ± 30.0 µs", "found 200 µs"]


def test_a_search_does_not_count_what_is_undecided(measured: MeasuredMaker) -> None:
    run = far_apart(measured)
    result = RunResult.of(run, evaluated(run, "backend.latency.p99 < 9.9ms"))
    trial = Trial(number=1, value=1, written="1", folder="1", phase="grow")
    found = evaluated_trial(trial, result, None)
    assert (found.counted, found.limited_by) == (False, "generator")


def test_a_table_shows_the_bound(measured: MeasuredMaker) -> None:
    run = far_apart(measured)
    table = {"p99": "backend.latency.p99", "acks": "device.ack_latency.p99"}
    shown = cells(table, RunResult.of(run, evaluated(run)))
    assert {name: cell.text for name, cell in shown.items()} == {
        "p99": "9.96 ms ± 100 µs",
        "acks": "200 µs",
    }
