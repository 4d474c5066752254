"""Wireshark's dissector as the tests use it: it decodes packets, and marks what is malformed.
tests/system/runs/test_features.py has a whole run decoded; tests/world has each feature."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.system.runs.answering import answering
from tests.system.runs.dissector import recorded

CONNECT_5 = b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x02hi"
CONNECT_WITHOUT_ITS_END = b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x09hi"
"""The client identifier has a length of 9 bytes, of which 2 are in the packet."""


def test_the_dissector_marks_a_packet_that_ends_too_early(tmp_path: Path) -> None:
    def discard(connection: socket.socket) -> None:
        while connection.recv(4096):
            pass

    with answering(discard) as port, recorded(port, tmp_path) as recording:
        for packet in (CONNECT_5, CONNECT_WITHOUT_ITS_END):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(packet)
    assert len(recording.malformed()) == 1
    assert next(each.sent.total() for each in recording.packets().values()) == 1
