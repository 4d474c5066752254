"""Whole runs with MQTT 5 and 3.1: properties as another client receives them, limits of a broker
that clients obey, answers with a reason code."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from pubstorm.contract.stamp import stamp_in_text
from tests.system.runs.answering import answering

Played = tuple[int, dict[str, Any]]
Play = Callable[..., Played]
MosquittoMaker = Callable[..., Any]

CLIENTS = 20
MESSAGES = CLIENTS * 10
RECEIVED_TIMEOUT_S = 30


def scenario(folder: Path, where: str, *lines: str) -> Path:
    """A scenario with clients of version 5 that have `lines`, and publish for a second."""
    path = folder / "scenario.yaml"
    device = "\n    ".join(("clients: 20", "reconnect: never", *lines))
    stages = "stages: [connect, publish: 1s, disconnect]\ndrain: 2s\n"
    path.write_text(f"{where}\npopulations:\n  device:\n    {device}\n{stages}")
    return path


@pytest.mark.parametrize("version", ["3.1", "5"])
@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
@pytest.mark.parametrize("transport", ["tcp", "websocket"])
def test_each_version_is_played_on_each_transport(
    run: Play, tmp_path: Path, version: str, kind: str, transport: str
) -> None:
    where = f"topology: {{brokers: {{broker: {{kind: {kind}, transport: {transport}}}}}}}"
    path = scenario(
        tmp_path,
        where,
        f"version: {version}",
        "subscriptions: [{topic: 't/{n}', qos: 2}]",
        "publications: [{topic: 't/{n}', rate: 10/s, qos: 2}]",
    )
    code, result = run(path)
    device = result["populations"]["device"]
    assert (code, result["verdict"]["status"]) == (0, "pass"), result["verdict"]["evidence"]
    assert (device["version"], device["outcomes"]) == (f"mqtt-{version}", {})
    assert device["received_total"] == device["expected_total"] == MESSAGES


def test_another_client_receives_each_property(
    run: Play, tmp_path: Path, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto()
    path = scenario(
        tmp_path,
        f"target: {broker.url}",
        "version: 5",
        "publications:",
        "  - topic: device/{n}",
        "    rate: 10/s",
        "    qos: 1",
        "    expiry: 100s",
        "    content_type: text/{n}",
        "    payload: 'no. {seq}'",
        "    payload_format: text",
        "    response_topic: reply/{n}",
        "    correlation_data: 'no. {seq}'",
        "    user_properties: {site: north, client: '{n}'}",
        "    topic_alias: true",
    )
    with received_from(broker.port) as messages:
        code, result = run(path)
    assert code == 0, result["verdict"]["evidence"]
    seen = [0] * CLIENTS
    for message in messages:
        n = int(message.topic.removeprefix("device/"))
        found: Any = message.properties
        assert found.ContentType == f"text/{n}"
        assert found.PayloadFormatIndicator == 1
        assert found.ResponseTopic == f"reply/{n}"
        assert found.CorrelationData == f"no. {seen[n]}".encode()
        own = sorted(pair for pair in found.UserProperty if pair[0] != "pubstorm")
        assert own == [("client", str(n)), ("site", "north")]
        assert len(found.UserProperty) == 3, "the payload has no stamp, so a property has it"
        assert 0 < found.MessageExpiryInterval <= 100
        seen[n] += 1
    assert seen == [10] * CLIENTS


TEXT = "a text of the user's own, longer than a stamp"


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
def test_a_fixed_payload_has_its_stamp_beside_it(run: Play, tmp_path: Path, kind: str) -> None:
    """Clients of MQTT 5 follow the messages, others count them by topic."""
    path = scenario(
        tmp_path,
        f"topology: {{brokers: {{broker: {{kind: {kind}}}}}}}",
        "version: 5",
        f'publications: [{{topic: "device/{{n}}", rate: 10/s, qos: 1, payload: "{TEXT}"}}]',
        "end: disconnect",
    )
    receivers = "".join(
        f"  {name}: {{clients: 2, version: {version}, subscriptions: [{{topic: '#', qos: 1}}]}}\n"
        for name, version in {"five": "5", "three": "3.1.1", "old": "3.1"}.items()
    )
    path.write_text(path.read_text().replace("stages:", f"{receivers}stages:"))
    code, result = run(path)
    assert code == 0, result["verdict"]["evidence"]
    for name, followed in {"five": 2 * MESSAGES, "three": 0, "old": 0}.items():
        found = result["populations"][name]
        assert found["expected_total"] == found["received_total"] == 2 * MESSAGES, name
        assert found["latency_us"]["intended"]["count"] == followed, name
        assert (found["foreign_total"], found["duplicate_total"], found["reordered_total"]) == (
            0,
            0,
            0,
        )


def test_another_client_receives_a_fixed_payload_unchanged(
    run: Play, tmp_path: Path, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto()
    path = scenario(
        tmp_path,
        f"target: {broker.url}",
        "version: 5",
        "publications:",
        "  - topic: device/{n}",
        "    rate: 10/s",
        "    qos: 1",
        f'    payload: "{TEXT}"',
        "    user_properties: {site: north}",
        "    topic_alias: true",
    )
    with received_from(broker.port) as messages:
        code, result = run(path)
    assert code == 0, result["verdict"]["evidence"]
    places: dict[str, list[int]] = {}
    for message in messages:
        assert message.payload == TEXT.encode()
        found: Any = message.properties
        (site, (name, text)) = found.UserProperty
        assert (site, name) == (("site", "north"), "pubstorm")
        stamp = stamp_in_text(text.encode())
        assert stamp is not None
        assert len(text) == 48
        places.setdefault(message.topic, []).append(int.from_bytes(stamp[4:8], "little"))
    assert len(places) == CLIENTS
    assert all(found == [*range(10)] for found in places.values())


@contextmanager
def received_from(port: int, total: int = MESSAGES) -> Iterator[list[paho.MQTTMessage]]:
    """Subscribes to device/#; ends when all messages of a run have arrived."""
    messages: list[paho.MQTTMessage] = []
    subscribed, complete = threading.Event(), threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)

    def on_message(_client: object, _data: object, message: paho.MQTTMessage) -> None:
        messages.append(message)
        if len(messages) == total:
            complete.set()

    def on_connect(*_: object) -> None:
        client.subscribe("device/#", 1)

    client.on_connect = on_connect
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = on_message
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert subscribed.wait(RECEIVED_TIMEOUT_S)
        yield messages
        assert complete.wait(RECEIVED_TIMEOUT_S), f"{len(messages)} of {total} messages"
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("end", ["abort", "disconnect_with_will"])
def test_another_client_sees_each_property_of_a_will(
    run: Play, tmp_path: Path, mosquitto: MosquittoMaker, end: str
) -> None:
    broker = mosquitto()
    path = scenario(
        tmp_path,
        f"target: {broker.url}",
        "version: 5",
        f"end: {end}",
        "will:",
        "  topic: device/{n}",
        "  payload: gone {n}",
        "  qos: 1",
        "  expiry: 100s",
        "  content_type: text/{n}",
        "  payload_format: text",
        "  response_topic: reply/{n}",
        "  correlation_data: 'no. {n}'",
        "  user_properties: {site: north, client: '{n}'}",
        "publications: [{topic: up, rate: 1/s}]",
    )
    with received_from(broker.port, CLIENTS) as messages:
        code, result = run(path)
    assert code == 0, result["verdict"]["evidence"]
    for message in messages:
        n = message.topic.removeprefix("device/")
        found: Any = message.properties
        assert (message.payload, message.qos) == (f"gone {n}".encode(), 1)
        assert found.ContentType == f"text/{n}"
        assert found.PayloadFormatIndicator == 1
        assert found.ResponseTopic == f"reply/{n}"
        assert found.CorrelationData == f"no. {n}".encode()
        assert sorted(found.UserProperty) == [("client", n), ("site", "north")]
        assert 0 < found.MessageExpiryInterval <= 100
    assert sorted(int(message.topic.removeprefix("device/")) for message in messages) == [
        *range(CLIENTS)
    ]


