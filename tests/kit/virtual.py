"""Virtual time: an event loop whose clock jumps to the next timer, and agents inside this process.
A run of minutes takes milliseconds, and the same script always plays the same run."""

from __future__ import annotations

import asyncio
import json
import math
import selectors
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pubstorm.contract.commands import Bye, Hello
from pubstorm.contract.plan import Plan
from pubstorm.contract.reasons import Reason
from pubstorm.contract.snapshot import FlowSnapshot, PopulationSnapshot, Snapshot
from pubstorm.errors import FleetError
from pubstorm.fleet import Fleet, FleetEvent, SnapshotReceived, Timeouts
from pubstorm.fleet.programs import Assignment
from pubstorm.measure.recorder import Recorder
from pubstorm.measure.run_log import RunLog
from pubstorm.plan.stages import PlannedFault
from pubstorm.play.abort import AbortWhen
from pubstorm.play.context import RunContext
from pubstorm.play.display import Live
from pubstorm.play.faults import Breakable, Breaker, FaultPlay
from pubstorm.play.stages import Controller, ControllerOptions, Interrupt, RunEvent
from pubstorm.scenario.fleet import OnAgentFailure
from tests.kit import made
from tests.kit.made import SECOND_NS, START_NS

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time stands still while anything can run, and jumps to the next timer then."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self.now_ns / SECOND_NS


class _Jump(selectors.SelectSelector):
    """Takes time instead of waiting for it."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("every task waits, and no timer is set")
        # Each turn of the loop takes a nanosecond, as timers may be set to less than that.
        self._loop.now_ns += math.ceil(timeout * SECOND_NS) + 1
        return super().select(0)


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def now_ns() -> int:
    """The present instant of the virtual loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.now_ns


@dataclass
class Behaviour:
    """Behaviour of an agent. The defaults settle every stage as soon as it begins."""

    latency_s: float = 0.001
    """Time from a command to its first snapshot."""
    snapshots_s: float = 1.0
    """Time between the snapshots of a stage."""
    dies_in: int | None = None
    """Stage as which begins the agent is killed."""
    stops_after_s: float | None = 0
    """Time from the command to stop to its bye, in which it says nothing; None: for ever."""
    settles: bool = True
    failed: int = 0
    """Clients that fail to connect."""
    ready: Callable[[int], int] | None = None
    """Clients that are ready in the n-th snapshot of the first stage. Default: all."""
    flow: tuple[str, ...] = ()
    """Counters of which each snapshot of the second stage has one more."""


