"""Connections as the kernel of this machine accounts for them: those of a port, of a namespace, of
a proxy, and a few of very many."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from pubstorm.host.preflight.host import NetworkHost
from pubstorm.host.sockets import SocketTable, sockets_of
from pubstorm.measure.monitors import Monitor, connections
from pubstorm.measure.monitors.connections import ClientsMonitor, ConnectionsMonitor
from tests.kit import made
from tests.kit.ports import free_port
from tests.kit.relay import relaying
from tests.kit.serving import until
from tests.system.monitors.conftest import read

Pairs = list[tuple[socket.socket, socket.socket]]
FEW, MANY = 30, 180
PORT = 4711
IN_A_NAMESPACE = f"""
import socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
listener = socket.create_server(("127.0.0.1", {PORT}))
client = socket.create_connection(("127.0.0.1", {PORT}))
accepted = listener.accept()[0]
client.sendall(bytes(1000))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", free_port()), backlog=MANY) as made:
        yield made


@contextlib.contextmanager
def connected(listener: socket.socket, count: int) -> Iterator[Pairs]:
    """Pairs of a client and the accepted end."""
    address = listener.getsockname()
    with contextlib.ExitStack() as closing:
        pairs: Pairs = []
        for _ in range(count):
            client = closing.enter_context(socket.create_connection(address))
            pairs.append((client, closing.enter_context(listener.accept()[0])))
        yield pairs


def monitor_of(listener: socket.socket | None) -> ConnectionsMonitor:
    port = None if listener is None else listener.getsockname()[1]
    return ConnectionsMonitor(made.source("broker-0"), os.getpid, port)


def stopped(monitor: Monitor) -> dict[str, float]:
    found = read(monitor)
    monitor.stop()
    return found


def test_unread_and_unsent_bytes_of_both_ends_are_known(listener: socket.socket) -> None:
    monitor, clients = monitor_of(listener), ClientsMonitor([listener.getsockname()[1]])
    with connected(listener, 2) as ((one, _), (other, accepted)):
        monitor.start()
        clients.start()
        one.sendall(bytes(700))
        accepted.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted.send(bytes(1 << 20))
        at_broker, at_clients = stopped(monitor), stopped(clients)
        other.recv(1)
    assert (at_broker["tcp_connections"], at_broker["tcp_unread_bytes"]) == (2, 700)
    assert at_broker["tcp_unsent_bytes"] > 0
    assert at_clients["clients_unread_bytes"] > 0
    assert at_clients["clients_unsent_bytes"] == 0


def test_the_ports_of_a_process_are_found(listener: socket.socket) -> None:
    with connected(listener, 3):
        assert stopped(monitor_of(None))["tcp_connections"] >= 3
    table = SocketTable()
    assert listener.getsockname()[1] in table.listening(sockets_of(os.getpid()))
    table.close()


def test_the_kernel_selects_by_the_ports_of_both_ends(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    table = SocketTable()
    with connected(listener, 9) as pairs:
        ports = sorted(client.getsockname()[1] for client, _ in pairs)
        some = range(ports[2], ports[5] + 1)
        assert sorted(c.peer_port for c in table.of_port(port, some)) == ports[2:6]
        assert sorted(c.port for c in table.to_port(port, some)) == ports[2:6]
        assert len(table.of_port(port)) == len(table.to_port(port)) == 9
    table.close()


def test_of_very_many_connections_a_part_is_read(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", FEW)
    monitor = monitor_of(listener)
    with connected(listener, MANY):
        monitor.start()
        # The kernel gives ports in clusters, and the first parts may have none.
        until(lambda: read(monitor)["tcp_connections"] > 0)
        found = [read(monitor)["tcp_connections"] for _ in range(3)]
        monitor.stop()
    assert all(0 < count <= 2 * FEW for count in found), found


def test_a_proxy_is_known_by_its_onward_connections(listener: socket.socket) -> None:
    port = free_port()
    with relaying(port, listener.getsockname()[1]), contextlib.ExitStack() as closing:
        relay = next(c.pid for c in psutil.Process().children() if "tests.kit.relay" in c.cmdline())
        ends = []
        for _ in range(5):
            closing.enter_context(socket.create_connection(("127.0.0.1", port)))
            ends.append(closing.enter_context(listener.accept()[0]))
        monitor = ConnectionsMonitor(made.source("broker-0"), lambda: relay, port)
        monitor.start()
        found = stopped(monitor)
        assert (found["tcp_connections"], found["tcp_onward_connections"]) == (5, 5)
        assert found["tcp_onward_unread_bytes"] == 0
    with connected(listener, 5):
        assert "tcp_onward_connections" not in stopped(monitor_of(listener))


@pytest.mark.skipif(
    not NetworkHost.here(()).makes_namespaces, reason="this user makes no network namespaces"
)
def test_a_process_in_a_network_of_its_own_is_read_there() -> None:
    command = ["unshare", "--net", sys.executable, "-c", IN_A_NAMESPACE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        before = os.stat("/proc/thread-self/ns/net").st_ino  # noqa: PTH116
        found = stopped(ConnectionsMonitor(made.source("broker-0"), lambda: process.pid, None))
        assert os.stat("/proc/thread-self/ns/net").st_ino == before  # noqa: PTH116
        process.communicate()
    assert (found["tcp_connections"], found["tcp_unread_bytes"]) == (1, 1000)
