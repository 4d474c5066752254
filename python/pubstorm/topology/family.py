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
GONE = {"Z", "X"}


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
            if fields[0] not in GONE:
                yield Relative(
                    pid=int(folder.name),
                    parent=int(fields[1]),
                    session=int(fields[3]),
                    started=int(fields[19]),
                )
