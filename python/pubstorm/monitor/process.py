"""Processes of this machine: CPU, memory, threads and descriptors of one with all its children,
added up. It knows no broker."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import psutil

from pubstorm.monitor import MonitorError, Reading
from pubstorm.scenario.monitors import Process as Wanted

CHILDREN_S = 5.0
"""How long a list of children is used at least; making it looks at every process of the machine."""
CHILDREN_SHARE = 0.001
"""Share of the time that making such lists may take: with many processes they are used longer."""
RETRY_S = (1.0, 60.0)
"""Shortest and longest time between two searches for a process; one by port looks at every
socket."""


THREADS_MAX = 32
"""The busiest thread is looked for where a process and its children have so many at most: a reading
takes some 20 us for each."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
PidNow = Callable[[], int]
"""The process id that something has now, which changes when it is started again."""


class Families:
    """Who is whose child, found once for all monitors."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: dict[int, list[int]] = {}
        self._fresh_until_s = 0.0

    def descendants(self, root: int) -> list[int]:
        """The process ids of the children of a process and of their children."""
        with self._lock:
            if time.monotonic() >= self._fresh_until_s:
                began_s = time.thread_time()
                self._children = _children_by_parent()
                took_s = time.thread_time() - began_s
                fresh_s = max(CHILDREN_S, took_s / CHILDREN_SHARE)
                self._fresh_until_s = time.monotonic() + fresh_s
            found: list[int] = []
            parents = [root]
            while parents:
                children = self._children.get(parents.pop(), [])
                found += children
                parents += children
            return found


class ProcessMonitor:
    """Watches one process with its children. One that is named by what its id is now is followed
    when it comes back with another, and its absence is no problem: whoever starts it tells."""

    def __init__(self, source: str, wanted: Wanted | PidNow, families: Families) -> None:
        self.source = source
        self._wanted = wanted
        self._families = families
        self._root: psutil.Process | None = None
        self._retry_s, self._retry_at_s = RETRY_S[0], 0.0
        self._used: dict[psutil.Process, tuple[float, float]] = {}
        self._thread_ticks: dict[tuple[int, int], int] = {}
        self._read_at_s = 0.0

    def start(self) -> None:
        """Finds the process, and the CPU time that it has used before."""
        list(self.read())

    def read(self) -> Iterator[Reading]:
        """What the process and its children use now."""
        if not isinstance(self._wanted, Wanted):
            yield from self._follow(self._wanted())
            return
        if self._root is None:
            if time.monotonic() < self._retry_at_s:
                return
            self._retry_at_s = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, RETRY_S[1])
            self._root = find(self._wanted)
            self._retry_s = RETRY_S[0]
        try:
            yield from self._read(self._root)
        except psutil.NoSuchProcess as gone:
            pid, self._root, self._used = self._root.pid, None, {}
            if self._wanted.pid is not None:
                self._retry_at_s = float("inf")
            raise MonitorError(f"process {pid} has ended: nothing more is read of it") from gone

    def stop(self) -> None:
        """Nothing is held."""

    def _follow(self, pid: int) -> Iterator[Reading]:
        """Reads the process that has the id now; nothing while there is none."""
        try:
            if self._root is None or self._root.pid != pid:
                self._root, self._used = psutil.Process(pid), {}
            yield from self._read(self._root)
        except psutil.NoSuchProcess:
            self._root, self._used = None, {}

    def _read(self, root: psutil.Process) -> Iterator[Reading]:
        now_s, at_ns = time.monotonic(), time.monotonic_ns()
        members = [_Member(root)]
        for pid in self._families.descendants(root.pid):
            with contextlib.suppress(psutil.Error):
                members.append(_Member(psutil.Process(pid)))
        used = {member.process: member.used for member in members}
        ticks = _thread_ticks(members)
        if self._used:
            yield from self._cpu(used, now_s, at_ns)
            yield from self._busiest_thread(ticks, now_s, at_ns)
        self._used, self._thread_ticks, self._read_at_s = used, ticks, now_s
        yield Reading(at_ns, "rss_bytes", sum(member.rss_bytes for member in members))
        yield Reading(at_ns, "private_bytes", sum(member.private_bytes for member in members))
        yield Reading(at_ns, "threads", sum(member.threads for member in members))
        yield Reading(at_ns, "processes", len(members))
        descriptors = [member.descriptors for member in members]
        if None in descriptors:
            pid = members[descriptors.index(None)].process.pid
            text = f"the descriptors of process {pid} are hidden from this user"
            raise MonitorError(f"{text}: run pubstorm as its user, or as root")
        yield Reading(at_ns, "descriptors", sum(filter(None, descriptors)))

    def _cpu(
        self, used: dict[psutil.Process, tuple[float, float]], now_s: float, at_ns: int
    ) -> Iterator[Reading]:
        """Shares of one core since the last reading, of the processes that were there then."""
        span_s = now_s - self._read_at_s
        user, system = (
            sum(times[kind] - self._used[p][kind] for p, times in used.items() if p in self._used)
            / span_s
            for kind in (0, 1)
        )
        shares = {"cpu": user + system, "cpu_user": user, "cpu_system": system}
        for metric, share in shares.items():
            yield Reading(at_ns, metric, round(share, 4))

    def _busiest_thread(
        self, ticks: dict[tuple[int, int], int], now_s: float, at_ns: int
    ) -> Iterator[Reading]:
        """The share of one core that the busiest thread has used since the last reading: what one
        thread does, no second core makes faster."""
        span_s = now_s - self._read_at_s
        used = [now - self._thread_ticks[t] for t, now in ticks.items() if t in self._thread_ticks]
        if used:
            share = max(used) / TICKS_PER_S / span_s
            yield Reading(at_ns, "thread_cpu_max", round(share, 4))


class _Member:
    """One process, read once; raises psutil.NoSuchProcess where it has ended."""

    def __init__(self, process: psutil.Process) -> None:
        self.process = process
        with process.oneshot():
            if process.status() == psutil.STATUS_ZOMBIE:
                raise psutil.ZombieProcess(process.pid)
            times = process.cpu_times()
            self.used = times.user, times.system
            memory = process.memory_info()
            self.rss_bytes, self.private_bytes = memory.rss, memory.rss - memory.shared
            self.threads = process.num_threads()
        self.descriptors = _descriptors(process)


def _thread_ticks(members: Sequence[_Member]) -> dict[tuple[int, int], int]:
    """CPU time of each thread so far, in ticks, by process and thread; nothing where there are too
    many."""
    ticks: dict[tuple[int, int], int] = {}
    if sum(member.threads for member in members) > THREADS_MAX:
        return ticks
    for pid in (member.process.pid for member in members):
        for thread in _threads(pid):
            # One may have ended meanwhile.
            with contextlib.suppress(OSError):
                # The name of the thread, in brackets, may hold anything.
                stat = Path(f"/proc/{pid}/task/{thread}/stat").read_bytes()
                fields = stat.rpartition(b")")[2].split()
                ticks[pid, thread] = int(fields[11]) + int(fields[12])
    return ticks


def _threads(pid: int) -> list[int]:
    try:
        return [int(folder.name) for folder in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def find(wanted: Wanted | PidNow) -> psutil.Process:
    """The process that is wanted, or a MonitorError with what to do."""
    if not isinstance(wanted, Wanted):
        return _by_pid(wanted())
    if wanted.pid is not None:
        return _by_pid(wanted.pid)
    if wanted.port is not None:
        return _listener(wanted.port)
    return _named(str(wanted.name))


def _by_pid(pid: int) -> psutil.Process:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        raise MonitorError(f"found no process {pid}: give a pid that runs") from None


def _listener(port: int) -> psutil.Process:
    """The process that listens on a port, without the children that share it."""
    pids = {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,)
    }
    processes = _outermost(psutil.Process(pid) for pid in sorted(filter(None, pids)))
    if processes:
        return processes[0]
    if pids:
        text = f"the process that listens on port {port} is hidden from this user"
        raise MonitorError(f"{text}: run pubstorm as its user, or as root")
    raise MonitorError(f"found no process of this machine that listens on port {port}")


def _named(name: str) -> psutil.Process:
    """The one process of a name, without its children."""
    named = (p for p in psutil.process_iter(["name"]) if p.info["name"] == name)
    processes = _outermost(named)
    if len(processes) == 1:
        return processes[0]
    if not processes:
        raise MonitorError(f"found no process with the name {name}: start it, or give pid or port")
    pids = ", ".join(str(process.pid) for process in processes)
    text = f"found {len(processes)} processes with the name {name} ({pids})"
    raise MonitorError(f"{text}: give the pid or port of one")


def _outermost(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that are no child of another one."""
    parents: dict[psutil.Process, int] = {}
    for process in processes:
        try:
            parents[process] = process.ppid()
        except psutil.Error:
            continue
    pids = {process.pid for process in parents}
    return [process for process, parent in parents.items() if parent not in pids]


def _children_by_parent() -> dict[int, list[int]]:
    """Read from `/proc` by hand, which takes half the time that psutil does."""
    children: dict[int, list[int]] = {}
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                stat = (folder / "stat").read_bytes()
                # The name of the program, in brackets, may hold anything.
                parent = int(stat.rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    return children


def _descriptors(process: psutil.Process) -> int | None:
    """Open descriptors; None where they are hidden. Linux 6.2 and later tell their number without
    a walk over all of them."""
    try:
        return Path(f"/proc/{process.pid}/fd").stat().st_size or process.num_fds()
    except (psutil.AccessDenied, PermissionError):
        return None
    except FileNotFoundError:
        raise psutil.NoSuchProcess(process.pid) from None
