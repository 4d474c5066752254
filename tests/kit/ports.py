"""Ports for the servers of tests. Each test process has a range of its own, below the ports of
outgoing connections, so neither other test processes nor connections can take them."""

from __future__ import annotations

import fcntl
import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pubstorm.host.sockets import RANGE_VARIABLE, is_free

FIRST, SIZE, RANGES = 10_240, 1024, 21
OWN = 512
"""Ports of a range that the test process gives out; the product takes the others."""

_held: list[int] = []
"""Descriptor of the lock file of the range; the lock ends with the process."""
_ports: Iterator[int] = iter(())


def claim() -> None:
    """Takes a range that no other test process has, and gives most of it to the product."""
    global _ports
    folder = Path(tempfile.gettempdir(), f"pubstorm-test-ports-{os.geteuid()}")
    folder.mkdir(exist_ok=True)
    for number in range(RANGES):
        lock = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        _held.append(lock)
        first = FIRST + number * SIZE
        _ports = itertools.cycle(range(first, first + OWN))
        os.environ[RANGE_VARIABLE] = f"{first + OWN}-{first + SIZE - 1}"
        return
    raise RuntimeError(f"{RANGES} test processes have a range of ports: end some of them")


def free_port() -> int:
    """Returns the next port of this process's range on which nothing listens."""
    return next(port for port in itertools.islice(_ports, OWN) if is_free(port))


def free_ports(count: int) -> list[int]:
    """Returns `count` different ports on which nothing listens."""
    return [free_port() for _ in range(count)]
