"""Flows that a program of the user carries from a broker of MQTT to a server of NATS: what it
loses, doubles, swaps, delays and changes is known, and the ledger counts the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit import carrier
from tests.kit.runs import Play, RunMaker
from tests.kit.starved import passes
from tests.system.runs.underway import end_stage

pytestmark = [
    pytest.mark.skipif(find("nats-server") is None, reason="nats-server is not installed"),
    pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed"),
    pytest.mark.xdist_group("nats"),
]

SENT = 10 * 50 * 2
SCENARIO = """\
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
thresholds: ["sensor.sent == 1000"]
defaults: "off"
"""


def scenario(**faults: float) -> str:
    """The scenario with a bridge that has these faults."""
    return carrier.bridged(SCENARIO, faults)


def flows_of(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The flows from the sensors, by receiver."""
    flows = {flow["to"]: flow for flow in result["flows"]}
    assert {*flows} == {"backend", "worker"}
    assert {flow["source"] for flow in result["flows"]} == {"sensor"}
    return flows


def test_each_message_that_the_bridge_carries_is_expected_and_received(run: Play) -> None:
    code, result = run(scenario(), "--set", "fleet.agents=2")
    assert passes(code, result), result["verdict"]
    for to, times in (("backend", 2), ("worker", 1)):
        flow = flows_of(result)[to]
        assert flow["expected_total"] == flow["received_total"] == SENT * times
        assert flow["latency_us"]["intended"]["count"] == SENT * times
        assert flow["duplicate_total"] == flow["reordered_total"] == flow["missing_total"] == 0
    assert [(s["name"], s["kind"]) for s in result["services"]] == [("bridge", "command")]
    assert not result["services"][0]["died"]


@dataclass(frozen=True)
class Played:
    """A run with a bridge that has faults."""

    code: int
    result: dict[str, Any]
    counts: Mapping[str, int]
    """Messages by kind, as the bridge has counted them."""


def played(start: RunMaker, **faults: float) -> Played:
    """Plays the scenario with these faults of the bridge, to the end."""
    run = start(scenario(**faults))
    code = run.finish()
    log = (run.directory / "topology/bridge/service.log").read_text()
    counts = Counter(json.loads(log.splitlines()[-1]))
    assert counts["taken"] == SENT, log
    return Played(code, run.result(), counts)


def test_what_the_bridge_drops_is_lost(start: RunMaker) -> None:
    run = played(start, drop=10)
    assert passes(run.code, run.result), run.result["verdict"]
    assert run.counts["dropped"] == SENT // 10
    for to, times in (("backend", 2), ("worker", 1)):
        flow = flows_of(run.result)[to]
        assert flow["expected_total"] == SENT * times
        assert flow["lost_total"] == times * SENT // 10
        assert flow["duplicate_total"] == flow["reordered_total"] == 0


def test_what_the_bridge_doubles_is_a_duplicate(start: RunMaker) -> None:
    run = played(start, double=10)
    assert passes(run.code, run.result), run.result["verdict"]
    for to, times in (("backend", 2), ("worker", 1)):
        flow = flows_of(run.result)[to]
        assert flow["expected_total"] == flow["received_total"] == SENT * times
        assert flow["duplicate_total"] == times * run.counts["doubled"] == times * SENT // 10
        assert flow["lost_total"] == flow["reordered_total"] == 0


def test_what_the_bridge_swaps_is_reordered_and_what_it_keeps_is_lost(start: RunMaker) -> None:
    run = played(start, swap=11)
    assert passes(run.code, run.result), run.result["verdict"]
    flow = flows_of(run.result)["backend"]
    assert flow["reordered_total"] == 2 * run.counts["swapped"] > 100
    assert flow["lost_total"] == 2 * (run.counts["held"] - run.counts["swapped"])
    assert flow["duplicate_total"] == 0


def test_a_delay_of_the_bridge_is_latency(start: RunMaker) -> None:
    run = played(start, delay_s=0.3)
    assert passes(run.code, run.result), run.result["verdict"]
    flow = flows_of(run.result)["backend"]
    assert flow["latency_us"]["intended"]["min"] >= 300_000
    assert flow["received_total"] == 2 * SENT


def test_no_verdict_passes_on_messages_whose_stamp_the_bridge_drops_or_swaps(
    start: RunMaker,
) -> None:
    run = played(start, strip=10, rename=11)
    populations = run.result["populations"]
    wrong = SENT // 10 + SENT // 11 - SENT // 110
    assert populations["backend"]["unstamped_total"] == 2 * wrong
    assert populations["worker"]["unstamped_total"] == wrong
    assert populations["backend"]["foreign_total"] == 0
    assert flows_of(run.result)["backend"]["lost_total"] == 2 * wrong
    assert (run.code, run.result["verdict"]["status"]) == (3, "invalid")
    assert any("without a stamp" in each for each in run.result["verdict"]["evidence"])


def test_a_bridge_that_ends_in_a_run_fails_it(start: RunMaker) -> None:
    text = scenario().replace(", CARRIER", ", -c, 'print(\"carries\")'")
    run = start(text.replace(f", {carrier.__file__}", ", -c, 'print(\"carries\")'"))
    assert run.finish() != 0
    assert "service bridge" in run.stderr


IDLE = """\
import os, time
print("carries", flush=True)
while not os.path.exists("{folder}/end"):
    time.sleep(0.02)
"""


def test_a_bridge_that_ends_under_load_is_the_limit(start: RunMaker) -> None:
    text = scenario().replace(f", {carrier.__file__}", f", -c, {json.dumps(IDLE)}")
    run = start(text, "--set", "stages=[connect, publish: 10min]")
    run.wait_for("publish")
    (run.directory / "topology/bridge/end").touch()
    run.wait_for("service bridge")
    end_stage(run.directory)
    assert run.finish() == 1, run.stderr
    verdict = run.result()["verdict"]
    assert (verdict["status"], verdict["limited_by"]) == ("fail", "service"), verdict
