"""Machines that a run starts servers on: this one is `HERE`; on another one, a deputy starts them
(`deputy/remote`). A label of a cluster chooses a host, or it is the controller's own. Log files
stay open so that a full disk stops no process."""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import BinaryIO, Protocol

from pubstorm.errors import TopologyError
from pubstorm.host.children import (
    CANNOT_START,
    close_stdin,
    find,
    parent_death_prefix,
    signal_child,
    start_failure,
    thread_lack,
)
from pubstorm.host.counters import KernelCounters
from pubstorm.host.members import Processes, ProcessTree
from pubstorm.host.sockets import LOOPBACK, free_port, is_free

TAIL_BYTES = 65536
LINE_BYTES_MAX = 1 << 16
"""Longest line of a program, unless it is allowed more."""
_PANIC = re.compile(r"panicked at [^\n]*\n([^\n]+)")


@contextmanager
def open_log(path: Path) -> Iterator[BinaryIO | None]:
    """The file, open for appending; None if it cannot be made."""
    try:
        file = path.open("ab")
    except OSError:
        yield None
        return
    with file:
        yield file


async def start_piped(
    words: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    limit: int = LINE_BYTES_MAX,
    directory: Path | None = None,
) -> Process:
    """Starts a program with pipes as stdin and stdout, and with its stderr in a log. It gets a
    session of its own, so that a Ctrl-C at the terminal does not reach it. Raises one of
    CANNOT_START. `limit`: longest line that can be read; `directory`: the one that it starts in."""
    with open_log(log) as file:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=PIPE,
            stdout=PIPE,
            stderr=file or DEVNULL,
            limit=limit,
            cwd=directory,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )


def last_lines(path: Path, lines: int = 5) -> str:
    """The last lines of a log that say anything; empty if there are none. Of a Rust program that
    panicked, what it said, without the backtrace."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    if (panic := _PANIC.search(text)) is not None:
        if (lack := thread_lack(panic[1])) is not None:
            return lack
        return f"internal error: {panic[1]}"
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


@dataclass(frozen=True)
class Order:
    """A server to start."""

    words: Sequence[str]
    """Program and arguments."""
    folder: Path
    """Its folder, with its configuration. Other files that it reads are beside the folder."""
    log: Path
    """File for what it logs."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Its variables beside those of its machine."""
    talks: bool = False
    """True if it gets pipes as stdin and stdout, and ends with its stdin."""
    directory: Path | None = None
    """Directory that it starts in, on this machine; None: that of Pubstorm."""


class Child(Protocol):
    """A server that was started."""

    @property
    def pid(self) -> int:
        """Its process id on its machine."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, or its signal as a negative number; None while it runs."""

    @property
    def lost(self) -> str:
        """Why its end is not known; empty if it is, or if the process runs."""

    async def wait(self) -> int:
        """Its exit code."""

    async def line(self) -> bytes:
        """The next line of its stdout; empty after the last."""

    def signal(self, number: Signals) -> None:
        """Sends it a signal, if it runs."""

    def signal_tree(self, number: Signals) -> None:
        """Sends a signal to it and to all that it has started."""

    async def listens(self, port: int) -> bool:
        """Returns False if it does not listen on a port, and neither does what it has started."""

    async def look(self) -> None:
        """Notes what it has started, while it runs."""

    async def end_rest(self) -> None:
        """Ends what is left of that, after its own end."""


