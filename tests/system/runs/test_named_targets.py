"""Brokers that already run, in two protocols: mosquitto, nats-server and a program between them,
all started by the test. Populations and figures name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit import carrier
from tests.kit.nats_server import servers_in
from tests.kit.runs import MosquittoMaker, Play
from tests.kit.starved import passes

pytestmark = [
    pytest.mark.skipif(find("nats-server") is None, reason="nats-server is not installed"),
    pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed"),
    pytest.mark.xdist_group("nats"),
]

SENT = 10 * 50 * 2
LOAD = """\
populations:
  sensor:
    {clients: 10, at: mqtt, publications: [{topic: "device/{n}/telemetry", rate: 50/s, qos: 1}]}
  backend: {protocol: nats, clients: 2, at: server, subscriptions: [device.*.telemetry]}
  worker:
    protocol: nats
    clients: 3
    at: server
    subscriptions: [{topic: device.>, group: workers}]
flows:
  - {from: "device/{n}/telemetry", of: sensor, to: "device.{n}.telemetry", at: backend}
stages: [connect, {publish: 2s}, disconnect]
monitors: {interval: 200ms}
thresholds: ["sensor.sent == 1000", lost == 0, "mqtt.cpu.mean >= 0%", "server-0.rss.max > 1MB"]
defaults: "off"
"""
STARTED = """\
topology:
  brokers:
    mqtt: {kind: mosquitto}
    server: {kind: nats}
  services:
    bridge:
      kind: command
      command: [PYTHON, CARRIER, "{mqtt.host}:{mqtt.port}", "nats://{server.host}:{server.nats}",
        'FAULTS']
      ready: carries
"""


def assert_counts(result: Mapping[str, Any]) -> None:
    """Each message is expected and received: by every backend, and by one of the group."""
    flows = {flow["to"]: flow for flow in result["flows"]}
    assert {*flows} == {"backend", "worker"}
    for to, times in (("backend", 2), ("worker", 1)):
        counts = {key: flows[to][f"{key}_total"] for key in ("expected", "received", "duplicate")}
        assert counts == {"expected": SENT * times, "received": SENT * times, "duplicate": 0}, to


@pytest.fixture(scope="module")
def played(
    shared_run: Play,
    shared_mosquitto: MosquittoMaker,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[int, dict[str, Any]]:
    """A run between two brokers that run already."""
    mosquitto = shared_mosquitto()
    with servers_in(tmp_path_factory.mktemp("nats")) as start:
        server = start("")
        with carrier.running(mosquitto.url, server.url):
            return shared_run(
                f"target: {{mqtt: '{mosquitto.url}', server: '{server.url}'}}\n{LOAD}"
            )


def test_messages_are_followed_between_brokers_that_run_already(
    played: tuple[int, dict[str, Any]],
) -> None:
    code, result = played
    assert passes(code, result), result["verdict"]
    assert_counts(result)


def test_figures_of_brokers_that_run_already_have_their_names(
    played: tuple[int, dict[str, Any]],
) -> None:
    _, result = played
    assert result["target_names"] == ["mqtt-0", "server-0"]
    found = {(m["source"], m["group"]) for m in result["monitors"] if m["kind"] == "broker"}
    assert found == {("mqtt-0", "mqtt"), ("server-0", "server")}
    counters = {m["source"] for m in result["monitors"] if m["metric"].startswith("$SYS/")}
    assert counters == {"mqtt-0"}
    assert {"mqtt-0", "server-0"} <= {model["subject"] for model in result["memory"]}


def test_a_target_takes_the_place_of_one_broker_of_the_run(
    run: Play, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto()
    scenario = carrier.bridged(STARTED + LOAD, {})
    code, result = run(scenario, "--target", f"mqtt={broker.url}")
    assert passes(code, result), result["verdict"]
    assert_counts(result)
    assert [started["name"] for started in result["brokers"]] == ["server-0"]
    assert result["target_names"] == ["mqtt-0"]
    assert [service["name"] for service in result["services"]] == ["bridge"]
