"""Starts of `python -m pubstorm` without its imports. The first start of a test process makes a
zygote: a Python that has imported the program, and that is forked for each run."""

from __future__ import annotations

import atexit
import ctypes
import inspect
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("zygote_server.py")
LENGTH_BYTES = 4
AT_START = ("PYTHON", "PYDANTIC_", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "OPENSSL_", "TZ")
"""Beginnings of variables that a process reads as it starts: a run with others starts for real."""
PR_SET_CHILD_SUBREAPER = 36
RLIMITS = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})

_PRCTL = ctypes.CDLL(None, use_errno=True).prctl


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a process reads as it starts."""
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


@dataclass(frozen=True)
class Zygote:
    """A zygote of this process, which ends when this process has ended."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    owner: int
    """Process id of the one that started it: a fork of that process has no part in it."""
    at_start: Mapping[str, str]
    alone: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def started(cls) -> Zygote:
        """Starts one."""
        here, there = socket.socketpair()
        with there:
            process = subprocess.Popen(
                [sys.executable, str(SERVER), str(there.fileno()), "-" * 4096],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(there.fileno(),),
            )
        made = cls(process, here, os.getpid(), read_at_start(os.environ))
        atexit.register(made.end)
        return made

    def end(self) -> None:
        """Ends it, and waits for that. Does nothing in a fork of its owner."""
        if self.owner == os.getpid():
            self.control.close()
            self.process.wait()

    def fork(self, order: Mapping[str, Any], descriptors: tuple[int, int, int, int]) -> int:
        """Forks a run with stdin, stdout, stderr and folder; returns its process id.

        The run is forked twice, and this process adopts it as its nearest subreaper. A clone with
        CLONE_PARENT would need no adoption, but it skips the handlers of `pthread_atfork`: OpenSSL
        would then draw the same random numbers in each run.
        """
        text = json.dumps(order).encode()
        with self.alone:
            _PRCTL(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                length = len(text).to_bytes(LENGTH_BYTES, "big")
                socket.send_fds(self.control, [length], descriptors)
                self.control.sendall(text)
                answer = self.control.recv(64)
            finally:
                _PRCTL(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if not answer:
            raise ChildProcessError(f"the zygote has ended: {self.process.wait()}")
        return int(answer)


_made: list[Zygote] = []
_making = threading.Lock()


def zygote() -> Zygote:
    """The zygote of this process."""
    with _making:
        if not _made or _made[-1].owner != os.getpid():
            _made.append(Zygote.started())
        return _made[-1]


def can_fork(environment: Mapping[str, str] | None) -> bool:
    """True if a forked run sees what a started one would."""
    own = os.environ if environment is None else environment
    return read_at_start(own) == zygote().at_start and all(map(_is_open, (0, 1, 2)))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


class ForkedPopen(subprocess.Popen[Any]):
    """A run of `pubstorm` that is forked from the zygote. Its arguments are those of the program;
    it takes the streams, `cwd`, `env` and `start_new_session`."""

    def _execute_child(self, *given: Any) -> None:
        bound = _PARAMETERS.bind(self, *given).arguments
        cwd, env = bound["cwd"], bound["env"]
        order = {
            "words": [os.fspath(word) for word in bound["args"]],
            "environment": dict(os.environ if env is None else env),
            "is_leader": bool(bound["start_new_session"]),
            "umask": _umask(),
            "nice": os.getpriority(os.PRIO_PROCESS, 0),
            "processors": sorted(os.sched_getaffinity(0)),
            "limits": [[kind, *resource.getrlimit(kind)] for kind in RLIMITS],
            "ignored": [number for number in _CATCHABLE if _is_ignored(number)],
            "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "spent": os.environ.get("PUBSTORM_TESTS_SPENT"),
            "test": os.environ.get("PYTEST_CURRENT_TEST"),
        }
        streams = [bound[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        stdin, stdout, stderr = (n if given < 0 else given for n, given in enumerate(streams))
        folder = os.open("." if cwd is None else cwd, os.O_PATH | os.O_DIRECTORY)
        try:
            self.pid = zygote().fork(order, (stdin, stdout, stderr, folder))
        finally:
            os.close(folder)
            names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            _CLOSE(self, *(bound[name] for name in names))
        self._child_created = True


def _umask() -> int:
    """The mask, which `os.umask` reads only by changing it for all threads."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Umask:")), 8)


def _is_ignored(number: signal.Signals) -> bool:
    # Python ignores two signals for itself, and subprocess restores them in each child.
    is_own = number in {signal.SIGPIPE, signal.SIGXFSZ}
    return not is_own and signal.getsignal(number) is signal.SIG_IGN


_CATCHABLE = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_PARAMETERS = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
_CLOSE: Callable[..., None] = subprocess.Popen._close_pipe_fds  # type: ignore[attr-defined]
