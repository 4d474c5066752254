"""Decides what becomes of a run when an agent fails: the run ends, continues without the agent's
clients, or a replacement plays them. The replacement goes through the stages so far, or its clients
join the publish stage that is on. Each agent has one state, which only `transition` changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from pubstorm.contract.commands import ActiveClients, ApplyChange, EnterStage, ExcludeFromLoss
from pubstorm.contract.plan import (
    AddClients,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    HoldAction,
    PublishAction,
    RemoveClients,
)
from pubstorm.errors import FleetError
from pubstorm.fleet import Ended
from pubstorm.host.ends import end_tasks
from pubstorm.measure.run_log import AgentFailure
from pubstorm.play.context import RunContext
from pubstorm.play.progress import LEAVE_TIMEOUT_NS, NEVER_NS, Barrier, schedule_ns
from pubstorm.quantities import SECOND_NS, count_text, counted
from pubstorm.scenario.fleet import OnAgentFailure

POLL_S = 0.02
"""Polling interval while a planned change takes effect."""
CLOSE_TO_END_NS = SECOND_NS // 1000
"""Time before the end of a stage by which all clients have joined it."""


@dataclass(frozen=True)
class Rejoined:
    """An agent that plays from now on."""

    agent: int
    connecting_until_ns: int = 0
    """Instant until which it has clients to connect."""
    active: ActiveClients | None = None
    """Its active clients; None if they are brought to the current numbers at once."""


class Rejoin:
    """The way of replacements to where the run is."""

    def __init__(self, run: RunContext, rejoined: Callable[[Rejoined], None]) -> None:
        self._run = run
        self._rejoined = rejoined
        self._came = asyncio.Event()
        self.entered_ns = 0
        """Instant at which the present stage begins."""

    def on_snapshot(self) -> None:
        """Wakes agents that rejoin: a snapshot has come."""
        self._came.set()

    async def repeat(self, agent: int, stage: int, *, is_open: bool) -> None:
        """Takes an agent through the stages so far, and into the present one if it is open."""
        run, action = self._run, self._run.plan.stages[stage].action
        for index in range(stage if is_open else stage + 1):
            await self._repeat(agent, index)
        at_ns = run.clock() + run.fleet.timeouts.start_delay_ns
        until_ns = 0
        if is_open and isinstance(action, ConnectAction):
            starts = run.active.together(run.plan.stages[stage].populations)
            until_ns = at_ns + schedule_ns(starts, action.rate_per_s)
        active = self._repeated(stage)
        if is_open and isinstance(action, HoldAction):
            # The agent plays all changes of the stage by itself, those that are over at once.
            for change in action.changes:
                active.change(change.population, change.action)
        self._rejoined(Rejoined(agent, until_ns, active))
        if is_open:
            at_ns = at_ns if isinstance(action, ConnectAction) else self.entered_ns
            await run.fleet.command(EnterStage(index=stage, at_ns=at_ns), to=[agent])

    async def join(self, agent: int, exclude: Callable[[], Awaitable[None]]) -> None:
        """Lets the clients of an agent join the present publish stage, as those of a change, and
        waits until each had its turn. The agent passes over messages that were scheduled before.
        `exclude` excludes receivers from loss."""
        run = self._run
        index = run.progress.stage
        await self._let_changes_pass(index)
        at_ns = run.clock() + run.fleet.timeouts.start_delay_ns
        missing, asked = self._missing(agent, index), self._asked(index)
        self._rejoined(Rejoined(agent))
        await run.fleet.command(EnterStage(index=index, at_ns=self.entered_ns), to=[agent])
        await exclude()
        for command in asked:
            await run.fleet.command(command, to=[agent])
        complete_ns = await self.change(agent, missing, at_ns)
        await asyncio.sleep((complete_ns - run.clock()) / SECOND_NS)

    async def change(self, agent: int, changes: Sequence[_PopulationChange], at_ns: int) -> int:
        """Changes populations of one agent, in its own part of each, from an instant on. Returns
        the instant of the last client's turn."""
        complete_ns = at_ns
        for population, action in changes:
            over_ns = max(min(self._ramp_ns(population), self._room_ns(at_ns)), 0)
            timed = action.model_copy(update={"over_ns": over_ns})
            command = ApplyChange(at_ns=at_ns, population=population, action=timed)
            await self._run.fleet.command(command, to=[agent])
            complete_ns = max(complete_ns, at_ns + over_ns)
        return complete_ns

    async def _repeat(self, agent: int, index: int) -> None:
        """Takes an agent through one stage, if it connects or disconnects."""
        run, stage = self._run, self._run.plan.stages[index]
        if not isinstance(stage.action, ConnectAction | DisconnectAction):
            return
        now_ns = run.clock()
        await run.fleet.command(EnterStage(index=index, at_ns=now_ns), to=[agent])
        clients = sum(run.plan.populations[p].clients for p in stage.populations)
        scheduled_ns = now_ns + schedule_ns(clients, stage.action.rate_per_s)
        timeout_ns = LEAVE_TIMEOUT_NS
        if isinstance(stage.action, ConnectAction):
            timeout_ns = stage.action.timeout_ns
        await self._settled(agent, index, scheduled_ns, timeout_ns)

    def _repeated(self, until: int) -> ActiveClients:
        """Active clients of an agent that has replayed the stages up to and including `until`."""
        active = ActiveClients(self._run.plan)
        for stage in self._run.plan.stages[: until + 1]:
            active.enter(stage)
        return active

    async def _let_changes_pass(self, stage: int) -> None:
        """Waits until no planned change is about to take effect: an agent that enters a publish
        stage at the instant of a change may or may not play it."""
        while self._changes_soon(stage):
            await asyncio.sleep(POLL_S)

    def _missing(self, agent: int, stage: int) -> list[_PopulationChange]:
        """Returns the changes that bring an agent's clients to the current numbers, if it enters a
        publish stage without clients."""
        return changes_between(self._joins_by_plan(agent, stage), self._run.active)

    def _asked(self, stage: int) -> list[ApplyChange]:
        """Returns the user's changes in a publish stage that a replacement must still make: rates,
        and clients that join or leave later."""
        run_log = self._run.recorder.run_log
        return [
            ApplyChange(at_ns=change.at_ns, population=change.population, action=change.action)
            for change in run_log.asked
            if change.stage == stage
            and (isinstance(change.action, ChangeRate) or change not in run_log.changes)
        ]

    def _changes_soon(self, stage: int) -> bool:
        """True if a planned change takes effect within twice the time that a command takes."""
        action = self._run.plan.stages[stage].action
        assert isinstance(action, PublishAction), "only publish stages change"
        soon_ns = self._run.clock() + 2 * self._run.fleet.timeouts.start_delay_ns
        planned = (self.entered_ns + change.after_ns for change in action.changes)
        taken = {change.at_ns for change in self._run.recorder.run_log.changes}
        return any(at_ns <= soon_ns and at_ns not in taken for at_ns in planned)

    def _joins_by_plan(self, agent: int, stage: int) -> ActiveClients:
        """Returns the clients that join by plan in a publish stage which an agent enters without
        clients. The agent plays all changes of a stage that began after the agent had started,
        and otherwise none."""
        run, active = self._run, ActiveClients(self._run.plan)
        if run.fleet.hellos[agent].clock_ns <= self.entered_ns:
            for change in run.recorder.run_log.changes:
                if change.stage == stage and change not in run.recorder.run_log.asked:
                    active.change(change.population, change.action)
        return active

    async def _settled(self, agent: int, stage: int, scheduled_ns: int, timeout_ns: int) -> None:
        """Waits until an agent has settled a stage, or nothing has moved for a timeout."""
        progress, clock = self._run.progress, self._run.clock
        moved_ns, connected = scheduled_ns, progress.connected_of(agent)

        def until_ns() -> int:
            nonlocal moved_ns, connected
            if connected != (connected := progress.connected_of(agent)):
                moved_ns = max(scheduled_ns, clock())
            return moved_ns + timeout_ns

        barrier = Barrier(lambda: progress.has_settled(agent, stage), until_ns)
        await barrier.passed(clock, self._snapshot)

    async def _snapshot(self, wait_ns: int) -> None:
        """Waits for the next snapshot of any agent."""
        self._came.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ns / SECOND_NS):
                await self._came.wait()

    def _room_ns(self, at_ns: int) -> int:
        """Longest time for clients to join the present stage."""
        action = self._run.plan.stages[self._run.progress.stage].action
        assert isinstance(action, PublishAction), "clients join publish stages only"
        return self.entered_ns + action.duration_ns - CLOSE_TO_END_NS - at_ns

    def _ramp_ns(self, population: int) -> int:
        """Time of the stage that connected a population, by its rate or as it was played."""
        run = self._run
        for span in reversed(run.recorder.run_log.spans):
            stage = run.plan.stages[span.index]
            if isinstance(stage.action, ConnectAction) and population in stage.populations:
                clients = run.active.together(stage.populations)
                rate_per_s = stage.action.rate_per_s
                return schedule_ns(clients, rate_per_s) or span.to_ns - span.from_ns
        return 0


