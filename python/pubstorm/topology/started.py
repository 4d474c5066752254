"""The record of what a run has started on this host, in its run directory: written before anything
can go wrong with it, so that `pubstorm down` can end what a run has left that was itself killed.
Boot, process id and start time say that a process is surely its own, since ids are used again."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import ValidationError

from pubstorm.contract import Value
from pubstorm.contract.target import Target
from pubstorm.errors import PubstormError, TopologyError
from pubstorm.files import content_of
from pubstorm.host import proc
from pubstorm.host.children import parent_death_prefix
from pubstorm.host.keys.files import PRIVATE_MODE

STARTED_FILE = "started.jsonl"
"""The record, in the folder of the topology."""
GUARD = 'read -r _ || exec "$@"'
"""Runs a command unless a line comes before the end of stdin."""
GUARD_END_S = 2.0
"""Longest time until the guard has ended."""
MARK = "PUBSTORM_TOPOLOGY"
"""Variable that every process of a topology inherits: the folder of the topology. It finds what
the brokers themselves have started."""


class Started(Value):
    """Something that a run has started or made on this host."""

    kind: Literal["run", "process", "namespace", "cgroup", "bridged"]
    """The run itself, a process of it, a network namespace, a cgroup, or a target elsewhere that
    its bridges are connected to."""
    name: str
    """Name of the broker or of the namespace, folder of the cgroup, or URL of the target."""
    boot: str = ""
    """The start of the kernel since which it exists."""
    pid: int = 0
    """Process id."""
    ticks: int = 0
    """Start of the process, in clock ticks since the boot."""
    session: int = 0
    """Session of the process."""
    command: tuple[str, ...] = ()
    """Command of the process. For a target: the command that reads the states that bridges
    published there."""


class StartRecord:
    """The record of an active run; every line is written as a whole. It is for its owner only,
    since commands of the scenario may hold secrets."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def mark(self) -> Mapping[str, str]:
        """Variables for every process of the run."""
        return {MARK: str(self._folder.absolute())}

    def open(self) -> None:
        """Makes the record and puts the run itself into it; raises TopologyError where it cannot
        be written."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / STARTED_FILE
            path.touch(mode=PRIVATE_MODE)
            self._file = path.open("ab", buffering=0)
            self._add(this_process())
        except OSError as error:
            text = f"cannot write {self._folder / STARTED_FILE}: {error.strerror}"
            raise TopologyError(text, "choose another place with --out") from error

    def guard(self) -> None:
        """Takes the run down, should this process be killed, as `pubstorm down` does: processes
        that a broker has started get no parent-death signal. Without a guard they are left."""
        run = self._folder.absolute().parent
        down = (sys.executable, "-m", "pubstorm", "down", str(run))
        with contextlib.suppress(OSError):
            self._guard = subprocess.Popen(
                [*parent_death_prefix(signal.SIGCONT), "sh", "-c", GUARD, "sh", *down],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def note_process(self, name: str, pid: int, command: Sequence[str]) -> None:
        """A process was started."""
        self._try_add(_process("process", name, pid, command))

    def note_namespace(self, name: str) -> None:
        """A network namespace is about to be made."""
        self._try_add(Started(kind="namespace", name=name, boot=boot_id()))

    def note_cgroup(self, folder: str) -> None:
        """A cgroup is about to be made."""
        self._try_add(Started(kind="cgroup", name=folder, boot=boot_id()))

    def note_bridged(self, target: Target, topic: str) -> None:
        """Notes that bridges will publish their states under `topic` at a target that is not the
        run's own."""
        command = _reading(target, topic)
        self._try_add(Started(kind="bridged", name=str(target), command=command))

    def close(self) -> None:
        """Closes the record. The file stays."""
        if self._guard is not None:
            try:
                self._guard.communicate(b"\n", GUARD_END_S)
            except subprocess.TimeoutExpired:
                self._guard.kill()
                self._guard.communicate()
            self._guard = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _try_add(self, started: Started) -> None:
        """A disk that has filled up meanwhile ends no run: processes die with it all the same."""
        with contextlib.suppress(OSError):
            self._add(started)

    def _add(self, started: Started) -> None:
        if self._file is not None:
            self._file.write(started.model_dump_json(exclude_defaults=True).encode() + b"\n")


