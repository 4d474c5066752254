"""Ports for brokers of this host: free ones below those that the kernel gives to outgoing
connections, and who has one that is taken. It starts no broker."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import psutil

from pubstorm.errors import TopologyError
from pubstorm.scenario.topology import Topology

LOOPBACK = "127.0.0.1"
FIRST_PORT = 10_000
"""Below are ports of well-known services."""
LAST_PORT = 65_535
ROOM_MIN = 2_000
"""Fewer ports than these below the kernel's range are too few to choose from."""
TRIES = 200
"""Ports tried in the range before the kernel chooses."""
RANGE_VARIABLE = "PUBSTORM_PORTS"
"""Environment variable with the ports to choose from, as in 20000-20999."""

_given: set[int] = set()
"""Ports that this process has chosen: a broker takes a moment until it listens on its own."""


def free_port(hosts: Sequence[str] = (LOOPBACK,)) -> int:
    """Returns a port that is free on all of these addresses and that this process has not chosen
    before. Where the kernel's range leaves room, no outgoing connection can take the port."""
    wanted = os.environ.get(RANGE_VARIABLE)
    room = _wanted(wanted) if wanted else _room()
    if _given.issuperset(room):
        _given.clear()
    fresh = [port for port in room if port not in _given]
    for port in random.sample(fresh, k=len(fresh) if wanted else min(TRIES, len(fresh))):
        if all(is_free(port, host) for host in hosts):
            _given.add(port)
            return port
    if wanted:
        raise TopologyError(
            f"all ports of {RANGE_VARIABLE}={wanted} are taken",
            f"stop the programs that listen there, or set {RANGE_VARIABLE} to more ports",
        )
    with socket.socket() as probe:
        probe.bind((hosts[0], 0))
        chosen: int = probe.getsockname()[1]
        return chosen


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a program could listen there."""
    with socket.socket() as probe:
        # As servers do: a connection of before that is being forgotten is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True


def check_ports(wanted: Iterable[tuple[str, int, str]]) -> None:
    """Raises TopologyError if any of the ports, each with what it is for and its address, is taken
    or may not be used."""
    short = [(name, port) for name, port, host in wanted if not is_free(port, host)]
    if not short:
        return
    name, port = short[0]
    more = f", and {len(short) - 1} more ports are taken" if len(short) > 1 else ""
    raise TopologyError(
        f"port {port} of {name} is taken by {holder(port)}{more}",
        "stop that program, choose another port in topology, or leave port out: "
        "then free ones are taken",
    )


def node_host(number: int) -> str:
    """The loopback address of node `number` of a cluster."""
    return f"127.0.0.{number + 1}"


def fixed_ports(spec: Topology) -> Iterator[tuple[str, int, str]]:
    """Ports of this host that a scenario asks for, each with its broker or service, and with its
    address. Brokers in a network of their own have ports of their own."""
    elsewhere = {bridge.from_ for bridge in spec.bridges.values() if bridge.network is not None}
    for group, broker in spec.brokers.items():
        if broker.port is not None and group not in elsewhere:
            for n in range(broker.count):
                host = node_host(n) if broker.cluster else LOOPBACK
                yield f"broker {group}-{n}", broker.port + n, host
    for name, service in spec.services.items():
        if service.port is not None:
            yield f"service {name}", service.port, LOOPBACK


def holder(port: int) -> str:
    """Who has a port: name and process id, as far as this user may see them."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.Error:
        connections = []
    here = [each for each in connections if each.laddr and each.laddr.port == port]
    here.sort(key=lambda each: each.status != psutil.CONN_LISTEN)
    if here and all(each.status == psutil.CONN_TIME_WAIT for each in here):
        return "a closed connection that the kernel keeps for a minute"
    for connection in here:
        if connection.pid is not None:
            try:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
            except psutil.Error:
                return f"a process (pid {connection.pid})"
    if port < _number("ip_unprivileged_port_start", 1024) and not here:
        return "the kernel, which keeps it for root"
    return "a process hidden from this user"


def _room() -> Sequence[int]:
    """Ports that the kernel gives to no outgoing connection; nothing where there are too few."""
    low, high = _outgoing()
    below, above = range(FIRST_PORT, low), range(high + 1, LAST_PORT + 1)
    if len(below) >= ROOM_MIN:
        return below
    if len(below) + len(above) >= ROOM_MIN:
        return (*below, *above)
    return ()


def _wanted(text: str) -> range:
    """Returns the ports of a range as in 20000-20999."""
    first, _, last = text.partition("-")
    if first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) <= LAST_PORT:
        return range(int(first), int(last) + 1)
    raise TopologyError(
        f"{RANGE_VARIABLE}: found {text!r}, allowed is FIRST-LAST between 1 and {LAST_PORT}",
        f"as in {RANGE_VARIABLE}=20000-20999; without it, Pubstorm chooses from all free ports",
    )


def _outgoing() -> tuple[int, int]:
    """First and last port of the kernel's range."""
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except (OSError, ValueError):
        return 32_768, 60_999
    return int(low), int(high)


def _number(name: str, fallback: int) -> int:
    try:
        return int(Path("/proc/sys/net/ipv4", name).read_text())
    except (OSError, ValueError):
        return fallback
