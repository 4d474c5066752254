"""Limits that a scenario gives deliveries of queues: what consumers do not take on purpose is no
collapse of a broker, and results say which limits they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pubstorm.contract.queue_limits import QueueLimits
from pubstorm.result import PhaseStatus
from tests.pure.measure.test_phases import GOOD, assembly, evaluated

SCENARIO = """
target: amqp://127.0.0.1
populations:
  device:
    clients: 150
    publications: [{exchange: amq.topic, key: "a.{n}", rate: 10/s, confirm: true}]
  idle: {clients: 50, publications: [{exchange: amq.topic, key: b, rate: 10/s}]}
  backend: {clients: 1, subscriptions: [{exchange: amq.topic, key: a.*, queue: q, KEYS}]}
stages:
  - connect: {populations: [backend, device]}
  - publish: {for: 20s, populations: [device]}
"""


@pytest.mark.parametrize(
    ("keys", "status"),
    [
        ("prefetch: 50, acknowledge: never", PhaseStatus.HELD),
        ("prefetch: 50, acknowledge: {after: 1s}", PhaseStatus.HELD),
        ("prefetch: 50, acknowledge: {after: 10ms}", PhaseStatus.COLLAPSED),
        ("acknowledge: never", PhaseStatus.COLLAPSED),
        ("arguments: {x-message-ttl: 50}", PhaseStatus.COLLAPSED),
    ],
)
def test_what_consumers_do_not_take_on_purpose_is_no_collapse(
    keys: str, status: PhaseStatus
) -> None:
    (phase,) = evaluated([replace(GOOD, received=50)] * 20, scenario=SCENARIO.replace("KEYS", keys))
    assert phase.status is status


@pytest.mark.parametrize(
    ("keys", "limits"),
    [
        ("prefetch: 50", None),
        ("acknowledge: never", None),
        ("prefetch: 50, acknowledge: never", QueueLimits(takes_most=50)),
        ("prefetch: 50, acknowledge: {after: 2s}", QueueLimits(takes_per_s=25)),
        (
            "prefetch: 50, acknowledge: {after: 2s}, arguments: {x-single-active-consumer: true}",
            QueueLimits(takes_per_s=25, takers=1),
        ),
        (
            "arguments: {x-max-length: 5, x-max-priority: 3, x-overflow: reject-publish}",
            QueueLimits(arguments={"x-max-length": 5}),
        ),
    ],
)
def test_a_result_has_the_limits_of_queues(keys: str, limits: QueueLimits | None) -> None:
    run = assembly([GOOD] * 20, scenario=SCENARIO.replace("KEYS", keys))
    assert run.populations()["backend"].queue_limits == limits


def test_a_client_has_a_window_for_each_of_its_publications() -> None:
    flow = "{exchange: amq.topic, key: KEY, rate: RATE, confirm: true, window: 50}"
    flows = ", ".join(flow.replace("KEY", key) for key in ("a", "b"))
    text = SCENARIO.replace("KEYS", "prefetch: 9").replace(
        '{exchange: amq.topic, key: "a.{n}", rate: 10/s, confirm: true}', flows
    )
    closed = assembly([GOOD], scenario=text.replace("RATE", "max")).populations()["device"]
    assert (closed.closed_loop_window, closed.open_loop_window) == (100, None)
    open_ = assembly([GOOD], scenario=text.replace("RATE", "5/s")).populations()["device"]
    assert (open_.closed_loop_window, open_.open_loop_window) == (None, 100)
