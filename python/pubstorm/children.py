"""Child processes under asyncio: how their ends are noticed, how they get signals, and how what
they read is closed. It knows neither brokers nor engines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process


def watch_children_by_descriptor() -> None:
    """Has the running loop wait for each child process by a descriptor. Before Python 3.12 it would
    start a thread for each. May be called for each run of a series: to put another watcher in the
    place of one that waits for brokers would make it forget them."""
    if sys.version_info < (3, 12):
        present = asyncio.get_child_watcher()
        if isinstance(present, asyncio.PidfdChildWatcher) and present.is_active():
            return
        with contextlib.suppress(OSError):
            os.close(os.pidfd_open(os.getpid()))
            watcher = asyncio.PidfdChildWatcher()
            watcher.attach_loop(asyncio.get_running_loop())
            asyncio.set_child_watcher(watcher)


def signal_child(process: Process, number: signal.Signals) -> None:
    """Sends a child a signal; nothing where it is known to have ended. `Process.send_signal` would
    take the exit code of one that ended just now away from whoever waits for it. Until that one has
    it, the process id is nobody else's."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def close_stdin(process: Process) -> None:
    """Closes the pipe to a child that has ended. That it broke is no news then, but asyncio would
    complain of it on stderr where nobody asks."""
    if process.stdin is not None:
        process.stdin.close()
        with contextlib.suppress(OSError):
            await process.stdin.wait_closed()


def signal_session(process: Process, number: signal.Signals) -> None:
    """The same for a child that leads a session, with all in the session that are still of its
    process group."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