class VirtualAgent:
    """A slot, and the agent in it."""

    host = ""

    def __init__(self, agent: int, agents: int, behaviour: Behaviour, incarnation: int = 0) -> None:
        self.agent, self.agents, self.incarnation = agent, agents, incarnation
        self.behaviour = behaviour
        self.name = f"agent {agent}"
        self.commands: list[dict[str, Any]] = []
        self._plan: Plan | None = None
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._stage: int | None = None
        self._sequence = self._in_stage = 0
        self._last_ns = now_ns()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stages(self) -> list[int]:
        """Stages of the enter commands that the agent received."""
        return [each["index"] for each in self.commands if each["command"] == "stage"]

    @property
    def kinds(self) -> str:
        """The names of the commands that the agent received, in order."""
        return " ".join(each["command"] for each in self.commands)

    @property
    def excluded(self) -> list[list[int]]:
        """Populations of each exclude command that the agent received."""
        return [
            each["populations"] for each in self.commands if each["command"] == "exclude_from_loss"
        ]

    @property
    def clients(self) -> tuple[int, ...]:
        """Its clients of each population."""
        assert self._plan is not None
        whole = (population.clients for population in self._plan.populations)
        return tuple(max(0, (n - self.agent - 1) // self.agents + 1) for n in whole)

    async def spawn(self) -> None:
        """Does nothing: the process runs."""

    async def send(self, line: str) -> None:
        if self._ended.done():
            return
        if self._plan is None:
            self._plan = Plan.model_validate_json(line)
            clients = self.clients
            self._say(made.hello(self.agent, self.agents, clients=clients, clock_ns=now_ns()))
            return
        command = json.loads(line)
        self.commands.append(command)
        loop = asyncio.get_running_loop()
        loop.call_later(self.behaviour.latency_s, self._follow, command)

    async def line(self) -> bytes:
        return await self._lines.get()

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        self._end(-9)

    def last_words(self) -> str:
        return ""

    def _follow(self, command: dict[str, Any]) -> None:
        if self._ended.done():
            return
        if command["command"] == "stage":
            self._stage, self._in_stage = command["index"], 0
            if self.behaviour.dies_in == self._stage:
                self.kill()
            else:
                self._snapshot()
        elif command["command"] == "stop":
            if self._timer is not None:
                self._timer.cancel()
            if self.behaviour.stops_after_s is not None:
                loop = asyncio.get_running_loop()
                loop.call_later(self.behaviour.stops_after_s, self._bye)

    def _bye(self) -> None:
        if not self._ended.done():
            self._say(Bye(snapshots=self._sequence))
            self._end(0)

    def _snapshot(self) -> None:
        """Reports, and sets the timer of the next snapshot."""
        if self._timer is not None:
            self._timer.cancel()
        behaviour, from_ns = self.behaviour, self._last_ns
        self._last_ns = max(now_ns(), from_ns + 1)
        self._say(
            made.snapshot(
                *map(self._population, self.clients),
                from_ns=from_ns,
                to_ns=self._last_ns,
                agent=self.agent,
                sequence=self._sequence,
                stage=self._stage,
                settled=behaviour.settles,
                flows=self._flows(),
                engine=made.load(busy_ns=1, cpu_ns=1, rss_bytes=1),
            )
        )
        self._sequence += 1
        self._in_stage += 1
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(behaviour.snapshots_s, self._snapshot)

    def _population(self, clients: int) -> PopulationSnapshot:
        behaviour, ready = self.behaviour, clients
        if behaviour.ready is not None and self._stage == 0:
            ready = behaviour.ready(self._in_stage)
        is_first = self._sequence == 0
        return made.population(
            connected=0 if behaviour.failed else clients,
            ready=ready,
            sent_total=0 if self._in_stage else 10,
            connect_attempts_total=(behaviour.failed or clients) * is_first,
            connect_failed_total=behaviour.failed * is_first,
            connected_total=0 if behaviour.failed else clients * is_first,
            outcomes={Reason.CONNECT_REFUSED: behaviour.failed} if behaviour.failed else {},
        )

    def _flows(self) -> tuple[FlowSnapshot, ...]:
        if not self.behaviour.flow or self._stage != 1:
            return ()
        expected = 0 if self._in_stage else 10**6
        counts: dict[str, Any] = {
            "expected_total": expected,
            **dict.fromkeys(self.behaviour.flow, 1),
        }
        return (made.flow(0, 0, **counts),)

    def _say(self, line: Hello | Snapshot | Bye) -> None:
        self._lines.put_nowait(line.model_dump_json(by_alias=True).encode() + b"\n")

    def _end(self, code: int) -> None:
        if self._ended.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._ended.set_result(code)
        self._lines.put_nowait(b"")


@dataclass
class Script:
    """Events while a plan is played."""

    policy: OnAgentFailure = "fail"
    agents: int = 1
    behaviours: dict[int, Behaviour] = field(default_factory=dict)
    """Behaviour of single agents, by number."""
    behaviour: Behaviour = field(default_factory=Behaviour)
    """Behaviour of all other agents."""
    kills: Iterable[tuple[int, int]] = ()
    """Stage, and agent that is killed as it begins."""
    kills_at_s: Iterable[tuple[float, int]] = ()
    """Time after the start, and agent that is killed then."""
    interrupt_at: int | None = None
    """Stage in which the user ends the run."""
    interrupts_s: tuple[float, ...] = (0.0,)
    """Times after its beginning at which the user asks for it."""
    refuses: bool = False
    """No other place is found for an agent."""
    finds_after_s: float = 0.01
    """Time until another place is found."""
    kills_next: int = 0
    """Number of replacements that are killed soon, too."""
    first: tuple[RunEvent, ...] = ()
    """Events before anything else."""
    faults: tuple[PlannedFault, ...] = ()
    breaker: Breaker | None = None
    breakable: Breakable | None = None
    abort: AbortWhen | None = None
    live: Live = field(default_factory=Live)
    timeouts: Timeouts = field(default_factory=Timeouts)


class Played:
    """A run that was played in virtual time."""

    def __init__(self, plan: Plan, script: Script) -> None:
        self.plan, self.script = plan, script
        self.agents: dict[tuple[int, int], VirtualAgent] = {}
        """Every agent, by number and incarnation."""
        self.received: list[SnapshotReceived] = []
        self.entered: list[tuple[int, int]] = []
        self.queue: asyncio.Queue[RunEvent] = asyncio.Queue()
        places = [self._agent(agent, 0) for agent in range(script.agents)]
        self.fleet = Fleet(places, self._emit, script.timeouts, self._replace)
        self.breaker_faults = None
        if script.breaker is not None:
            report = self.queue.put_nowait
            self.breaker_faults = FaultPlay(script.faults, script.breaker, report, now_ns)
        applied = [] if self.breaker_faults is None else self.breaker_faults.applied
        self.run_log = RunLog(now_ns(), faults=applied)
        recorder = Recorder(plan, Assignment.among(plan, script.agents), self.run_log)
        self.run = RunContext(plan, self.fleet, recorder, script.live, now_ns)
        options = ControllerOptions(
            script.policy,
            self.breaker_faults,
            self._enter,
            abort=script.abort,
            breakable=script.breakable,
        )
        self.controller = Controller(self.run, self.queue, options)
        self._next_kills = script.kills_next

    @property
    def events(self) -> list[str]:
        """The kinds of all events, in order."""
        return [event.kind for event in self.run_log.events]

    async def play(self) -> Played:
        """Plays the plan to its end."""
        await self.fleet.up(self.plan.to_line())
        for event in self.script.first:
            self.queue.put_nowait(event)
        loop = asyncio.get_running_loop()
        for after_s, agent in self.script.kills_at_s:
            loop.call_later(after_s, self.kill, agent)
        try:
            await self.controller.play()
        finally:
            await self.fleet.close()
        assert not self.fleet.alive
        return self

    def kill(self, agent: int) -> None:
        """Kills the present incarnation of an agent."""
        number = max(n for a, n in self.agents if a == agent)
        self.agents[agent, number].kill()

    def _agent(self, agent: int, incarnation: int) -> VirtualAgent:
        script = self.script
        behaviour = script.behaviours.get(agent, script.behaviour)
        started = VirtualAgent(agent, script.agents, behaviour, incarnation)
        self.agents[agent, incarnation] = started
        return started

    async def _replace(self, agent: int) -> VirtualAgent:
        await asyncio.sleep(self.script.finds_after_s)
        if self.script.refuses:
            raise FleetError("no host is free", "start one")
        started = self._agent(agent, 1 + max(n for a, n in self.agents if a == agent))
        if self._next_kills:
            self._next_kills -= 1
            asyncio.get_running_loop().call_later(0.3, started.kill)
        return started

    def _emit(self, event: FleetEvent) -> None:
        if isinstance(event, SnapshotReceived):
            self.received.append(event)
        self.queue.put_nowait(event)

    def _enter(self, index: int, at_ns: int) -> None:
        self.entered.append((index, at_ns - now_ns()))
        for stage, agent in self.script.kills:
            if stage == index:
                self.kill(agent)
        if self.script.interrupt_at == index:
            loop = asyncio.get_running_loop()
            for after_s in self.script.interrupts_s:
                loop.call_later(after_s, self.queue.put_nowait, Interrupt("SIGINT"))


def play(plan: Plan, script: Script | None = None) -> Played:
    """Plays a plan in virtual time."""

    async def run() -> Played:
        return await Played(plan, script or Script()).play()

    return run_virtually(run())
