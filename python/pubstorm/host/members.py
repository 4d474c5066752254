"""Processes of this machine with their descendants: what they use now. The processes that a broker
has started itself: found before the broker is stopped, and killed if they do not end after it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol

from pubstorm.host import proc
from pubstorm.host.ends import CLOSE_S
from pubstorm.host.sockets import has_socket, listening_at

CHILDREN_S = 5.0
"""Shortest use of a list of children; making one looks at every process of the machine."""
CHILDREN_SHARE = 0.001
"""Share of the time that making such lists may take: with many processes they are used longer."""
THREADS_MAX = 32
"""Most threads of a process and its descendants that are read one by one: a reading takes some
20 us for each."""


@dataclass(frozen=True, slots=True)
class Member:
    """One process among those that are added up."""

    stat: proc.Stat
    memory: proc.Memory
    descriptors: int | None
    """None: hidden from this user."""
    disk_bytes: tuple[int, int] | None
    """Bytes read and written so far. None: hidden from this user."""
    descriptors_max: int | None = None
    """Descriptors that it may have open. None: hidden from this user."""
    throttled_ns: int | None = None
    """Time for which a quota kept its cgroup from the processors so far. None: it has no quota."""


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """Processes at one instant."""

    at_s: float
    """Instant on the monotonic clock of their machine."""
    members: Sequence[Member]
    """The living processes, with their descendants."""
    threads: Mapping[tuple[int, int], tuple[int, int | None]]
    """CPU time in ticks and run delay in nanoseconds by process and thread; empty if there are many
    threads. None: the kernel does not count the delay."""
    host_bytes: int = proc.HOST_BYTES
    """Memory of their machine."""

    def to_json(self) -> dict[str, object]:
        """Returns plain values."""
        threads = [[*thread, *figures] for thread, figures in self.threads.items()]
        return {
            "at_s": self.at_s,
            "members": list(map(astuple, self.members)),
            "threads": threads,
            "host_bytes": self.host_bytes,
        }

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> ProcessReading:
        """Reads them again."""
        members = [
            Member(proc.Stat(*stat), proc.Memory(*memory), descriptors, disk and tuple(disk), *rest)
            for stat, memory, descriptors, disk, *rest in value["members"]
        ]
        threads = {(pid, thread): (ticks, ns) for pid, thread, ticks, ns in value["threads"]}
        return cls(value["at_s"], members, threads, value["host_bytes"])


class Processes(Protocol):
    """The processes of a machine. One thread makes all calls of a monitor, so a call may wait."""

    def look_at(self, roots: Sequence[int]) -> ProcessReading:
        """Returns the processes of these ids and their descendants now."""


class Descendants:
    """Children of processes, and their children: one list for all monitors."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: dict[int, list[int]] = {}
        self._fresh_until_s = 0.0

    def of(self, root: int) -> list[int]:
        """Returns the ids of the descendants of a process."""
        with self._lock:
            if time.monotonic() >= self._fresh_until_s:
                self._refresh()
            found: list[int] = []
            parents = [root]
            while parents:
                children = self._children.get(parents.pop(), [])
                found += children
                parents += children
            return found

    def _refresh(self) -> None:
        began_s = time.thread_time()
        self._children = {}
        for each in proc.stats():
            self._children.setdefault(each.parent, []).append(each.pid)
        took_s = time.thread_time() - began_s
        self._fresh_until_s = time.monotonic() + max(CHILDREN_S, took_s / CHILDREN_SHARE)


class LocalProcesses:
    """The processes of this machine."""

    def __init__(self) -> None:
        self._descendants = Descendants()

    def look_at(self, roots: Sequence[int]) -> ProcessReading:
        """Returns the processes of these ids and their descendants now."""
        at_s = time.monotonic()
        children = (pid for root in roots for pid in self._descendants.of(root))
        members = members_of(dict.fromkeys((*roots, *children)))
        threads: dict[tuple[int, int], tuple[int, int | None]] = {}
        if sum(member.stat.threads for member in members) <= THREADS_MAX:
            threads = {
                (member.stat.pid, number): (
                    thread.user_ticks + thread.system_ticks,
                    proc.run_delay_ns(member.stat.pid, number),
                )
                for member in members
                for number, thread in proc.threads(member.stat.pid)
            }
        return ProcessReading(at_s, members, threads)


PROCESSES_HERE = LocalProcesses()
"""The processes of this machine, for all monitors."""


def members_of(pids: Iterable[int]) -> list[Member]:
    """Returns the living processes among these."""
    found = []
    for pid in pids:
        stat = proc.stat(pid)
        if stat is not None and not stat.has_ended:
            with contextlib.suppress(OSError):
                found.append(
                    Member(
                        stat,
                        proc.memory(pid),
                        proc.descriptors(pid),
                        proc.disk_bytes(pid),
                        proc.descriptors_max(pid),
                        proc.throttled_ns(pid),
                    )
                )
    return found


FOLLOW_S = 1.0
"""Longest time that the processes take to end after the one that started them."""
LOOK_EVERY_S = 0.02


class ProcessTree:
    """A process that leads a session, and the processes that it has started."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._known: set[proc.Stat] = set()

    def look(self) -> None:
        """Notes what there is of it now, while the leader is alive."""
        everyone = _living()
        members = {self._leader}
        grew = True
        while grew:
            more = {r.pid for r in everyone if r.parent in members or r.session in members}
            grew = not more <= members
            members |= more
        self._known = {r for r in everyone if r.pid in members and r.pid != self._leader}

    def listens(self, port: int) -> bool:
        """Returns True if one of them listens on a TCP port. Returns False if the port is surely
        that of another process: one whose sockets are hidden may be the one that listens."""
        sockets = listening_at(port, self._leader)
        if not sockets:
            return False
        if has_socket(self._leader, sockets):
            return True
        self.look()
        has = [has_socket(pid, sockets) for pid in (self._leader, *(r.pid for r in self._known))]
        return True in has or None in has

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to all that there is of it now, the leader first."""
        self.look()
        for pid in (self._leader, *(each.pid for each in self._known)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def end(self) -> None:
        """After the leader's end: what is left may follow for a moment, and is killed then. A
        process that stays is left to the kernel."""
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + FOLLOW_S
        while self._left() and clock() < deadline_s + CLOSE_S:
            if clock() >= deadline_s:
                for each in self._left():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each.pid, signal.SIGKILL)
            await asyncio.sleep(LOOK_EVERY_S)

    def _left(self) -> set[proc.Stat]:
        """Returns the processes that exist: known ones, and others of the session. The number of a
        session stays taken while it has a process; one with a leader of its own is a later
        session."""
        everyone = _living()
        known = {(each.pid, each.started) for each in self._known}
        left = {r for r in everyone if (r.pid, r.started) in known}
        if all(r.pid != self._leader for r in everyone):
            left |= {r for r in everyone if r.session == self._leader}
        return left


def _living() -> list[proc.Stat]:
    """Returns all processes of which a thread is left, since its sockets are open."""
    return [
        process
        for process in proc.stats()
        if not process.has_ended or (process.state == "Z" and process.threads > 1)
    ]
