"""Receivers of AMQP 1.0 in a process of their own, at a real Artemis: messages of MQTT arrive there
by the broker itself or by a program of the user, and the ledger follows them."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit import carrier
from tests.kit.artemis_server import HOME, artemis_entry
from tests.kit.runs import Play, RunMaker
from tests.kit.starved import passes
from tests.system.runs.underway import end_stage, repair, wait_for

pytestmark = [
    pytest.mark.skipif(not HOME.is_dir(), reason="artemis is not installed"),
    pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed"),
    pytest.mark.skipif(
        importlib.util.find_spec("proton") is None, reason="python-qpid-proton is not installed"
    ),
    pytest.mark.xdist_group("artemis"),
    pytest.mark.slow("a JVM starts"),
]

SENT = 10 * 50 * 2
READERS = """\
  reader: {protocol: amqp1, clients: 2, at: hub, subscriptions: [device.*.telemetry]}
  own:
    protocol: amqp1
    clients: 10
    at: hub
    subscriptions: [{address: "device.{n}.telemetry", settled: true, credit: 7}]
  worker:
    protocol: amqp1
    clients: 3
    at: hub
    subscriptions: [{address: "device.*.telemetry::work", credit: 10}]
flows:
  - {from: "device/{n}/telemetry", of: sensor, to: "device.{n}.telemetry", at: reader}
stages: [connect, {publish: 2s}, disconnect]
thresholds: ["sensor.sent == 1000", "reader.connected == 2", "worker.connected == 3"]
defaults: "off"
"""
SENSOR = (
    '{clients: 10, at: AT, publications: [{topic: "device/{n}/telemetry", rate: 50/s, qos: 1}]}'
)
ALONE = f"""\
topology: {{brokers: {{hub: {artemis_entry()}}}}}
populations:
  sensor: {SENSOR.replace("AT", "hub")}
{READERS}"""
BRIDGED = f"""\
topology:
  brokers: {{mqtt: {{kind: mosquitto}}, hub: {artemis_entry()}}}
  services:
    bridge:
      kind: command
      command: [PYTHON, CARRIER, "{{mqtt.host}}:{{mqtt.port}}",
        "amqp1://{{hub.host}}:{{hub.amqp1}}", 'FAULTS']
      ready: carries
populations:
  sensor: {SENSOR.replace("AT", "mqtt")}
{READERS}"""
PATIENT = ("--set", "drain=1min")
"""For runs that lose nothing: a drain ends once all deliveries have come."""
TIMES = {"reader": 2, "own": 1, "worker": 1}
"""Subscribers that each message reaches, by population."""


def flows_of(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The flows from the sensors, by receiver."""
    return {flow["to"]: flow for flow in result["flows"]}


@pytest.mark.parametrize("scenario", [ALONE, carrier.bridged(BRIDGED, {})], ids=["alone", "bridge"])
def test_each_receiver_gets_each_message_and_a_queue_gives_it_to_one(
    run: Play, scenario: str
) -> None:
    code, result = run(scenario, *PATIENT)
    assert passes(code, result), result["verdict"]
    for to, times in TIMES.items():
        flow = flows_of(result)[to]
        assert flow["expected_total"] == flow["received_total"] == SENT * times, to
        assert flow["duplicate_total"] == flow["lost_total"] == flow["missing_total"] == 0
        assert flow["latency_us"]["intended"]["count"] == SENT * times
        population = result["populations"][to]
        assert population["outcomes"] == {}
        assert population["connect_time_us"]["count"] == population["connected_total"]
        assert population["subscribed_total"] == population["connected_total"]
        assert population["bytes_received_total"] > SENT * times * 100
        assert population["player"] == "proton"
    assert flows_of(result)["reader"]["reordered_total"] == 0
    assert flows_of(result)["own"]["reordered_total"] == 0


def test_what_the_bridge_drops_and_doubles_is_counted(start: RunMaker) -> None:
    run = start(carrier.bridged(BRIDGED, {"drop": 10, "double": 25}))
    code, result = run.finish(), run.result()
    log = (run.directory / "topology/bridge/service.log").read_text()
    counts = Counter(json.loads(log.splitlines()[-1]))
    assert passes(code, result), result["verdict"]
    assert counts["taken"] == SENT
    for to, times in TIMES.items():
        flow = flows_of(result)[to]
        assert flow["lost_total"] == times * counts["dropped"] == times * SENT // 10
        assert flow["duplicate_total"] == times * counts["doubled"] > 0


