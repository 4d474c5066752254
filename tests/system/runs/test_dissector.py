"""Traffic of whole runs, decoded by Wireshark's dissector: nothing is malformed, and the
dissector finds each packet that the run counts. tests/e2e/test_features_of_brokers.py has each
feature of MQTT 5 decoded."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.ports import free_port
from tests.system.runs.answering import answering
from tests.system.runs.dissector import assert_decoded, recorded

Play = Callable[..., tuple[int, dict[str, Any]]]
MosquittoMaker = Callable[..., Any]

VERSIONS = {"first": "3.1", "second": "3.1.1", "third": "5"}
CONNECT_5 = b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x02hi"
CONNECT_WITHOUT_ITS_END = b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x09hi"
"""The client identifier has a length of 9 bytes, of which 2 are in the packet."""


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