def read_record(path: Path) -> tuple[Started, ...]:
    """Returns the entries of a record; a line that was cut off has none."""
    return tuple(_entries(path))


def is_alive(started: Started) -> bool:
    """Returns True if it is surely the same process that exists now."""
    now = proc.stat(started.pid)
    same = now is not None and now.started == started.ticks and not now.has_ended
    return same and started.boot == boot_id()


def is_own(started: Started, folder: Path) -> bool:
    """Returns True if an entry of the record in a folder names a process of that run, which is
    alive. A record proves nothing alone, since others may have written it: the run itself has the
    record open or is Pubstorm, and its processes have its mark or run the recorded program. Of
    another user's record, only that user's processes are."""
    if not is_alive(started) or not may_take_down(folder, started.pid):
        return False
    if started.kind == "run":
        record = folder / STARTED_FILE
        return proc.has_open(started.pid, record) or _PUBSTORM in _command(started.pid)
    return is_marked(started.pid, folder) or _runs(started.pid, started.command)


def reads_states(started: Started) -> bool:
    """Returns True for a target elsewhere, with the command that a run records for it."""
    with contextlib.suppress(ValueError, IndexError):
        _, _, host, _, port, _, topic = started.command
        command = _reading(Target(host=host, port=int(port)), topic)
        return started.kind == "bridged" and started.command == command
    return False


def _reading(target: Target, topic: str) -> tuple[str, ...]:
    """Returns the command that reads the states of bridges at a target."""
    return ("mosquitto_sub", "-h", target.host, "-p", str(target.port), "-t", topic)


def may_take_down(folder: Path, pid: int | None = None) -> bool:
    """Returns True if this user, root, or the owner of a process wrote the record in a folder."""
    with contextlib.suppress(OSError):
        owner = (folder / STARTED_FILE).lstat().st_uid
        allowed = {0, os.geteuid()}
        return owner in allowed or (pid is not None and owner == Path(f"/proc/{pid}").stat().st_uid)
    return False


def marked(folder: Path) -> Iterator[int]:
    """Process ids of everything that the brokers of a topology, or their children, have started;
    those that this user may not look into are left out."""
    yield from (pid for pid in proc.pids() if is_marked(pid, folder))


def is_marked(pid: int, folder: Path) -> bool:
    """Returns True if a process is a broker of a topology, or was started by one."""
    mark = f"{MARK}={folder.absolute()}".encode(errors="surrogateescape")
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _command(pid: int) -> bytes:
    """Returns the command line of a process; nothing if it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _runs(pid: int, command: Sequence[str]) -> bool:
    """Returns True if a process runs the program of a command: some take the mark out of their
    environment, or change their command line."""
    program = shutil.which(command[0]) if command else None
    with contextlib.suppress(OSError):
        return program is not None and Path(f"/proc/{pid}/exe").samefile(program)
    return False


def boot_id() -> str:
    """Returns the kernel's clock ticks of the process's start."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def this_process() -> Started:
    """The controller itself."""
    return _process("run", "pubstorm", os.getpid(), ())


_PUBSTORM = b"pubstorm"
"""Word in the command line of a controller."""


def _process(
    kind: Literal["run", "process"], name: str, pid: int, command: Sequence[str]
) -> Started:
    now = proc.stat(pid)
    return Started(
        kind=kind,
        name=name,
        boot=boot_id(),
        pid=pid,
        ticks=0 if now is None else now.started,
        session=0 if now is None else now.session,
        command=tuple(command),
    )


def _entries(path: Path) -> Iterator[Started]:
    try:
        lines = content_of(path).splitlines()
    except OSError:
        return
    for line in lines:
        with contextlib.suppress(ValidationError):
            yield Started.model_validate_json(line)


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
