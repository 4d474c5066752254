"""Counters of a machine's kernel: CPU, network, memory, TCP and connection tracking. Figures that a
kernel or container hides are left out."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SOCKET_CACHE_BYTES = 862 + 195
"""Inode and directory entry of an open socket on Linux 6 (`sock_inode_cache` and `dentry`). The
kernel counts both as available, though it cannot reclaim them while the socket is open."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
CPU_FIELDS = (
    *("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"),
    *("guest", "guest_nice"),
)
"""Columns of the first line of `/proc/stat`."""


@dataclass(frozen=True, slots=True)
class KernelCounters:
    """Counts of the kernel at one instant."""

    at_s: float
    """Instant on the monotonic clock of the machine."""
    cpu: Mapping[str, int]
    """Time of all cores by its kind, in clock ticks."""
    sent_bytes: int
    """Bytes that all network interfaces have sent, loopback too."""
    received_bytes: int
    """Bytes that they have received."""
    disk_bytes: Sequence[int] | None
    """Bytes read from disks and written to them since the boot. The kernel counts a transfer once,
    also if one block device lies on another."""
    figures: Mapping[str, float]
    """Figures that are shown as they are, by metric."""

    def to_json(self) -> dict[str, object]:
        """Returns plain values."""
        return asdict(self)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> KernelCounters:
        """Reads them again."""
        return cls(**value)


def counters(proc: Path = PROC) -> KernelCounters:
    """Returns the counters of this machine now."""
    ticks = next(iter(_text(proc / "stat").splitlines()), "").split()[1:]
    received, sent = _network(_text(proc / "net" / "dev"))
    return KernelCounters(
        at_s=time.monotonic(),
        cpu=dict(zip(CPU_FIELDS, map(int, ticks), strict=False)),
        sent_bytes=sent,
        received_bytes=received,
        disk_bytes=_disks(proc),
        figures={**_memory(proc), **_kernel(proc)},
    )


def _network(text: str) -> tuple[int, int]:
    """Returns the received and sent bytes of `/proc/net/dev`."""
    rows = [line.partition(":")[2].split() for line in text.splitlines() if ":" in line]
    return sum(int(row[0]) for row in rows), sum(int(row[8]) for row in rows)


def _disks(proc: Path) -> tuple[int, int] | None:
    read, written = (
        _times(1024, _pair(proc / "vmstat", row, row)) for row in ("pgpgin", "pgpgout")
    )
    return None if read is None or written is None else (read, written)


def socket_cache_bytes(proc: Path = PROC) -> int:
    """Memory of the open sockets that the kernel counts as available; 0 if unknown."""
    return SOCKET_CACHE_BYTES * (_pair(proc / "net" / "sockstat", "sockets:", "used") or 0)


def datagrams_dropped(proc: Path = PROC) -> int | None:
    """Datagrams of all programs that the kernel dropped since their sockets were full; None if the
    kernel does not show them."""
    four = _column(proc / "net" / "snmp", "Udp:", "RcvbufErrors")
    six = _pair(proc / "net" / "snmp6", "Udp6RcvbufErrors", "Udp6RcvbufErrors")
    return None if four is None else four + (six or 0)


def _memory(proc: Path) -> dict[str, float]:
    total = _pair(proc / "meminfo", "MemTotal:", "MemTotal:")
    available = _pair(proc / "meminfo", "MemAvailable:", "MemAvailable:")
    found: dict[str, float] = {"processors": os.cpu_count() or 1}
    if total is not None and available is not None:
        found["memory_used_bytes"] = 1024 * (total - available)
        found["memory_available_bytes"] = max(0, 1024 * available - socket_cache_bytes(proc))
    if load := _text(proc / "loadavg").split():
        found["load1"] = float(load[0])
    return found


def _kernel(proc: Path) -> dict[str, float]:
    """Counters and gauges of TCP and connection tracking, and the memory of the kernel's own
    objects, as far as the kernel shows them."""
    net, sys = proc / "net", proc / "sys" / "net" / "netfilter"
    found = {
        "tcp_retransmits": _column(net / "snmp", "Tcp:", "RetransSegs"),
        "tcp_listen_overflows": _column(net / "netstat", "TcpExt:", "ListenOverflows"),
        "tcp_sockets": _pair(net / "sockstat", "TCP:", "inuse"),
        "tcp_buffer_bytes": _times(PAGE_BYTES, _pair(net / "sockstat", "TCP:", "mem")),
        "slab_bytes": _times(1024, _pair(proc / "meminfo", "Slab:", "Slab:")),
        "kernel_bytes": _held_bytes(proc),
        "conntrack": _number(sys / "nf_conntrack_count"),
        "conntrack_max": _number(sys / "nf_conntrack_max"),
    }
    six = _pair(net / "sockstat6", "TCP6:", "inuse")
    if six is not None and found["tcp_sockets"] is not None:
        found["tcp_sockets"] += six
    return {metric: value for metric, value in found.items() if value is not None}


def _held_bytes(proc: Path) -> int | None:
    """Returns the memory of the kernel's own objects that it cannot reclaim. Caches of files are
    left out: programs that list /proc fill them with an inode of each descriptor."""
    held = _pair(proc / "meminfo", "SUnreclaim:", "SUnreclaim:")
    sockets = socket_cache_bytes(proc)
    return 1024 * held + sockets if held is not None and sockets else None


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
