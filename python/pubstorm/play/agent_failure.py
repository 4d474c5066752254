"""Decides what becomes of a run when an agent fails: the run ends, continues without the agent's
clients, or a replacement plays them. Each agent has one state, which only `transition` changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from pubstorm.contract.changes import ActiveClients
from pubstorm.contract.commands import ExcludeFromLoss
from pubstorm.contract.plan import PublishAction
from pubstorm.errors import FleetError
from pubstorm.fleet import Ended
from pubstorm.host.ends import end_tasks
from pubstorm.measure.run_log import AgentFailure
from pubstorm.play.barriers import NEVER_NS
from pubstorm.play.context import RunContext
from pubstorm.play.rejoin import Rejoin, Rejoined, changes_between
from pubstorm.quantities import SECOND_NS, count_text, counted
from pubstorm.scenario.fleet import OnAgentFailure

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
        text = f"another engine{where} plays the clients of agent {agent}"
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
        """Returns the reason why nothing can come of a stage with the engines that are left."""
        run = self._run
        if not left:
            return "no engine is left"
        played = run.plan.stages[stage]
        publish = [p for p in played.populations if run.plan.populations[p].publications]
        others = any(run.plan.populations[p].player != "engine" for p in publish)
        if not publish or others or not isinstance(played.action, PublishAction):
            return None
        clients = sum(run.fleet.hellos[agent].clients[p] for agent in left for p in publish)
        return None if clients else f"no client is left that publishes in stage {played.name}"
