"""Processes that a run has left on this host: found by its record, and ended if they are surely its
own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pubstorm.errors import PubstormError
from pubstorm.host import proc
from pubstorm.topology.started import Started, is_marked, is_own, marked

GRACE_S = 5.0
"""Longest time that processes take to end after SIGTERM."""
KILL_GRACE_S = 5.0
"""Longest time until the kernel has ended a process after SIGKILL."""


@dataclass(frozen=True)
class Leftover:
    """A process that runs."""

    pid: int
    name: str
    """Name of the broker, or of the program that a broker has started."""
    is_ours: Callable[[], bool]
    """Returns True if it is surely still that process."""


def leftovers(folder: Path, record: Iterable[Started]) -> list[Leftover]:
    """Every process of a topology that is still there: brokers, and what they have started."""
    found: dict[int, Leftover] = {}
    for started in record:
        if started.kind == "process" and is_own(started, folder):
            is_ours = partial(is_own, started, folder)
            found[started.pid] = Leftover(started.pid, started.name, is_ours)
    for pid in marked(folder):
        if pid not in found and pid != os.getpid() and not _has_ended(pid):
            found[pid] = Leftover(pid, _program(pid), partial(is_marked, pid, folder))
    return list(found.values())


def end(processes: Iterable[Leftover], grace_s: float = GRACE_S) -> None:
    """Ends processes, with SIGTERM and after a grace with SIGKILL; raises PubstormError where one
    stays."""
    with contextlib.ExitStack() as held:
        # A descriptor stands for the process itself, even if a later process gets its number.
        there = {}
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(process.pid)
                held.callback(os.close, descriptor)
                if process.is_ours():
                    there[descriptor] = process
        left = dict(there)
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_GRACE_S)):
            for descriptor, process in left.items():
                _send(descriptor, process, signal.SIGCONT)
                _send(descriptor, process, number)
            left = _still_there(left, wait_s)
    if left:
        names = ", ".join(f"{process.name} (pid {process.pid})" for process in left.values())
        raise PubstormError(f"did not end after SIGKILL: {names}")


def _send(descriptor: int, process: Leftover, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        text = f"may not end {process.name} (pid {process.pid})"
        hint = "as the user who started the run, or as root: the same command"
        raise PubstormError(text, hint) from error


def _still_there(processes: dict[int, Leftover], wait_s: float) -> dict[int, Leftover]:
    """Returns the processes that have not ended after that time."""
    waiting = select.poll()
    for descriptor in processes:
        waiting.register(descriptor, select.POLLIN)
    left, deadline_s = dict(processes), time.monotonic() + wait_s
    while left and (remaining_s := deadline_s - time.monotonic()) > 0:
        for descriptor, _ in waiting.poll(remaining_s * 1000):
            waiting.unregister(descriptor)
            del left[descriptor]
    return left


def _has_ended(pid: int) -> bool:
    now = proc.stat(pid)
    return now is None or now.has_ended


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a process"
