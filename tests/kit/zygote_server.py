"""The zygote: imports what runs of `pubstorm` import, and is forked for each of them. It has no
thread and no open file but the socket on which its owner orders runs, and ends with its owner."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import resource
import runpy
import signal
import socket
import sys
import threading
import types
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

PROGRAM = "pubstorm"
IMPORTED = (
    *("cli.run", "cli.run", "cli.check", "cli.stored", "cli.compare", "cli.change", "cli.change"),
    *("play.record", "play.display.summary", "play.display.terminal", "host.keys.certificates"),
    *(
        "report.files",
        "report.of_run",
        "report.of_experiments",
        "report.of_experiments",
        "report.text",
    ),
    *("experiment.series", "experiment.search", "measure.monitors.prometheus"),
)
"""Modules that commands import as they are called."""
LENGTH_BYTES = 4
DESCRIPTORS = 4
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main() -> None:
    """Forks runs until the owner has ended. Returns in each run, which then is `pubstorm`."""
    control = socket.socket(fileno=int(sys.argv[1]))
    # A signal to a run that is not ready waits until the run is.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    before = set(os.environ)
    del sys.path[0]
    for module in IMPORTED:
        importlib.import_module(f"{PROGRAM}.{module}")
    # A run loads it with its first reading of connections, which takes 0.4 s of CPU time.
    importlib.import_module("pyroute2.netlink.diag")
    added = {name: os.environ[name] for name in set(os.environ) - before}
    gc.collect()
    gc.freeze()
    while (received := _received(control)) is not None:
        order, descriptors = received
        pid = _forked()
        if pid == 0:
            control.detach()
            order["environment"] = {**added, **order["environment"]}
            _become(order, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        control.sendall(str(pid).encode())
    os._exit(0)


def _received(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next order and its descriptors; None if the owner has ended."""
    head, descriptors, _, _ = socket.recv_fds(control, LENGTH_BYTES, DESCRIPTORS)
    while head and len(head) < LENGTH_BYTES:
        head += control.recv(LENGTH_BYTES - len(head))
    left, text = int.from_bytes(head, "big"), b""
    while left > len(text):
        text += (more := control.recv(left - len(text)))
        if not more:
            return None
    return (json.loads(text), list(descriptors)) if text else None


def _forked() -> int:
    """Process id of a grandchild, which the owner has adopted; 0 in the grandchild itself."""
    said, says = os.pipe()
    waits, go = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid:
            os.write(says, str(pid).encode())
            os._exit(0)
        os.close(go)
        os.read(waits, 1)
        return 0
    os.close(says)
    os.close(waits)
    pid = int(os.read(said, 64))
    os.waitpid(between, 0)
    os.close(said)
    os.close(go)
    return pid


def _become(order: dict[str, Any], descriptors: list[int]) -> None:
    """Gives this process what `subprocess` would give to a new one."""
    *streams, folder = descriptors
    os.fchdir(folder)
    # Both of these numbers can be targets of the other.
    copies = [_above(descriptor) for descriptor in streams]
    for number, copy in enumerate(copies):
        os.dup2(copy, number, inheritable=True)
    os.closerange(3, 1 << 16)
    if order["is_leader"]:
        os.setsid()
    os.umask(order["umask"])
    for kind, *limits in order["limits"]:
        if resource.getrlimit(kind) != tuple(limits):
            resource.setrlimit(kind, tuple(limits))
    os.nice(order["nice"] - os.getpriority(os.PRIO_PROCESS, 0))
    os.sched_setaffinity(0, order["processors"])
    os.environ.clear()
    os.environ.update(order["environment"])
    _open_streams()
    words = order["words"]
    sys.orig_argv = [sys.executable, "-m", PROGRAM, *words]
    sys.argv = ["-m", *words]
    sys.path.insert(0, str(Path.cwd()))
    sys.modules["__main__"] = types.ModuleType("__main__")
    _show_as(sys.orig_argv)
    if order["spent"] is not None:
        sys.addaudithook(_counter(order["spent"], order["test"]))
    _restore_signals(order)


def _above(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)


def _open_streams() -> None:
    """Opens the streams as Python does at its start [Python/pylifecycle.c, create_stdio]."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        buffer: Any = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115
        buffer.raw.name = f"<{name}>"
        stream = TextIOWrapper(
            buffer,
            old.encoding,
            old.errors,
            newline="\n",
            line_buffering=number == 2 or buffer.raw.isatty(),
            write_through=old.write_through,
        )
        stream.mode = "w" if number else "r"  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _restore_signals(order: dict[str, Any]) -> None:
    for number in HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in order["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, order["blocked"])


def _show_as(words: Sequence[str]) -> None:
    """Writes the command line for `ps` over that of the zygote. The kernel shows text up to the
    first zero byte if the last byte is another one [fs/proc/base.c, get_mm_cmdline]."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = " ".join(words).encode()[: end - start - 2]
    ctypes.memmove(start, text.ljust(end - start - 1, b"\0") + b".", end - start)


def _counter(path: str, test: str | None) -> Any:
    """An audit hook that notes each program that the run starts."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            note_start(path, test, started_program(arguments[1]))

    return note


def note_start(path: str, test: str | None, name: str) -> None:
    """Appends a start to the file of all starts, as one line of JSON."""
    line = json.dumps({"test": test, "started": name}) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def started_program(words: Sequence[str | bytes] | str | bytes) -> str:
    """The name of a program without the programs that wrap it."""
    listed = [words] if isinstance(words, (str, bytes)) else words
    left = [os.fsdecode(word) for word in listed]
    while left:
        name = Path(left[0]).name
        if name == "setpriv" and "--" in left:
            left = left[left.index("--") + 1 :]
        elif left[1:3] == ["netns", "exec"]:
            left = left[4:]
        elif name == "taskset":
            left = left[3:]
        elif left[3:4] == ["join-cgroup"]:
            left = left[5:]
        elif name == "env":
            left = [word for n, word in enumerate(left) if n and "=" not in word]
        else:
            return name
    return ""


def play() -> None:
    """Is `python -m pubstorm`."""
    try:
        runpy._run_module_as_main(PROGRAM)  # type: ignore[attr-defined]
        code: Any = 0
    except SystemExit as ended:
        code = ended.code or 0
    if isinstance(code, int):
        _end(code)
    sys.exit(code)


def _end(code: int) -> None:
    """Does what Python does at its end, but does not take apart all modules: that is most of the
    CPU of a short command. Returns if a stream is broken, and leaves the end to Python."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
    play()