def test_a_client_expects_none_of_its_own_messages_with_no_local(run: Play, tmp_path: Path) -> None:
    path = scenario(
        tmp_path,
        "topology: {brokers: {broker: {kind: mosquitto}}}",
        "version: 5",
        "subscriptions: [{topic: all, qos: 1, no_local: true, identifier: 9}]",
        "publications: [{topic: all, rate: 10/s, qos: 1}]",
    )
    code, result = run(path)
    device = result["populations"]["device"]
    assert code == 0, result["verdict"]["evidence"]
    assert device["received_total"] == device["expected_total"] == MESSAGES * (CLIENTS - 1)


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
def test_forwarded_messages_are_in_the_ledger_with_the_flag_of_their_publisher(
    run: Play, tmp_path: Path, kind: str
) -> None:
    """The late observer also receives the messages that the broker has kept."""
    observer = "clients: 1, version: 5, subscriptions"
    path = scenario(
        tmp_path,
        f"topology: {{brokers: {{broker: {{kind: {kind}}}}}}}",
        "version: 5",
        "publications: [{topic: 'device/{n}', rate: 10/s, qos: 1, retain: true}]",
        "end: disconnect",
    )
    populations = (
        f"  early: {{{observer}: [{{topic: '#', qos: 1, retain_as_published: true}}]}}\n"
        f"  plain: {{{observer}: [{{topic: '#', qos: 1}}]}}\n"
        f"  late: {{{observer}: [{{topic: '#', qos: 1, retain_as_published: true}}]}}\n"
    )
    text = path.read_text().split("stages:")[0]
    path.write_text(
        f"""{text}{populations}stages:
  - connect: {{populations: [device, early, plain]}}
  - publish: 1s
  - connect: {{name: join, populations: [late]}}
  - publish: {{name: again, for: 1s}}
  - disconnect
drain: 2s
"""
    )
    code, result = run(path)
    assert code == 0, result["verdict"]["evidence"]
    found = {
        name: (
            each["received_total"],
            each["retained_total"],
            each["retained_as_published_total"],
        )
        for name, each in result["populations"].items()
    }
    assert found["early"] == (2 * MESSAGES, 0, 2 * MESSAGES)
    assert found["plain"] == (2 * MESSAGES, 0, 0)
    assert found["late"] == (MESSAGES, CLIENTS, MESSAGES)
    for name in ("early", "plain", "late"):
        each = result["populations"][name]
        assert (each["lost_total"], each["duplicate_total"]) == (0, 0), name


