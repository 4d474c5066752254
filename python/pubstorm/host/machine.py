"""Machines that a run starts servers on. This one is `HERE`; on another one, a deputy starts them
on its own, and `deputy/remote` asks the deputy."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Protocol

from pubstorm.errors import TopologyError
from pubstorm.host.children import close_stdin, parent_death_prefix, signal_child
from pubstorm.host.log_tail import open_log
from pubstorm.host.ports import LOOPBACK, free_port, is_free
from pubstorm.host.process_tree import ProcessTree
from pubstorm.host.programs import find
from pubstorm.host.spawn_errors import CANNOT_START, start_failure


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
        self, *words: str, text: str = "", environment: Mapping[str, str] | None = None
    ) -> str:
        """Returns the stdout of a command, which gets a text as stdin; empty if it does not
        start."""

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
        self, *words: str, text: str = "", environment: Mapping[str, str] | None = None
    ) -> str:
        """Returns the stdout of a command."""
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=PIPE if text else DEVNULL,
                stdout=PIPE,
                stderr=DEVNULL,
                env={**os.environ, **(environment or {})},
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
                    start_new_session=True,
                    preexec_fn=self._before_exec,
                )
            except CANNOT_START as error:
                raise TopologyError(*start_failure(order.words[0], error)) from error
        return LocalChild(process)


HERE = LocalMachine()
"""This machine, on its loopback address."""
