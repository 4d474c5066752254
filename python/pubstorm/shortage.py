"""What it says of the host when a process cannot be started: which limit was met, and the fix. It
starts nothing."""

from __future__ import annotations

import errno

CANNOT_START = (OSError, RuntimeError)
"""What starting a process raises: the kernel's refusal, or Python's for lack of a thread."""


def start_failure(program: str, error: OSError | RuntimeError) -> tuple[str, str | None]:
    """Why a program did not start, in words, and what to do about it."""
    number = errno.EAGAIN if isinstance(error, RuntimeError) else error.errno
    reason = str(error) if isinstance(error, RuntimeError) else error.strerror
    what, hint = _LIMITS.get(number or 0, ("", None))
    met = f": this host met {what}" if what else ""
    return f"cannot start {program}: {reason}{met}", hint


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
