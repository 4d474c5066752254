"""Where agents run. `Fleet` owns what holds for every kind of agent: all said hello before it is
up, one ordered queue of events, exactly one last event for each agent, silence is noticed, stop
has a grace and close can be called twice. `Slot` is one agent's place and all that differs
between processes of this machine and others. It knows no stage and adds nothing up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import ValidationError

from pubstorm.control import (
    AGENT_LINE,
    ApplyChange,
    BeatAnswer,
    Bye,
    Close,
    EnterStage,
    Failure,
    Hello,
    Stop,
)
from pubstorm.errors import FleetError
from pubstorm.snapshot import Snapshot

HELLO_TIMEOUT_S = 30.0
"""How long an agent may take to its first line."""
EXIT_TIMEOUT_S = 5.0
"""How long an agent may take to exit after its last line."""


@dataclass(frozen=True)
class Frame:
    """A snapshot as it came."""

    snapshot: Snapshot
    line: bytes


@dataclass(frozen=True)
class Ended:
    """The last event of an agent."""

    agent: int
    how: Literal["bye", "exited", "silent", "broken"]
    """It said bye and exited with 0; exited otherwise; said nothing for too long; broke the
    contract."""
    text: str
    """What happened, naming the agent."""


FleetEvent = Frame | Ended


class Slot(Protocol):
    """One agent's place."""

    @property
    def name(self) -> str:
        """What the agent is called in messages."""

    @property
    def agents(self) -> int:
        """Of how many agents its hello tells: engines know of engines only."""

    async def spawn(self) -> None:
        """Starts the agent, or raises FleetError."""

    async def send(self, line: str) -> None:
        """Writes a line to it; nothing happens if it is gone."""

    async def line(self) -> bytes:
        """Its next line; empty when it has written its last."""

    async def wait(self) -> int:
        """Waits for its end; the exit code, negative for a signal."""

    def kill(self) -> None:
        """Ends it at once; nothing happens if it is gone."""

    def last_words(self) -> str:
        """The end of what it logged."""