def changes_between(now: ActiveClients, wanted: ActiveClients) -> list[_PopulationChange]:
    """Returns the changes that bring the clients of the engine to the wanted numbers."""
    return list(_changes(now, wanted))


def _changes(now: ActiveClients, wanted: ActiveClients) -> Iterator[_PopulationChange]:
    both = zip(now.counts, wanted.counts, strict=True)
    for population, (before, after) in enumerate(both):
        if population in wanted.staying or before == after:
            continue
        kind = AddClients if after > before else RemoveClients
        yield population, kind(clients=abs(after - before), over_ns=0)


_PopulationChange = tuple[int, AddClients | RemoveClients]
"""A population, and the clients that join or leave it."""


JOIN_NS = SECOND_NS
"""Part of a publish stage that must be left for clients that join it."""


class State(Enum):
    """The state of one agent."""

    PLAYING = "playing"
    LOST = "lost"
    """No agent plays its clients, until the end of the run."""
    REPLACING = "replacing"
    """The site looks for a replacement, and starts it."""
    WAITING = "waiting"
    """The replacement is up, and waits until a stage admits it."""
    REJOINING = "rejoining"
    """The replacement goes through the stages so far."""


class Signal(Enum):
    """An event in the life of one agent."""

    ENDED = "ended"
    REPLACED = "replaced"
    NOT_REPLACED = "not replaced"
    ADMITTED = "admitted"
    REJOINED = "rejoined"


