"""One agent in one place, from its start to its last event, of which there is exactly one; and the
interface to a place: a process of this machine, or one elsewhere. Timeouts of agents, and the
watchdog that measures their silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from pydantic import ValidationError

from pubstorm.contract.commands import (
    AGENT_LINE,
    Beat,
    BeatAnswer,
    Bye,
    Failure,
    Hello,
    Stop,
)
from pubstorm.contract.snapshot import Snapshot
from pubstorm.errors import FleetError

LOOK_S = 0.5
"""Longest time of one look at a silent agent."""
LATE_S = 0.1
"""Delay of a look that still counts in full."""


class SlotLostError(FleetError):
    """A place cannot be reached any more, so that the state of its agent is not known."""


class Slot(Protocol):
    """One agent's place. A call that goes to another host may take for ever: who calls sets it a
    limit."""

    @property
    def name(self) -> str:
        """Name of the agent in messages, with its host if that is another one."""

    @property
    def host(self) -> str:
        """Address of its host; empty: this one."""

    @property
    def agents(self) -> int:
        """Number of agents in its hello: engines count engines only."""

    async def spawn(self) -> None:
        """Starts the agent, or raises FleetError; SlotLostError where the place is gone."""

    async def send(self, line: str) -> None:
        """Writes a line to it; nothing happens if it is gone."""

    async def line(self) -> bytes:
        """Its next line; empty when it has written its last. Raises SlotLostError."""

    async def wait(self) -> int:
        """Waits for its end; the exit code, negative for a signal. Raises SlotLostError."""

    def kill(self) -> None:
        """Ends it at once; nothing happens if it is gone."""

    def last_words(self) -> str:
        """The end of what it logged."""


@dataclass(frozen=True)
class Timeouts:
    """Timeouts of agents, in seconds."""

    silence_s: float = 10.0
    """Without a snapshot."""
    beat_s: float | None = None
    """Interval of beats, which agents answer; None for no beats."""
    lost_s: float = 3.5
    """Without any line, where they get beats."""
    start_delay_s: float = 0.1
    """From a command to the instant at which it takes effect, so that it has reached them all."""
    connect_delay_s: float = 0.02
    """The same for a connect stage, which schedules no message."""
    hello_s: float = 30.0
    """To the first line, from the start of the program on."""
    answer_s: float = 5.0
    """For everything else that is asked of a place: to take a line, to end."""
    replace_s: float = 60.0
    """Until a failed agent has another place."""

    @property
    def start_delay_ns(self) -> int:
        """The start delay in nanoseconds."""
        return round(self.start_delay_s * 1e9)

    @property
    def connect_delay_ns(self) -> int:
        """The start delay of a connect stage in nanoseconds."""
        return round(self.connect_delay_s * 1e9)


class Watchdog:
    """Measures the silence of an agent. Its time stands still while this process is held up and
    receives nothing."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._now_s = 0.0
        self._line_s = 0.0
        self._snapshot_s = 0.0
        self._greeted = False
        self._stop_s: float | None = None
        """Time that it has to stop, from its last progress on; None before the command."""
        self._moved_s = 0.0

    def on_line(self, *, is_report: bool) -> None:
        """Takes note of a line; `is_report`: a hello or a snapshot."""
        self._line_s = self._now_s
        if is_report:
            self._greeted = True
            self._snapshot_s = self._now_s

    def stop(self, limit_s: float) -> None:
        """Takes note of the command to stop, and of the time that the agent has for that."""
        self._stop_s = limit_s
        self.on_progress()

    def on_progress(self) -> None:
        """Takes note that a part of its clients has left: the time to stop begins anew."""
        self._moved_s = self._now_s

    def wait(self, took_s: float, asked_s: float) -> None:
        """Adds a wait for a line: the time that it took, and the time that was asked for."""
        self._now_s += min(took_s, asked_s + LATE_S)

    def look_s(self) -> float:
        """Returns the time to wait for a line until the next look."""
        left_s = [limit_s - self._now_s for limit_s, _, _ in self._limits()]
        return max(0.0, min([LOOK_S, *left_s]))

    def complaint(self) -> tuple[Literal["silent", "lost"], str] | None:
        """Returns the complaint about an agent that was silent for too long; None if it may
        continue."""
        over = (limit for limit in self._limits() if limit[0] <= self._now_s)
        found = min(over, default=None)
        return None if found is None else found[1:]

    def _limits(self) -> list[tuple[float, Literal["silent", "lost"], str]]:
        """Returns the limits: the instant up to which it may be silent, the kind of its end after
        that, and the words. One that stops may leave snapshots out: its clients leave slowly."""
        timeouts = self._timeouts
        if not self._greeted:
            return [(timeouts.hello_s, "silent", f"said nothing for {timeouts.hello_s:g} s")]
        limits: list[tuple[float, Literal["silent", "lost"], str]] = []
        if timeouts.beat_s is not None:
            text = f"has not answered for {timeouts.lost_s:g} s"
            limits.append((self._line_s + timeouts.lost_s, "lost", text))
        if self._stop_s is None:
            text = f"sent no snapshot for {timeouts.silence_s:g} s"
            limits.append((self._snapshot_s + timeouts.silence_s, "silent", text))
        else:
            text = "did not stop in time and was killed"
            limits.append((self._moved_s + self._stop_s, "silent", text))
        return limits


