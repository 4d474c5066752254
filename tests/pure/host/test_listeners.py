"""The sockets that listen on a port, among many others."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from pubstorm.host import sockets
from pubstorm.host.sockets import SocketsError, listening_at, sockets_of
from tests.kit.ports import free_port


@pytest.fixture(params=["_listed_at", "SocketTable"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to the listeners without the other: a question to the kernel, which does not read
    its list of all sockets; and that list, where the kernel answers no questions."""
    monkeypatch.setattr(sockets, request.param, _hidden)


def _hidden(*_: object) -> None:
    raise SocketsError("this kernel does not show TCP connections")


@pytest.mark.usefixtures("ways")
def test_a_listener_is_found_by_its_port_alone() -> None:
    port = free_port()
    assert listening_at(port) == set()
    with socket.create_server(("127.0.0.1", port)):
        near = {free_port() for _ in range(3)}
        with socket.create_connection(("127.0.0.1", port)):
            (number,) = listening_at(port)
            assert number in sockets_of(os.getpid())
            assert not any(map(listening_at, near))


@pytest.mark.usefixtures("ways")
def test_a_listener_of_ipv6_is_found_too() -> None:
    port = free_port()
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        assert len(listening_at(port)) == 1


def test_a_listener_is_found_within_an_event_loop() -> None:
    async def found() -> set[int]:
        return listening_at(port)

    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert asyncio.run(found()) == listening_at(port) != set()
