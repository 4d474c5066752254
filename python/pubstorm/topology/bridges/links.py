"""Links between brokers that can be cut, stalled and delayed: `pubstorm-proxy` as a child process,
and its commands and answers. The bridges that are up, as they report it: each keeps its state, 1 or
0, on a topic of the main broker, and one observer there follows all bridges of a name."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from pubstorm.contract import LATER, U64, Value
from pubstorm.contract.target import Target
from pubstorm.errors import TopologyError
from pubstorm.host.binaries import proxy_path
from pubstorm.host.children import CANNOT_START, close_stdin, end_by_stdin, start_failure
from pubstorm.host.machine import last_lines, start_piped
from pubstorm.host.sockets import LOOPBACK
from pubstorm.topology.observer import Follower, Login

LINE_BYTES_MAX = 4 << 20
"""Longest answer: room for the ports of half a million links."""
STOP_GRACE_S = 5.0
"""Longest time that the program takes to end after its stdin closes."""


@dataclass(frozen=True)
class LinkState:
    """State of a link: `pass`, `close` or `stall`."""

    mode: Literal["pass", "close", "stall"] = "pass"
    """`pass`: bytes pass. `close`: connections are reset and new ones refused. `stall`: nothing
    passes, and neither end learns of it."""
    delay_ns: int = 0
    """Delay in each direction, in nanoseconds; for `pass`."""


class OpenLinks(Value):
    """Open links to an address, each with a port of its own."""

    command: Literal["open"] = "open"
    name: str
    """Name that they have together."""
    to: str
    """Host and port at the end of the links."""
    count: U64
    """Number of links."""
    listen: str
    """Address that they listen on."""


class SetLinks(Value):
    """Change the state of links."""

    command: Literal["set"] = "set"
    name: str
    """Their name."""
    links: tuple[U64, ...]
    """Their numbers."""
    state: Literal["pass", "close", "stall"]
    """Their state from now on."""
    delay_ns: U64
    """Delay in each direction, in nanoseconds."""


class CountLinks(Value):
    """Say what has been counted."""

    command: Literal["count"] = "count"


class LinksOpened(Value):
    """Links are open."""

    kind: Literal["opened"] = "opened"
    name: str
    """Their name."""
    ports: tuple[U64, ...]
    """Port of each."""


class LinksSet(Value):
    """A state is in force."""

    kind: Literal["set"] = "set"
    name: str
    """Name of the links."""


class LinkCounts(Value):
    """Counts of the links of one name so far."""

    name: str
    """Their name."""
    open: U64
    """Connections that stand now."""
    accepted_total: U64
    """Connections accepted."""
    refused_total: U64
    """Accepted connections that the other end did not take."""
    out_bytes_total: U64
    """Bytes handed on from those that connect."""
    in_bytes_total: U64
    """Bytes handed on to them."""


class LinksCounted(Value):
    """The counts."""

    kind: Literal["counts"] = "counts"
    links: tuple[LinkCounts, ...]
    """By name, in the order of their opening."""


class LinksFailure(Value):
    """A command was not carried out."""

    kind: Literal["failure"] = "failure"
    message: str
    """Description of the failure."""
    hint: str
    """Hint for the user."""


Command = OpenLinks | SetLinks | CountLinks
Answer = LinksOpened | LinksSet | LinksCounted | LinksFailure
LINKS_COMMAND: TypeAdapter[Command] = TypeAdapter(
    Annotated[Command, Field(discriminator="command")], config=LATER
)
LINKS_ANSWER: TypeAdapter[Answer] = TypeAdapter(
    Annotated[Answer, Field(discriminator="kind")], config=LATER
)


class Links:
    """All links of a run. They end with it, however it ends."""

    def __init__(self, died: Callable[[str], None] | None = None) -> None:
        self._died = died
        self._log = Path()
        self._process: Process | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._talk = asyncio.Lock()

    def notify(self, died: Callable[[str], None]) -> None:
        """Calls `died` with a text if the program ends before it was stopped."""
        self._died = died

    @property
    def pid(self) -> int:
        """Process id of the program; 0 before the start."""
        return self._process.pid if self._process else 0

    async def start(self, folder: Path) -> None:
        """Starts the program, with its log in the folder; raises TopologyError where it does not
        start. Does nothing where it runs."""
        if self._process is not None:
            return
        program = str(proxy_path())
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TopologyError(f"links: cannot write {folder}: {error.strerror}") from error
        self._log = folder / "links.log"
        try:
            self._process = await start_piped([program], self._log, limit=LINE_BYTES_MAX)
        except CANNOT_START as error:
            text, hint = start_failure(program, error)
            raise TopologyError(f"links: {text}", hint) from error
        self._watcher = asyncio.create_task(self._watch(self._process))

    async def open(
        self, name: str, to: tuple[str, int], count: int, listen: str = LOOPBACK
    ) -> list[int]:
        """Opens links to a host and port; the port of each on the address `listen`. Raises
        TopologyError where that fails."""
        host, port = to
        end = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        answer = await self._ask(OpenLinks(name=name, to=end, count=count, listen=listen))
        assert isinstance(answer, LinksOpened), "each command has its answer"
        return list(answer.ports)

    async def set(self, name: str, numbers: Sequence[int], state: LinkState) -> None:
        """Puts links into a state, which is in force when it returns; raises TopologyError where
        that fails."""
        links, delay_ns = tuple(numbers), state.delay_ns
        await self._ask(SetLinks(name=name, links=links, state=state.mode, delay_ns=delay_ns))

    async def counts(self) -> tuple[LinkCounts, ...]:
        """Returns the counts by name, in the order of opening; raises TopologyError if the program
        has ended."""
        answer = await self._ask(CountLinks())
        assert isinstance(answer, LinksCounted), "each command has its answer"
        return answer.links

    async def stop(self) -> None:
        """Ends all connections and the program, which is gone when this returns. May be called
        twice, and before the start."""
        process = self._process
        if process is None:
            return
        if self._watcher is not None:
            self._watcher.cancel()
        await end_by_stdin(process, STOP_GRACE_S)

    async def _ask(self, command: Command) -> Answer:
        # A question whose asker is cancelled is answered all the same: to the end, then, lest the
        # next one takes its answer.
        answer = await asyncio.shield(asyncio.create_task(self._exchange(command)))
        if isinstance(answer, LinksFailure):
            raise TopologyError(f"links: {answer.message}", answer.hint)
        return answer

    async def _exchange(self, command: Command) -> Answer:
        process = self._process
        if process is None:
            raise TopologyError("links: their program was never started")
        assert process.stdin is not None and process.stdout is not None, "it is started with pipes"
        async with self._talk:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(f"{command.model_dump_json()}\n".encode())
                await process.stdin.drain()
            line = await process.stdout.readline()
        if not line:
            words = last_lines(self._log)
            hint = f"its log {self._log} ends with:\n{words}" if words else "start the run again"
            raise TopologyError(await self._ending(process), hint)
        try:
            return LINKS_ANSWER.validate_json(line)
        except ValidationError as error:
            text = f"links: {proxy_path()} does not speak our language: {line[:80]!r}"
            hint = "it has to be of the same version as pubstorm; unset PUBSTORM_PROXY"
            raise TopologyError(text, hint) from error

    async def _watch(self, process: Process) -> None:
        ending = await self._ending(process)
        if self._died is not None:
            self._died(ending)

    async def _ending(self, process: Process) -> str:
        code = await process.wait()
        await close_stdin(process)
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return f"links: pubstorm-proxy (pid {process.pid}) {how}; all bridges through it are down"


KEEP_ALIVE_S = 60
CHANGES_MAX = 100_000
"""Changes that wait to be read."""
SAME_NS = 10**6
"""Changes within this time are one reading."""


@dataclass(frozen=True, slots=True)
class WatchedBridges:
    """Bridges whose state is followed."""

    name: str
    """Name of the bridges."""
    count: int
    """Number of bridges, which count from 0."""
    topic: str
    """Filter of the topics of their states; the last level is the number."""
    target: Target
    """Address of the main broker for an observer."""
    login: Login
    """Login of the observer."""
    is_remembered: bool
    """True if the main broker keeps retained messages on a disk, also after a kill."""
    is_own: bool
    """True if the run started the main broker; then only the broker's end ends a connection."""


