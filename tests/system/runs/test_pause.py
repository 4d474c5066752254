"""A broker that stands still for two seconds: latency from the intended time shows the pause as
arithmetic says, which latency from the actual send of a blocked sender does not."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pubstorm.contract.histogram import Histogram
from tests.kit.serving import until
from tests.system.runs.underway import end_stage, snapshots

pytestmark = pytest.mark.xdist_group("pause")

MosquittoMaker = Callable[..., Any]
RunMaker = Callable[..., Any]

CLIENTS = 40
RATE_PER_S = 10 * CLIENTS
PAUSE_S = 2
"""Shortest pause, and the time by which it is longer than what is before it."""
SECOND_NS = 10**9
SLACK = CLIENTS
"""Messages by which a schedule may differ from its rate: one of each client."""
PAIR = """
  device-{name}:
    clients: 40
    publications: [{{topic: "{name}/{{n}}", rate: 10/s, qos: 1, window: {window}}}]
  backend-{name}:
    clients: 1
    subscriptions: [{{topic: "{name}/#", qos: 1}}]"""
PUBLISH = 1
"""Index of the publish stage."""
NARROW = 2
"""Place of the population of devices that wait."""


def stand_still(broker: Any, began_ns: int) -> float:
    """Stops a broker for so long that the pause is most of the stage that began at an instant.
    Returns the seconds for which the broker certainly stood still."""
    broker.signal(signal.SIGSTOP)
    while psutil.Process(broker.process.pid).status() != psutil.STATUS_STOPPED:
        pass
    stopped_ns = time.monotonic_ns()
    threading.Event().wait(PAUSE_S + (stopped_ns - began_ns) / SECOND_NS)
    least_ns = time.monotonic_ns() - stopped_ns
    broker.signal(signal.SIGCONT)
    return least_ns / SECOND_NS


def publishing_since(directory: Path) -> int | None:
    """Returns the instant at which the publish stage began, once messages were sent."""
    return next((each.from_ns for each in snapshots(directory) if each.stage == PUBLISH), None)


def is_level(directory: Path, after_ns: int) -> bool:
    """True if no client has messages that are due and not sent, at some time after an instant."""
    last = snapshots(directory)[-1]
    return last.from_ns > after_ns and not last.populations[NARROW].gauges.backlog


@pytest.fixture(scope="module")
def played(
    shared_start: RunMaker, shared_mosquitto: MosquittoMaker
) -> tuple[dict[str, Any], float]:
    """The result of a run whose broker stood still, and for how long it did. Some devices have a
    wide window, the others a window of one message. The stage ends once all have caught up."""
    broker = shared_mosquitto(max_queued_messages=0, max_inflight_messages=0)
    pairs = (PAIR.format(name=name, window=n) for name, n in (("wide", 65535), ("narrow", 1)))
    rest = "stages: [connect, publish: 10min]\nthresholds: [lost == 0]\nsnapshot_interval: 200ms\n"
    run = shared_start(f"target: {broker.url}\npopulations:{''.join(pairs)}\n{rest}drain: 1min\n")
    began_ns = until(lambda: publishing_since(run.directory))
    least_s = stand_still(broker, began_ns)
    continued_ns = time.monotonic_ns()
    until(lambda: is_level(run.directory, continued_ns))
    end_stage(run.directory)
    run.finish()  # A stage of which most is a pause has collapsed, which is not the matter here.
    return run.result(), least_s


def flow_histogram(result: dict[str, Any], source: str, clock: str) -> Histogram:
    (flow,) = (flow for flow in result["flows"] if flow["source"] == source)
    return Histogram.model_validate_json(json.dumps(flow["histogram_ns"][clock]))


def test_the_intended_time_shows_a_pause_as_arithmetic_says(
    played: tuple[dict[str, Any], float],
) -> None:
    result, least_s = played
    device, backend = (result["populations"][f"{name}-wide"] for name in ("device", "backend"))
    sent = device["sent_total"]
    assert sent == device["acked_total"] == backend["received_total"] == backend["expected_total"]
    histogram = flow_histogram(result, "device-wide", "intended")
    assert histogram.count == sent
    # Messages due in the pause and more than `late_s` before its end came at least that late: the
    # schedule of each client is even, so this number is certain. A slow host makes more late.
    for late_s in (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75):
        late = histogram.count_above(round(late_s * SECOND_NS))
        bucket_width = late_s / 128 * RATE_PER_S
        assert late >= (least_s - late_s) * RATE_PER_S - bucket_width - SLACK, late_s
    assert histogram.max_ns >= (least_s - 0.1) * SECOND_NS


def test_a_window_of_one_hides_the_pause_from_the_actual_time_only(
    played: tuple[dict[str, Any], float],
) -> None:
    result, least_s = played
    half_s = PAUSE_S / 2
    intended, actual = (
        flow_histogram(result, "device-narrow", clock) for clock in ("intended", "actual")
    )
    assert intended.count == actual.count == result["populations"]["device-narrow"]["sent_total"]
    hidden = (least_s - half_s) * RATE_PER_S * 127 / 128 - SLACK
    late = intended.count_above(round(half_s * SECOND_NS))
    assert late >= hidden
    # One message of each client was on its way, the others waited for it.
    assert late - actual.count_above(round(half_s * SECOND_NS)) >= hidden - CLIENTS - SLACK
    assert result["fleet"]["blocked_us"]["count"] >= least_s * RATE_PER_S - CLIENTS - SLACK
    assert result["populations"]["backend-narrow"]["lost_total"] == 0


@pytest.mark.parametrize(
    ("name", "percentile", "part", "others"),
    [
        pytest.param("narrow", "p50", "window", ["socket"], id="messages that waited"),
        pytest.param("wide", "p99", "rest", ["window", "socket"], id="all on their way"),
    ],
)
def test_the_parts_of_a_percentile_name_the_wait(
    played: tuple[dict[str, Any], float], name: str, percentile: str, part: str, others: list[str]
) -> None:
    result, _ = played
    (stage,) = (stage for stage in result["stages"] if stage["kind"] == "publish")
    device, backend = (stage["populations"][f"{kind}-{name}"] for kind in ("device", "backend"))
    for latency in (device["ack_latency_us"], backend["latency_us"]):
        whole_us, parts = latency["intended"][percentile], latency["parts"][percentile]
        assert 0 <= (parts.pop("host_most") or 0) <= whole_us
        assert sum(parts.values()) == pytest.approx(whole_us, abs=0.01)
        assert parts[part] >= whole_us / 2, parts
        assert [parts[other] for other in others] == [0] * len(others)


def test_messages_on_their_way_are_among_the_slowest(played: tuple[dict[str, Any], float]) -> None:
    """A cell of parts is 134 ms wide there, and a client has a message each 100 ms. So messages on
    their way, which did not wait, are in one cell with some that waited for them."""
    result, _ = played
    (stage,) = (stage for stage in result["stages"] if stage["kind"] == "publish")
    device, backend = (stage["populations"][f"{kind}-narrow"] for kind in ("device", "backend"))
    for latency in (device["ack_latency_us"], backend["latency_us"]):
        usual, slow = latency["parts"]["p50"], latency["parts"]["p99"]
        assert usual["rest"] < usual["window"]
        assert slow["rest"] > usual["rest"]
        assert slow["socket"] == 0
