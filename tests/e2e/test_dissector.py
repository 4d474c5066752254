"""Traffic of whole runs, decoded by Wireshark's dissector: nothing is malformed, and the
dissector finds each packet that the run counts."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pubstorm.scenario.shipped import find_scenario
from tests.e2e.answering import answering
from tests.e2e.conftest import RunMaker
from tests.e2e.dissector import Recording, recorded
from tests.ports import free_port

Play = Callable[..., tuple[int, dict[str, Any]]]
MosquittoMaker = Callable[..., Any]

PUBLISH = "3"
VERSIONS = {"first": "3.1", "second": "3.1.1", "third": "5"}
CONNECT_5 = b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x02hi"
CONNECT_WITHOUT_ITS_END = b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x09hi"
"""The client identifier has a length of 9 bytes, of which 2 are in the packet."""


def assert_decoded(recording: Recording, results: list[dict[str, Any]]) -> None:
    """Holds that the dissector finds the packets that runs have counted."""
    assert recording.malformed() == []
    of_clients = recording.packets()
    for name in results[0]["populations"]:
        traffic = [each for client, each in of_clients.items() if client.startswith(f"{name}-")]
        counts = [result["populations"][name] for result in results]
        sent = sum(each.sent.total() for each in traffic)
        received = sum(each.received.total() for each in traffic)
        assert sent == sum(count["packets_sent_total"] for count in counts)
        assert received == sum(count["packets_received_total"] for count in counts)
        published = sum(each.sent[PUBLISH] for each in traffic)
        assert published == sum(count["sent_total"] for count in counts)
        assert sent > 0


@pytest.mark.slow("features of MQTT 5 are played, one after the other")
def test_each_packet_of_mqtt_5_is_decoded(start: RunMaker, tmp_path: Path) -> None:
    port = free_port()
    settings = (
        f"topology.brokers.broker={{kind: mosquitto, port: {port}}}",
        "populations.device.publications.0.rate=10/s",
        "stages.1.publish=1s",
    )
    words = [word for setting in settings for word in ("--set", setting)]
    with recorded(port, tmp_path) as recording:
        played = start(find_scenario("mqtt5-features"), *words)
        assert played.finish() == 0, played.stderr
    results = [read(path) for path in played.directory.glob("steps/*/result.json")]
    steps = yaml.safe_load(find_scenario("mqtt5-features").read_text())["sweep"]["steps"]
    assert len(results) == len(steps)
    assert_decoded(recording, results)


@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
def test_each_packet_of_each_version_is_decoded(
    run: Play, tmp_path: Path, mosquitto: MosquittoMaker, scheme: str
) -> None:
    websocket_port = free_port()
    broker = mosquitto(**{"listener ": f"{websocket_port} 127.0.0.1", "protocol": "websockets"})
    port, decode_as = {"mqtt": (broker.port, "mqtt"), "ws": (websocket_port, "http")}[scheme]
    path = tmp_path / "scenario.yaml"
    path.write_text(scenario(f"{scheme}://127.0.0.1:{port}"))
    with recorded(port, tmp_path, decode_as) as recording:
        code, result = run(path)
    assert code == 0, result["verdict"]["evidence"]
    assert_decoded(recording, [result])


def scenario(target: str) -> str:
    """A population of each version, with messages of each QoS, large ones, and several at once."""
    populations = "".join(
        f"""
  {name}:
    clients: 20
    version: {version}
    subscriptions: [{{topic: "{name}/{{n}}", qos: 2}}]
    publications:
      - {{topic: "{name}/{{n}}", rate: 10/s, qos: 0}}
      - {{topic: "{name}/{{n}}", rate: 10/s, qos: 1, burst: 5}}
      - {{topic: "{name}/{{n}}", rate: 10/s, qos: 2, size: 20kB}}"""
        for name, version in VERSIONS.items()
    )
    stages = "stages: [connect, publish: 1s, disconnect]"
    return f"target: {target}\nclean_start: skip\npopulations:{populations}\n{stages}\n"


@pytest.mark.parametrize(
    ("packet", "marked"), [(CONNECT_5, 0), (CONNECT_WITHOUT_ITS_END, 1)], ids=["whole", "cut off"]
)
def test_the_dissector_marks_a_packet_that_ends_too_early(
    tmp_path: Path, packet: bytes, marked: int
) -> None:
    def discard(connection: socket.socket) -> None:
        while connection.recv(4096):
            pass

    with (
        answering(discard) as port,
        recorded(port, tmp_path) as recording,
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        client.sendall(packet)
    assert len(recording.malformed()) == marked


def read(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text())
    return result
