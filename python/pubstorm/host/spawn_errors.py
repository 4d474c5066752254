"""Explains failures to start a process or a thread, and a lack of memory: names the limit of the
host that was met, and the fix."""

from __future__ import annotations

import errno
import logging
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from pubstorm import output

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
