"""The sockets that listen on a port, among many others."""

from __future__ import annotations

import os
import socket

from pubstorm.host.sockets import listening_at, sockets_of
from tests.kit.ports import free_port


def test_a_listener_is_found_by_its_port_alone() -> None:
    port = free_port()
    assert listening_at(port) == set()
    with socket.create_server(("127.0.0.1", port)):
        near = {free_port() for _ in range(3)}
        with socket.create_connection(("127.0.0.1", port)):
            (number,) = listening_at(port)
            assert number in sockets_of(os.getpid())
            assert not any(map(listening_at, near))


def test_a_listener_of_ipv6_is_found_too() -> None:
    port = free_port()
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        assert len(listening_at(port)) == 1