How = Literal["bye", "exited", "silent", "broken", "lost"]
BEAT = Beat().model_dump_json() + "\n"
STOP = Stop().model_dump_json() + "\n"


@dataclass(frozen=True)
class SnapshotReceived:
    """A snapshot as it came."""

    snapshot: Snapshot
    line: bytes


@dataclass(frozen=True)
class Ended:
    """The last event of an incarnation of an agent."""

    agent: int
    how: How
    """The manner of the end: said bye, after which nothing but another exit code than 0 is a
    failure; exited otherwise; was silent for too long; broke the contract; cannot be reached, so
    that its state is not known."""
    text: str
    """The end in words, with the name of the agent."""
    incarnation: int = 0
    """Number of incarnations of this agent before."""


FleetEvent = SnapshotReceived | Ended


class _End(NamedTuple):
    how: How
    text: str
    hint: str = ""
    error: FleetError | None = None
    """Why it did not even start."""
    code: int = 0
    """Its exit code, where it has one."""


GIVEN_UP = _End("exited", "was given up")


class Incarnation:
    """An agent in a slot. If it ends before its hello, `hello` has the reason; afterwards an event
    has it."""

    def __init__(
        self,
        place: tuple[int, int],
        slot: Slot,
        timeouts: Timeouts,
        emit: Callable[[FleetEvent], None],
    ) -> None:
        """`place` is the agent's number, and how many incarnations it had before."""
        loop = asyncio.get_running_loop()
        self.agent, self.number = place
        self.slot = slot
        self.hello: asyncio.Future[Hello] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()
        """Done with the last event."""
        self.task: asyncio.Task[None] | None = None
        self._timeouts = timeouts
        self._emit = emit
        self._watchdog = Watchdog(timeouts)
        self._connected = 0
        self._is_spawned = False
        self._is_killed = False

    @property
    def has_greeted(self) -> bool:
        """True if it has said hello."""
        return self.hello.done() and self.hello.exception() is None

    @property
    def is_alive(self) -> bool:
        """True if it has said hello, and its last event has not come."""
        return self.has_greeted and not self.over.done()

    def start(self, plan_line: str) -> None:
        """Starts it; `hello` and events have the outcome."""
        self.task = asyncio.create_task(self._live(plan_line))

    async def send(self, line: str) -> None:
        """Writes a line to it. Returns when it is written, the agent is over, or time is up."""
        sending = asyncio.ensure_future(self.slot.send(line))
        try:
            await asyncio.wait(
                {sending, self.over},
                timeout=self._timeouts.answer_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            sending.cancel()

    async def stop(self, limit_s: float) -> None:
        """Sends it the command to stop, and sets a limit: time in which it makes no progress."""
        self._watchdog.stop(limit_s)
        await self.send(STOP)

    def kill(self) -> None:
        """Ends it at once, also if it is just being started."""
        self._is_killed = True
        self.slot.kill()

    def give_up(self) -> None:
        """Emits the last event, if it has not come."""
        self._finish(GIVEN_UP)

    async def _live(self, plan_line: str) -> None:
        """Follows it to its end and emits its last event, whatever happens."""
        end = GIVEN_UP
        try:
            end = await self._play(plan_line)
        finally:
            self.slot.kill()
            if end.how == "lost":
                # The end of a lost process cannot be awaited.
                self._finish(end)
            if self._is_spawned:
                with suppress(TimeoutError, SlotLostError):
                    async with asyncio.timeout(self._timeouts.answer_s):
                        await self.slot.wait()
            self._finish(end)

    async def _play(self, plan_line: str) -> _End:
        limit_s = self._timeouts.hello_s
        try:
            async with asyncio.timeout(limit_s):
                await self.slot.spawn()
        except TimeoutError:
            return _End("silent", f"could not be started within {limit_s:g} s")
        except FleetError as error:
            return _End("exited", "was not started", error=error)
        self._is_spawned = True
        if self._is_killed:
            return GIVEN_UP
        talking = asyncio.create_task(self._talk(plan_line))
        try:
            return await self._follow()
        finally:
            talking.cancel()

    async def _talk(self, plan_line: str) -> None:
        """Sends the plan, and from then on beats until it is over."""
        await self.slot.send(plan_line)
        while self._timeouts.beat_s is not None:
            await asyncio.sleep(self._timeouts.beat_s)
            await self.send(BEAT)

    async def _follow(self) -> _End:
        """Reads its lines to the end. Who has said bye has reported everything: that it lingers, or
        that its place is lost then, is no failure."""
        reader = Reader(self.agent, self.slot.agents)
        end = await self._read(reader)
        lingers = reader.bye and end.how in {"silent", "lost"}
        return end._replace(how="bye") if lingers else end

    async def _read(self, reader: Reader) -> _End:
        answer_s = self._timeouts.answer_s
        try:
            while line := await self._line():
                self._take(reader.read(line), line)
            async with asyncio.timeout(answer_s):
                code = await self.slot.wait()
        except _SilentError as silent:
            return silent.end
        except TimeoutError:
            return _End("silent", f"closed its output and did not exit for {answer_s:g} s")
        except SlotLostError as lost:
            return _End("lost", f"was lost: {lost.message}", lost.hint or "")
        except (ContractError, ValueError) as breach:
            return _End("broken", f"broke the contract: {breach}")
        how: How = "bye" if reader.bye and code == 0 else "exited"
        return _End(how, *_ending(code, reader.failure, self.slot.last_words()), code=code)

    async def _line(self) -> bytes:
        """Its next line, or _SilentError."""
        reading = asyncio.ensure_future(self.slot.line())
        clock = asyncio.get_running_loop().time
        try:
            while True:
                asked_s = self._watchdog.look_s()
                began_s = clock()
                done, _ = await asyncio.wait({reading}, timeout=asked_s)
                self._watchdog.wait(clock() - began_s, asked_s)
                if done:
                    return reading.result()
                complaint = self._watchdog.complaint()
                if complaint is not None:
                    hint = "" if self.hello.done() else self.slot.last_words()
                    raise _SilentError(_End(*complaint, hint))
        finally:
            reading.cancel()

    def _take(self, message: Hello | Snapshot | None, line: bytes) -> None:
        self._watchdog.on_line(is_report=message is not None)
        if isinstance(message, Hello):
            self.hello.set_result(message)
        elif message is not None:
            connected = sum(each.gauges.connected for each in message.populations)
            if connected < self._connected:
                self._watchdog.on_progress()
            self._connected = connected
            self._emit(SnapshotReceived(message, line))

    def _finish(self, end: _End) -> None:
        if self.over.done():
            return
        self.over.set_result(None)
        text = f"{self.slot.name} {end.text}"
        if self.hello.done():
            # The last line of a killed agent's log is not the reason.
            why = end.hint.rpartition("\n")[2] if end.code > 0 else ""
            text = f"{text}: {why}" if why else text
            self._emit(Ended(self.agent, end.how, text, self.number))
        else:
            self.hello.set_exception(end.error or FleetError(text, end.hint or None))


class ContractError(Exception):
    """A line of an agent breaks the contract."""


class Reader:
    """Reads the lines of one incarnation: hello, snapshots without a gap, bye or failure. Answers
    to beats may stand anywhere."""

    def __init__(self, agent: int, agents: int) -> None:
        self._agent = agent
        self._agents = agents
        self._greeted = False
        self._snapshots = 0
        self.bye = False
        self.failure: Failure | None = None

    def read(self, line: bytes) -> Hello | Snapshot | None:
        """Returns a hello or snapshot, None for all other lines. Raises ContractError."""
        try:
            message = AGENT_LINE.validate_json(line)
        except ValidationError as error:
            start = line[:200].decode(errors="replace").rstrip()
            raise ContractError(f"{error.errors()[0]['msg']} in {start!r}") from error
        # Another thread of the agent answers beats, before its first line and after its last.
        if isinstance(message, BeatAnswer):
            return None
        if self.bye or self.failure:
            raise ContractError(f"a {message.kind} after the last line")
        if isinstance(message, Failure):
            self.failure = message
            return None
        self._check_order(message)
        return None if isinstance(message, Bye) else message

    def _check_order(self, message: Hello | Snapshot | Bye) -> None:
        if isinstance(message, Hello) == self._greeted:
            raise ContractError(f"{message.kind} where {'no ' * self._greeted}hello is due")
        if isinstance(message, Hello):
            self._greeted = True
            if (message.agent, message.agents) != (self._agent, self._agents):
                raise ContractError(f"it says that it is agent {message.agent} of {message.agents}")
            return
        number = message.snapshots if isinstance(message, Bye) else message.sequence
        if number != self._snapshots:
            raise ContractError(f"{message.kind} number {number} after {self._snapshots} snapshots")
        self.bye = isinstance(message, Bye)
        self._snapshots += isinstance(message, Snapshot)


class _SilentError(Exception):
    """An agent was silent for too long."""

    def __init__(self, end: _End) -> None:
        super().__init__(end.text)
        self.end = end


def _ending(code: int, failure: Failure | None, last_words: str) -> tuple[str, str]:
    """Returns the end of an agent in words, and a hint."""
    if failure is not None:
        return f"gave up: {failure.message}", failure.hint
    how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    return how, last_words
