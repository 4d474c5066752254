"""Child processes under asyncio: noticing their ends, sending them signals, closing their stdin."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_loop(play: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in a loop that waits for each child process by a descriptor. Before Python
    3.12 it would start a thread for each. Later loops of this process wait as Python has it."""
    if sys.version_info >= (3, 12):
        return asyncio.run(play)

    async def watched() -> T:
        with contextlib.suppress(OSError):
            os.close(os.pidfd_open(os.getpid()))
            watcher = asyncio.PidfdChildWatcher()
            watcher.attach_loop(asyncio.get_running_loop())
            asyncio.set_child_watcher(watcher)
        return await play

    usual = asyncio.get_child_watcher()
    try:
        return asyncio.run(watched())
    finally:
        asyncio.set_child_watcher(usual)


def signal_child(process: Process, number: signal.Signals) -> None:
    """Sends a child a signal, unless its end is known. `Process.send_signal` would take the exit
    code of a child that ended just now away from the task that waits for it. Until that task has
    the code, no other process gets the process id."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def close_stdin(process: Process) -> None:
    """Closes the pipe to a child that has ended. Reads the error of the broken pipe, which asyncio
    would otherwise print on stderr."""
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


def parent_death_prefix() -> tuple[str, ...]:
    """Puts a command under the kernel's parent-death signal, where util-linux has the tool."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()
