"""Links between brokers that can be cut, stalled and delayed: `pubstorm-proxy` as a child process,
and its commands and answers."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from pubstorm.contract.value import LATER, U64, Value
from pubstorm.errors import TopologyError
from pubstorm.host.binaries import proxy_path
from pubstorm.host.children import close_stdin, end_by_stdin
from pubstorm.host.log_tail import last_lines, start_piped
from pubstorm.host.ports import LOOPBACK
from pubstorm.host.spawn_errors import CANNOT_START, start_failure

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
