"""The ledger over bridges: deliveries between real brokers are expected, followed and counted.
The brokers and their bridges are the test's own, with a configuration written by hand."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pubstorm.contract.target import Target
from pubstorm.fleet import SnapshotReceived
from pubstorm.host.binaries import engine_path
from pubstorm.plan import compile_plan
from pubstorm.play.solo import play_alone
from pubstorm.scenario import parse_scenario

MosquittoMaker = Callable[..., Any]

SCENARIO = """
name: bridged
topology:
  brokers:
    cloud: mosquitto
    boxes: {kind: mosquitto, count: 2}
  bridges:
    box:
      from: boxes
      to: cloud
      topics:
        - {topic: up/#, direction: out, qos: 1, remote_prefix: "box/{n}/"}
        - {topic: down/#, direction: in, qos: 1, remote_prefix: "box/{n}/"}
        - {topic: all/#, direction: both, qos: 1}
populations:
  sensor:
    clients: 4
    at: boxes
    subscriptions: [{topic: all/#, qos: 1}]
    publications:
      - {topic: "up/{n}", rate: 20/s, qos: 1}
      - {topic: "all/{n}", rate: 5/s, qos: 1}
  actor:
    clients: 6
    at: {brokers: boxes, choice: random}
    subscriptions: [{topic: down/#, qos: 1}]
  backend:
    clients: 2
    at: cloud
    bridge: true
    subscriptions: [{topic: box/+/up/#, qos: 1}, {topic: all/#, qos: 1}]
    publications:
      - {topic: "box/{0..1}/down/x", order: shuffled, rate: 20/s, qos: 1}
      - {topic: "all/backend", rate: 5/s, qos: 1}
stages:
  - connect: {}
  - publish: 2s
"""
BRIDGE = """box-{n}
address 127.0.0.1:{port}
remote_clientid box-{n}
notifications true
notification_topic up-{n}
bridge_attempt_unsubscribe false
topic up/# out 1 "" box/{n}/
topic down/# in 1 "" box/{n}/
topic all/# both 1"""


# Of each population to each, in two seconds: publishers times messages times receivers.
EXPECTED = {
    ("sensor", "sensor"): 4 * 10 * 4,  # all/# is for both boxes, and for the sender too
    ("sensor", "backend"): 4 * (40 + 10) * 2,
    ("backend", "sensor"): 2 * 10 * 4,
    ("backend", "actor"): 2 * 20 * 6,  # half of the messages for each box
    ("backend", "backend"): 2 * 10 * 1,  # with the bridge bit, not for the sender
}


def test_what_crosses_bridges_is_expected_and_comes_once(
    mosquitto: MosquittoMaker, tmp_path: Path
) -> None:
    queues = {"max_queued_messages": 0, "max_inflight_messages": 0}
    cloud = mosquitto(**queues)
    bridges = (BRIDGE.format(n=n, port=cloud.port) for n in range(2))
    boxes = [mosquitto(**queues, connection=bridge) for bridge in bridges]
    wait_for(cloud, "up-0", "up-1")
    scenario = parse_scenario(SCENARIO, "bridged.yaml")
    targets = [Target(host="127.0.0.1", port=broker.port) for broker in (cloud, *boxes)]
    plan = compile_plan(scenario, targets, run_tag=7)
    messages: list[SnapshotReceived] = []
    asyncio.run(play_alone(plan, engine_path(), tmp_path / "engine.log", messages.append))
    names = [population.name for population in plan.populations]
    counts: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for flow in (flow for received in messages for flow in received.snapshot.flows):
        pair = (names[flow.source], names[flow.to])
        counts["expected"][pair] += flow.counters.expected_total
        counts["received"][pair] += flow.counters.received_total
        counts["duplicates"][pair] += flow.counters.duplicate_total
    assert +counts["expected"] == EXPECTED
    assert +counts["received"] == EXPECTED
    assert not +counts["duplicates"]


def wait_for(broker: Any, *topics: str) -> None:
    """Waits until something is retained under each of the topics."""
    reader = shutil.which("mosquitto_sub")
    if reader is None:
        pytest.skip("mosquitto_sub is not installed (apt-get install mosquitto-clients)")
    wanted = [word for topic in topics for word in ("-t", topic)]
    ends = ["-C", str(len(topics)), "-W", "60"]
    subprocess.run([reader, "-p", str(broker.port), *wanted, *ends], timeout=70, check=True)
