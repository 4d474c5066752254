"""The processes that a broker has started itself: found before the broker is stopped, and killed
if they do not end after it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from pubstorm.host import proc
from pubstorm.host.ends import CLOSE_S
from pubstorm.host.sockets import has_socket, listening_at

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
