"""The process that listens on a port, among many other sockets."""

from __future__ import annotations

import os
import socket

from pubstorm.host import proc
from tests.kit.ports import free_port


def test_a_listener_is_found_by_its_port_alone() -> None:
    port = free_port()
    assert not proc.listening(port)
    assert list(proc.holders(proc.listening(port))) == []
    with socket.create_server(("127.0.0.1", port)):
        near = {free_port() for _ in range(3)}
        with socket.create_connection(("127.0.0.1", port)):
            (number,) = proc.listening(port)
            assert os.getpid() in proc.holders([number])
            assert not any(map(proc.listening, near))


def test_a_listener_of_ipv6_is_found_too() -> None:
    port = free_port()
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        assert len(proc.listening(port)) == 1
