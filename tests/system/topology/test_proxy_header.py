"""Header of the PROXY protocol of observers: the peer reads the bytes before CONNECT."""

from __future__ import annotations

import socket
import struct
from typing import Literal

import pytest

from pubstorm.contract.target import Target
from pubstorm.topology.observer import Login, MqttObserver


def first_bytes(version: Literal["v1", "v2"], host: str, count: int) -> tuple[bytes, int, int]:
    """Returns the first bytes of an observer at a peer, and the ports of both ends."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        target = Target(host=host, port=server.getsockname()[1])
        observer = MqttObserver(target, Login(proxy=version))
        observer.connect(60)
        peer, _ = server.accept()
        with peer:
            found = peer.recv(count, socket.MSG_PEEK)
            ports = int(peer.getpeername()[1]), target.port
        observer.client.disconnect()
    return found, *ports


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", "TCP4"), ("::1", "TCP6")])
def test_version_1_is_a_line_before_the_first_packet(host: str, family: str) -> None:
    found, source, target = first_bytes("v1", host, 60)
    line, _, rest = found.partition(b"\r\n")
    assert line.decode() == f"PROXY {family} {host} {host} {source} {target}"
    assert rest[0] == 0x10, "CONNECT follows"


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", 0x11), ("::1", 0x21)])
def test_version_2_has_addresses_and_ports_before_the_first_packet(host: str, family: int) -> None:
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    found, source, target = first_bytes("v2", host, 16 + 2 * len(packed) + 5)
    head = b"\r\n\r\n\0\r\nQUIT\n" + struct.pack("!BBH", 0x21, family, 2 * len(packed) + 4)
    assert found[:-1] == head + packed * 2 + struct.pack("!HH", source, target)
    assert found[-1] == 0x10, "CONNECT follows"
