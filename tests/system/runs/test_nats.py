"""Runs with clients of NATS at a real nats-server, whose numbers are known beforehand: among
themselves, and with clients of MQTT at the same server."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit.ports import free_port
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
      for: 7s
      faults: [{at: 500ms, kill: main, for: 300ms}, {at: 4s, freeze: main, for: 300ms}]
snapshot_interval: 100ms
defaults: "off"
"""
LIFE = "reconnect: {after: 50ms, up_to: 100ms}"


def test_clients_come_back_to_a_killed_server_and_wait_for_a_frozen_one(run: Play) -> None:
    code, result = run(FAULTS.replace("LIFE", LIFE))
    assert passes(code, result), result["verdict"]
    sender, reader = (result["populations"][name] for name in ("sender", "reader"))
    assert sender["sent_total"] == 5 * 20 * 7 == reader["expected_total"] / 2
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


STORED = """\
topology:
  brokers: {main: {kind: nats}}
  streams: {ORDERS: {subjects: [order.>], storage: memory}}
populations:
  shop:
    {protocol: nats, clients: 20,
     publications: [{topic: "order.{n}", rate: 20/s, stream: ORDERS, window: 50}]}
  # The server gives its messages subjects, which the stream stores too.
  device:
    {clients: 5, publications: [{topic: "order/m{n}", rate: 20/s, qos: 1}]}
  audit:
    {protocol: nats, clients: 4, echo: false,
     subscriptions: [{topic: order.>, stream: ORDERS}]}
  worker:
    {protocol: nats, clients: 3,
     subscriptions: [{topic: "order.*", stream: ORDERS, group: workers}]}
  plain:
    {protocol: nats, clients: 1, subscriptions: [order.>]}
  nowhere:
    {protocol: nats, clients: 2,
     publications: [{topic: "nowhere.{n}", rate: 20/s, stream: ORDERS, window: 5}]}
  stranger:
    {protocol: nats, clients: 1, subscriptions: [{topic: other.>, stream: ORDERS}]}
stages:
  - connect
  - disconnect: {populations: [audit]}
  - publish: {for: 1s, name: away}
  - connect: {populations: [audit]}
  - publish: {for: 1s, name: back}
  - disconnect
thresholds: [lost == 0, in_flight == 0, "acked == 1000", "rejected == 80"]
defaults: "off"
"""
ORDERS = 2 * SENT
FROM_DEVICES = 2 * 5 * 20


@pytest.fixture(scope="module")
def stored(shared_run: Play) -> dict[str, Any]:
    """The result of a run of three agents with a stream."""
    code, found = shared_run(STORED, "--set", "fleet.agents=3")
    assert passes(code, found), found["verdict"]
    return found


def test_a_stream_acknowledges_each_message(stored: dict[str, Any]) -> None:
    shop = stored["populations"]["shop"]
    assert shop["sent_total"] == shop["acked_total"] == ORDERS
    assert shop["ack_latency_us"]["intended"]["count"] == ORDERS
    assert shop["in_flight_max"] <= 20 * 50


def test_a_durable_consumer_keeps_what_comes_while_its_client_is_away(
    stored: dict[str, Any],
) -> None:
    flows = {(flow["source"], flow["to"]): flow for flow in stored["flows"]}
    for source, sent in (("shop", ORDERS), ("device", FROM_DEVICES)):
        for to, each in (("audit", 4), ("worker", 1), ("plain", 1)):
            flow = flows.pop((source, to))
            assert flow["expected_total"] == flow["received_total"] == sent * each, (source, to)
    assert not flows
    away, back = (stage for stage in stored["stages"] if stage["kind"] == "publish")
    assert away["populations"]["audit"]["received_total"] == 0
    assert back["populations"]["worker"]["received_total"] == (ORDERS + FROM_DEVICES) // 2
    assert {p["duplicate_total"] for p in stored["populations"].values()} == {0}
    assert stored["populations"]["audit"]["subscribed_total"] == 2 * 4


def test_what_no_stream_takes_is_refused_with_its_number(stored: dict[str, Any]) -> None:
    nowhere, stranger = (stored["populations"][name] for name in ("nowhere", "stranger"))
    assert nowhere["rejected_total"] == nowhere["sent_total"] == 2 * 2 * 20
    assert nowhere["outcomes"] == {"jetstream_no_responders": 80}
    assert (stranger["subscribed_total"], stranger["subscribe_failed_total"]) == (0, 1)
    assert stranger["outcomes"] == {"jetstream_filter_outside_stream": 1}
    texts = [each["text"] for each in stranger["explanations"]]
    assert any('"err_code":10093' in text for text in texts), texts


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[int]:
    """Port of a server whose TLS begins after its first line. Its certificate vouches for
    itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout b.key -out b.crt -batch"
    subject = ["-subj", "/CN=nats", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *subject], cwd=tmp_path, check=True, capture_output=True)
    port = free_port()
    server = [str(find("nats-server")), "-a", "127.0.0.1", "-p", str(port)]
    keys = ["--tls", "--tlscert=b.crt", "--tlskey=b.key"]
    with subprocess.Popen([*server, *keys], cwd=tmp_path, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert any(b"Server is ready" in line for line in process.stderr)
        yield port
        process.terminate()


def test_tls_begins_after_the_first_line_of_the_server(
    secured: int, tmp_path: Path, run: Play
) -> None:
    code, found = run(f"""\
target: natss://127.0.0.1:{secured}
populations:
  talker: {{clients: 5, tls: {{ca: {tmp_path / "b.crt"}}}, subscriptions: ["a.*"],
            publications: [{{topic: "a.{{n}}", rate: 10/s}}]}}
  stranger: {{clients: 1, tls: {{verify: true}}, reconnect: never, subscriptions: ["b"]}}
stages: [connect, {{publish: 1s}}, disconnect]
thresholds: [lost == 0, "talker.ready_max == 5", "stranger.connected == 0", "sent == 50"]
defaults: "off"
""")
    assert passes(code, found), found["verdict"]
    assert found["populations"]["stranger"]["outcomes"] == {"certificate_untrusted": 1}
