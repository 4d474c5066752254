"""Requests and answers of MQTT 5: both sides played by Pubstorm, and each side played by paho."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

pytestmark = pytest.mark.xdist_group("round_trips")

Played = tuple[int, dict[str, Any]]
Play = Callable[..., Played]
MosquittoMaker = Callable[..., Any]
OnMessage = Callable[[paho.Client, paho.MQTTMessage], None]

CLIENTS, MESSAGES = 5, 50
SUBSCRIBED_TIMEOUT_S = 30
STAGES = "stages: [connect, publish: 1s, disconnect]\ndrain: 3s\n"


def requesting(payload: str = "size: 100B", response_topic: str = "reply/{n}") -> str:
    """A population whose clients send ten requests each."""
    return f"""  device:
    clients: {CLIENTS}
    version: 5
    subscriptions: [{{topic: "reply/{{n}}", qos: 1}}]
    publications:
      - topic: "request/{{n}}"
        request: true
        response_topic: "{response_topic}"
        rate: 10/s
        qos: 1
        {payload}
"""


def played(run: Play, folder: Path, where: str, *populations: str) -> Played:
    path = folder / "scenario.yaml"
    path.write_text(f"{where}\n{STAGES}populations:\n{''.join(populations)}")
    return run(path)


def at(kind: str) -> str:
    return f"topology: {{brokers: {{broker: {{kind: {kind}}}}}}}"


@pytest.mark.parametrize(
    ("kind", "backends"),
    [
        ("embedded", ("request/#", 1, 0)),
        ("embedded", ("+/+", 3, 2)),
        ("mosquitto", ("request/#", 1, 2)),
        ("mosquitto", ("+/+", 3, 0)),
    ],
)
def test_each_request_is_answered_by_each_client_that_receives_it(
    run: Play, tmp_path: Path, kind: str, backends: tuple[str, int, int]
) -> None:
    topic, clients, qos = backends
    backend = f"""  backend:
    clients: {clients}
    version: 5
    subscriptions: [{{topic: "{topic}", qos: 1}}]
    responds: {{qos: {qos}}}
"""
    code, result = played(run, tmp_path, at(kind), requesting(), backend)
    assert code == 0, result["verdict"]["evidence"]
    device, backend_result = (result["populations"][name] for name in ("device", "backend"))
    assert device["requests_total"] == MESSAGES
    assert device["answers_expected_total"] == device["answered_total"] == MESSAGES * clients
    assert (device["unanswered_total"], device["answers_duplicate_total"]) == (0, 0)
    assert device["received_total"] == device["expected_total"] == MESSAGES * clients
    assert device["round_trip_us"]["count"] == MESSAGES * clients
    assert device["latency_us"]["intended"]["count"] == 0, "answers are no one-way deliveries"
    assert backend_result["answers_total"] == backend_result["sent_total"] == MESSAGES * clients
    # The backend of three also overhears the answers.
    overheard = MESSAGES * clients * clients if topic == "+/+" else 0
    assert backend_result["answers_of_others_total"] == overheard
    assert backend_result["latency_us"]["intended"]["count"] == MESSAGES * clients
    (stage,) = (each for each in result["stages"] if each["kind"] == "publish")
    assert stage["populations"]["device"]["answered_total"] == MESSAGES * clients


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
def test_a_shared_group_answers_each_request_once(run: Play, tmp_path: Path, kind: str) -> None:
    backend = """  backend:
    clients: 3
    version: 5
    subscriptions: [{topic: "$share/group/request/#", qos: 1}]
    responds: true
