"""A server as a child process: its folder, its log, its start, its end, and how it comes back. A
broker is one that clients connect to. It knows no kind of either; each file under `adapters` and
`services` says what one kind has of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from abc import ABC, abstractmethod
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pubstorm.children import signal_child
from pubstorm.errors import TopologyError
from pubstorm.keys.files import PRIVATE_MODE
from pubstorm.log_tail import last_lines, open_log
from pubstorm.monitor.login import Login
from pubstorm.scenario.topology import Federation
from pubstorm.shortage import CANNOT_START, start_failure
from pubstorm.topology.cluster import Cluster
from pubstorm.topology.family import Family
from pubstorm.topology.ports import LOOPBACK

STOP_GRACE_S = 5.0
"""How long a server may take to end after SIGTERM."""
READY_TIMEOUT_S = 15.0
"""How long a server may take until it accepts connections."""
PORT_TRIES = 5
"""Ports tried: another process may take one between its choice and its use."""
PROBE_AFTER_S, PROBE_AFTER_MAX_S = 0.01, 0.25
"""Waits between two looks whether it accepts connections; each is twice the one before."""


@dataclass(frozen=True)
class Place:
    """Where a server lives and what it is told."""

    name: str
    """Its name: that in the scenario and a number."""
    folder: Path
    """Its own folder: configuration, state, log."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings in its own words."""
    port: int | None = None
    """Where it has to listen; None: any free port."""
    binary: str | None = None
    """The program; None: the one that is installed."""
    command: Sequence[str] = ()
    """The whole command, for a program that nothing else is known of."""
    plugins: Sequence[str] = ()
    """Plugins of a broker that has some."""
    federation: Federation | None = None
    """Virtual hosts that it federates."""
    cluster: Cluster | None = None
    """The cluster that it is a node of."""
    is_under_tls: bool = False
    """Whether its settings put clients under TLS."""
    auth: str | None = None
    """URL of the store in which it looks up users; None: it lets everybody in."""
    trusted: Login | None = None
    """One more user, who may do everything: who observes it."""
    more: str = ""
    """Configuration that is appended as it stands: bridges."""
    host: str = LOOPBACK
    """Address that it listens on."""
    also_on: Sequence[str] = ()
    """More addresses that it listens on, on the same port: those of links to small brokers."""
    prefix: Sequence[str] = ()
    """What stands before the command: the way into a network namespace."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for its process and all that it starts."""
    note: Callable[[str, int, Sequence[str]], None] = lambda _name, _pid, _command: None
    """Hears of each process that is started for it: its name, process id and command."""


