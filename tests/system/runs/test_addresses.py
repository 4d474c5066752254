"""Runs at a name with several addresses, one of which answers, and runs whose clients state
invented addresses to a broker that logs them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.binaries import broker_path
from pubstorm.host.children import find
from pubstorm.host.keys.certificates import Authority, CertificateDates
from tests.kit.runs import MosquittoMaker, Play

CLIENTS = 6
NAMED = """\
target: mqtt://broker.example:{port}
addresses: {{names: {{broker.example: [127.0.0.1, 127.0.0.2, "::1"]}}}}
populations:
  device:
    clients: 6
    reconnect: never
    subscriptions: [{{topic: "d/{{n}}", qos: 1}}]
    publications: [{{topic: "d/{{n}}", rate: 10/s, qos: 1}}]
stages: [connect, {{publish: 1s}}]
"""
OVER_QUIC = """\
target: quic://broker.example:{port}
addresses: {{use: first, names: {{broker.example: [127.0.0.2, 127.0.0.1]}}}}
clean_start: skip
populations:
  device:
    clients: 6
    reconnect: never
    connect_timeout: 5s
    tls: {{ca: {ca}}}
    subscriptions: [{{topic: "d/{{n}}", qos: 1}}]
    publications: [{{topic: "d/{{n}}", rate: 10/s, qos: 1}}]
stages: [connect, {{publish: 1s}}]
"""
PROXIED = """\
topology:
  brokers: {rabbit: {kind: rabbitmq, settings: {mqtt.proxy_protocol: true}}}
clean_start: skip
populations:
  device:
    clients: 3
    first: 5
    reconnect: never
    proxy_protocol: {version: v1, sources: 10.0.0.0/8}
    publications: [{topic: "d/{n}", rate: 10/s, qos: 1}]
  reader:
    clients: 1
    reconnect: never
    proxy_protocol: v2
    subscriptions: [{topic: "d/#", qos: 1}]
stages: [connect, {publish: 1s}]
"""


@pytest.fixture(scope="module")
def named(shared_mosquitto: MosquittoMaker, shared_run: Play) -> dict[str, Any]:
    """A run at a name with three addresses: mosquitto listens on the first one."""
    code, result = shared_run(NAMED.format(port=shared_mosquitto().port))
    assert code == 0, result["verdict"]
    return result


def test_each_client_connects_at_the_address_that_answers(named: dict[str, Any]) -> None:
    device = named["populations"]["device"]
    assert device["connected_total"] == CLIENTS
    # Two clients each begin at 127.0.0.1, 127.0.0.2 and ::1.
    found = {row["address"]: counts(row) for row in named["addresses"]}
    assert found == {"127.0.0.1": (6, 6, 0), "127.0.0.2": (2, 0, 2), "::1": (4, 0, 4)}
    assert device["connect_attempts_total"] == sum(attempts for attempts, _, _ in found.values())
    assert device["outcomes"] == {"connect_refused": 6}


def test_each_address_has_its_reasons(named: dict[str, Any]) -> None:
    for row in named["addresses"]:
        assert sum(row["outcomes"].values()) == row["connect_failed_total"]
        assert row["outcomes"].keys() <= {"connect_refused"}


def test_observers_use_the_given_address(named: dict[str, Any]) -> None:
    assert [each for each in named["stale_state"] if each["what"] == "unknown"] == []


@pytest.fixture
def quic_port(tmp_path: Path) -> Iterator[int]:
    """Port of a broker that has QUIC at 127.0.0.1, with a certificate of the authority ca.crt."""
    authority = Authority.new("ours", CertificateDates.of_days(1))
    own = authority.server(["broker.example"], CertificateDates.of_days(1))
    (tmp_path / "ca.crt").write_bytes(authority.credential.certificate)
    (tmp_path / "server.crt").write_bytes(own.certificate)
    (tmp_path / "server.key").write_bytes(own.key)
    command = [str(broker_path()), "--port", "0", "--quic-port", "0", "--follow-stdin"]
    command += ["--quic-certificate", "server.crt", "--quic-key", "server.key"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["quic_port"]
        process.terminate()


def test_a_client_over_quic_tries_the_next_address_after_one_without_an_answer(
    quic_port: int, tmp_path: Path, run: Play
) -> None:
    code, result = run(OVER_QUIC.format(port=quic_port, ca=tmp_path / "ca.crt"))
    assert code == 0, result["verdict"]
    device = result["populations"]["device"]
    assert (device["connected_total"], device["outcomes"]) == (CLIENTS, {"connect_timeout": 6})
    found = {row["address"]: counts(row) for row in result["addresses"]}
    assert found == {"127.0.0.2": (6, 0, 6), "127.0.0.1": (6, 6, 0)}


@pytest.mark.slow("RabbitMQ starts")
@pytest.mark.skipif(find("rabbitmq-server") is None, reason="rabbitmq-server is not installed")
def test_a_broker_logs_the_invented_address_of_each_client(run: Play, tmp_path: Path) -> None:
    code, result = run(PROXIED, out=tmp_path / "run")
    assert code == 0, result["verdict"]
    log = tmp_path / "run" / "topology" / "rabbit-0" / "broker.log"
    accepted = re.findall(
        r"accepting MQTT connection \S+ \((\S+):\d+ -> [^,]*, client id: (\S+)\)",
        log.read_text(encoding="utf-8", errors="replace"),
    )
    assert {client: address for address, client in accepted} == {
        "device-5": "10.0.0.6",
        "device-6": "10.0.0.7",
        "device-7": "10.0.0.8",
        "reader-0": "198.18.0.1",
    }


def counts(row: dict[str, Any]) -> tuple[int, int, int]:
    """Returns the attempts, connections and failures of an address."""
    return row["connect_attempts_total"], row["connected_total"], row["connect_failed_total"]
