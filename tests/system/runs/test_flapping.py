"""Clients that unsubscribe and subscribe again while messages are sent."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.system.runs.answering import answering

Play = Callable[..., tuple[int, dict[str, Any]]]

SCENARIO = """
topology: {brokers: {main: {BROKER}}}
fleet: {agents: 2}
validity: {lateness_p99: 1min, busy: 100%}
populations:
  source:
    clients: 4
    publications:
      - {topic: "news/{n}", rate: 20/s, qos: 1}
      - {topic: "last/{n}", rate: 5/s, retain: true}
  flapper:
    clients: 6
    version: VERSION
    SESSION
    subscriptions: [{topic: "news/#", qos: 1}, "last/+"]
    flapping: {from: 100ms, to: 300ms, unsubscribed: 100ms}
  steady: {clients: 3, subscriptions: [{topic: "news/#", qos: 1}]}
stages: [connect, publish: 2s, disconnect]
drain: 2s
thresholds:
  - steady.lost == 0
  - steady.expected > 0
  - duplicate == 0
  - flapper.unsubscribe_failed == 0
  - flapper.unsubscribed@publish > 0
  - flapper.unsubscribe_time.p99 < 1min
  - flapper.subscribe_time.p99@publish < 1min
  - flapper.disconnected == 0
monitors: {host: false}
"""
FILTERS = 2


TCP = ("kind: embedded", "kind: mosquitto")
TLS = ("kind: mosquitto, tls: server",)
WEBSOCKET = tuple(f"{words}, transport: websocket" for words in (*TCP, *TLS))
CLEAN, PERSISTENT = "session: clean", "session: persistent"


@pytest.mark.parametrize(
    ("broker", "version", "session"),
    [
        *((broker, version, CLEAN) for version in ("3.1.1", "5") for broker in TCP + TLS),
        *((broker, version, CLEAN) for version in ("3.1.1", "5") for broker in WEBSOCKET),
        *((broker, "5", PERSISTENT) for broker in TCP),
    ],
)
def test_flapping_clients_miss_messages_and_the_others_are_exact(
    run: Play, broker: str, version: str, session: str
) -> None:
    text = SCENARIO.replace("BROKER", broker).replace("VERSION", version)
    code, result = run(text.replace("SESSION", session))
    assert (code, result["verdict"]["status"]) == (0, "pass"), result["verdict"]
    target = result["targets"][0]
    assert target.startswith(("ws://", "wss://")) == ("websocket" in broker)
    assert target.startswith(("mqtts://", "wss://")) == ("tls" in broker)
    flapper = result["populations"]["flapper"]
    assert flapper["expected_total"] == flapper["received_total"] > 0
    assert flapper["lost_total"] == 0
    assert flapper["outcomes"] == {}
    removed = flapper["unsubscribed_total"]
    assert removed == FILTERS * flapper["unsubscribe_time_us"]["count"]
    # All clients subscribe once as they connect.
    again = flapper["subscribed_total"] - FILTERS * flapper["clients"]
    assert again == FILTERS * flapper["subscribe_time_us"]["count"]
    assert 0 <= removed - again <= FILTERS * flapper["clients"]
    assert flapper["retained_total"] > 0
    steady = result["populations"]["steady"]
    assert steady["expected_total"] == steady["received_total"]
    assert steady["unsubscribed_total"] == 0
    publish = next(stage for stage in result["stages"] if stage["kind"] == "publish")
    assert publish["excluded"] == ["flapper"]
    assert any("flapper" in line and "unsubscribed" in line for line in evidence(result))
    assert any(each["kind"] == "unsubscribe" for each in result["samplers"])


OWN = """
target: mqtt://127.0.0.1:PORT
validity: {lateness_p99: 1min, busy: 100%}
populations:
  flapper:
    clients: 1
    version: 5
    reconnect: never
    connect_timeout: 1s
    subscriptions: [a, b]
    flapping: {from: 50ms, unsubscribed: 50ms}
stages: [connect, hold: 2s, disconnect]
monitors: {host: false}
"""


def test_a_broker_that_refuses_to_unsubscribe_is_named_by_its_reason_code(
    run: Play, tmp_path: Path
) -> None:
    with answering(broker_of_5(b"\x87\x87")) as port:
        code, result = run(scenario(tmp_path, port))
    flapper = result["populations"]["flapper"]
    refused = flapper["unsubscribe_failed_total"]
    assert refused > 0
    assert flapper["outcomes"] == {"unsubscribe_not_authorized": refused}
    assert flapper["disconnected_total"] == flapper["unsubscribed_total"] == 0
    assert any("unsubscribe not authorized" in line for line in evidence(result))
    assert code == 0


def test_a_broker_that_does_not_answer_unsubscribe_ends_no_run(run: Play, tmp_path: Path) -> None:
    with answering(broker_of_5(None)) as port:
        code, result = run(scenario(tmp_path, port))
    flapper = result["populations"]["flapper"]
    assert flapper["outcomes"] == {"unsubscribe_timeout": 1}
    assert (flapper["disconnected_total"], flapper["unsubscribe_time_us"]["count"]) == (1, 0)
    assert any("unsubscribe timeout" in line for line in evidence(result))
    assert code in (0, 1)


def scenario(folder: Path, port: int) -> Path:
    path = folder / "flapping.yaml"
    path.write_text(OWN.replace("PORT", str(port)))
    return path


def evidence(result: dict[str, Any]) -> list[str]:
    lines: list[str] = result["verdict"]["evidence"]
    return lines


def broker_of_5(codes: bytes | None) -> Callable[[socket.socket], None]:
    """A broker that grants two filters, and answers UNSUBSCRIBE with these codes; None: never."""

    def serve(connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        while head := stream.read(2):
            body = stream.read(head[1])
            kind = head[0] >> 4
            if kind == 1:
                connection.sendall(b"\x20\x03\0\0\0")
            elif kind == 8:
                connection.sendall(bytes((0x90, 5)) + body[:2] + b"\0\0\0")
            elif kind == 10 and codes is not None:
                answer = body[:2] + b"\0" + codes
                connection.sendall(bytes((0xB0, len(answer))) + answer)
            elif kind == 12:
                connection.sendall(b"\xd0\0")
            elif kind == 14:
                return

    return serve
