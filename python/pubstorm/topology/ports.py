"""Ports that a scenario asks for, and the process that has a taken one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from pubstorm.errors import TopologyError
from pubstorm.host import proc
from pubstorm.host.ports import LOOPBACK, is_free
from pubstorm.host.sockets import holders, listening_at
from pubstorm.scenario.topology import ScenarioTopology


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


def fixed_ports(spec: ScenarioTopology, *, placed: bool = True) -> Iterator[tuple[str, int, str]]:
    """Ports of this host that a scenario asks for, each with its broker or service, and with its
    address; without `placed`, not of those with a label of hosts. Brokers in a network of their own
    have ports of their own."""
    elsewhere = {bridge.from_ for bridge in spec.bridges.values() if bridge.network is not None}
    for group, broker in spec.brokers.items():
        is_here = group not in elsewhere and (placed or broker.hosts is None)
        if broker.port is not None and is_here:
            for n in range(broker.count):
                host = node_host(n) if broker.is_cluster else LOOPBACK
                yield f"broker {group}-{n}", broker.port + n, host
    for name, service in spec.services.items():
        if service.port is not None and (placed or service.hosts is None):
            yield f"service {name}", service.port, LOOPBACK


def holder(port: int) -> str:
    """Returns the name and process id of the program that has a port, as far as this user may see
    them."""
    sockets = listening_at(port)
    for pid in holders(sockets, list(proc.pids())) if sockets else ():
        with suppress(psutil.Error):
            return f"{psutil.Process(pid).name()} (pid {pid})"
    if sockets:
        return "a process hidden from this user"
    if port < _number("ip_unprivileged_port_start", 1024):
        return "the kernel, which keeps it for root"
    return "a connection of another program"


def _number(name: str, fallback: int) -> int:
    try:
        return int(Path("/proc/sys/net/ipv4", name).read_text())
    except (OSError, ValueError):
        return fallback
