"""Child processes under asyncio: the paths of their programs, their ends, signals and stdin, and
the priority of their parent above them. If the host cannot give a process, a thread or memory, the
error names the limit that was met, and the fix."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import shutil
import signal
import sys
import threading
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple, Unpack

from pubstorm import output
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


MORE_FOLDERS = "/usr/sbin:/usr/local/sbin:/usr/bin"
"""Folders outside a user's PATH where Debian has brokers."""
NOT_WRAPPED = {"rabbitmq-server": "/usr/lib/rabbitmq/bin"}
"""Folders of programs that Debian has a wrapper for in the PATH, which changes the user."""


def find(program: str) -> str | None:
    """Returns the path of a program; None if it is not installed."""
    real = shutil.which(program, path=NOT_WRAPPED.get(program, ""))
    return real or shutil.which(program) or shutil.which(program, path=MORE_FOLDERS)


USED_UP = 0.9
"""Share of a limit above which the limit explains a failure."""
CANNOT_START = (OSError, RuntimeError)
"""Errors of starting a process: the kernel's refusal, or Python's for lack of a thread."""


def start_failure(program: str, error: OSError | RuntimeError) -> tuple[str, str | None]:
    """The reason why a program did not start, in words, and the remedy."""
    number = errno.EAGAIN if isinstance(error, RuntimeError) else error.errno
    reason = str(error) if isinstance(error, RuntimeError) else error.strerror
    what, hint = _LIMITS.get(number or 0, ("", None))
    met = f": this host met {what}" if what else ""
    return f"cannot start {program}: {reason}{met}", hint


def thread_lack(words: str) -> str | None:
    """The limit that a program met, from its message about a thread that did not start, and the
    remedy; None for other messages."""
    if "thread" not in words or "Resource temporarily unavailable" not in words:
        return None
    what, hint = _LIMITS[errno.EAGAIN]
    return f"cannot start a thread: this host met {what}\n{hint}"


def lack_of(error: BaseException) -> tuple[str, str] | None:
    """The lack of the host that ended this program, and the remedy; None if the error and its
    causes have another reason."""
    for each in _causes(error):
        if isinstance(each, RuntimeError) and "start new thread" in str(each):
            what, hint = _LIMITS[errno.EAGAIN]
            return f"cannot start a thread: this host met {what}, or a lack of memory", (
                f"{hint}; ulimit -v unlimited"
            )
        if isinstance(each, MemoryError) or _maps_nothing(each):
            what, hint = _LIMITS[errno.ENOMEM]
            return f"cannot continue: this process met {what}", f"ulimit -v unlimited; {hint}"
    if _address_space_is_used_up():
        what, hint = _LIMITS[errno.ENOMEM]
        text = f"cannot continue: this process met {what} ({type(error).__name__}: {error})"
        return text, f"ulimit -v unlimited; {hint}"
    return None


def report_lacks() -> None:
    """Reports a lack of memory or threads in one line where Python would print a traceback: in
    threads, in finalizers and in tasks."""
    thread_hook, finalizer_hook = threading.excepthook, sys.unraisablehook

    def in_thread(arguments: threading.ExceptHookArgs) -> None:
        if not _reported(arguments.exc_value):
            thread_hook(arguments)

    def in_finalizer(arguments: sys.UnraisableHookArgs) -> None:
        if not _reported(arguments.exc_value):
            finalizer_hook(arguments)

    def in_log(record: logging.LogRecord) -> bool:
        return record.exc_info is None or not _reported(record.exc_info[1])

    threading.excepthook, sys.unraisablehook = in_thread, in_finalizer
    logging.getLogger("asyncio").addFilter(in_log)


def _reported(error: BaseException | None) -> bool:
    """Writes a line about a lack. Returns True if there is one."""
    if error is None or (lack := lack_of(error)) is None:
        return False
    if lack[0] not in _reported_lacks:
        _reported_lacks.add(lack[0])
        output.warn(f"! {lack[0]}")
    return True


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _address_space_is_used_up() -> bool:
    """Returns True if the process is near its `ulimit -v`: libraries then fail in ways of their
    own."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return False
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize() > USED_UP * limit


def _maps_nothing(error: BaseException) -> bool:
    """Returns True if a file, such as a library, could not be mapped into memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    words = ("failed to map segment", "cannot allocate memory")
    return isinstance(error, ImportError) and any(each in str(error).lower() for each in words)


_reported_lacks: set[str] = set()
"""Lacks that were reported."""
_LIMITS: dict[int, tuple[str, str | None]] = {
    errno.EAGAIN: (
        "its limit of processes and threads",
        "ulimit -u unlimited; sysctl kernel.threads-max kernel.pid_max; a container has pids.max; "
        "`pubstorm check` says how many are needed",
    ),
    errno.ENOMEM: (
        "a lack of memory",
        "play fewer clients, or give the host more memory; `pubstorm check` says how much",
    ),
    errno.EMFILE: (
        "the limit of open files of this process",
        "ulimit -n 65536; `pubstorm check` says how many are needed",
    ),
    errno.ENFILE: (
        "the limit of open files of the system",
        "sysctl -w fs.file-max=1000000; `pubstorm check` says how many are needed",
    ),
}
