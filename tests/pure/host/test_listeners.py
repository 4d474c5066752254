"""The sockets that listen on a port, among many others."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys

import pytest

from pubstorm.host import sockets
from pubstorm.host.members import ProcessTree
from pubstorm.host.sockets import has_socket, listening_at, sockets_of
from tests.kit.ports import free_port
from tests.kit.serving import until


@pytest.fixture(params=["_listed_at", "_asked_for"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to the listeners without the other: a question to the kernel, which does not read
    its list of all sockets; and that list, where the kernel answers no questions."""
    monkeypatch.setattr(sockets, request.param, _hidden)


def _hidden(*_: object) -> None:
    raise OSError("this kernel does not show TCP connections")


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


LISTENS = "import socket; socket.create_server(('127.0.0.1', {port})).accept()"


@pytest.mark.parametrize("script", ["exec {}", "setsid {} & wait"], ids=["itself", "its child"])
def test_a_port_belongs_to_the_process_tree_that_listens_on_it(script: str) -> None:
    port = free_port()
    script = script.format(f'{sys.executable} -c "{LISTENS.format(port=port)}"')
    with (
        subprocess.Popen(["sh", "-c", script], start_new_session=True) as server,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as other,
    ):
        try:
            until(lambda: listening_at(port, server.pid) != set())
            assert ProcessTree(server.pid).listens(port)
            assert not ProcessTree(other.pid).listens(port)
            assert not ProcessTree(server.pid).listens(free_port())
        finally:
            ProcessTree(server.pid).send(signal.SIGKILL)
            other.kill()


def test_a_process_whose_sockets_are_hidden_may_be_the_one_that_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_path: str) -> str:
        raise PermissionError

    with socket.create_server(("127.0.0.1", 0)) as server:
        numbers = sockets_of(os.getpid())
        assert has_socket(os.getpid(), numbers)
        assert has_socket(os.getpid(), ()) is False
        assert has_socket(4194305, numbers) is False, "no process has this number"
        monkeypatch.setattr(os, "readlink", refuse)
        assert has_socket(os.getpid(), numbers) is None
        assert ProcessTree(os.getpid()).listens(server.getsockname()[1])


def test_a_listener_is_found_within_an_event_loop() -> None:
    async def found() -> set[int]:
        return listening_at(port)

    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert asyncio.run(found()) == listening_at(port) != set()
