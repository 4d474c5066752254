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
    latency = populations["watcher"]["will_latency_us"]
    assert latency["count"] == 20
    assert 0 < latency["min"] <= latency["p50"]
    assert populations["watcher"]["wills_received_total"] == 2 * 20
    assert populations["polite"]["disconnected_total"] == 0


ENDS = """
topology: {brokers: {main: {kind: BROKER}}}
validity: {lateness_p99: 1min, busy: 100%}
populations:
  silent:
    clients: 6
    version: 5
    keep_alive: 1s
    end: vanish
    will: {topic: "silent/{n}", payload: bye, qos: 1}
  parting:
    clients: 5
    version: 5
    end: disconnect_with_will
    will: {topic: "parting/{n}", payload: bye}
  delayed:
    clients: 4
    version: 5
    session: persistent
    session_expiry: 1h
    end: abort
    will: {topic: "delayed/{n}", payload: bye, qos: 1, delay: 1s}
  returning:
    clients: 3
    version: 5
    session: persistent
    session_expiry: 1h
    end: vanish
    keep_alive: 1h
    lifetime: {from: 200ms, offline: 100ms}
    will: {topic: "returning/{n}", payload: bye, delay: 1h}
  watcher:
    clients: 2
    version: 5
    subscriptions: ["silent/#", "parting/#", "delayed/#", "returning/#"]
stages:
  - connect: {populations: [watcher]}
  - connect: {populations: [silent, parting, delayed, returning]}
  - hold: 1s
  - disconnect: {populations: [silent, parting, delayed]}
drain: 6s
thresholds: [lost == 0, wills_lost == 0, watcher.will_latency.p50 < 10min]
monitors: {host: false}
"""


@pytest.mark.slow("keep-alives expire")
@pytest.mark.parametrize("broker", ["embedded", "mosquitto"])
def test_each_end_has_its_wills(run: Play, broker: str) -> None:
    scenario = ENDS.replace("BROKER", broker)
    parting = 10
    if broker == "embedded":
        # rmqtt discards the will after any DISCONNECT.
        scenario, parting = scenario.replace("disconnect_with_will", "disconnect"), 0
    code, result = run(scenario)
    assert (code, result["verdict"]["status"]) == (0, "pass"), result["verdict"]
    # A client that returns before the end of its will delay has no will.
    flows = {flow["source"]: flow for flow in result["flows"] if flow["to"] == "watcher"}
    expected = Counter({name: flow["wills_expected_total"] for name, flow in flows.items()})
    assert +expected == +Counter({"silent": 12, "parting": parting, "delayed": 8})
    assert result["populations"]["returning"]["left_total"] >= 3
    watcher = result["populations"]["watcher"]
    assert watcher["wills_received_total"] == watcher["received_total"] == 20 + parting
    latency = watcher["will_latency_us"]
    assert latency["count"] + latency["negative_total"] == 20 + parting
