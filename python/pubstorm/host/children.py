"""Child processes under asyncio: noticing their ends, sending them signals, closing their stdin.
The priority of their parent above them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import threading
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar, TypeVarTuple, Unpack

from pubstorm.host.ends import CLOSE_S, killed

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
RAISED_NICE = -10
"""Nice value of a thread that runs before the processes it starts, where it may have one below
zero."""


def run_loop(play: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in a loop that waits for each child process by a descriptor. Before Python
    3.12 it would start a thread for each. Loops of several threads may run at once. Later loops of
    this process wait as Python has it."""
    if sys.version_info >= (3, 12) or not _has_descriptors():
        return asyncio.run(play)
    with _watching:
        if not _loops:
            _usual[:] = [asyncio.get_child_watcher()]
            asyncio.set_child_watcher(_Watcher())
        _loops.append(1)
    try:
        return asyncio.run(play)
    finally:
        with _watching:
            _loops.pop()
            if not _loops:
                asyncio.set_child_watcher(_usual.pop())


def _has_descriptors() -> bool:
    """Returns True if the kernel has descriptors of processes."""
    with contextlib.suppress(OSError):
        os.close(os.pidfd_open(os.getpid()))
        return True
    return False


if sys.version_info < (3, 12):

    class _Watcher(asyncio.AbstractChildWatcher):
        """Waits for a child in the loop that started the child, as Python 3.12 does. The watcher of
        Python 3.11 belongs to one loop of the process."""

        def attach_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
            """Does nothing: each child has the loop that started it."""

        def close(self) -> None:
            """Does nothing."""

        def is_active(self) -> bool:
            """Returns True: any running loop will do."""
            return True

        def __enter__(self) -> _Watcher:
            return self

        def __exit__(self, *_error: object) -> None:
            """Does nothing."""

        def add_child_handler(
            self, pid: int, callback: Callable[[int, int, Unpack[Ts]], object], *args: *Ts
        ) -> None:
            """Calls `callback` with process id, exit code and `args` once the child has ended."""
            loop, descriptor = asyncio.get_running_loop(), os.pidfd_open(pid)

            def ended() -> None:
                loop.remove_reader(descriptor)
                os.close(descriptor)
                code = 255
                with contextlib.suppress(ChildProcessError):
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                callback(pid, code, *args)

            loop.add_reader(descriptor, ended)

        def remove_child_handler(self, _pid: int) -> bool:
            """Returns False: no handler is removed."""
            return False


_watching = threading.Lock()
_loops: list[int] = []
"""One entry for each loop that runs."""
_usual: list[Any] = []
"""The watcher of the process, for its other loops."""


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
        # Another process may hold the other end of the pipe.
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await process.stdin.wait_closed()


async def end_by_stdin(process: Process, grace_s: float) -> None:
    """Closes the stdin of a child that ends with it, and kills the child after a grace period."""
    assert process.stdin is not None, "it is started with a pipe as stdin"
    process.stdin.close()
    try:
        async with asyncio.timeout(grace_s):
            await process.wait()
    except TimeoutError:
        signal_child(process, signal.SIGKILL)
        await killed(process)
    await close_stdin(process)


def signal_session(process: Process, number: signal.Signals) -> None:
    """The same for a child that leads a session, with all in the session that are still of its
    process group."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def parent_death_prefix(number: signal.Signals = signal.SIGKILL) -> tuple[str, ...]:
    """Puts a command under the kernel's parent-death signal, where util-linux has the tool. A
    process that ends with its stdin gets SIGCONT, lest it is stopped."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", number.name.removeprefix("SIG"), "--") if setpriv else ()


@contextlib.contextmanager
def raised_priority() -> Iterator[None]:
    """Lets this thread run before the agents and brokers of a full host, which would delay
    commands, answers and display by many seconds. Threads and processes that it starts keep the
    usual priority. A priority that the user has chosen stays."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    if usual != 0:
        yield
        return
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, RAISED_NICE)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, usual)
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
