"""Findings about brokers of MQTT 5: their texts, and their Receive Maximum."""

from __future__ import annotations

import pytest

from pubstorm.result import Latency, Measured, StageResult, Verdict
from pubstorm.result.verdict import evaluate_run
from tests.kit.measured import MeasuredMaker


def evaluated(measured: Measured) -> Verdict:
    return evaluate_run(measured, [])


def test_the_texts_of_a_broker_are_evidence(measured: MeasuredMaker) -> None:
    """The most frequent text of an outcome, over all populations."""
    outcome, texts = "publish_quota_exceeded", {"a": 2, "b": 3, None: 9}
    refused = {
        "rejected_total": 14,
        "outcomes": {outcome: 14},
        "explanations": [
            {"outcome": outcome, "property": "reason_string", "text": text, "count": count}
            for text, count in texts.items()
        ],
    }
    evidence = evaluated(measured(device=refused, backend=refused)).evidence
    found = [line for line in evidence if line.startswith(outcome)]
    assert found == [f'{outcome}: the peer\'s reason is "b" (6 ×)']


@pytest.mark.parametrize(
    ("waits", "limit"), [(10, None), (11, "none"), (500, "none"), (501, "broker")]
)
def test_the_receive_maximum_of_a_broker_is_named_as_a_limit(
    measured: MeasuredMaker, waits: int, limit: str | None
) -> None:
    """Of 1,000 messages more than 1 % waited; or clients waited for more than half of the time."""
    run = measured()
    clients, (stage,) = run.populations["device"].ready_max, publishing(run)
    half_us = stage.duration_s * clients / 1000 * 1e6
    times = Latency(count=waits, mean=half_us, p99=9000.0)
    held = {"receive_maximum_waits_total": waits, "receive_maximum_wait_us": times}
    verdict = evaluated(measured(device={**held, "sent_total": 1000}))
    text = f"device: messages waited {waits} × until the broker accepted more in flight"
    assert any(line.startswith(text) for line in verdict.evidence) == (limit is not None)
    assert verdict.limited_by == (limit or "none")


def test_a_closed_loop_that_the_receive_maximum_holds_is_not_said_to_fill_the_sockets(
    measured: MeasuredMaker,
) -> None:
    run = measured()
    clients, (stage,) = run.populations["device"].ready_max, publishing(run)
    times = Latency(count=990, mean=stage.duration_s * clients / 1000 * 1e6)
    loop = {"closed_loop": True, "closed_loop_window": 100, "in_flight_max": 20}
    waits = {"receive_maximum_waits_total": 990, "receive_maximum_wait_us": times}
    free = evaluated(measured(device={**loop, "sent_total": 1000})).evidence
    held = evaluated(measured(device={**loop, **waits, "sent_total": 1000})).evidence
    assert any("what the sockets took" in line for line in free)
    assert not any("what the sockets took" in line for line in held)
    assert any("Receive Maximum" in line for line in held)


def publishing(run: Measured) -> list[StageResult]:
    return [stage for stage in run.stages if stage.kind == "publish"]


@pytest.mark.parametrize("outcome", ["connect_closed", "connect_reset"])
@pytest.mark.parametrize(
    ("version", "connect_bytes", "words"),
    [
        ("mqtt-3.1.1", 100, []),
        ("mqtt-3.1.1", 60_000, ["max_packet_size"]),
        ("mqtt-5", 100, ["RabbitMQ"]),
        ("mqtt-5", 60_000, ["RabbitMQ", "max_packet_size"]),
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
    found = [e for e in evaluated(measured(device=refused)).evidence if "without CONNACK" in e]
    assert all(line.startswith("device: the broker ends 30 connections") for line in found)
    assert [any(word in line for line in found) for word in words] == [True] * len(words)
    assert len(found) == len(words)
    some = {**refused, "connected_total": 1}
    evidence = evaluated(measured(device=some)).evidence
    assert not [line for line in evidence if "without CONNACK" in line]
