"""Processes that a broker of the run has started itself, told from others by the start of their
parents: found before it is stopped, and ended where they do not follow it. It knows no broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROCESSES = Path("/proc")
FOLLOW_S = 1.0
"""How long they may take to end after the one that started them."""
LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class Relative:
    """A process, told from a later one with its number by its start."""

    pid: int
    parent: int
    session: int
    started: int
    """Start in ticks since the machine's."""


class Family:
    """A process that leads a session, and whatever came from it."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._known: set[Relative] = set()

    def look(self) -> None:
        """Notes what there is of it now, while the leader is alive."""
        everyone = list(_everyone())
        members = {self._leader}
        grew = True
        while grew:
            more = {r.pid for r in everyone if r.parent in members or r.session in members}
            grew = not more <= members
            members |= more
        self._known = {r for r in everyone if r.pid in members and r.pid != self._leader}

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to all that there is of it now, the leader first."""
        self.look()
        for pid in (self._leader, *(relative.pid for relative in self._known)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def end(self) -> None:
        """After the leader's end: what is left may follow for a moment, and is killed then."""
        deadline_s = asyncio.get_running_loop().time() + FOLLOW_S
        while self._left():
            if asyncio.get_running_loop().time() >= deadline_s:
                for relative in self._left():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(relative.pid, signal.SIGKILL)
            await asyncio.sleep(LOOK_EVERY_S)

    def _left(self) -> set[Relative]:
        """Those that are there: known ones, and others of the session. The number of a session
        stays its own while anything is in it: with a leader of its own it is a later one."""
        everyone = list(_everyone())
        known = {(relative.pid, relative.started) for relative in self._known}
        left = {r for r in everyone if (r.pid, r.started) in known}
        if all(r.pid != self._leader for r in everyone):
            left |= {r for r in everyone if r.session == self._leader}
        return left


def _everyone() -> Iterator[Relative]:
    """Every living process."""
    for folder in PROCESSES.iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in brackets may hold anything; the fields follow its last bracket.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if not _is_gone(fields[0], threads=int(fields[17])):
                yield Relative(
                    pid=int(folder.name),
                    parent=int(fields[1]),
                    session=int(fields[3]),
                    started=int(fields[19]),
                )


def _is_gone(state: str, threads: int) -> bool:
    """Whether all of a process has ended: while a thread is left, so are its open sockets."""
    return state == "X" or (state == "Z" and threads <= 1)