class Fleet:
    """All agents of a run."""

    def __init__(
        self, slots: Sequence[Slot], emit: Callable[[FleetEvent], None], silence_s: float = 10.0
    ) -> None:
        self._slots = tuple(slots)
        self._emit = emit
        self._silence_s = silence_s
        self._stopping = False
        self._followers: dict[int, asyncio.Task[None]] = {}
        self._hellos: dict[int, asyncio.Future[Hello]] = {}

    @property
    def agents(self) -> int:
        """How many there are."""
        return len(self._slots)

    @property
    def alive(self) -> frozenset[int]:
        """Agents whose last event has not come."""
        return frozenset(a for a, task in self._followers.items() if not task.done())

    async def up(self, plan_line: str) -> tuple[Hello, ...]:
        """Starts every agent; returns when all said hello, else raises FleetError naming one."""
        loop = asyncio.get_running_loop()
        try:
            for agent, slot in enumerate(self._slots):
                await slot.spawn()
                self._hellos[agent] = loop.create_future()
                self._followers[agent] = asyncio.create_task(self._follow(agent))
            plans = [asyncio.create_task(slot.send(plan_line)) for slot in self._slots]
            try:
                return await self._greetings()
            finally:
                for plan in plans:
                    plan.cancel()
        except BaseException:
            await self.close()
            raise

    async def command(
        self,
        command: EnterStage | ApplyChange | Close | Stop,
        to: Collection[int] | None = None,
    ) -> None:
        """Sends a command to every agent that is left, or to these of them. After a stop they may
        be silent, as they are while their clients leave; who stops them sets them a limit."""
        self._stopping = self._stopping or isinstance(command, Stop)
        line = command.model_dump_json() + "\n"
        agents = self.alive if to is None else self.alive.intersection(to)
        await asyncio.gather(*(self._slots[agent].send(line) for agent in agents))

    def kill(self) -> None:
        """Ends every agent at once."""
        for agent in self.alive:
            self._slots[agent].kill()

    async def close(self) -> None:
        """Ends what is left. Every agent's last event has come when it returns."""
        self.kill()
        if self._followers:
            await asyncio.wait(self._followers.values())
        for hello in self._hellos.values():
            hello.exception()

    async def _greetings(self) -> tuple[Hello, ...]:
        hellos = self._hellos.values()
        done, waiting = await asyncio.wait(
            hellos, timeout=HELLO_TIMEOUT_S, return_when=asyncio.FIRST_EXCEPTION
        )
        for hello in done:
            hello.result()
        if waiting:
            slow = next(a for a, hello in self._hellos.items() if not hello.done())
            raise FleetError(
                f"{self._slots[slow].name} said nothing for {HELLO_TIMEOUT_S:.0f} s",
                self._slots[slow].last_words() or None,
            )
        return tuple(hello.result() for hello in hellos)

    async def _follow(self, agent: int) -> None:
        """Reads an agent to its end and emits its last event, whatever happens."""
        slot = self._slots[agent]
        reader = _Reader(agent, slot.agents)
        how: Literal["bye", "exited", "silent", "broken"] = "exited"
        text, hint = "was given up", ""
        try:
            while line := await self._line(agent):
                self._take(agent, reader.read(line), line)
            code = await asyncio.wait_for(slot.wait(), EXIT_TIMEOUT_S)
            how = "bye" if reader.bye and code == 0 else "exited"
            text, hint = _ending(code, reader.failure, slot.last_words())
        except TimeoutError:
            how, text = "silent", f"said nothing for {self._silence_s:.0f} s"
        except (ContractError, ValueError) as breach:
            how, text = "broken", f"broke the contract: {breach}"
        finally:
            slot.kill()
            await slot.wait()
            self._finish(Ended(agent, how, f"{slot.name} {text}"), hint)

    async def _line(self, agent: int) -> bytes:
        """An agent's next line, or TimeoutError. Before hello, `up` has its own limit."""
        slot, is_up = self._slots[agent], self._hellos[agent].done()
        try:
            return await asyncio.wait_for(slot.line(), self._silence_s if is_up else None)
        except TimeoutError:
            if not self._stopping:
                raise
            return await slot.line()

    def _take(self, agent: int, said: Hello | Snapshot | None, line: bytes) -> None:
        if isinstance(said, Hello):
            self._hellos[agent].set_result(said)
        elif said is not None:
            self._emit(Frame(said, line))

    def _finish(self, ended: Ended, hint: str) -> None:
        hello = self._hellos[ended.agent]
        if hello.done():
            self._emit(ended)
        else:
            hello.set_exception(FleetError(ended.text, hint or None))


class ContractError(Exception):
    """An agent said what it may not say there."""


class _Reader:
    """Checks the order of one agent's lines: hello, snapshots without a gap, bye or failure."""

    def __init__(self, agent: int, agents: int) -> None:
        self._agent = agent
        self._agents = agents
        self._greeted = False
        self._snapshots = 0
        self.bye = False
        self.failure: Failure | None = None

    def read(self, line: bytes) -> Hello | Snapshot | None:
        """What a line says, if it is more than a beat or the manner of the end."""
        try:
            said = AGENT_LINE.validate_json(line)
        except ValidationError as error:
            start = line[:200].decode(errors="replace").rstrip()
            raise ContractError(f"{error.errors()[0]['msg']} in {start!r}") from error
        if self.bye or self.failure:
            raise ContractError(f"a {said.kind} after the last line")
        if isinstance(said, BeatAnswer):
            return None
        if isinstance(said, Failure):
            self.failure = said
            return None
        self._check_place(said)
        return None if isinstance(said, Bye) else said

    def _check_place(self, said: Hello | Snapshot | Bye) -> None:
        if isinstance(said, Hello) == self._greeted:
            raise ContractError(f"{said.kind} where {'no ' * self._greeted}hello is due")
        if isinstance(said, Hello):
            self._greeted = True
            if (said.agent, said.agents) != (self._agent, self._agents):
                raise ContractError(f"it says that it is agent {said.agent} of {said.agents}")
            return
        number = said.snapshots if isinstance(said, Bye) else said.sequence
        if number != self._snapshots:
            raise ContractError(f"{said.kind} number {number} after {self._snapshots} snapshots")
        self.bye = isinstance(said, Bye)
        self._snapshots += isinstance(said, Snapshot)


def _ending(code: int, failure: Failure | None, last_words: str) -> tuple[str, str]:
    """How an agent ended, and a hint."""
    if failure is not None:
        return f"gave up: {failure.message}", failure.hint
    how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    return how, last_words
