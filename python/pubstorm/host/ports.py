"""Free ports for servers of this machine, below those that the kernel gives to outgoing
connections."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Sequence
from pathlib import Path

from pubstorm.errors import TopologyError

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
    """Returns True if a program could listen there."""
    with socket.socket() as probe:
        # As servers do: a connection of before that is being forgotten is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True


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
