"""Datagrams that the kernel dropped since a socket of UDP was full. QUIC sends what was in them
again, later, so they are times and not losses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from pubstorm.contract import Source
from pubstorm.measure.monitors import Reading

METRIC = "udp_receive_drops"


class DatagramsMonitor:
    """Watches the sockets of a host, or those of a broker on this machine."""

    def __init__(self, source: Source, count: Callable[[], int | None]) -> None:
        """`count`: returns the datagrams dropped so far; None: the kernel does not show them."""
        self.source = source
        self._count = count

    def start(self) -> None:
        """Does nothing: readings need no earlier one."""

    def read(self) -> Iterator[Reading]:
        """Yields the datagrams dropped so far."""
        if (dropped := self._count()) is not None:
            yield Reading(time.monotonic_ns(), METRIC, dropped)

    def stop(self) -> None:
        """Does nothing: the monitor holds no resource."""