class ServerProcess(ABC):
    """A program as a child process with a folder and a log of its own. An adapter says which
    program it is, how it is configured and when it is ready."""

    noun: ClassVar[str] = ""
    """What it is, in words to the user."""
    kind: ClassVar[str] = ""
    has_helpers: ClassVar[bool] = False
    """Whether it may start processes of its own, which have to be gone with it."""
    says_taken: ClassVar[str] = "Address already in use"
    """What its log says where another process has its port."""
    dies_with_us: ClassVar[bool] = False
    """Whether it ends by itself when Pubstorm is gone; others get the parent-death signal."""
    stop_grace_s: ClassVar[float] = STOP_GRACE_S
    ready_timeout_s: float = READY_TIMEOUT_S

    def __init__(self, place: Place) -> None:
        self.place = place
        self.name = place.name
        self.folder = place.folder
        self.log = place.folder / f"{self.noun}.log"
        self.port = place.port or 0
        self.version = ""
        self._command: Sequence[str] = ()
        self._process: Process | None = None

    # What each adapter says of itself.

    @abstractmethod
    def program(self) -> str:
        """Path of the program; raises TopologyError where there is none."""

    @abstractmethod
    async def version_of(self, program: str) -> str:
        """The version that the program states; empty if it states none before it runs."""

    @abstractmethod
    def configure(self, program: str) -> Sequence[str]:
        """Chooses ports, writes the configuration into the folder, and returns the command."""

    def environment(self) -> Mapping[str, str]:
        """Variables that it gets beside ours."""
        return {}

    async def ready(self) -> bool:
        """Waits until it accepts connections; False where it ended or took too long."""
        return await self.accepts(self.port)

    def port_was_taken(self) -> bool:
        """Whether it ended because another process has its port."""
        return self.says_taken in self.log_text()

    def last_words(self) -> str:
        """What its log says of a start that failed; empty if it says nothing."""
        return last_lines(self.log)

    def not_ready(self) -> str:
        """What is missing where it took too long to become ready, as the end of a sentence."""
        return "accepted no connection"

    # What is the same for all.

    @property
    def host(self) -> str:
        """Address that it listens on."""
        return self.place.host

    @property
    def pid(self) -> int:
        """Its process id; 0 before the start."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Returns when it accepts connections; raises TopologyError if it does not come up."""
        program = self.program()
        self.make_folder()
        self.version = self.version or await self.version_of(program)
        prefix = () if self.dies_with_us else parent_death_prefix()
        for attempt in range(1, PORT_TRIES + 1):
            await self.spawn((*self.place.prefix, *prefix, *self.configure(program)))
            if await self.ready():
                return
            is_free_to_choose = self.place.port is None and attempt < PORT_TRIES
            if not (is_free_to_choose and self.gone() and self.port_was_taken()):
                raise await self.start_failure()

    async def restart(self) -> None:
        """Starts it again as it was, on the same port and with the state in its folder."""
        await self.spawn(self._command)
        if not await self.ready():
            raise await self.start_failure()

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal, if it is there."""
        if self._process is not None:
            signal_child(self._process, number)

    async def stop(self) -> bool:
        """Ends the server and all that it started: SIGTERM, then SIGKILL after a grace. Returns
        False if SIGKILL was needed."""
        process, in_order = self._process, True
        if process is None:
            return in_order
        family = Family(process.pid) if self.has_helpers else None
        if process.returncode is None:
            if family is not None:
                family.look()
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), self.stop_grace_s)
            except TimeoutError:
                in_order = False
                self.send(signal.SIGKILL)
                await process.wait()
        if family is not None:
            await family.end()
        return in_order

    async def ending(self) -> str:
        """Waits for its end and says how it came, naming it."""
        if self._process is None:
            return f"{self.noun} {self.name} was never started"
        code = await self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return f"{self.noun} {self.name} (pid {self.pid}) {how}"

    def gone(self) -> bool:
        """Whether the process has ended."""
        return self._process is not None and self._process.returncode is not None

    def make_folder(self) -> None:
        """Makes its folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused_folder(error) from error

    def write(self, file: str, text: str) -> Path:
        """Writes a file into its folder, for its owner only: it may hold passwords."""
        path = self.folder / file
        try:
            path.touch(mode=PRIVATE_MODE)
            path.write_text(text)
        except OSError as error:
            raise self._refused_folder(error) from error
        return path

    async def accepts(self, port: int) -> bool:
        """Waits until the port answers while the process is alive."""
        loop = asyncio.get_running_loop()
        deadline_s, wait_s = loop.time() + self.ready_timeout_s, PROBE_AFTER_S
        while not self.gone() and loop.time() < deadline_s:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, PROBE_AFTER_MAX_S)
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(self.host, port)
                writer.close()
                return not self.gone()
        return False

    async def start_failure(self) -> TopologyError:
        """Why it did not come up, with the end of its log."""
        if self.gone():
            text = await self.ending()
        else:
            text = f"{self.noun} {self.name} {self.not_ready()} for {self.ready_timeout_s:.0f} s"
            await self.stop()
        words = self.last_words()
        return TopologyError(text, f"its log {self.log} ends with:\n{words}" if words else None)

    def log_text(self) -> str:
        """Its log as far as it can be read."""
        try:
            return self.log.read_text(errors="replace")
        except OSError:
            return ""

    async def spawn(self, command: Sequence[str]) -> None:
        """Starts the process in a session of its own, so that a Ctrl-C at the terminal does not
        reach it; with pipes as stdin and stdout if it follows us. The parent-death signal is that
        of the thread that forks, which has to be the main one: asyncio forks where its loop is."""
        self._command, talks = command, self.dies_with_us
        with open_log(self.log) as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=PIPE if talks else DEVNULL,
                    stdout=PIPE if talks else log or DEVNULL,
                    stderr=log or DEVNULL,
                    env={**os.environ, **self.place.environment, **self.environment()},
                    start_new_session=True,
                )
            except CANNOT_START as error:
                text, hint = start_failure(command[0], error)
                raise TopologyError(f"{self.noun} {self.name}: {text}", hint) from error
        self.place.note(self.name, self._process.pid, command)

    def _refused_folder(self, error: OSError) -> TopologyError:
        text = f"{self.noun} {self.name}: cannot write {self.folder}: {error.strerror}"
        return TopologyError(text)


class BrokerProcess(ServerProcess):
    """A broker as a child process."""

    noun: ClassVar[str] = "broker"
    speaks_sys: ClassVar[bool] = False
    """Whether it publishes counters under `$SYS`."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.observer_port = self.port
        """Where monitors find it."""

    @property
    def metrics_url(self) -> str | None:
        """Where it shows counters in Prometheus' format; None if it does not."""
        return None


def parent_death_prefix() -> tuple[str, ...]:
    """Puts a command under the kernel's parent-death signal, where util-linux has the tool."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()
