"""Processes with their descendants, on this machine or another: CPU, memory, disk, threads and
descriptors of one process, or of a group as one source. On this machine a process is found by its
id, its port or its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import psutil

from pubstorm.contract import Source
from pubstorm.contract.plan import Plan
from pubstorm.host import proc
from pubstorm.host.members import PROCESSES_HERE, LocalProcesses, Member, Processes, ProcessReading
from pubstorm.host.sockets import bound_at, holders, listening_at
from pubstorm.measure.monitors import MonitorError, Reading
from pubstorm.measure.monitors.connections import ConnectionsMonitor
from pubstorm.scenario.monitors import MEMBERS_PER_S
from pubstorm.scenario.monitors import Process as Wanted

RETRY_S = (1.0, 60.0)
"""Shortest and longest time between two searches for a process; one by port looks at every
socket."""
SLACK_S = 0.1
"""Time by which a reading may be early: the schedule is met to a millisecond or so."""
PidNow = Callable[[], int]
"""The process id that something has now, which changes when it is started again."""


def monitors_of(
    source: Source, wanted: Wanted, _: Plan
) -> Iterator[ProcessMonitor | ConnectionsMonitor]:
    """Yields the monitors of a process of this machine."""
    yield from process_monitors(source, wanted, PROCESSES_HERE, wanted.port)


def process_monitors(
    source: Source, wanted: Wanted | PidNow, processes: Processes, port: int | None
) -> Iterator[ProcessMonitor | ConnectionsMonitor]:
    """Yields the monitors of a process, and of its connections if it is on this machine. `port`:
    the one that it listens on; None: all."""
    process = ProcessMonitor(source, wanted, processes)
    yield process
    if isinstance(processes, LocalProcesses):
        yield ConnectionsMonitor(source, lambda: process.pid, port)


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
        self._before: ProcessReading | None = None

    @property
    def pid(self) -> int:
        """Its process id as of the last reading; 0 while there is no process."""
        return self._root.pid if self._root else 0

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
        yield from self._of_threads(look, at_ns)
        yield from sums(look, at_ns)
        hidden = [member.stat.pid for member in members if member.descriptors is None]
        if hidden:
            text = f"the descriptors of process {hidden[0]} are hidden from this user"
            raise MonitorError(f"{text}: run pubstorm as its user, or as root")
        if members[0].descriptors_max is not None:
            yield Reading(at_ns, "descriptors_max", members[0].descriptors_max)

    def stop(self) -> None:
        """Does nothing: the monitor holds no resource."""

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

    def _of_threads(self, look: ProcessReading, at_ns: int) -> Iterator[Reading]:
        """Yields the share of one core that the busiest thread has used since the last reading, and
        the share of the time that the thread that waited longest had no processor. No second core
        makes one thread faster. The quota of its cgroup counts for the first process."""
        before, self._before = self._before, look
        if before is None:
            return
        was, seconds = before.threads, look.at_s - before.at_s
        both = [(was[thread], now) for thread, now in look.threads.items() if thread in was]
        if both:
            share = max(now[0] - old[0] for old, now in both) / proc.TICKS_PER_S / seconds
            yield Reading(at_ns, "thread_cpu_max", round(share, 4))
        pairs = ((old[1], now[1]) for old, now in both)
        waits = [now - old for old, now in pairs if old is not None and now is not None]
        if waits:
            yield Reading(at_ns, "run_delay", _share_of_time(max(waits), seconds))
        old_ns, now_ns = (each.members[0].throttled_ns for each in (before, look))
        if old_ns is not None and now_ns is not None:
            yield Reading(at_ns, "throttled", _share_of_time(now_ns - old_ns, seconds))


def _share_of_time(duration_ns: int, seconds: float) -> float:
    """Returns a share of the time. A reading can contain a wait that began before it."""
    return round(min(max(duration_ns / 1e9 / seconds, 0.0), 1.0), 4)


@dataclass(frozen=True, slots=True)
class GroupPart:
    """The processes of a group on one machine."""

    processes: Processes
    """The processes of the machine."""
    pids: Callable[[], Sequence[int]]
    """The ids of those in the group, as they are now."""


class GroupMonitor:
    """Measures all processes of a group as one source, with their descendants, such as a thousand
    brokers of one name. Those that end or start meanwhile count while they live."""

    def __init__(self, source: Source, parts: Sequence[GroupPart]) -> None:
        """`parts`: the processes of each machine."""
        self.source = source
        self._parts = tuple((part, Differences()) for part in parts)
        self._next_at_s = 0.0

    def start(self) -> None:
        """Takes the CPU time that was used before."""
        list(self.read())

    def read(self) -> Iterator[Reading]:
        """Yields the use of the group now; nothing too soon after the last reading."""
        now_s, asked_ns = time.monotonic(), time.monotonic_ns()
        if now_s < self._next_at_s:
            return
        sum_of: dict[str, float] = {}
        members = 0
        for part, differences in self._parts:
            look = part.processes.look_at(part.pids())
            members += len(look.members)
            for reading in (*differences.read(look, asked_ns), *sums(look, asked_ns)):
                sum_of[reading.metric] = sum_of.get(reading.metric, 0) + reading.value
        self._next_at_s = now_s + members / MEMBERS_PER_S - SLACK_S
        at_ns = (asked_ns + time.monotonic_ns()) // 2
        for metric, value in sum_of.items():
            yield Reading(at_ns, metric, round(value, 5))

    def stop(self) -> None:
        """Does nothing: the monitor holds no resource."""


class Differences:
    """CPU time and disk traffic of processes between two readings."""

    def __init__(self) -> None:
        self._before: dict[int, Member] = {}
        self._read_at_s = 0.0

    def read(self, look: ProcessReading, at_ns: int) -> Iterator[Reading]:
        """Yields shares of one core and bytes a second since the last reading, of the processes
        that both have; nothing at the first reading."""
        members = look.members
        if self._before:
            both = [(self._before.get(member.stat.pid), member) for member in members]
            same = [(old, new) for old, new in both if old and old.stat.started == new.stat.started]
            span_s = look.at_s - self._read_at_s
            cpu = _cpu([(old.stat, new.stat) for old, new in same], span_s)
            disk = _disk([(old.disk_bytes, new.disk_bytes) for old, new in same], span_s)
            for metric, value in {**cpu, **disk}.items():
                yield Reading(at_ns, metric, value)
        self._before = {member.stat.pid: member for member in members}
        self._read_at_s = look.at_s


def _cpu(pairs: Sequence[tuple[proc.Stat, proc.Stat]], span_s: float) -> dict[str, float]:
    ticks = span_s * proc.TICKS_PER_S
    user = sum(new.user_ticks - old.user_ticks for old, new in pairs) / ticks
    system = sum(new.system_ticks - old.system_ticks for old, new in pairs) / ticks
    shares = {"cpu": user + system, "cpu_user": user, "cpu_system": system}
    return {metric: round(share, 4) for metric, share in shares.items()}


def _disk(
    pairs: Sequence[tuple[tuple[int, int] | None, tuple[int, int] | None]], span_s: float
) -> dict[str, float]:
    """Returns rates of disk traffic; none if the traffic of a process is hidden."""
    known = [(old, new) for old, new in pairs if old is not None and new is not None]
    if len(known) < len(pairs):
        return {}
    read, written = (sum(new[k] - old[k] for old, new in known) / span_s for k in (0, 1))
    return {"disk_read_bytes_per_s": round(read), "disk_written_bytes_per_s": round(written)}


def sums(look: ProcessReading, at_ns: int) -> Iterator[Reading]:
    """Yields memory, threads and number of processes; descriptors unless some are hidden."""
    members = look.members
    resident = sum(member.memory.resident for member in members)
    yield Reading(at_ns, "rss_bytes", resident)
    yield Reading(at_ns, "private_bytes", sum(member.memory.private for member in members))
    yield Reading(at_ns, "virtual_bytes", sum(member.memory.virtual for member in members))
    yield Reading(at_ns, "memory", round(resident / look.host_bytes, 5))
    yield Reading(at_ns, "threads", sum(member.stat.threads for member in members))
    yield Reading(at_ns, "processes", len(members))
    descriptors = [each.descriptors for each in members if each.descriptors is not None]
    if len(descriptors) == len(members):
        yield Reading(at_ns, "descriptors", sum(descriptors))


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
    """Returns the process that listens on a port, not the children that share it. A broker of QUIC
    may have a port of UDP only."""
    sockets = listening_at(port) or bound_at(port)
    pids = holders(sockets, sorted(proc.pids())) if sockets else ()
    processes = _outermost(pids)
    if processes:
        return processes[0]
    if sockets:
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
