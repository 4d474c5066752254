"""Clients that end their connections without DISCONNECT, and their wills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

Play = Callable[..., tuple[int, dict[str, Any]]]

SCENARIO = """
topology: {brokers: {main: {kind: BROKER}}}
fleet: {agents: 2}
populations:
  device: {clients: 20, end: abort, will: {topic: "gone/{n}", payload: bye, qos: 1}}
  brief:
    clients: 4
    end: abort
    lifetime: {from: 100ms, to: 200ms}
    will: {topic: "brief/gone/{n}", payload: bye}
  polite:
    clients: 10
    will: {topic: "polite/{n}", payload: bye, qos: 1}
    publications: [{topic: "up/{n}", rate: 2/s}]
  watcher: {clients: 2, subscriptions: [{topic: "gone/#", qos: 1}, {topic: "polite/#", qos: 1}]}
  brief-watcher: {clients: 1, subscriptions: ["brief/#"]}
stages:
  - connect: {populations: [watcher, brief-watcher]}
  - connect: {populations: [device, polite, brief]}
  - publish: {for: 1s, changes: [{at: 200ms, population: device, remove: 5}]}
  - disconnect: {populations: [device, polite], rate: 200/s}
drain: 1s
thresholds: [lost == 0, duplicate == 0]
monitors: {host: false}
"""


@pytest.mark.parametrize("broker", ["embedded", "mosquitto"])
def test_wills_of_aborted_clients_are_expected_and_timed(run: Play, broker: str) -> None:
    code, result = run(SCENARIO.replace("BROKER", broker))
    assert (code, result["verdict"]["status"]) == (0, "pass"), result["verdict"]
    expected: Counter[tuple[str, str, tuple[int, ...]]] = Counter()
    for stage in result["stages"]:
        for flow in stage["flows"]:
            expected[flow["source"], flow["to"], tuple(flow["qos"])] += flow["expected_total"]
    # Each of the two watchers receives the will of every device, and none of a polite client.
    assert +expected == {
        ("device", "watcher", (1,)): 2 * 20,
        ("brief", "brief-watcher", (0,)): 4,
    }
    populations = result["populations"]
    for name in ("watcher", "brief-watcher"):
        assert populations[name]["received_total"] == populations[name]["expected_total"]
    # Every device is played by the same agent as one of the two watchers.
    latency = populations["watcher"]["latency_us"]["intended"]
    assert latency["count"] == 20
    assert 0 < latency["min"] <= latency["p50"]
    assert populations["polite"]["disconnected_total"] == 0
