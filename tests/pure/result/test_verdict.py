"""Verdicts on runs. A case of the golden file is a good run with changes, the status and the limit
of this run, and the sentences about it, which begin with `>`: the headline, unless it is that
of the good run, and the facts. A changed sentence costs
`UPDATE_GOLDEN=1 pytest tests/pure/result/test_verdict.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from pubstorm.contract.reasons import Reason
from pubstorm.metrics.expressions import parse_threshold
from pubstorm.report.data import conclusion_of
from pubstorm.report.files import junit
from pubstorm.report.of_run import run_document
from pubstorm.result import (
    Event,
    Latency,
    LatencyPair,
    LimitedBy,
    RunResult,
    StagePopulation,
    Status,
    Verdict,
)
from pubstorm.result.figures import evaluate_threshold
from pubstorm.result.verdict import evaluate_run
from tests.kit.golden import agree
from tests.kit.measured import MeasuredMaker
from tests.pure.result.made_runs import verdict_of

GOLDEN = Path(__file__).parent / "verdicts.golden"


def asked(case: str) -> str:
    """The part of a case that is written by hand: a heading, and changes."""
    return "\n".join(line for line in case.splitlines() if not line.startswith(">"))


CASES = [asked(case) for case in re.split(r"\n(?=##)", GOLDEN.read_text(encoding="utf-8"))]
HEADINGS = [case.splitlines()[0].removeprefix("## ").rpartition(": ") for case in CASES]


def found(measured: MeasuredMaker, case: str) -> Verdict:
    return verdict_of(measured, yaml.safe_load(case) or {})


@pytest.mark.parametrize(
    ("case", "outcome"),
    [(case, outcome) for case, (_, _, outcome) in zip(CASES, HEADINGS, strict=True)],
    ids=[name for name, _, _ in HEADINGS],
)
def test_a_run_has_its_status_and_its_limit(
    measured: MeasuredMaker, case: str, outcome: str
) -> None:
    verdict = found(measured, case)
    assert f"{verdict.status}, {verdict.limited_by}" == outcome, verdict.evidence


def test_the_sentences_about_each_run_are_those_of_the_golden_file(measured: MeasuredMaker) -> None:
    usual = evaluate_run(measured(), []).headline.rstrip(".")
    whole: list[str] = []
    for case in CASES:
        verdict = found(measured, case)
        is_usual = whole and verdict.headline.startswith(usual)
        headline = [] if is_usual else [f"> {verdict.headline}"]
        whole += [case, *headline, *(f"> - {fact}" for fact in verdict.facts)]
    agree(GOLDEN, "\n".join(whole) + "\n")


def test_every_reason_of_tls_and_websocket_has_advice(measured: MeasuredMaker) -> None:
    reasons = [
        reason
        for reason in Reason
        if reason.startswith(("certificate_", "tls_", "upgrade_", "http_"))
        or reason in {"wrong_accept_key", "no_subprotocol"}
    ]
    assert len(reasons) > 9
    for reason in reasons:
        failed = {"connect_failed_total": 3, "outcomes": {reason: 3}}
        evidence = evaluate_run(measured(device=failed), []).evidence
        assert any(line.startswith(f"{reason} (3 ×): ") for line in evidence), reason


@pytest.mark.parametrize("outcome", ["connect_closed", "connect_reset"])
@pytest.mark.parametrize(
    ("version", "connect_bytes", "words"),
    [
        ("mqtt-3.1.1", 100, ["mqtts://"]),
        ("mqtt-3.1.1", 60_000, ["mqtts://", "max_packet_size"]),
        ("mqtt-5", 100, ["mqtts://", "RabbitMQ"]),
        ("mqtt-5", 60_000, ["mqtts://", "RabbitMQ", "max_packet_size"]),
        ("zmtp-3.1", 100, []),
    ],
)
def test_a_broker_that_answers_no_connect_has_advice(
    measured: MeasuredMaker, outcome: str, version: str, connect_bytes: int, words: list[str]
) -> None:
    refused = {
        "version": version,
        "connect_attempts_total": 30,
        "connect_failed_total": 30,
        "connected_total": 0,
        "outcomes": {outcome: 30},
        "bytes_sent_total": 30 * connect_bytes,
    }

    def advice(**changes: object) -> list[str]:
        evidence = evaluate_run(measured(device={**refused, **changes}), []).evidence
        return [fact for fact in evidence if "CONNACK" in fact]

    found = advice()
    assert [word in fact for word, fact in zip(words, found, strict=True)] == [True] * len(words)
    assert advice(connected_total=1) == []


@pytest.mark.parametrize(
    ("busy", "intervals", "status"),
    [(1, 5, "pass"), (1, 3, "pass"), (1, 2, "invalid"), (1, 1, "invalid"), (2, 5, "invalid")],
)
def test_one_busy_interval_of_several_discards_no_run(
    busy: int, intervals: int, status: str, measured: MeasuredMaker
) -> None:
    fleet = {"busy_intervals_total": busy, "load_intervals_total": intervals}
    assert evaluate_run(measured(fleet=fleet), []).status == status


@pytest.mark.parametrize(
    ("line", "passed"),
    [
        ("device.sent == 1k", True),
        ("device.sent_total != 1000", False),
        ("device.sent < 1000", False),
        ("device.sent <= 1000", True),
        ("device.sent > 1000", False),
        ("device.sent >= 1000", True),
        ("device.connected >= 100", True),
        ("backend.latency.max <= 10ms", True),
        ("backend.latency.actual.max < 9ms", False),
        ("device.ack_latency.p50 == 50us", True),
        ("device.latency.p99 != 1s", False),
        *(
            (line, True)
            for line in (
                "backend.lost == 0",
                "lost == 0",
                "backend.loss == 0%",
                "backend.duplicate == 0",
                "backend.latency.p99 < 1s",
                "device.skipped == 0",
                "device.connect_failed == 0",
                "disconnected == 0",
                "never_ready == 0",
                # A stage is asked only for figures that it keeps.
                "device.disconnected@publish == 0",
            )
        ),
    ],
)
def test_conditions_mean_what_they_say(line: str, passed: bool, measured: MeasuredMaker) -> None:
    assert evaluate_threshold(measured(), parse_threshold(line)).passed is passed


def test_a_latency_that_was_measured_counts(measured: MeasuredMaker) -> None:
    slow = LatencyPair(intended=Latency(count=5, p99=9e6))
    run = measured(backend={"latency_us": slow})
    assert evaluate_threshold(run, parse_threshold("backend.latency.p99 < 1s")).found == 9e6


def test_a_run_that_was_changed_by_hand_says_so(measured: MeasuredMaker) -> None:
    paused = Event(at_s=2.0, kind="by_hand", text="the user paused device")
    plain = evaluate_run(measured(), [])
    changed = measured(events=(paused,))
    verdict = evaluate_run(changed, [])
    assert (plain.status, verdict.status) == (Status.PASS, Status.PASS)
    assert verdict.headline == plain.headline.removesuffix(".") + "; changed by hand."
    assert "changed by hand at 2.0 s: the user paused device" in verdict.evidence
    missed = evaluate_run(changed, [parse_threshold("sent == 0")])
    assert missed.headline.endswith("; changed by hand.")
    result = RunResult.of(changed, verdict)
    document = run_document(result)
    assert "changed by hand" in junit(document)
    assert conclusion_of(result, document, 0).changed_by_hand
    assert not measured().changed_by_hand


def test_a_run_that_was_ended_by_hand_has_a_verdict_about_what_was_measured(
    measured: MeasuredMaker,
) -> None:
    text = "stage publish is ended by the user after 15.0 s of 30.0 s, and the run"
    run = measured(interrupted=True, events=(Event(at_s=15, kind="by_hand", text=text),))
    met, later = parse_threshold("backend.lost == 0"), parse_threshold("latency.p99@later < 1s")
    verdict = evaluate_run(run, [met])
    assert verdict.status is Status.PASS
    assert any(text in line for line in verdict.evidence)
    verdict = evaluate_run(run, [met, later])
    assert verdict.status is Status.INVALID
    assert [outcome.undecided for outcome in verdict.thresholds] == [False, True]


def test_a_run_that_was_ended_by_hand_before_its_load_does_not_fail(
    measured: MeasuredMaker,
) -> None:
    nothing = {"sent_total": 0, "acked_total": 0, "rates": {}}
    backend = {"expected_total": 0, "received_total": 0, "rates": {}}
    ended = Event(at_s=1, kind="by_hand", text="stage hold is ended by the user, and the run")
    run = measured(device=nothing, backend=backend, flows=(), interrupted=True, events=(ended,))
    lost = parse_threshold("backend.lost == 0")
    verdict = evaluate_run(run, [lost])
    (outcome,) = verdict.thresholds
    assert (verdict.status, outcome.undecided) == (Status.INVALID, True)
    assert not outcome.missed
    assert "ended by hand before a threshold could be evaluated" in verdict.headline
    to_its_end = run.model_copy(update={"interrupted": False, "events": ()})
    assert evaluate_run(to_its_end, [lost]).status is Status.FAIL


def test_what_a_run_has_not_measured_that_ended_early_is_undecided(measured: MeasuredMaker) -> None:
    ended = Event(at_s=9, kind="check", text="abort_when lost > 0 ended the run")
    later = parse_threshold("latency.p99@later < 1s")
    verdict = evaluate_run(measured(events=(ended,)), [later])
    (outcome,) = verdict.thresholds
    assert (verdict.status, outcome.undecided) == (Status.FAIL, True)


def test_a_service_that_died_is_the_limit_and_no_broker(measured: MeasuredMaker) -> None:
    died = Event(at_s=9, kind="service", text="service bridge (pid 9) ended")
    run = measured(events=(died,), backend={"received_total": 50, "lost_total": 50})
    verdict = evaluate_run(run, [parse_threshold("backend.lost == 0")])
    assert (verdict.status, verdict.limited_by) == (Status.FAIL, LimitedBy.SERVICE)
    assert verdict.headline.endswith("limited by the service.")


def test_the_headline_has_no_percentile_of_few_messages(measured: MeasuredMaker) -> None:
    run = measured()
    backend = run.populations["backend"]
    few = backend.latency_us.intended.model_copy(update={"count": 9, "p99": 7.0, "max": 8.0})
    pair = backend.latency_us.model_copy(update={"intended": few})
    populations = {**run.populations, "backend": backend.model_copy(update={"latency_us": pair})}
    headline = evaluate_run(run.model_copy(update={"populations": populations}), []).headline
    assert headline.endswith("; largest latency 8.00 µs.")


def test_a_subscriber_that_was_connected_after_the_load_had_nothing_to_lose(
    measured: MeasuredMaker,
) -> None:
    run = measured(backend={"expected_total": 0, "received_total": 0, "retained_total": 100})
    connect, publish = run.stages[:2]

    def reason(before: int, after: int) -> str:
        stages = [
            stage.model_copy(
                update={
                    "populations": {
                        "backend": StagePopulation(connect_attempts_total=count),
                        "device": StagePopulation(connect_attempts_total=1),
                    }
                }
            )
            for stage, count in ((connect, before), (publish, 0), (connect, after))
        ]
        played = run.model_copy(update={"stages": tuple(stages)})
        return evaluate_threshold(played, parse_threshold("backend.lost == 0")).text

    assert reason(0, 1).endswith("backend was connected after the load")
    assert reason(1, 0).endswith("no publication matches the filters of backend")
    assert reason(1, 1).endswith("no publication matches the filters of backend")
