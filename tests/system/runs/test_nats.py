"""Runs with clients of NATS at a real nats-server, whose numbers are known beforehand: among
themselves, and with clients of MQTT at the same server."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit.runs import Play
from tests.kit.starved import passes

pytestmark = [
    pytest.mark.skipif(find("nats-server") is None, reason="nats-server is not installed"),
    pytest.mark.xdist_group("nats"),
]

SENT = 20 * 20
SCENARIO = """\
topology:
  brokers:
    main: {kind: nats, settings: {authorization.user: u, authorization.password: p}}
populations:
  device:
    {clients: 20, username: u, password: p, at: main,
     publications: [{topic: "device/{n}/up", rate: 20/s, qos: 1}],
     subscriptions: ["device/{n}/down"]}
  sensor:
    {protocol: nats, clients: 20, username: u, password: p,
     publications: [{topic: "device.{n}.up", rate: 20/s, headers: {source: "{n}"}}]}
  # 20 requests a second for each device, of which two are for it.
  backend:
    {protocol: nats, clients: 2, username: u, password: p, subscriptions: [device.*.up],
     publications: [{topic: "device.{0..19}.down", rate: 20/s}]}
  mqtt-backend:
    {clients: 1, username: u, password: p, subscriptions: [device/+/up]}
  worker:
    {protocol: nats, clients: 4, username: u, password: p,
     subscriptions: [{topic: device.*.up, group: workers}]}
  talker:
    {protocol: nats, clients: 3, username: u, password: p, echo: false,
     subscriptions: [talk], publications: [{topic: talk, rate: 10/s}]}
  stranger:
    {protocol: nats, clients: 1, username: u, password: guess, reconnect: never}
stages: [connect, {publish: 1s}, disconnect]
thresholds: [lost == 0, "stranger.connected == 0", "sent == 870"]
defaults: "off"
"""


@pytest.fixture(scope="module")
def result(shared_run: Play) -> dict[str, Any]:
    """The result of a run of three agents."""
    code, found = shared_run(SCENARIO, "--set", "fleet.agents=3")
    assert passes(code, found), found["verdict"]
    return found


def test_each_message_reaches_the_subscribers_of_both_protocols(result: dict[str, Any]) -> None:
    flows = {(flow["source"], flow["to"]): flow for flow in result["flows"]}
    copies = {"backend": 2, "mqtt-backend": 1, "worker": 1}
    for source in ("device", "sensor"):
        for to, each in copies.items():
            flow = flows.pop((source, to))
            assert flow["expected_total"] == flow["received_total"] == SENT * each, (source, to)
            assert flow["latency_us"]["intended"]["count"] == SENT * each
    down = flows.pop(("backend", "device"))
    assert down["expected_total"] == down["received_total"] == 40
    talk = flows.pop(("talker", "talker"))
    assert talk["expected_total"] == talk["received_total"] == 3 * 10 * 2, "no echo"
    assert not flows


def test_what_is_delivered_is_delivered_once(result: dict[str, Any]) -> None:
    populations = result["populations"]
    assert {p["duplicate_total"] for p in populations.values()} == {0}
    assert {p["reordered_total"] for p in populations.values()} == {0}
    assert populations["worker"]["subscribed_total"] == 4
    assert populations["sensor"]["version"] == "nats"


def test_a_wrong_password_is_refused(result: dict[str, Any]) -> None:
    outcomes = result["populations"]["stranger"]["outcomes"]
    assert outcomes == {"bad_credentials": 1}


FAULTS = """\
topology: {brokers: {main: {kind: nats}}}
populations:
  sender: {protocol: nats, clients: 5, publications: [{topic: "x.{n}", rate: 20/s}], LIFE}
  reader: {protocol: nats, clients: 2, subscriptions: [x.*], LIFE}
stages:
  - connect
  - publish:
      for: 3s
      faults: [{at: 500ms, kill: main, for: 300ms}, {at: 2s, freeze: main, for: 300ms}]
snapshot_interval: 100ms
defaults: "off"
"""
LIFE = "reconnect: {after: 50ms, up_to: 100ms}"


def test_clients_come_back_to_a_killed_server_and_wait_for_a_frozen_one(run: Play) -> None:
    code, result = run(FAULTS.replace("LIFE", LIFE))
    assert passes(code, result), result["verdict"]
    sender, reader = (result["populations"][name] for name in ("sender", "reader"))
    assert sender["sent_total"] == 5 * 20 * 3 == reader["expected_total"] / 2
    assert reader["received_total"] + reader["lost_total"] == reader["expected_total"]
    for each, clients in ((sender, 5), (reader, 2)):
        assert each["disconnected_total"] == clients, "the frozen server keeps its connections"
        assert each["connected_total"] == 2 * clients
        ended = {"closed_by_broker", "reset_by_broker"}
        assert {*each["outcomes"]} <= {*ended, "connect_refused"}
        assert sum(each["outcomes"].get(name, 0) for name in ended) == clients
    killed, frozen = result["faults"]
    assert (killed["clients"]["before"], killed["clients"]["lowest"]) == (7, 0)
    assert killed["clients"]["all_s"] is not None
    assert frozen["clients"] is None
