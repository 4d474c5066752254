"""Consumer groups at a Kafka that already runs, with members in several populations: the group as a
whole receives each message once, also if a population joins later, and in a second run."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pubstorm.host.children import find
from tests.kit import carrier
from tests.kit.kafka_server import KafkaServer, kafka_in
from tests.kit.runs import MosquittoMaker, Play
from tests.kit.starved import passes

BROKERS = Path(os.environ.get("PUBSTORM_BROKERS") or Path.home() / ".cache/pubstorm/brokers")
pytestmark = [
    pytest.mark.skipif(not (BROKERS / "kafka/VERSION").exists(), reason="kafka is not installed"),
    pytest.mark.skipif(find("mosquitto") is None, reason="mosquitto is not installed"),
    pytest.mark.skipif(
        importlib.util.find_spec("confluent_kafka") is None,
        reason="confluent-kafka is not installed",
    ),
    pytest.mark.xdist_group("kafka"),
    pytest.mark.slow("a JVM starts, and groups of consumers form"),
]

SENT = 10 * 50
"""Messages of a stage."""
SCENARIO = """\
populations:
  sensor:
    {clients: 10, at: mqtt, publications: [{topic: "device/{n}/telemetry", rate: 50/s, qos: 1}]}
  worker: {clients: 2, at: log, subscriptions: [{topic: telemetry, group: workers}]}
  helper: {clients: 2, at: log, subscriptions: [{topic: telemetry, group: workers}]}
  own: {clients: 2, at: log, subscriptions: [{topic: telemetry, group: others}]}
flows:
  - {from: "device/{n}/telemetry", of: sensor, to: telemetry, at: worker}
stages:
  - connect: {populations: [sensor, worker]}
  - publish: 1s
  - connect
  - publish: 1s
  - disconnect: {populations: [worker]}
  - publish: 1s
  - disconnect
thresholds: [lost == 0, "sensor.sent == 1500", "log.cpu.max > 0%"]
defaults: "off"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A server with three partitions of a topic."""
    admin = importlib.import_module("confluent_kafka.admin")
    with kafka_in(tmp_path_factory.mktemp("kafka")) as made:
        client = admin.AdminClient({"bootstrap.servers": f"127.0.0.1:{made.plain}"})
        (created,) = client.create_topics([admin.NewTopic("telemetry", 3, 1)]).values()
        created.result()
        yield made


@pytest.fixture(scope="module")
def target(server: KafkaServer, shared_mosquitto: MosquittoMaker) -> Iterator[str]:
    """The two brokers, with a program between them."""
    mosquitto, log = shared_mosquitto(), f"kafka://127.0.0.1:{server.plain}"
    with carrier.running(mosquitto.url, log):
        yield f"target: {{mqtt: '{mosquitto.url}', log: '{log}'}}\n"


@pytest.fixture(scope="module", params=["a new group", "a group with offsets of a run"])
def played(shared_run: Play, target: str, request: pytest.FixtureRequest) -> tuple[int, Any]:
    """A run at a group of its own, and one after it at the same group."""
    assert request.param
    return shared_run(target + SCENARIO)


def flow(result: Mapping[str, Any], to: str) -> Mapping[str, Any]:
    """The flow from the sensors to a population."""
    return {str(flow["to"]): dict(flow) for flow in result["flows"]}[to]


def test_populations_of_one_group_share_its_messages(played: tuple[int, Any]) -> None:
    code, result = played
    assert passes(code, result), result["verdict"]
    found = [flow(result, to) for to in ("worker", "helper")]
    assert sum(each["expected_total"] for each in found) == 3 * SENT
    for each in found:
        assert each["expected_total"] == each["received_total"] > 0
        assert each["duplicate_total"] == each["missing_total"] == each["lost_total"] == 0
    stages = [
        {each["to"]: each["received_total"] for each in stage["flows"]}
        for stage in result["stages"]
        if stage["kind"] == "publish"
    ]
    assert stages[0]["worker"] == stages[2]["helper"] == SENT


def test_a_group_of_one_population_receives_all_messages_once(played: tuple[int, Any]) -> None:
    _, result = played
    own = flow(result, "own")
    assert own["received_total"] == own["expected_total"] == 2 * SENT
    assert own["duplicate_total"] == own["reordered_total"] == own["missing_total"] == 0


def test_no_message_of_an_earlier_run_arrives(played: tuple[int, Any]) -> None:
    _, result = played
    counts = {
        name: (each["foreign_total"], each["unstamped_total"])
        for name, each in result["populations"].items()
    }
    assert counts == dict.fromkeys(("sensor", "worker", "helper", "own"), (0, 0))


RETURNING = """\
stages:
  - connect
  - publish: 1s
  - disconnect: {populations: [worker, helper]}
  - publish: 1s
  - connect: {populations: [worker, helper]}
  - publish: {for: 3s, changes: [{at: 1s, population: helper, remove: 1}]}
  - publish: 1s
  - disconnect
thresholds: [lost == 0, "sensor.sent == 3000"]
defaults: "off"
"""


def test_a_group_that_returns_begins_anew_and_loses_nothing_as_a_member_leaves(
    run: Play, target: str
) -> None:
    code, result = run(target + SCENARIO.partition("stages:")[0] + RETURNING)
    assert passes(code, result), result["verdict"]
    received = [
        sum(each["received_total"] for each in stage["flows"] if each["to"] != "own")
        for stage in result["stages"]
        if stage["kind"] == "publish"
    ]
    assert received == [SENT, 0, 3 * SENT, SENT]
    for to in ("worker", "helper"):
        found = flow(result, to)
        assert found["expected_total"] == found["received_total"]
        assert found["duplicate_total"] == found["missing_total"] == 0


@contextlib.contextmanager
def stranger(server: KafkaServer) -> Iterator[None]:
    """Is a member of the group that no run knows."""
    kafka = importlib.import_module("confluent_kafka")
    settings = {"bootstrap.servers": f"127.0.0.1:{server.plain}", "group.id": "workers"}
    consumer, ends, joined = kafka.Consumer(settings), threading.Event(), threading.Event()

    def play() -> None:
        consumer.subscribe(["telemetry"], on_assign=lambda *_: joined.set())
        while not ends.is_set():
            consumer.poll(0.1)
        consumer.close()

    thread = threading.Thread(target=play)
    thread.start()
    try:
        assert joined.wait(60)
        yield
    finally:
        ends.set()
        thread.join()


def test_a_group_with_members_of_others_is_refused(
    run: Play, target: str, server: KafkaServer
) -> None:
    scenario = target + SCENARIO.partition("stages:")[0] + "stages: [connect, disconnect]\n"
    with stranger(server):
        code, result = run(scenario)
    assert code == 1, result["verdict"]
    for name in ("worker", "helper"):
        found = result["populations"][name]
        assert found["outcomes"] == {"subscribe_refused": 2}
        texts = {each["text"] for each in found["explanations"]}
        assert texts == {"the group workers has 1 member that is not of this run"}
    assert result["populations"]["own"]["connected_total"] == 2
