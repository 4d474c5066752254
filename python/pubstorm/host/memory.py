"""Memory of this machine, or of the control group of this process, and a monitor that reports when
little is left. The run then ends with a message, before the kernel ends processes of its choice."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from pubstorm.host.counters import socket_cache_bytes
from pubstorm.quantities import bytes_text

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
