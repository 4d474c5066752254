"""Clients that take connections over from others, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Play = Callable[..., tuple[int, dict[str, Any]]]

SCENARIO = """
topology: {brokers: {main: {kind: BROKER}}}
validity: {lateness_p99: 1min, busy: 100%}
populations:
  device:
    clients: 6
    version: VERSION
    reconnect: DEVICE
    will: {topic: "gone/{n}", payload: bye, qos: 1}
  thief: {clients: 4, version: VERSION, takes_over: device, reconnect: THIEF}
  watcher: {clients: 1, subscriptions: [{topic: "gone/#", qos: 1}]}
stages:
  - connect: {populations: [device, watcher]}
  - connect: {populations: [thief]}
  - hold: 1s
  - disconnect: {populations: [device, thief]}
  - hold: 1s
thresholds: [wills_lost == 0]
monitors: {host: false}
"""
ENDINGS = {"closed_by_broker", "reset_by_broker", "disconnect_session_taken_over"}
"""rmqtt and mosquitto 2.0.11 close the connection without DISCONNECT, also with MQTT 5."""
BROKERS = pytest.mark.parametrize("broker", ["embedded", "mosquitto"])


def scenario(broker: str, version: str, device: str, thief: str) -> str:
    text = SCENARIO.replace("BROKER", broker).replace("VERSION", version)
    return text.replace("DEVICE", device).replace("THIEF", thief)


@BROKERS
@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_victims_have_an_outcome_and_a_will(run: Play, broker: str, version: str) -> None:
    code, result = run(scenario(broker, version, "never", "never"))
    assert (code, result["verdict"]["status"]) == (0, "pass"), result["verdict"]
    device, thief, watcher = (result["populations"][n] for n in ("device", "thief", "watcher"))
    assert device["disconnected_total"] == sum(device["outcomes"].values()) == 4
    assert {*device["outcomes"]} <= ENDINGS
    assert (thief["connected_total"], thief["connect_time_us"]["count"]) == (4, 4)
    assert thief["disconnected_total"] == 0
    assert watcher["wills_received_total"] == watcher["wills_expected_total"] == 4


@BROKERS
def test_victims_that_reconnect_take_their_connections_back(run: Play, broker: str) -> None:
    waits = "{after: 50ms, up_to: 50ms}"
    code, result = run(scenario(broker, "5", waits, waits))
    assert (code, result["verdict"]["status"]) == (0, "pass"), result["verdict"]
    device, thief, watcher = (result["populations"][n] for n in ("device", "thief", "watcher"))
    for population, clients in ((device, 6), (thief, 4)):
        assert population["connected_total"] > clients
        assert {*population["outcomes"]} <= ENDINGS
    assert watcher["wills_received_total"] >= 4
