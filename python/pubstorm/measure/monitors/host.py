"""A host: CPU over all cores, memory, network, disks and error counters of the kernel. Watches
bridges by the states that an observer of the topology follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from pubstorm.contract import Source
from pubstorm.host.counters import KernelCounters, counters
from pubstorm.measure.monitors import MonitorError, Reading
from pubstorm.result import ObserverTraffic
from pubstorm.topology.bridges.links import BridgeStates


class HostMonitor:
    """Watches a machine: the controller's, unless it gets the counters of another."""

    def __init__(self, address: str = "", count: Callable[[], KernelCounters] = counters) -> None:
        """`address`: that of another host; empty: the controller's."""
        self.source = Source.host(address)
        self._count = count
        self._before: KernelCounters | None = None

    def start(self) -> None:
        """Takes the counters that differences are taken from."""
        list(self.read())

    def read(self) -> Iterator[Reading]:
        """The state of the machine, and what it did since the last reading."""
        asked_ns = time.monotonic_ns()
        now = self._count()
        # Between question and answer, for a machine with a clock of its own.
        at_ns = (asked_ns + time.monotonic_ns()) // 2
        before, self._before = self._before, now
        figures = {**(_differences(before, now) if before else {}), **now.figures}
        for metric, value in figures.items():
            yield Reading(at_ns, metric, value)

    def stop(self) -> None:
        """Does nothing: the monitor holds no resource."""


class DatagramsMonitor:
    """Watches sockets of UDP, of a host or of a broker on this machine: datagrams that the kernel
    dropped since one was full. QUIC sends their bytes again, so they are times and no losses."""

    def __init__(self, source: Source, count: Callable[[], int | None]) -> None:
        """`count`: returns the datagrams dropped so far; None: the kernel does not show them."""
        self.source = source
        self._count = count

    def start(self) -> None:
        """Does nothing: readings need no earlier one."""

    def read(self) -> Iterator[Reading]:
        """Yields the datagrams dropped so far."""
        if (dropped := self._count()) is not None:
            yield Reading(time.monotonic_ns(), "udp_receive_drops", dropped)

    def stop(self) -> None:
        """Does nothing: the monitor holds no resource."""


def _differences(before: KernelCounters, now: KernelCounters) -> dict[str, float]:
    """CPU as shares of all cores, and the rates of all disks and of all network interfaces, with
    loopback."""
    span_s = now.at_s - before.at_s
    if span_s <= 0:
        return {}
    return {
        **_cpu_shares({kind: ticks - before.cpu.get(kind, 0) for kind, ticks in now.cpu.items()}),
        "net_sent_bytes_per_s": round((now.sent_bytes - before.sent_bytes) / span_s),
        "net_received_bytes_per_s": round((now.received_bytes - before.received_bytes) / span_s),
        **_disk_rates(before.disk_bytes, now.disk_bytes, span_s),
    }


def _disk_rates(
    before: Sequence[int] | None, now: Sequence[int] | None, span_s: float
) -> dict[str, float]:
    if before is None or now is None:
        return {}
    return {
        "disk_read_bytes_per_s": round((now[0] - before[0]) / span_s),
        "disk_written_bytes_per_s": round((now[1] - before[1]) / span_s),
    }


def _cpu_shares(spent: Mapping[str, float]) -> dict[str, float]:
    # The kernel counts guests in user and nice too.
    total = sum(spent.values()) - spent.get("guest", 0) - spent.get("guest_nice", 0)
    if total <= 0:
        return {}
    parts = {
        "cpu": total - spent["idle"] - spent.get("iowait", 0),
        "cpu_user": spent["user"] + spent.get("nice", 0),
        "cpu_system": spent["system"] + spent.get("irq", 0),
        "cpu_softirq": spent.get("softirq", 0),
        "cpu_steal": spent.get("steal", 0),
    }
    return {metric: round(max(ticks, 0) / total, 4) for metric, ticks in parts.items()}


CONNECTED = "connected"
"""Metric: bridges that are up."""


class BridgeMonitor:
    """Watches the bridges of one name in one run."""

    def __init__(self, states: BridgeStates) -> None:
        self.source = Source.single("bridge", states.watched.name)
        self._states = states
        self._first: list[Reading] = []

    def start(self) -> None:
        """Changes before the run are left out; what holds when it begins is the first reading."""
        self._states.take_changes()
        self._first = [self._now()]

    def read(self) -> Iterator[Reading]:
        """Every change at its own instant, and what holds now."""
        yield from self._first
        self._first = []
        for at_ns, up in self._states.take_changes():
            yield Reading(at_ns, CONNECTED, up)
        yield self._now()
        if self._states.problem is not None:
            raise MonitorError(self._states.problem)

    def stop(self) -> None:
        """The states are followed until the brokers end."""

    def observer(self) -> ObserverTraffic:
        """Returns the observer for the result."""
        return self._states.observer()

    def _now(self) -> Reading:
        return Reading(time.monotonic_ns(), CONNECTED, self._states.up)
