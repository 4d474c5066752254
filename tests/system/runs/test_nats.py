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