class Machine(Protocol):
    """A machine that servers are started on."""

    @property
    def is_here(self) -> bool:
        """True if it is the controller's own."""

    @property
    def address(self) -> str:
        """Address that servers listen on."""

    @property
    def is_root(self) -> bool:
        """True if its processes run as root."""

    async def find(self, program: str) -> str | None:
        """Returns the path of an installed program; None if there is none."""

    async def free_port(self, address: str = "") -> int:
        """Returns a port that is free, on its address unless another is given."""

    async def is_free(self, port: int) -> bool:
        """Returns True if a server could listen on a port."""

    async def output(
        self,
        *words: str,
        text: str = "",
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> str:
        """Returns the stdout of a command, which gets a text as stdin and starts in a directory of
        this machine; empty if it does not start."""

    async def spawn(self, order: Order) -> Child:
        """Starts a server, or raises TopologyError. The server ends with the controller."""


class LocalChild:
    """A child process of this one."""

    lost = ""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._tree = ProcessTree(process.pid)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Its exit code."""
        return await self._process.wait()

    async def line(self) -> bytes:
        """The next line of its stdout."""
        assert self._process.stdout is not None, "it is started with pipes"
        return await self._process.stdout.readline()

    def signal(self, number: Signals) -> None:
        """Sends it a signal."""
        signal_child(self._process, number)

    def signal_tree(self, number: Signals) -> None:
        """Sends a signal to all of its process tree."""
        self._tree.send(number)

    async def listens(self, port: int) -> bool:
        """Returns False if nothing of its process tree listens on a port."""
        return await asyncio.to_thread(self._tree.listens, port)

    async def look(self) -> None:
        """Notes its process tree."""
        self._tree.look()

    async def end_rest(self) -> None:
        """Ends what is left of its process tree."""
        await self._tree.end()


class LocalMachine:
    """This machine."""

    is_here = True

    def __init__(
        self, address: str = LOOPBACK, before_exec: Callable[[], None] | None = None
    ) -> None:
        """`before_exec` is called in each new process, in place of the parent-death signal."""
        self.address = address
        self._before_exec = before_exec

    @property
    def is_root(self) -> bool:
        """True if this process runs as root."""
        return os.geteuid() == 0

    async def find(self, program: str) -> str | None:
        """Returns the path of an installed program."""
        return find(program)

    async def free_port(self, address: str = "") -> int:
        """Returns a port that is free."""
        return free_port([address or self.address])

    async def is_free(self, port: int) -> bool:
        """Returns True if a server could listen there."""
        return is_free(port, self.address)

    async def output(
        self,
        *words: str,
        text: str = "",
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> str:
        """Returns the stdout of a command."""
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=PIPE if text else DEVNULL,
                stdout=PIPE,
                stderr=DEVNULL,
                env={**os.environ, **(environment or {})},
                cwd=directory,
                preexec_fn=self._before_exec,
            )
        except CANNOT_START:
            return ""
        answer, _ = await process.communicate(text.encode() if text else None)
        await close_stdin(process)
        return answer.decode(errors="replace")

    async def spawn(self, order: Order) -> LocalChild:
        """Starts the process in a session of its own, so that a Ctrl-C at the terminal does not
        reach it. The parent-death signal is that of the thread that forks, which has to be the main
        one: asyncio forks where its loop is."""
        prefix = () if order.talks or self._before_exec else parent_death_prefix()
        with open_log(order.log) as log:
            try:
                process = await asyncio.create_subprocess_exec(
                    *prefix,
                    *order.words,
                    stdin=PIPE if order.talks else DEVNULL,
                    stdout=PIPE if order.talks else log or DEVNULL,
                    stderr=log or DEVNULL,
                    env={**os.environ, **order.environment},
                    cwd=order.directory,
                    start_new_session=True,
                    preexec_fn=self._before_exec,
                )
            except CANNOT_START as error:
                raise TopologyError(*start_failure(order.words[0], error)) from error
        return LocalChild(process)


HERE = LocalMachine()
"""This machine, on its loopback address."""


class WatchedMachine(Machine, Processes, Protocol):
    """Another machine, which monitors can look at."""

    def counters(self) -> KernelCounters:
        """Returns the counters of its kernel."""


class Hosts(Protocol):
    """The hosts of a run's servers."""

    @property
    def are_here(self) -> bool:
        """True if every server is on the controller's host, on its loopback address."""

    @property
    def watched(self) -> Collection[str]:
        """Labels of hosts without servers that are watched too."""

    @property
    def others(self) -> Sequence[WatchedMachine]:
        """The machines besides the controller's, once they are open."""

    async def open(self, wanted: Mapping[str, int]) -> None:
        """Makes as many hosts of each label ready as servers need at most, besides those that are
        ready. Raises PubstormError if no host has a label."""

    def machine(self, label: str | None, number: int) -> Machine:
        """Returns the machine of a server: in turn the hosts of its label, or the controller's."""

    async def close(self) -> None:
        """Gives all hosts back; nothing is left on them. It can be called twice."""


class OneHost:
    """The controller's host. Labels choose nothing here."""

    are_here = True
    watched: Collection[str] = ()
    others: Sequence[WatchedMachine] = ()

    async def open(self, wanted: Mapping[str, int]) -> None:
        """Does nothing: this host is ready."""

    def machine(self, label: str | None, number: int) -> Machine:  # noqa: ARG002
        """This machine."""
        return HERE

    async def close(self) -> None:
        """Does nothing: no host is held."""