class BridgeStates(Follower):
    """The states of all bridges of a name. Its thread listens; the rest may be called from any
    other."""

    def __init__(self, watched: WatchedBridges) -> None:
        super().__init__(watched.name, watched.target, {watched.topic: 1}, watched.login)
        # A frozen broker of the run answers no ping, and continues later.
        self.keep_alive_s = 0 if watched.is_own else KEEP_ALIVE_S
        self.watched = watched
        self._lock = threading.Lock()
        self._up: set[int] = set()
        self._changes: deque[tuple[int, int]] = deque(maxlen=CHANGES_MAX)
        self._subscribed = threading.Event()

    def wait_until_listening(self, timeout_s: float) -> bool:
        """Returns True if the main broker takes the subscription within that time."""
        return self._subscribed.wait(timeout_s)

    @property
    def up(self) -> int:
        """Number of bridges that are up."""
        with self._lock:
            return len(self._up)

    def missing(self) -> Sequence[int]:
        """Returns the numbers of the bridges that are not up."""
        with self._lock:
            return [number for number in range(self.watched.count) if number not in self._up]

    def take_changes(self) -> list[tuple[int, int]]:
        """Returns the instants (monotonic, nanoseconds) since the last call at which the number of
        bridges that are up changed, each with that number."""
        with self._lock:
            changes, self._changes = list(self._changes), deque(maxlen=CHANGES_MAX)
        return changes

    def on_granted(self, granted: Sequence[bool]) -> None:
        """Begins to know the states, unless the subscription is refused."""
        self.problem = None
        super().on_granted(granted)
        if self.problem is None:
            self._subscribed.set()

    def on_away(self) -> None:
        """No bridge is known to be up while its main broker is away."""
        self._subscribed.clear()
        with self._lock:
            if self._up:
                self._up.clear()
                self._changes.append((time.monotonic_ns(), 0))

    def on_message(self, topic: str, payload: bytes, is_retained: bool) -> None:
        """Takes the state of a bridge."""
        at_ns = time.monotonic_ns()
        number = topic.rpartition("/")[2]
        if not payload:
            return
        if self.watched.is_remembered:
            # A state that is taken away is not there after a restart, when it holds no more.
            self.client.publish(topic, b"", retain=True)
        with self._lock:
            self.received_total += 1
            self.received_bytes += len(payload)
            if not number.isdecimal() or int(number) >= self.watched.count:
                return
            before = len(self._up)
            if payload != b"1":
                self._up.discard(int(number))
            elif not is_retained or self.subscriptions > 1:
                # Before the first subscription no bridge was started: an earlier run left it.
                self._up.add(int(number))
            if len(self._up) != before:
                if self._changes and at_ns - self._changes[-1][0] < SAME_NS:
                    self._changes.pop()
                self._changes.append((at_ns, len(self._up)))