def test_a_topic_alias_saves_the_bytes_of_the_topic(run: Play, tmp_path: Path) -> None:
    topic = "a/long/topic/that/an/alias/replaces/{n}"
    sent = {}
    for alias in ("false", "true"):
        path = scenario(
            tmp_path,
            "topology: {brokers: {broker: {kind: mosquitto}}}",
            "version: 5",
            f"publications: [{{topic: '{topic}', rate: 10/s, qos: 1, size: 200B, "
            f"topic_alias: {alias}}}]",
            f"subscriptions: [{{topic: '{topic}', qos: 1}}]",
        )
        code, result = run(path)
        assert code == 0, result["verdict"]["evidence"]
        sent[alias] = result["populations"]["device"]["bytes_sent_total"]
    # An alias is a property of three bytes. The first message of each client has the topic too.
    with_topic = sum(len(topic.format(n=n)) * 9 for n in range(CLIENTS))
    assert sent["false"] - sent["true"] == with_topic - 3 * MESSAGES


def test_messages_beyond_the_limit_of_the_broker_are_left_out(
    run: Play, tmp_path: Path, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto(max_packet_size=500)
    path = scenario(
        tmp_path,
        f"target: {broker.url}",
        "version: 5",
        "publications:",
        "  - {topic: 'small/{n}', rate: 10/s, qos: 1, size: 100B}",
        "  - {topic: 'large/{n}', rate: 10/s, qos: 1, size: 1kB}",
    )
    code, result = run(path)
    device = result["populations"]["device"]
    assert (code, result["verdict"]["status"]) == (1, "fail")
    assert device["outcomes"] == {"message_too_large": MESSAGES}
    assert (device["acked_total"], device["skipped_total"]) == (MESSAGES, MESSAGES)
    assert any("Maximum Packet Size" in line for line in result["verdict"]["evidence"])


def test_no_more_messages_are_in_flight_than_the_broker_receives(
    run: Play, tmp_path: Path, mosquitto: MosquittoMaker
) -> None:
    """mosquitto disconnects a client that exceeds its Receive Maximum."""
    broker = mosquitto(max_inflight_messages=3)
    path = scenario(
        tmp_path,
        f"target: {broker.url}",
        "version: 5",
        "publications: [{topic: 't/{n}', rate: 20/s, qos: 2, burst: 10}]",
    )
    code, result = run(path)
    device = result["populations"]["device"]
    assert code == 0, result["verdict"]["evidence"]
    assert (device["acked_total"], device["outcomes"]) == (CLIENTS * 20, {})
    assert device["in_flight_max"] <= CLIENTS * 3


def test_a_broker_that_refuses_messages_is_named_by_its_reason_code(
    run: Play, tmp_path: Path, mosquitto: MosquittoMaker
) -> None:
    rules = tmp_path / "rules"
    rules.write_text("topic read #\n")
    rules.chmod(0o644)
    broker = mosquitto(acl_file=rules)
    path = scenario(
        tmp_path,
        f"target: {broker.url}",
        "version: 5",
        "publications: [{topic: 't/{n}', rate: 10/s, qos: 1}]",
    )
    code, result = run(path)
    device = result["populations"]["device"]
    assert (code, result["verdict"]["status"]) == (1, "fail")
    assert (device["rejected_total"], device["acked_total"]) == (MESSAGES, 0)
    assert device["outcomes"] == {"publish_not_authorized": MESSAGES}
    assert any("publish not authorized" in line for line in result["verdict"]["evidence"])


@pytest.mark.parametrize(
    "answer",
    [b"\x20\x02\x00\x01", b"\x20\x03\x00\x84\x00"],
    ids=["of a broker of 3.1.1", "of a broker of 5"],
)
def test_a_broker_that_does_not_speak_the_version_is_named(
    run: Play, tmp_path: Path, answer: bytes
) -> None:
    with answering(refusal(answer)) as port:
        load = "publications: [{topic: 't/{n}', rate: 10/s}]"
        target = f"target: mqtt://127.0.0.1:{port}"
        code, result = run(scenario(tmp_path, target, "version: 5", load))
    assert code != 0
    assert result["populations"]["device"]["outcomes"] == {"bad_protocol_version": CLIENTS}
    assert any("set version" in line for line in result["verdict"]["evidence"])


def test_waits_for_the_receive_maximum_are_apart_from_the_window(
    run: Play, tmp_path: Path, mosquitto: MosquittoMaker
) -> None:
    """A closed loop with a window of 5, at a broker that accepts 2 messages in flight, and 10."""
    waits = {}
    for maximum in (2, 10):
        broker = mosquitto(max_inflight_messages=maximum)
        load = "publications: [{topic: 't/{n}', rate: max, window: 5, qos: 1}]"
        code, result = run(scenario(tmp_path, f"target: {broker.url}", "version: 5", load))
        assert code == 0, result["verdict"]["evidence"]
        waits[maximum] = result["populations"]["device"]
    assert waits[10]["receive_maximum_waits_total"] == 0
    held = waits[2]
    assert held["in_flight_max"] <= 2 * CLIENTS
    # Two acknowledgements in one read end one wait.
    assert 2 * held["receive_maximum_waits_total"] >= held["sent_total"] - 2 * CLIENTS > 0
    assert held["receive_maximum_wait_us"]["count"] == held["receive_maximum_waits_total"]


def test_the_texts_of_a_broker_are_kept_with_its_codes(run: Play, tmp_path: Path) -> None:
    refused = itertools.count()

    def refuse(connection: socket.socket) -> None:
        """Refuses a client with a reason string of its own and a reference to another server."""
        if connection.recv(4096):
            reason = f"node {next(refused):02} is full\x1b[2J".encode()
            texts = b"\x1f" + field(reason) + b"\x1c" + field(b"b2.example:1884")
            body = bytes((0, 0x9C, len(texts))) + texts
            connection.sendall(bytes((0x20, len(body))) + body)

    with answering(refuse) as port:
        load = "publications: [{topic: 't/{n}', rate: 10/s}]"
        target = f"target: mqtt://127.0.0.1:{port}"
        code, result = run(scenario(tmp_path, target, "version: 5", load))
    device = result["populations"]["device"]
    outcome = "connect_use_another_server"
    assert (code, device["outcomes"]) == (3, {outcome: CLIENTS})
    reasons = [e for e in device["explanations"] if e["property"] == "reason_string"]
    references = [e for e in device["explanations"] if e["property"] == "server_reference"]
    assert {e["outcome"] for e in (*reasons, *references)} == {outcome}
    assert sum(e["count"] for e in reasons) == sum(e["count"] for e in references) == CLIENTS
    # The controller has connected before the clients.
    first = int(reasons[0]["text"].split()[1])
    kept = [(f"node {first + number:02} is full\\u{{1b}}[2J", 1) for number in range(5)]
    assert [(e["text"], e["count"]) for e in reasons] == [*kept, (None, CLIENTS - 5)]
    assert [e["text"] for e in references] == ["b2.example:1884"]
    line = f'{outcome}: the broker refers to "b2.example:1884" ({CLIENTS} ×)'
    assert line in result["verdict"]["evidence"]


def field(text: bytes) -> bytes:
    """Returns bytes behind their length."""
    return len(text).to_bytes(2, "big") + text


def refusal(answer: bytes) -> Callable[[socket.socket], None]:
    """Answers a CONNECT with these bytes."""

    def refuse(connection: socket.socket) -> None:
        if connection.recv(4096):
            connection.sendall(answer)

    return refuse