def test_receivers_share_a_queue_and_each_gets_all_of_a_topic(run: Play) -> None:
    head, _, _ = BRIDGED.partition("  sensor:")
    scenario = f"""{head}\
  sensor:
    clients: 10
    at: mqtt
    publications: [{{topic: "{{jobs|notes}}", rate: 50/s, qos: 1}}]
  worker:
    protocol: amqp1
    clients: 3
    at: hub
    subscriptions: [{{address: jobs, type: queue, settled: true}}]
  reader:
    protocol: amqp1
    clients: 2
    at: hub
    subscriptions: [{{address: notes, type: topic, credit: 1}}]
flows: [{{from: "{{jobs|notes}}", of: sensor, to: "{{jobs|notes}}", at: reader}}]
stages: [connect, {{publish: 2s}}, disconnect]
thresholds: ["sensor.sent == 1000", "reader.connected == 2", "worker.connected == 3"]
defaults: "off"
"""
    code, result = run(carrier.bridged(scenario, {}), *PATIENT)
    assert passes(code, result), result["verdict"]
    for to, times in (("worker", 1), ("reader", 2)):
        flow = flows_of(result)[to]
        assert flow["expected_total"] == flow["received_total"] == times * SENT // 2, to
        assert flow["duplicate_total"] == flow["lost_total"] == 0


def test_no_verdict_passes_on_messages_whose_stamp_the_bridge_drops(start: RunMaker) -> None:
    run = start(carrier.bridged(BRIDGED, {"strip": 10}))
    code, result = run.finish(), run.result()
    for to, times in TIMES.items():
        assert result["populations"][to]["unstamped_total"] == times * SENT // 10, to
    assert (code, result["verdict"]["status"]) == (3, "invalid")


def test_receivers_are_gone_while_their_broker_is_and_come_back(start: RunMaker) -> None:
    scenario = f"""\
topology: {{brokers: {{hub: {artemis_entry()}}}}}
populations:
  reader:
    protocol: amqp1
    clients: 3
    at: hub
    subscriptions: [telemetry]
    reconnect: {{after: 100ms, up_to: 200ms}}
stages:
  - connect
  - hold: {{for: 10min, faults: [{{at: 100ms, kill: hub, for: 5min}}]}}
  - disconnect
snapshot_interval: 200ms
defaults: "off"
thresholds: ["clients_back.all@kill hub < 30s"]
"""
    run = start(scenario)
    there_s = wait_for(run, "reader", "connected", lambda n: n == 3)
    gone_s = wait_for(run, "reader", "connected", lambda n: n == 0, there_s)
    repair(run, "kill hub", "1 broker is up again")
    wait_for(run, "reader", "ready", lambda n: n == 3, gone_s)
    end_stage(run.directory)
    code, result = run.finish(), run.result()
    reader = result["populations"]["reader"]
    assert code == 0, result["verdict"]
    assert reader["disconnected_total"] == 3
    assert reader["connected_total"] == reader["subscribed_total"] == 6
    assert sum(reader["outcomes"].values()) == 3 + reader["connect_failed_total"]


@pytest.mark.skipif(shutil.which("rabbitmq-server") is None, reason="rabbitmq is not installed")
@pytest.mark.xdist_group("amqp1-rabbitmq")
def test_rabbitmq_gives_messages_of_mqtt_to_receivers_of_amqp_1_0(run: Play) -> None:
    broker = "{kind: rabbitmq, plugins: [rabbitmq_amqp1_0]}"
    scenario = f"""\
topology: {{brokers: {{hub: {broker}}}}}
populations:
  sensor: {SENSOR.replace("AT", "hub")}
  reader:
    protocol: amqp1
    clients: 2
    username: guest
    password: guest
    subscriptions: [/topic/device.*.telemetry]
flows:
  - {{from: "device/{{n}}/telemetry", of: sensor, to: "/topic/device.{{n}}.telemetry", at: reader}}
stages: [connect, {{publish: 2s}}, disconnect]
thresholds: ["sensor.sent == 1000", "reader.connected == 2"]
defaults: "off"
"""
    code, result = run(scenario, *PATIENT)
    assert passes(code, result), result["verdict"]
    flow = flows_of(result)["reader"]
    assert flow["expected_total"] == flow["received_total"] == 2 * SENT
    assert flow["duplicate_total"] == flow["lost_total"] == 0
