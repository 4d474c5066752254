"""Whole runs over WebSocket: brokers of the run and of the user, TLS, headers, and targets that
have no WebSocket of MQTT, which the verdict names."""

from __future__ import annotations

import base64
import hashlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.binaries import broker_path
from pubstorm.topology.adapters.nats import find_nats
from pubstorm.topology.adapters.rabbitmq import find_rabbitmq
from tests.kit.ports import free_port
from tests.system.runs.answering import answering

Played = tuple[int, dict[str, Any]]
Play = Callable[..., Played]
MosquittoMaker = Callable[..., Any]

CLIENTS = 20
LOAD = f"""
populations:
  device:
    clients: {CLIENTS}
    reconnect: never
    subscriptions: [{{topic: "t/{{n}}", qos: 1}}]
    publications: [{{topic: "t/{{n}}", rate: 10/s, qos: 1}}]
stages: [connect, publish: 1s, disconnect]
drain: 2s
"""
rabbitmq = pytest.mark.skipif(find_rabbitmq() is None, reason="rabbitmq-server is not installed")
nats = pytest.mark.skipif(find_nats() is None, reason="nats-server is not installed")


def scenario(folder: Path, where: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(where + LOAD)
    return path


def broker(words: str) -> str:
    return f"topology: {{brokers: {{broker: {{transport: websocket, {words}}}}}}}"


@pytest.mark.parametrize(
    "words",
    [
        "kind: embedded",
        "kind: mosquitto",
        "kind: mosquitto, tls: server",
        pytest.param("kind: rabbitmq", marks=[rabbitmq, pytest.mark.slow("Erlang starts")]),
        pytest.param("kind: nats", marks=nats),
        f"kind: command, command: [{broker_path()}, --port, '{{port}}', "
        "--websocket-port, '{websocket_port}']",
    ],
)
def test_a_broker_of_the_run_serves_websocket(run: Play, tmp_path: Path, words: str) -> None:
    code, result = run(scenario(tmp_path, broker(words)))
    device = result["populations"]["device"]
    assert (code, result["verdict"]["status"]) == (0, "pass"), result["verdict"]["evidence"]
    assert (device["connected_max"], device["outcomes"]) == (CLIENTS, {})
    assert device["received_total"] == device["expected_total"] == CLIENTS * 10
    assert result["targets"][0].startswith("wss://" if "tls" in words else "ws://")


def test_a_target_over_websocket_is_looked_at_for_stale_state(
    run: Play, tmp_path: Path, mosquitto: MosquittoMaker
) -> None:
    port = free_port()
    other = mosquitto(**{"listener ": f"{port} 127.0.0.1", "protocol": "websockets"})
    assert other is not None
    path = scenario(tmp_path, f"target: ws://127.0.0.1:{port}/mqtt\nclean_start: require")
    code, result = run(path)
    assert (code, result["verdict"]["status"]) == (0, "pass"), result["verdict"]["evidence"]


def test_a_port_of_mqtt_is_named_as_no_websocket(
    run: Play, tmp_path: Path, mosquitto: MosquittoMaker
) -> None:
    target = mosquitto().url.replace("mqtt://", "ws://")
    code, result = run(scenario(tmp_path, f"target: {target}/mqtt"))
    assert_no_client(code, result, "upgrade_closed", "WebSocket listener at this port")


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        ("404 Not Found\r\n", "http_not_found", "often /mqtt"),
        ("200 OK\r\n", "upgrade_ignored", "did not upgrade to WebSocket"),
        ("101 On\r\nAccept: wrong\r\n", "wrong_accept_key", "accept key"),
        ("101 On\r\nAccept: {accept}\r\n", "no_subprotocol", "without the subprotocol mqtt"),
    ],
)
def test_a_web_server_is_named_by_its_answer(
    run: Play, tmp_path: Path, answer: str, reason: str, words: str
) -> None:
    with answering(web_server(answer)) as port:
        code, result = run(scenario(tmp_path, f"target: ws://127.0.0.1:{port}/mqtt"))
    assert_no_client(code, result, reason, words)


def test_a_port_of_websocket_is_named_as_no_port_of_mqtt(
    run: Play, tmp_path: Path, mosquitto: MosquittoMaker
) -> None:
    port = free_port()
    mosquitto(**{"listener ": f"{port} 127.0.0.1", "protocol": "websockets"})
    code, result = run(scenario(tmp_path, f"target: mqtt://127.0.0.1:{port}"))
    assert_no_client(code, result, "protocol_error", "ws:// or wss://")


def assert_no_client(code: int, result: dict[str, Any], reason: str, words: str) -> None:
    verdict = result["verdict"]
    assert code != 0
    assert (verdict["status"], verdict["limited_by"]) == ("invalid", "target")
    assert result["populations"]["device"]["outcomes"] == {reason: CLIENTS}
    advice = [line for line in verdict["evidence"] if line.startswith(f"{reason} ({CLIENTS} ×): ")]
    assert len(advice) == 1 and words in advice[0], verdict["evidence"]


def web_server(answer: str) -> Callable[[socket.socket], None]:
    """Answers a request with these lines after the version of HTTP."""

    def serve(connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request and (part := connection.recv(4096)):
            request += part
        if b"\r\n\r\n" in request:
            connection.sendall(answered(answer, request.decode()).encode())

    return serve


def answered(answer: str, request: str) -> str:
    lines = dict(line.split(": ", 1) for line in request.split("\r\n") if ": " in line)
    key = lines["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
    return f"HTTP/1.1 {answer.format(accept=accept).replace('Accept: ', upgrade)}\r\n"