class FailureStep(Enum):
    """The action that follows a signal."""

    NOTHING = "nothing"
    END_RUN = "end the run"
    CONTINUE = "continue without"
    REPLACE = "replace"
    REJOIN = "rejoin"


def transition(state: State, signal: Signal, policy: OnAgentFailure) -> tuple[State, FailureStep]:
    """Returns the next state of an agent and the action to take. Signals that do not fit the state
    come from an earlier incarnation, and change nothing."""
    match state, signal:
        case State.LOST, _:
            return state, FailureStep.NOTHING
        case _, Signal.ENDED:
            return _ENDED[policy]
        case State.REPLACING, Signal.REPLACED:
            return State.WAITING, FailureStep.NOTHING
        case State.REPLACING, Signal.NOT_REPLACED:
            return State.LOST, FailureStep.END_RUN
        case State.WAITING, Signal.ADMITTED:
            return State.REJOINING, FailureStep.REJOIN
        case State.REJOINING, Signal.REJOINED:
            return State.PLAYING, FailureStep.NOTHING
    return state, FailureStep.NOTHING


_ENDED: dict[OnAgentFailure, tuple[State, FailureStep]] = {
    "fail": (State.LOST, FailureStep.END_RUN),
    "continue": (State.LOST, FailureStep.CONTINUE),
    "replace": (State.REPLACING, FailureStep.REPLACE),
}


@dataclass(frozen=True)
class Replaced:
    """A replacement of an agent is up, or there is none."""

    agent: int
    problem: str = ""
    """Reason why there is none."""


@dataclass
class _Away:
    """An agent that does not play."""

    failure: AgentFailure
    clients: Sequence[int]
    """Its clients of each population."""


