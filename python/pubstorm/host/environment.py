"""The machine and the programs of a run, read once, so that two results can be compared, and its
memory, watched so that a run ends with a message before the kernel ends processes of its choice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import resource
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from pubstorm import __version__
from pubstorm.host.counters import socket_cache_bytes
from pubstorm.quantities import bytes_text
from pubstorm.result import BrokerResult, BrokerVersion, Environment

SYSCTLS = (
    "fs.file-max",
    "fs.nr_open",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_wmem",
    "net.netfilter.nf_conntrack_max",
)


def raise_descriptor_limit() -> None:
    """Raises the soft limit of open descriptors to the hard one: agents and brokers inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def read_environment(engine: str, brokers: Iterable[BrokerResult]) -> Environment:
    """The environment of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    versions = sorted({(broker.kind, broker.version) for broker in brokers})
    return Environment(
        host=platform.node(),
        kernel=kernel(),
        machine=platform.machine(),
        cpu_model=cpu_model(),
        cores=cores(),
        memory_bytes=psutil.virtual_memory().total,
        python=platform.python_version(),
        pubstorm=__version__,
        engine=engine,
        descriptors_soft=soft,
        descriptors_hard=hard,
        sysctls=_sysctls(),
        git_commit=_git_commit(),
        brokers=tuple(BrokerVersion(kind=kind, version=version) for kind, version in versions),
    )


def kernel() -> str:
    """The operating system and its kernel."""
    return f"{platform.system()} {platform.release()}"


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_model() -> str:
    """The model of the processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor()


def _sysctls() -> dict[str, str]:
    values = {}
    for name in SYSCTLS:
        with contextlib.suppress(OSError):
            text = Path("/proc/sys", *name.split(".")).read_text()
            values[name] = " ".join(text.split())
    return values


def _git_commit() -> str | None:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() if found.returncode == 0 else None


FLOOR_BYTES = 2**28
"""Memory below which a run ends."""
FLOOR_SHARE = 0.05
"""The same as a share of all memory, on a small machine."""
AHEAD_S = 3.0
"""Time that a run takes to end, in seconds. A ramp takes as much memory in it as in the same time
before."""
LOOK_S = 0.25
"""Time between two checks, in seconds."""


@dataclass(frozen=True)
class MemoryLow:
    """Memory is about to run out."""

    text: str


def available_bytes() -> int:
    """Memory that programs can still get. The kernel reclaims the cached part of a group's memory,
    as on the whole machine."""
    available = max(0, psutil.virtual_memory().available - socket_cache_bytes())
    allowed, used = of_group("memory.max"), of_group("memory.current")
    if allowed is None or used is None:
        return available
    return max(0, min(available, allowed - used + _reclaimable_bytes()))


def total_bytes() -> int:
    """Total memory."""
    total, allowed = psutil.virtual_memory().total, of_group("memory.max")
    return total if allowed is None else min(total, allowed)


async def watch_memory(
    emit: Callable[[MemoryLow], None],
    available: Callable[[], int] = available_bytes,
    look_s: float = LOOK_S,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Calls `emit` and returns once less memory is available than a run needs to end well."""
    floor_bytes = min(FLOOR_BYTES, round(total_bytes() * FLOOR_SHARE))
    recent: deque[tuple[float, int]] = deque()
    while True:
        left_bytes, now_s = available(), now()
        recent.append((now_s, left_bytes))
        while recent[0][0] < now_s - AHEAD_S:
            recent.popleft()
        kept_bytes = floor_bytes + max(0, recent[0][1] - left_bytes)
        if left_bytes < kept_bytes:
            break
        await asyncio.sleep(look_s)
    text = (
        f"memory runs out: {bytes_text(left_bytes)} is left, "
        f"{bytes_text(kept_bytes)} is kept free for the end of a run: "
        "play fewer clients, or give the host more memory"
    )
    emit(MemoryLow(text))


def of_group(file: str) -> int | None:
    """A number of this process's control group (version 2); None: no limit, or not readable."""
    try:
        return int(text_of_group(file))
    except ValueError:
        return None


def text_of_group(file: str) -> str:
    """A file of this process's control group (version 2); empty where it is not readable."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(line[len("0::/") :] for line in lines if line.startswith("0::/"))
        return Path("/sys/fs/cgroup", own, file).read_text()
    except (OSError, StopIteration):
        return ""


def _reclaimable_bytes() -> int:
    rows = (line.split() for line in text_of_group("memory.stat").splitlines())
    return sum(int(row[1]) for row in rows if row[0] in RECLAIMABLE)


RECLAIMABLE = ("active_file", "inactive_file", "slab_reclaimable")
"""Rows of a group's statistics: cached files, and the kernel's data about them."""
