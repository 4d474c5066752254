"""Memory of this machine, or of the control group that this process is held to: how much there is,
and a watch that says when it is about to run out. Then the run ends in words, before the kernel
ends processes of its choice. It knows no plan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from pubstorm.quantity import bytes_text

FLOOR_BYTES = 2**30
"""Memory below which a run ends: what the steepest ramp takes in about five seconds."""
FLOOR_SHARE = 0.05
"""The same as a share of all memory, on a small machine."""
LOOK_S = 0.25
"""Time between two looks."""


@dataclass(frozen=True)
class MemoryLow:
    """Memory is about to run out."""

    text: str


def available_bytes() -> int:
    """Memory that programs can still get. Of what a group uses, the kernel takes back what it has
    cached, as it does on the whole machine."""
    available = psutil.virtual_memory().available
    allowed, used = of_group("memory.max"), of_group("memory.current")
    if allowed is None or used is None:
        return available
    return max(0, min(available, allowed - used + _reclaimable_bytes()))


def total_bytes() -> int:
    """All memory that there is."""
    total, allowed = psutil.virtual_memory().total, of_group("memory.max")
    return total if allowed is None else min(total, allowed)


async def watch_memory(
    emit: Callable[[MemoryLow], None],
    available: Callable[[], int] = available_bytes,
    look_s: float = LOOK_S,
) -> None:
    """Returns once less memory is available than a run needs to end well, and has said so."""
    floor_bytes = min(FLOOR_BYTES, round(total_bytes() * FLOOR_SHARE))
    while (left_bytes := available()) >= floor_bytes:
        await asyncio.sleep(look_s)
    text = (
        f"memory runs out: {bytes_text(left_bytes)} is left, {bytes_text(floor_bytes)} is kept "
        "free for the end of a run: play fewer clients, or give the host more memory"
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
"""Rows of a group's statistics: files that are cached, and what the kernel knows of them."""
