"""Bridges of mosquitto to a main broker of another kind, which knows no bridges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit.starved import passes

pytestmark = pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed")

PROGRAMS: dict[str, Callable[[], str | None]] = {
    "rabbitmq": lambda: find("rabbitmq-server"),
    "nats": lambda: find("nats-server"),
}
SCENARIO = """\
topology:
  brokers: {{main: {{kind: {kind}}}, boxes: {{kind: mosquitto, count: 3}}}}
  bridges:
    uplink:
      from: boxes
      to: main
      topics:
        - {{topic: up/#, direction: out, qos: 1, remote_prefix: "box/{{n}}/"}}
        - {{topic: down/#, direction: in, qos: 1, remote_prefix: "box/{{n}}/"}}
populations:
  app:
    clients: 1
    at: main
    subscriptions: [{{topic: box/+/up/#, qos: 1}}]
    publications: [{{topic: "box/{{0..2}}/down/x", rate: 30/s, qos: 1}}]
  device:
    clients: 3
    at: boxes
    subscriptions: [{{topic: down/#, qos: 1}}]
    publications: [{{topic: "up/{{n}}", rate: 10/s, qos: 1}}]
# A stage of 1 s has several readings, also where the host is busy.
monitors: {{interval: 200ms}}
stages: [connect, {{publish: 1s}}]
thresholds: [lost == 0, "uplink.connected.min == 3"]
"""


@pytest.mark.slow("RabbitMQ takes 10 s to start")
@pytest.mark.parametrize("kind", PROGRAMS)
def test_messages_cross_to_a_main_broker_of_any_kind(
    kind: str, run: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    if PROGRAMS[kind]() is None:
        pytest.skip(f"{kind} is not installed (scripts/install-test-tools)")
    code, result = run(SCENARIO.format(kind=kind))
    assert passes(code, result), result["verdict"]
    expected = {(f["source"], f["to"]): f["expected_total"] for f in result["flows"]}
    assert expected.keys() == {("app", "device"), ("device", "app")}
    assert min(expected.values()) >= 30
