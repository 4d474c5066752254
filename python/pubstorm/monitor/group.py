"""Many processes watched as one: their CPU, memory, threads and descriptors added up, with few and
plain reads of `/proc`, so that a thousand of them cost next to nothing. It knows no broker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pubstorm.monitor import Reading
from pubstorm.monitor.process import Families

MEMBERS_PER_S = 200
"""Processes that are read a second: a larger group is read less often."""
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Usage:
    """What the kernel says of one process."""

    started: int
    """Its start in ticks since the boot, which tells it from a later one with its id."""
    user_ticks: int
    system_ticks: int
    threads: int
    rss_bytes: int
    private_bytes: int
    descriptors: int | None
    """None: hidden from this user."""


class GroupMonitor:
    """Watches all processes of a group, with their children, as one source. Those that end or come
    back meanwhile count while they are there."""

    def __init__(
        self,
        source: str,
        pids: Callable[[], Sequence[int]],
        families: Families,
        proc: Path = PROC,
    ) -> None:
        self.source = source
        self._pids = pids
        self._families = families
        self._proc = proc
        self._before: dict[int, Usage] = {}
        self._read_at_s = 0.0
        self._next_at_s = 0.0

    def start(self) -> None:
        """Takes the CPU time that was used before."""
        list(self.read())

    def read(self) -> Iterator[Reading]:
        """What the group uses now; nothing where it was read too short a time ago."""
        now_s, at_ns = time.monotonic(), time.monotonic_ns()
        if now_s < self._next_at_s:
            return
        roots = self._pids()
        pids = dict.fromkeys((*roots, *(p for root in roots for p in self._children(root))))
        found = {pid: used for pid in pids if (used := usage(pid, self._proc)) is not None}
        # A little early is in time: the instants of the schedule are met by a millisecond or so.
        self._next_at_s = now_s + len(pids) / MEMBERS_PER_S - SLACK_S
        if self._before:
            yield from self._cpu(found, now_s, at_ns)
        self._before, self._read_at_s = found, now_s
        yield Reading(at_ns, "processes", len(found))
        members = found.values()
        for metric in ("rss_bytes", "private_bytes", "threads"):
            yield Reading(at_ns, metric, sum(getattr(used, metric) for used in members))
        descriptors = [used.descriptors for used in members if used.descriptors is not None]
        if len(descriptors) == len(found):
            yield Reading(at_ns, "descriptors", sum(descriptors))

    def stop(self) -> None:
        """Nothing is held."""

    def _children(self, root: int) -> Sequence[int]:
        return self._families.descendants(root)

    def _cpu(self, found: dict[int, Usage], now_s: float, at_ns: int) -> Iterator[Reading]:
        """Shares of one core since the last reading, of the processes that were there then."""
        both = [
            (self._before[pid], used)
            for pid, used in found.items()
            if pid in self._before and self._before[pid].started == used.started
        ]
        ticks = (now_s - self._read_at_s) * TICKS_PER_S
        user = sum(used.user_ticks - before.user_ticks for before, used in both) / ticks
        system = sum(used.system_ticks - before.system_ticks for before, used in both) / ticks
        shares = {"cpu": user + system, "cpu_user": user, "cpu_system": system}
        for metric, share in shares.items():
            yield Reading(at_ns, metric, round(share, 4))


def usage(pid: int, proc: Path = PROC) -> Usage | None:
    """What a process uses; None where it has ended."""
    folder = f"{proc}/{pid}"
    try:
        # The name of the program, in brackets, may hold anything.
        words = _bytes_of(f"{folder}/stat").rpartition(b")")[2].split()
        resident, shared = _bytes_of(f"{folder}/statm").split()[1:3]
    except (OSError, ValueError):
        return None
    if words[0] == b"Z":
        return None
    return Usage(
        started=int(words[19]),
        user_ticks=int(words[11]),
        system_ticks=int(words[12]),
        threads=int(words[17]),
        rss_bytes=int(resident) * PAGE_BYTES,
        private_bytes=(int(resident) - int(shared)) * PAGE_BYTES,
        descriptors=_descriptors(f"{folder}/fd"),
    )


def _bytes_of(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, STAT_BYTES_MAX)
    finally:
        os.close(descriptor)


def _descriptors(folder: str) -> int | None:
    """Open descriptors. Linux 6.2 and later tell their number as the size of the folder."""
    try:
        return Path(folder).stat().st_size or len(list(Path(folder).iterdir()))
    except OSError:
        return None


SLACK_S = 0.1
STAT_BYTES_MAX = 4096
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
