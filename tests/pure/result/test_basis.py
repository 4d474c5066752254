"""A condition about nothing is not met, and the outcome says why there was nothing."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.result import FailureResult, Latency, LatencyPair, Status
from pubstorm.result.figures.thresholds import parse_threshold
from pubstorm.result.verdict import evaluate_run
from tests.kit.measured import MeasuredMaker

NOTHING_CAME: dict[str, Any] = {
    "backend": {"expected_total": 0, "received_total": 0, "latency_us": LatencyPair()},
    "flows": (),
}
LOST = FailureResult(agent=1, at_s=1.6, clients=16, text="agent 1 was killed by signal 9")
UNMATCHED = "no publication matches the filters of backend"
IDLE: dict[str, Any] = {
    **NOTHING_CAME,
    "device": {"sent_total": 0, "acked_total": 0, "ack_latency_us": LatencyPair()},
}


def with_backend(**changes: Any) -> dict[str, Any]:
    return {**NOTHING_CAME, "backend": {**NOTHING_CAME["backend"], **changes}}


@pytest.mark.parametrize(
    ("line", "changes", "why"),
    [
        ("backend.lost == 0", NOTHING_CAME, f"no delivery to backend was expected: {UNMATCHED}"),
        ("backend.lost_total == 0", NOTHING_CAME, UNMATCHED),
        ("backend.loss < 1%", NOTHING_CAME, UNMATCHED),
        ("backend.duplicate == 0", NOTHING_CAME, UNMATCHED),
        ("backend.latency.p99 < 1s", NOTHING_CAME, UNMATCHED),
        ("backend.latency.actual.p50 < 1s", NOTHING_CAME, UNMATCHED),
        ("lost == 0", NOTHING_CAME, "no publication matches the filters of any population"),
        (
            "lost == 0",
            {**NOTHING_CAME, "fleet": {"failures": (LOST,)}},
            "no delivery was expected: what clients of failed agents were to receive is not known",
        ),
        ("backend.lost == 0", with_backend(asked_max=0), "no stage connects backend"),
        ("backend.lost == 0", with_backend(subscribed_total=0), "backend subscribes to nothing"),
        ("backend.lost == 0", with_backend(lives=True), "clients of backend joined or left"),
        ("backend.never_ready == 0", with_backend(asked_max=0), "no stage connects it"),
        (
            "backend.lost == 0",
            IDLE,
            "no delivery to backend was expected: no message was published",
        ),
        ("device.skipped == 0", IDLE, "no message of device was scheduled"),
        ("device.abandoned == 0", IDLE, "no message of device was scheduled"),
        ("device.subscribe_failed == 0", {}, "no filter of device was sent to a broker"),
        (
            "backend.latency.p99 < 1s",
            with_backend(expected_total=7, lost_total=7),
            "none of 7 deliveries to backend came",
        ),
        (
            "device.disconnected == 0",
            {"device": {"connect_attempts_total": 0}},
            "no client of device was to connect",
        ),
        ("device.lost@publish == 0", {}, "no delivery to device was expected in publish"),
    ],
)
def test_a_condition_about_nothing_is_not_met_and_says_why(
    measured: MeasuredMaker, line: str, changes: dict[str, Any], why: str
) -> None:
    verdict = evaluate_run(measured(**changes), [parse_threshold(line)])
    (outcome,) = verdict.thresholds
    assert verdict.status is Status.FAIL
    assert (outcome.passed, outcome.found) == (False, None)
    assert why in outcome.text


@pytest.mark.parametrize(
    "line",
    [
        "backend.lost == 0",
        "lost == 0",
        "backend.loss == 0%",
        "backend.duplicate == 0",
        "backend.latency.p99 < 1s",
        "device.skipped == 0",
        "device.connect_failed == 0",
        "disconnected == 0",
        "never_ready == 0",
        # What a stage does not keep is not asked of it.
        "device.disconnected@publish == 0",
    ],
)
def test_a_condition_about_something_is_evaluated(measured: MeasuredMaker, line: str) -> None:
    assert evaluate_run(measured(), [parse_threshold(line)]).thresholds[0].passed


def test_a_latency_that_was_measured_counts(measured: MeasuredMaker) -> None:
    slow = LatencyPair(intended=Latency(count=5, p99=9e6))
    outcome = evaluate_run(
        measured(backend={"latency_us": slow}), [parse_threshold("backend.latency.p99 < 1s")]
    ).thresholds[0]
    assert outcome.found == 9e6
