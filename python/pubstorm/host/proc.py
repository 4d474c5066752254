"""Reads processes of this machine from `/proc` (`man 5 proc`), with few and plain reads: a thousand
processes cost next to nothing."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = "/proc"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
HOST_BYTES = PAGE_BYTES * os.sysconf("SC_PHYS_PAGES")
"""Memory of this machine."""
FILE_BYTES_MAX = 4096
_CGROUPS = "/sys/fs/cgroup"
QUOTA_ROOTS = {
    "": (_CGROUPS, f"{_CGROUPS}/unified"),
    "cpu": (f"{_CGROUPS}/cpu",),
    "cpu,cpuacct": (f"{_CGROUPS}/cpu,cpuacct",),
}
"""Folders of the hierarchies that may have quotas, by their controllers: of version 2, and of
version 1."""


@dataclass(frozen=True, slots=True)
class Stat:
    """A process, or one of its threads, as its file `stat` describes it."""

    pid: int
    state: str
    """One letter: `Z` for a zombie, `X` for a dead process."""
    parent: int
    session: int
    user_ticks: int
    system_ticks: int
    threads: int
    started: int
    """Start in clock ticks since the boot. It distinguishes the process from a later process with
    the same id."""

    @property
    def has_ended(self) -> bool:
        """True if the first thread has ended. Others may be left, with open sockets."""
        return self.state in {"Z", "X"}


def stat(pid: int, thread: int | None = None) -> Stat | None:
    """Returns the state of a process or of a thread, or None if there is none."""
    path = f"{PROC}/{pid}/stat" if thread is None else f"{PROC}/{pid}/task/{thread}/stat"
    try:
        # The name of the program, in brackets, may hold anything.
        words = _content(path).rpartition(b")")[2].split()
        return Stat(
            pid=pid,
            state=words[0].decode(),
            parent=int(words[1]),
            session=int(words[3]),
            user_ticks=int(words[11]),
            system_ticks=int(words[12]),
            threads=int(words[17]),
            started=int(words[19]),
        )
    except (OSError, ValueError, IndexError):
        return None


def pids() -> Iterator[int]:
    """Yields the ids of all processes."""
    yield from (int(name) for name in os.listdir(PROC) if name.isdecimal())  # noqa: PTH208


def stats() -> Iterator[Stat]:
    """Yields the state of every process."""
    yield from filter(None, map(stat, pids()))


def threads(pid: int) -> Iterator[tuple[int, Stat]]:
    """Yields the id and the state of every thread of a process."""
    with contextlib.suppress(OSError):
        for name in os.listdir(f"{PROC}/{pid}/task"):  # noqa: PTH208
            if (found := stat(pid, int(name))) is not None:
                yield int(name), found


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a process, in bytes."""

    virtual: int
    """Addresses that it has, with and without memory behind them."""
    resident: int
    private: int
    """The part of the resident memory that it shares with no other process."""


def memory(pid: int) -> Memory:
    """Returns the memory of a process. Raises OSError if the process has ended."""
    virtual, resident, shared = map(int, _content(f"{PROC}/{pid}/statm").split()[:3])
    return Memory(virtual * PAGE_BYTES, resident * PAGE_BYTES, (resident - shared) * PAGE_BYTES)


def disk_bytes(pid: int) -> tuple[int, int] | None:
    """Returns the bytes that a process has read from disks and written to them so far, or None if
    this user may not see them, or the kernel does not count them."""
    try:
        words = _content(f"{PROC}/{pid}/io").split()
        found = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        return found[b"read_bytes:"], found[b"write_bytes:"]
    except (OSError, ValueError, KeyError):
        return None


def descriptors(pid: int) -> int | None:
    """Returns the number of open descriptors of a process, or None if this user may not see them.
    Raises OSError if the process has ended."""
    folder = Path(f"{PROC}/{pid}/fd")
    try:
        # Linux 6.2 and later give the number as the size of the folder.
        return folder.stat().st_size or sum(1 for _ in folder.iterdir())
    except PermissionError:
        return None


def has_open(pid: int, path: Path) -> bool:
    """Returns True if a process has a file or folder open, and this user may see it."""
    with contextlib.suppress(OSError):
        wanted = path.stat()
        for each in Path(f"{PROC}/{pid}/fd").iterdir():
            # A descriptor may be closed meanwhile.
            with contextlib.suppress(OSError):
                if os.path.samestat(each.stat(), wanted):
                    return True
    return False


def descriptors_max(pid: int) -> int | None:
    """Returns the number of descriptors that a process may have open, or None if this user may not
    see it."""
    with contextlib.suppress(OSError, ValueError):
        return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
    return None


def run_delay_ns(pid: int, thread: int) -> int | None:
    """Returns the time in which a thread could run and had no processor so far, or None if the
    kernel does not count it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_content(f"{PROC}/{pid}/task/{thread}/schedstat").split()[1])
    return None


def throttled_ns(pid: int) -> int | None:
    """Returns the time for which the CPU quota of the cgroup of a process kept the group from the
    processors so far, or None if it has no quota. Quotas of groups above it do not count."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        for line in _content(f"{PROC}/{pid}/cgroup").decode().splitlines():
            _, controllers, path = line.split(":", 2)
            for root in QUOTA_ROOTS.get(controllers, ()):
                words = _content(f"{root}{path}/cpu.stat").split()
                found = dict(zip(words[::2], map(int, words[1::2]), strict=True))
                if found.get(b"nr_periods"):
                    return found.get(b"throttled_time") or 1000 * found[b"throttled_usec"]
    return None


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, FILE_BYTES_MAX)
    finally:
        os.close(descriptor)
