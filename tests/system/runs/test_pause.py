"""A broker that stands still for five seconds: latency from the intended time shows the pause as
arithmetic says, which latency from the actual send of a blocked sender does not."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from pubstorm.contract.histogram import Histogram

pytestmark = pytest.mark.xdist_group("heavy")

MosquittoMaker = Callable[..., Any]
RunMaker = Callable[..., Any]

RATE_PER_S = 1000
PAUSE_S = 5
STAGE_S = 14
SECOND_NS = 10**9
PAIR = """
  device-{name}:
    clients: 100
    at: {at}
    publications: [{{topic: "up/{{n}}", rate: 10/s, qos: 1, window: {window}}}]
  backend-{name}:
    clients: 1
    at: {at}
    subscriptions: [{{topic: "up/#", qos: 1}}]"""


@dataclass(frozen=True)
class Pause:
    """Times in which brokers stood still, by a clock outside of them."""

    least_s: float
    most_s: float


def stand_still(brokers: Sequence[Any]) -> Pause:
    before_ns = time.monotonic_ns()
    for broker in brokers:
        broker.signal(signal.SIGSTOP)
        while psutil.Process(broker.process.pid).status() != psutil.STATUS_STOPPED:
            pass
    stopped_ns = time.monotonic_ns()
    threading.Event().wait(PAUSE_S)
    continued_ns = time.monotonic_ns()
    for broker in brokers:
        broker.signal(signal.SIGCONT)
    after_ns = time.monotonic_ns()
    return Pause((continued_ns - stopped_ns) / SECOND_NS, (after_ns - before_ns) / SECOND_NS)


@pytest.fixture(scope="module")
def played(
    shared_start: RunMaker, shared_mosquitto: MosquittoMaker
) -> tuple[dict[str, Any], Pause]:
    """The result of a run whose brokers stood still, and for how long they did. Clients of one have
    a wide window, those of the other a window of one message."""
    brokers = [shared_mosquitto(max_queued_messages=0, max_inflight_messages=0) for _ in range(2)]
    pairs = (
        PAIR.format(name=name, window=window, at=f"{{brokers: target, first: {n}, count: 1}}")
        for n, (name, window) in enumerate((("wide", 65535), ("narrow", 1)))
    )
    targets = ", ".join(broker.url for broker in brokers)
    stages = f"stages: [connect, publish: {STAGE_S}s]\ndrain: 5s\n"
    run = shared_start(f"target: [{targets}]\npopulations:{''.join(pairs)}\n{stages}")
    run.wait_for_stage("publish")
    pause = stand_still(brokers)
    assert run.finish() == 0, run.stdout
    return run.result(), pause


def flow_histogram(result: dict[str, Any], source: str, clock: str) -> Histogram:
    (flow,) = (flow for flow in result["flows"] if flow["source"] == source)
    return Histogram.model_validate_json(json.dumps(flow["histogram_ns"][clock]))


@pytest.mark.slow("a broker stands still for 5 s")
def test_the_intended_time_shows_a_pause_as_arithmetic_says(
    played: tuple[dict[str, Any], Pause],
) -> None:
    result, pause = played
    device, backend = (result["populations"][f"{name}-wide"] for name in ("device", "backend"))
    assert device["sent_total"] == device["acked_total"] == STAGE_S * RATE_PER_S
    assert backend["received_total"] == backend["expected_total"] == STAGE_S * RATE_PER_S
    assert backend["lost_total"] == 0
    assert result["verdict"]["status"] == "pass"

    histogram = flow_histogram(result, "device-wide", "intended")
    assert histogram.count == STAGE_S * RATE_PER_S
    slack = 10
    # What was due in the pause and more than `late_s` before its end came at least that late:
    # the schedule is even, so that many messages are certain. The broker needs some time for
    # what has piled up, at most CATCH_UP_S, and only that can make more of them late.
    for late_s in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5):
        late = histogram.count_above(round(late_s * SECOND_NS))
        bucket_width = late_s / 128 * RATE_PER_S
        least = (pause.least_s - late_s) * RATE_PER_S - bucket_width - slack
        most = (pause.most_s + CATCH_UP_S - late_s) * RATE_PER_S + slack
        assert least <= late <= most, (late_s, late)
    # Uniform: each second of lateness holds a second's worth of messages, a little more as the
    # catching up squeezes PAUSE_S seconds of schedule into PAUSE_S - CATCH_UP_S of lateness.
    for late_s in (1, 2, 3):
        there = [histogram.count_above(s * SECOND_NS) for s in (late_s, late_s + 1)]
        densest = RATE_PER_S * pause.most_s / (pause.most_s - CATCH_UP_S)
        edge = (late_s + 1) / 128 * RATE_PER_S
        assert RATE_PER_S - edge - slack <= there[0] - there[1] <= densest + edge + slack
    longest_s = histogram.max_ns / SECOND_NS
    assert pause.least_s - 0.1 <= longest_s <= pause.most_s + CATCH_UP_S


CATCH_UP_S = 2.0
"""Longest time for twice 5000 messages on a slow machine, as both brokers catch up together. One
broker alone needs a tenth of a second."""


@pytest.mark.slow("a broker stands still for 5 s")
def test_a_window_of_one_hides_the_pause_from_the_actual_time_only(
    played: tuple[dict[str, Any], Pause],
) -> None:
    result, pause = played
    half_s = PAUSE_S // 2 * SECOND_NS
    intended, actual = (
        flow_histogram(result, "device-narrow", clock) for clock in ("intended", "actual")
    )
    assert intended.count == actual.count == STAGE_S * RATE_PER_S
    # One message of each of the 100 clients was on its way, the others waited for it.
    assert actual.count_above(half_s) <= 100
    assert intended.count_above(half_s) >= (pause.least_s - 2.1) * RATE_PER_S
    assert result["fleet"]["blocked_us"]["count"] > 4 * RATE_PER_S
    assert result["populations"]["backend-narrow"]["lost_total"] == 0
