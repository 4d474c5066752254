"""This machine: CPU over all cores, memory, network and the kernel's counters of trouble. What a
kernel or container does not show is left out. It knows no process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from pubstorm.monitor import Reading

SOURCE = "host"
SOCKET_CACHE_BYTES = 862 + 195
"""Inode and directory entry of an open socket on Linux 6 (`sock_inode_cache` and `dentry`).
The kernel counts both as reclaimable, though it cannot reclaim them while the socket is open."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")


class HostMonitor:
    """Watches this machine."""

    def __init__(self, proc: Path = PROC) -> None:
        self.source = SOURCE
        self._proc = proc
        self._cpu: Mapping[str, float] = {}
        self._sent_bytes = self._received_bytes = 0
        self._read_at_s = 0.0

    def start(self) -> None:
        """Takes the counters that differences are taken from."""
        list(self.read())

    def read(self) -> Iterator[Reading]:
        """The state of the machine, and what it did since the last reading."""
        at_ns = time.monotonic_ns()
        figures = {**self._differences(), **_memory(), **self._kernel()}
        for metric, value in figures.items():
            yield Reading(at_ns, metric, value)

    def stop(self) -> None:
        """Nothing is held."""

    def _differences(self) -> dict[str, float]:
        """CPU as shares of all cores, and the rates of all network interfaces, loopback too."""
        now_s, cpu = time.monotonic(), psutil.cpu_times()._asdict()
        network = psutil.net_io_counters()
        before, self._cpu = self._cpu, cpu
        sent, received = self._sent_bytes, self._received_bytes
        self._sent_bytes, self._received_bytes = network.bytes_sent, network.bytes_recv
        span_s, self._read_at_s = now_s - self._read_at_s, now_s
        if not before:
            return {}
        return {
            **_cpu_shares({kind: seconds - before[kind] for kind, seconds in cpu.items()}),
            "net_sent_bytes_per_s": round((network.bytes_sent - sent) / span_s),
            "net_received_bytes_per_s": round((network.bytes_recv - received) / span_s),
        }

    def _kernel(self) -> dict[str, float]:
        """Counters and gauges of TCP and connection tracking, and the memory of the kernel's own
        objects, as far as they are there."""
        net, sys = self._proc / "net", self._proc / "sys" / "net" / "netfilter"
        found = {
            "tcp_retransmits": _column(net / "snmp", "Tcp:", "RetransSegs"),
            "tcp_listen_overflows": _column(net / "netstat", "TcpExt:", "ListenOverflows"),
            "tcp_sockets": _pair(net / "sockstat", "TCP:", "inuse"),
            "tcp_buffer_bytes": _times(PAGE_BYTES, _pair(net / "sockstat", "TCP:", "mem")),
            "slab_bytes": _times(1024, _pair(self._proc / "meminfo", "Slab:", "Slab:")),
            "kernel_bytes": self._held_bytes(),
            "conntrack": _number(sys / "nf_conntrack_count"),
            "conntrack_max": _number(sys / "nf_conntrack_max"),
        }
        six = _pair(net / "sockstat6", "TCP6:", "inuse")
        if six is not None and found["tcp_sockets"] is not None:
            found["tcp_sockets"] += six
        return {metric: value for metric, value in found.items() if value is not None}

    def _held_bytes(self) -> int | None:
        """Returns the memory of the kernel's own objects that it cannot reclaim. Caches of files
        are left out: programs that list /proc fill them with an inode of each descriptor."""
        held = _pair(self._proc / "meminfo", "SUnreclaim:", "SUnreclaim:")
        sockets = _pair(self._proc / "net" / "sockstat", "sockets:", "used")
        if held is None or sockets is None:
            return None
        return 1024 * held + SOCKET_CACHE_BYTES * sockets


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
    return {metric: round(max(seconds, 0) / total, 4) for metric, seconds in parts.items()}


def _memory() -> dict[str, float]:
    memory = psutil.virtual_memory()
    return {
        "memory_used_bytes": memory.used,
        "memory_available_bytes": memory.available,
        "load1": round(os.getloadavg()[0], 2),
    }


def _column(path: Path, row: str, name: str) -> int | None:
    """A figure of a table in which a line of names stands before a line of values."""
    lines = [line.split() for line in _text(path).splitlines() if line.startswith(row)]
    if len(lines) != 2 or name not in lines[0]:
        return None
    return int(lines[1][lines[0].index(name)])


def _pair(path: Path, row: str, name: str) -> int | None:
    """A figure of a line of names, each before its value."""
    for line in _text(path).splitlines():
        words = line.split()
        if words[:1] == [row] and name in words:
            return int(words[words.index(name) + 1])
    return None


def _times(factor: int, number: int | None) -> int | None:
    return None if number is None else factor * number


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