class AgentFailures:
    """The states of all agents of a run, and the tasks that replace the failed ones."""

    def __init__(
        self, run: RunContext, policy: OnAgentFailure, report: Callable[[Replaced], None]
    ) -> None:
        self._run = run
        self._policy: OnAgentFailure = policy
        self._report = report
        self._engines = range(run.assignment.engines)
        self._states = dict.fromkeys(self._engines, State.PLAYING)
        self._away: dict[int, _Away] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._behind: dict[int, ActiveClients] = {}
        """Active clients of agents that rejoined with other clients than they should have."""
        self._rejoin = Rejoin(run, self._rejoined)
        self._admits_until_ns: int | None = None
        """Instant until which replacements may begin to rejoin; None while none may."""

    @property
    def present(self) -> frozenset[int]:
        """Agents that get the commands of the run."""
        away = {agent for agent, state in self._states.items() if state is not State.PLAYING}
        return self._run.fleet.alive - away

    @property
    def hold_barriers(self) -> bool:
        """True if barriers must wait: an agent or its clients rejoin, or no agent is left and one
        is to come."""
        for task in self._tasks.values():
            if task.done():
                task.result()
        if State.REJOINING in self._states.values():
            return True
        plays = {agent for agent, state in self._states.items() if state is State.PLAYING}
        if any(agent in plays and not task.done() for agent, task in self._tasks.items()):
            return True
        is_expected = any(not task.done() for task in self._tasks.values())
        return is_expected and not self._present_engines

    def admit(self, until_ns: int = NEVER_NS) -> None:
        """Lets replacements begin to rejoin in this stage, until an instant."""
        self._admits_until_ns = until_ns

    def close(self) -> None:
        """Lets replacements rejoin from the next stage on."""
        self._admits_until_ns = None

    def on_snapshot(self) -> None:
        """Wakes agents that rejoin: a snapshot has come."""
        self._rejoin.on_snapshot()

    async def on_ended(self, ended: Ended) -> str | None:
        """Handles the end of an agent. Returns the reason why the run ends; None if it
        continues."""
        agent = ended.agent
        self._cancel(agent)
        self._behind.pop(agent, None)
        if agent not in self._engines:
            return ended.text
        clients = self._run.fleet.hellos[agent].clients
        step = self._signal(agent, Signal.ENDED)
        if step is FailureStep.END_RUN:
            played, all_ = count_text(sum(clients)), counted(self._run.plan.clients, "client")
            return f"{ended.text}: it played {played} of {all_}"
        failure = self._record(ended, sum(clients))
        self._away[agent] = _Away(failure, clients)
        if step is FailureStep.REPLACE:
            self._tasks[agent] = asyncio.create_task(self._replace(agent))
        elif reason := self._hopeless(self._run.progress.stage, self._present_engines):
            return reason
        await self._exclude_since(failure, clients)
        return None

    async def on_replaced(self, replaced: Replaced) -> str | None:
        """Handles the replacement of an agent. Returns the reason why the run ends, if there is no
        replacement."""
        agent = replaced.agent
        if replaced.problem:
            if self._signal(agent, Signal.NOT_REPLACED) is FailureStep.END_RUN:
                return f"agent {agent} could not be replaced: {replaced.problem}"
        elif agent in self._run.fleet.alive:
            self._signal(agent, Signal.REPLACED)
            until_ns = self._admits_until_ns
            if until_ns is not None and self._run.clock() < until_ns:
                self._admit(agent)
        return None

    async def enter(self, stage: int, at_ns: int) -> str | None:
        """Enters a stage. Returns the reason why nothing can come of it."""
        run = self._run
        self._rejoin.entered_ns = at_ns
        if run.recorder.run_log.expect_received.get(stage - 1):
            run.progress.forget_expected()
        if not isinstance(run.plan.stages[stage].action, PublishAction):
            return None
        affected = {p for away in self._away.values() for p, n in enumerate(away.clients) if n}
        for agent, active in self._behind.items():
            changes = changes_between(active, run.active)
            affected.update(population for population, _ in changes)
            await self._rejoin.change(agent, changes, at_ns)
        self._behind.clear()
        if affected:
            await self.exclude([p for p in run.receivers if p in affected])
        if self._policy != "continue":
            return None
        # An agent that has just ended counts until its last event, which records its failure.
        engines = (agent for agent in self._engines if self._states[agent] is State.PLAYING)
        return self._hopeless(stage, frozenset(engines))

    def admit_waiting(self) -> bool:
        """Admits replacements that came too late for a stage, now that it is over. Returns True if
        some have not rejoined yet."""
        late = {State.WAITING, State.REJOINING}
        waiting = [agent for agent, state in self._states.items() if state in late]
        for agent in waiting:
            self._admit(agent)
        return bool(waiting)

    async def stop(self) -> None:
        """Ends all replacements."""
        tasks = list(self._tasks.values())
        for agent in list(self._tasks):
            self._cancel(agent)
        await end_tasks(tasks)

    @property
    def _present_engines(self) -> frozenset[int]:
        return self.present.intersection(self._engines)

    def _signal(self, agent: int, signal: Signal) -> FailureStep:
        self._states[agent], step = transition(self._states[agent], signal, self._policy)
        return step

    def _record(self, ended: Ended, clients: int) -> AgentFailure:
        """Writes the failure down, once for everything that reads it."""
        run = self._run
        run_log, now_ns = run.recorder.run_log, run.clock()
        before = [each.at_ns for each in run_log.failures if each.agent == ended.agent]
        reported_ns = run.progress.fail(ended.agent)
        if reported_ns is None:
            reported_ns = max([run_log.started_ns, *before])
        failure = AgentFailure(ended.agent, now_ns, reported_ns, clients, ended.text)
        run.recorder.fail(failure, run.progress.stage)
        run.live.note(ended.text)
        return failure

    def _admit(self, agent: int) -> None:
        """Starts the rejoin of a replacement that waits."""
        if self._signal(agent, Signal.ADMITTED) is not FailureStep.REJOIN:
            return
        run, away = self._run, self._away[agent]
        host = away.failure.replaced_on = run.fleet.hosts.get(agent, "")
        away.failure.rejoined_ns = run.clock()
        run.progress.begin_rejoin(agent)
        where = f" on {host}" if host else ""
        text = f"another agent{where} plays the clients of agent {agent}"
        run.note("restart", text, away.failure.rejoined_ns)
        self._tasks[agent] = asyncio.create_task(self._bring_back(agent, away.clients))

    def _rejoined(self, rejoined: Rejoined) -> None:
        """Counts an agent among those that play."""
        agent, active = rejoined.agent, rejoined.active
        if active is not None and changes_between(active, self._run.active):
            self._behind[agent] = active
        self._signal(agent, Signal.REJOINED)
        del self._away[agent]
        self._run.progress.include(agent, rejoined.connecting_until_ns)

    async def _replace(self, agent: int) -> None:
        try:
            await self._run.fleet.replace(agent)
            self._report(Replaced(agent))
        except FleetError as error:
            hint = f" ({error.hint})" if error.hint else ""
            self._report(Replaced(agent, f"{error.message}{hint}"))

    async def _bring_back(self, agent: int, clients: Sequence[int]) -> None:
        """Brings a replacement to where the run is."""
        run = self._run
        index = run.progress.stage
        is_open = self._admits_until_ns is not None
        if is_open and isinstance(run.plan.stages[index].action, PublishAction):
            await self._rejoin.join(agent, lambda: self.exclude(run.receivers))
            return
        self._exclude_in(index, [p for p in run.receivers if clients[p]])
        await self._rejoin.repeat(agent, index, is_open=is_open)

    def _cancel(self, agent: int) -> None:
        if (task := self._tasks.pop(agent, None)) is not None:
            task.cancel()

    async def _exclude_since(self, failure: AgentFailure, clients: Sequence[int]) -> None:
        """Excludes receivers from loss: the agent's own since its last snapshot, all in this
        stage. Deliveries in a drain after that snapshot are not known."""
        run = self._run
        own = [p for p in run.receivers if clients[p]]
        for span in run.recorder.run_log.spans:
            if span.to_ns > failure.reported_ns:
                self._exclude_in(span.index, own)
        await self.exclude(run.receivers)

    async def exclude(self, populations: Sequence[int]) -> None:
        """Excludes populations from loss in this stage."""
        run = self._run
        stage = run.progress.stage
        self._exclude_in(stage, populations)
        if isinstance(run.plan.stages[stage].action, PublishAction):
            command = ExcludeFromLoss(populations=tuple(populations))
            await run.fleet.command(command, to=self._present_engines)

    def _exclude_in(self, stage: int, populations: Sequence[int]) -> None:
        """Excludes populations from loss in a stage. Unless it publishes, only kept sessions get
        messages in it."""
        plan = self._run.plan
        publishes = isinstance(plan.stages[stage].action, PublishAction)
        get = [p for p in populations if publishes or plan.populations[p].keeps_session]
        if get:
            self._run.recorder.run_log.exclude_from_loss(stage, get)

    def _hopeless(self, stage: int, left: frozenset[int]) -> str | None:
        """Returns the reason why nothing can come of a stage with the agents that are left."""
        run = self._run
        if not left:
            return "no agent is left"
        played = run.plan.stages[stage]
        publish = [p for p in played.populations if run.plan.populations[p].publications]
        others = any(run.plan.populations[p].player != "engine" for p in publish)
        if not publish or others or not isinstance(played.action, PublishAction):
            return None
        clients = sum(run.fleet.hellos[agent].clients[p] for agent in left for p in publish)
        return None if clients else f"no client is left that publishes in stage {played.name}"
