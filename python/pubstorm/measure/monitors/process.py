"""One process with its descendants, on this machine or another. On this one it is found by its id,
its port or its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import psutil

from pubstorm.contract.source import Source
from pubstorm.host import proc
from pubstorm.host.members import Look, Processes
from pubstorm.measure.monitors import MonitorError, Reading
from pubstorm.measure.monitors.usage import Differences, sums
from pubstorm.scenario.monitors import Process as Wanted

RETRY_S = (1.0, 60.0)
"""Shortest and longest time between two searches for a process; one by port looks at every
socket."""
PidNow = Callable[[], int]
"""The process id that something has now, which changes when it is started again."""


class ProcessMonitor:
    """Measures one process with its descendants. One that is given as its present id is followed
    to its next id; its absence is no problem, since the code that starts it reports that."""

    def __init__(self, source: Source, wanted: Wanted | PidNow, processes: Processes) -> None:
        self.source = source
        self._wanted = wanted
        self._processes = processes
        self._root: proc.Stat | None = None
        self._retry_s, self._retry_at_s = RETRY_S[0], 0.0
        self._differences = Differences()
        self._before: Look | None = None

    def start(self) -> None:
        """Finds the process, and the CPU time that it has used before."""
        list(self.read())

    def read(self) -> Iterator[Reading]:
        """Yields the use of the process and its descendants now. Raises MonitorError if there is no
        such process, or if some of its figures are hidden."""
        root = self._find()
        if not root:
            return
        asked_ns = time.monotonic_ns()
        look = self._processes.look_at([root])
        # Between question and answer, for a machine with a clock of its own.
        at_ns = (asked_ns + time.monotonic_ns()) // 2
        members = look.members
        first = members[0].stat if members and members[0].stat.pid == root else None
        if not isinstance(self._wanted, Wanted):
            self._follow(first)
        if first is None or self._root is None or not _is_same(first, self._root):
            self._end(root)
            return
        yield from self._differences.read(look, at_ns)
        yield from self._busiest_thread(look, at_ns)
        yield from sums(look, at_ns)
        hidden = [member.stat.pid for member in members if member.descriptors is None]
        if hidden:
            text = f"the descriptors of process {hidden[0]} are hidden from this user"
            raise MonitorError(f"{text}: run pubstorm as its user, or as root")

    def stop(self) -> None:
        """Nothing is held."""

    def _find(self) -> int:
        """Returns the id of the process to look at; 0 if it is not looked for now."""
        if not isinstance(self._wanted, Wanted):
            return self._wanted()
        if self._root is None:
            if time.monotonic() < self._retry_at_s:
                return 0
            self._retry_at_s = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, RETRY_S[1])
            self._begin(find(self._wanted))
            self._retry_s = RETRY_S[0]
        return self._root.pid if self._root else 0

    def _begin(self, root: proc.Stat | None) -> None:
        self._root, self._differences, self._before = root, Differences(), None

    def _follow(self, now: proc.Stat | None) -> None:
        """Continues with the process that has the id now."""
        if now is None or self._root is None or not _is_same(now, self._root):
            self._begin(now)

    def _end(self, pid: int) -> None:
        """Raises MonitorError unless the end of the process is reported elsewhere."""
        self._begin(None)
        if isinstance(self._wanted, Wanted):
            if self._wanted.pid is not None:
                self._retry_at_s = float("inf")
            raise MonitorError(f"process {pid} has ended: nothing more is read of it")

    def _busiest_thread(self, look: Look, at_ns: int) -> Iterator[Reading]:
        """Yields the share of one core that the busiest thread has used since the last reading: no
        second core makes one thread faster."""
        before, self._before = self._before, look
        if before is None:
            return
        was = before.thread_ticks
        used = [now - was[t] for t, now in look.thread_ticks.items() if t in was]
        if used:
            share = max(used) / proc.TICKS_PER_S / (look.at_s - before.at_s)
            yield Reading(at_ns, "thread_cpu_max", round(share, 4))


def find(wanted: Wanted | PidNow) -> proc.Stat:
    """Returns the process that is wanted; raises MonitorError with what to do."""
    if not isinstance(wanted, Wanted):
        return _by_pid(wanted())
    if wanted.pid is not None:
        return _by_pid(wanted.pid)
    if wanted.port is not None:
        return _listener(wanted.port)
    return _named(str(wanted.name))


def _by_pid(pid: int) -> proc.Stat:
    found = proc.stat(pid)
    if found is None:
        raise MonitorError(f"found no process {pid}: give a pid that runs")
    return found


def _listener(port: int) -> proc.Stat:
    """Returns the process that listens on a port, not the children that share it."""
    pids = {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,)
    }
    processes = _outermost(sorted(filter(None, pids)))
    if processes:
        return processes[0]
    if pids:
        text = f"the process that listens on port {port} is hidden from this user"
        raise MonitorError(f"{text}: run pubstorm as its user, or as root")
    raise MonitorError(f"found no process of this machine that listens on port {port}")


def _named(name: str) -> proc.Stat:
    """Returns the one process of a name, not its children."""
    named = (each.pid for each in psutil.process_iter(["name"]) if each.info["name"] == name)
    processes = _outermost(named)
    if len(processes) == 1:
        return processes[0]
    if not processes:
        raise MonitorError(f"found no process with the name {name}: start it, or give pid or port")
    pids = ", ".join(str(process.pid) for process in processes)
    text = f"found {len(processes)} processes with the name {name} ({pids})"
    raise MonitorError(f"{text}: give the pid or port of one")


def _outermost(pids: Iterable[int]) -> list[proc.Stat]:
    """Returns the processes that are no child of another one."""
    found = {each.pid: each for each in map(proc.stat, pids) if each is not None}
    return [each for each in found.values() if each.parent not in found]


def _is_same(one: proc.Stat, other: proc.Stat) -> bool:
    return (one.pid, one.started) == (other.pid, other.started)
