"""Consumers of Kafka in a process of their own, at a real Kafka: a program of the user carries
messages of an MQTT broker to it, and the ledger follows them."""

from __future__ import annotations

import importlib.util
import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit import carrier
from tests.kit.runs import Play, RunMaker
from tests.kit.starved import passes

BROKERS = Path(os.environ.get("PUBSTORM_BROKERS") or Path.home() / ".cache/pubstorm/brokers")
pytestmark = [
    pytest.mark.skipif(not (BROKERS / "kafka/VERSION").exists(), reason="kafka is not installed"),
    pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed"),
    pytest.mark.skipif(
        importlib.util.find_spec("confluent_kafka") is None,
        reason="confluent-kafka is not installed",
    ),
    pytest.mark.xdist_group("kafka"),
    pytest.mark.slow("a JVM starts, and a group of consumers forms"),
]

SENT = 10 * 50 * 2
SCENARIO = """\
topology:
  brokers:
    mqtt: {kind: mosquitto}
    log: {kind: kafka, settings: {num.partitions: 3}}
  services:
    bridge:
      kind: command
      command: [PYTHON, CARRIER, "{mqtt.host}:{mqtt.port}", "kafka://{log.host}:{log.port}",
        'FAULTS']
      ready: carries
populations:
  sensor:
    {clients: 10, at: mqtt, publications: [{topic: "device/{n}/telemetry", rate: 50/s, qos: 1}]}
  reader: {protocol: kafka, clients: 2, at: log, subscriptions: [telemetry]}
  worker:
    protocol: kafka
    clients: 3
    at: log
    subscriptions: [{topic: telemetry, group: workers}]
flows:
  - {from: "device/{n}/telemetry", of: sensor, to: telemetry, at: reader}
stages: [connect, {publish: 2s}, disconnect]
thresholds: ["sensor.sent == 1000", "reader.connected == 2", "worker.connected == 3"]
defaults: "off"
"""


def scenario(**faults: float) -> str:
    """The scenario with a bridge that has these faults."""
    return carrier.bridged(SCENARIO, faults)


def flows_of(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The flows from the sensors, by receiver."""
    return {flow["to"]: flow for flow in result["flows"]}


def test_each_consumer_receives_each_message_and_a_group_receives_it_once(run: Play) -> None:
    code, result = run(scenario())
    assert passes(code, result), result["verdict"]
    for to, times in (("reader", 2), ("worker", 1)):
        flow = flows_of(result)[to]
        assert flow["expected_total"] == flow["received_total"] == SENT * times, to
        assert flow["duplicate_total"] == flow["lost_total"] == flow["missing_total"] == 0
        assert flow["latency_us"]["intended"]["count"] == SENT * times
    assert flows_of(result)["reader"]["reordered_total"] == 0
    assert result["populations"]["reader"]["player"] == "librdkafka"


def test_what_the_bridge_drops_and_doubles_is_counted(start: RunMaker) -> None:
    run = start(scenario(drop=10, double=25))
    code, result = run.finish(), run.result()
    log = (run.directory / "topology/bridge/service.log").read_text()
    counts = Counter(json.loads(log.splitlines()[-1]))
    assert passes(code, result), result["verdict"]
    assert counts["taken"] == SENT
    for to, times in (("reader", 2), ("worker", 1)):
        flow = flows_of(result)[to]
        assert flow["lost_total"] == times * counts["dropped"] == times * SENT // 10
        assert flow["duplicate_total"] == times * counts["doubled"] > 0


def test_no_verdict_passes_on_messages_whose_stamp_the_bridge_drops(start: RunMaker) -> None:
    run = start(scenario(strip=10))
    code, result = run.finish(), run.result()
    assert result["populations"]["reader"]["unstamped_total"] == 2 * SENT // 10
    assert result["populations"]["worker"]["unstamped_total"] == SENT // 10
    assert (code, result["verdict"]["status"]) == (3, "invalid")


def test_consumers_are_gone_while_their_broker_is_and_come_back(run: Play) -> None:
    scenario = """\
topology:
  brokers:
    log: {kind: kafka}
populations:
  reader: {protocol: kafka, clients: 3, at: log, subscriptions: [telemetry]}
  worker: {protocol: kafka, clients: 3, at: log, subscriptions: [{topic: telemetry, group: g}]}
stages:
  - connect
  - hold:
      for: 30s
      faults: [{at: 1s, kill: log, for: 1s}]
  - disconnect
defaults: "off"
thresholds: ["clients_back.all@kill log < 30s"]
"""
    code, result = run(scenario)
    assert code == 0, result["verdict"]
    for found in result["populations"].values():
        assert found["disconnected_total"] == 3
        assert found["outcomes"] == {"closed_by_broker": 3}
        assert found["connected_total"] == 6