"""
    code, result = played(run, tmp_path, at(kind), requesting(), backend)
    assert code == 0, result["verdict"]["evidence"]
    device = result["populations"]["device"]
    assert device["answers_expected_total"] == device["answered_total"] == MESSAGES


def test_unanswered_requests_fail_the_default_threshold(run: Play, tmp_path: Path) -> None:
    code, result = played(run, tmp_path, at("embedded"), requesting())
    device = result["populations"]["device"]
    assert (device["answered_total"], device["unanswered_total"]) == (0, MESSAGES)
    assert code == 1
    failed = [each["expression"] for each in result["verdict"]["thresholds"] if not each["passed"]]
    assert "unanswered == 0" in failed


@contextmanager
def client_of(port: int, topic: str, on_message: OnMessage) -> Iterator[paho.Client]:
    """A client of paho that is subscribed."""
    subscribed = threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)

    def on_connect(*_: object) -> None:
        client.subscribe(topic, 1)

    client.on_connect = on_connect
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = lambda each, _, message: on_message(each, message)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert subscribed.wait(SUBSCRIBED_TIMEOUT_S)
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def answer(
    client: paho.Client, message: paho.MQTTMessage, payload: bytes | bytearray, *, all_of_it: bool
) -> None:
    """Answers as section 4.10 of the standard says, or sends all properties back."""
    asked: Any = message.properties
    properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.CorrelationData = asked.CorrelationData
    if all_of_it:
        properties.ResponseTopic = asked.ResponseTopic
    client.publish(asked.ResponseTopic, payload, 1, properties=properties)


@pytest.mark.parametrize(
    ("payload", "sends_back"),
    [
        ("size: 100B", ""),
        ("size: 100B", "payload and properties"),
        ("payload: turn on the light", "payload"),
    ],
)
def test_another_program_answers_requests(
    run: Play,
    tmp_path: Path,
    mosquitto: MosquittoMaker,
    payload: str,
    sends_back: str,
) -> None:
    broker = mosquitto()

    def on_message(client: paho.Client, message: paho.MQTTMessage) -> None:
        answered = message.payload if "payload" in sends_back else b"done"
        all_of_it = "properties" in sends_back
        answer(client, message, answered, all_of_it=all_of_it)

    observer = """  observer:
    clients: 1
    version: 5
    subscriptions: [{topic: "request/#", qos: 1}]
"""
    with client_of(broker.port, "request/#", on_message):
        where = f"target: {broker.url}"
        code, result = played(run, tmp_path, where, requesting(payload), observer)
    assert code == 0, result["verdict"]["evidence"]
    device, seen = (result["populations"][name] for name in ("device", "observer"))
    assert device["answered_total"] == device["round_trip_us"]["count"] == MESSAGES
    assert (device["unanswered_total"], device["foreign_total"]) == (0, 0)
    assert seen["received_total"] == seen["latency_us"]["intended"]["count"] == MESSAGES
    assert seen["duplicate_total"] == 0


def test_a_second_answer_is_a_duplicate(
    run: Play, tmp_path: Path, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto()

    def on_message(client: paho.Client, message: paho.MQTTMessage) -> None:
        for _ in range(2):
            answer(client, message, b"done", all_of_it=False)

    with client_of(broker.port, "request/#", on_message):
        _, result = played(run, tmp_path, f"target: {broker.url}", requesting())
    device = result["populations"]["device"]
    assert (device["answered_total"], device["unanswered_total"]) == (MESSAGES, 0)
    assert device["answers_duplicate_total"] == device["duplicate_total"] == MESSAGES


def test_requests_of_another_program_are_answered(
    start: Callable[..., Any], tmp_path: Path, mosquitto: MosquittoMaker
) -> None:
    broker = mosquitto()
    answers: list[paho.MQTTMessage] = []
    complete = threading.Event()

    def on_message(_client: paho.Client, message: paho.MQTTMessage) -> None:
        answers.append(message)
        if len(answers) == MESSAGES:
            complete.set()

    path = tmp_path / "scenario.yaml"
    path.write_text(f"""target: {broker.url}
stages: [connect, hold: 60s, disconnect]
populations:
  backend:
    clients: 1
    version: 5
    subscriptions: [{{topic: "request/#", qos: 1}}]
    responds: {{qos: 1, size: 40B}}
""")
    backend = start(path)
    backend.wait_for_stage("hold")
    with client_of(broker.port, "mine/+", on_message) as client:
        for number in range(MESSAGES):
            properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.ResponseTopic = f"mine/{number}"
            properties.CorrelationData = f"no. {number}".encode()
            client.publish("request/1", b"?", 1, properties=properties)
        assert complete.wait(SUBSCRIBED_TIMEOUT_S), f"{len(answers)} answers"
    backend.process.send_signal(signal.SIGINT)
    backend.finish()
    for message in answers:
        asked: Any = message.properties
        name = message.topic.removeprefix("mine/")
        assert asked.CorrelationData == f"no. {name}".encode()
        assert len(message.payload) == 40
