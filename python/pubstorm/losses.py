"""What becomes of a run that loses an engine: it ends, goes on without the clients of that one, or
another engine plays them from then on. It keeps who is away, says what is not judged for it, and
brings who is back to where the run is. It knows no barrier: the conductor asks it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass

from pubstorm.barriers import LEAVE_TIMEOUT_NS, SECOND_NS, schedule_ns
from pubstorm.cast import Cast
from pubstorm.control import ApplyChange, EnterStage, Unjudge
from pubstorm.course import Course, Loss
from pubstorm.errors import FleetError
from pubstorm.fleet import Ended, Fleet
from pubstorm.plan import (
    AddClients,
    ChangeAction,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    Plan,
    Presence,
    PublishAction,
    RemoveClients,
)
from pubstorm.progress import Progress
from pubstorm.quantity import count_text, counted
from pubstorm.scenario.fleet import OnAgentLoss

NEVER_NS = 2**63
"""Later than every instant."""
JOIN_NS = SECOND_NS
"""How much of a publish stage must be left for clients that join it."""
CLOSE_TO_END_NS = SECOND_NS // 1000
"""How long before its end all that join have joined."""


@dataclass(frozen=True)
class Scene:
    """The run as it stands, lent by its conductor."""

    plan: Plan
    fleet: Fleet
    cast: Cast
    progress: Progress
    presence: Presence
    course: Course
    note: Callable[[str, str], None]
    """Records what happened to what kind of thing, and shows it."""


@dataclass(frozen=True)
class OnLoss:
    """What is to be done when an engine is lost."""

    policy: OnAgentLoss = "fail"
    """What becomes of the run."""
    heard: Callable[[int, int], None] | None = None
    """Who is told the agent and the instant, where the run goes on."""


@dataclass(frozen=True)
class Replaced:
    """Another engine is there in the place of an agent; or there is none."""

    agent: int
    failure: str = ""
    """Why there is none."""


@dataclass
class _Away:
    """An agent that is away."""

    loss: Loss
    shares: Sequence[int]
    """Its clients of each population."""
    is_there: bool = False
    """Whether another engine is there, which has not yet come to where the run is."""
    returns: bool = False
    """Whether that one is on its way there."""


class Losses:
    """The engines that a run has lost."""

    def __init__(self, scene: Scene, on_loss: OnLoss, tell: Callable[[Replaced], None]) -> None:
        self._scene = scene
        self._policy = on_loss.policy
        self._heard_of = on_loss.heard
        self._tell = tell
        self._away: dict[int, _Away] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._short: dict[int, Presence] = {}
        """Who is there for agents that came back, where that is not as it is to be."""
        self._heard = asyncio.Event()
        self._entered_ns = 0
        self._open_until_ns: int | None = None
        """Until when an engine can begin to take part in the stage that is on."""

    @property
    def present(self) -> frozenset[int]:
        """Agents that play what all play."""
        return self._scene.fleet.alive - self._away.keys()

    @property
    def under_way(self) -> bool:
        """Whether barriers have to wait: an engine is on its way to where the run is, or none is
        left and one is to come."""
        for task in self._tasks.values():
            if task.done():
                task.result()
        awaited = any(not task.done() for task in self._tasks.values())
        nobody = not self.present.intersection(self._engines)
        return (nobody and awaited) or any(away.returns for away in self._away.values())

    def opens(self, until_ns: int = NEVER_NS) -> None:
        """Until this instant an engine can begin to take part in the stage that is on."""
        self._open_until_ns = until_ns

    def closes(self) -> None:
        """Who comes now takes part from the next stage on."""
        self._open_until_ns = None

    def hear(self) -> None:
        """A snapshot has come."""
        self._heard.set()

    async def take(self, ended: Ended) -> str | None:
        """An agent has ended; why the run cannot go on without it, None if it does."""
        self._cancel(ended.agent)
        self._short.pop(ended.agent, None)
        scene = self._scene
        shares = scene.fleet.hellos[ended.agent].clients
        if ended.agent not in self._engines:
            return ended.text
        if self._policy == "fail":
            played = count_text(sum(shares))
            return f"{ended.text}: it played {played} of {counted(scene.plan.clients, 'client')}"
        now_ns = time.monotonic_ns()
        loss = Loss(ended.agent, now_ns, sum(shares), ended.text)
        scene.course.losses.append(loss)
        scene.note("agent", ended.text)
        scene.progress.lose(ended.agent, now_ns)
        if self._heard_of is not None:
            self._heard_of(ended.agent, now_ns)
        self._away[ended.agent] = _Away(loss, shares)
        if self._policy == "replace":
            self._start(ended.agent, self._replace(ended.agent))
        elif (reason := self._hopeless(scene.progress.stage)) is not None:
            return reason
        await self._unjudge(self._receivers)
        return None

    async def take_replaced(self, replaced: Replaced) -> str | None:
        """Another engine is there, and begins if the stage that is on lets it; why the run cannot
        go on, if there is none."""
        away = self._away.get(replaced.agent)
        if away is None:
            return None
        if replaced.failure:
            return f"agent {replaced.agent} could not be replaced: {replaced.failure}"
        if replaced.agent not in self._scene.fleet.alive:
            return None
        away.is_there = True
        away.loss.replaced_on = self._scene.fleet.hosts.get(replaced.agent, "")
        if self._open_until_ns is not None and time.monotonic_ns() < self._open_until_ns:
            self._begin(replaced.agent, away)
        return None

    async def enter(self, stage: int, at_ns: int) -> str | None:
        """A stage begins; why it cannot be played."""
        scene = self._scene
        self._entered_ns = at_ns
        if scene.course.owed_received.get(stage - 1):
            scene.progress.forget_owed()
        if not isinstance(scene.plan.stages[stage].action, PublishAction):
            return None
        left_out = {p for away in self._away.values() for p, n in enumerate(away.shares) if n}
        for agent, there in self._short.items():
            changes = list(_changes(there, scene.presence))
            left_out.update(population for population, _ in changes)
            await self._change(agent, changes, at_ns)
        self._short.clear()
        if left_out:
            await self._unjudge([p for p in self._receivers if p in left_out])
        return self._hopeless(stage) if self._policy == "continue" else None

    def begin_waiting(self) -> bool:
        """Those that came too late for a stage begin now that it is over; whether there is one."""
        waiting = [(a, away) for a, away in self._away.items() if away.is_there]
        for agent, away in waiting:
            if not away.returns:
                self._begin(agent, away)
        return bool(waiting)

    async def stop(self) -> None:
        """Nobody is replaced any more."""
        tasks = list(self._tasks.values())
        for agent in list(self._tasks):
            self._cancel(agent)
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _engines(self) -> range:
        return range(self._scene.cast.engines)

    @property
    def _receivers(self) -> list[int]:
        return [p for p, each in enumerate(self._scene.plan.populations) if each.subscriptions]

    def _start(self, agent: int, work: Coroutine[None, None, None]) -> None:
        self._tasks[agent] = asyncio.create_task(work)

    def _cancel(self, agent: int) -> None:
        if (task := self._tasks.pop(agent, None)) is not None:
            task.cancel()

    async def _replace(self, agent: int) -> None:
        try:
            await self._scene.fleet.replace(agent)
            self._tell(Replaced(agent))
        except FleetError as error:
            hint = f" ({error.hint})" if error.hint else ""
            self._tell(Replaced(agent, f"{error.message}{hint}"))

    async def _unjudge(self, populations: Sequence[int]) -> None:
        """Owes populations what they receive in the stage that is on."""
        scene = self._scene
        stage = scene.progress.stage
        scene.course.owe_received(stage, populations)
        if isinstance(scene.plan.stages[stage].action, PublishAction):
            engines = self.present.intersection(self._engines)
            await scene.fleet.command(Unjudge(populations=tuple(populations)), to=engines)

    def _hopeless(self, stage: int) -> str | None:
        """Why nothing can come of a stage without those who are away."""
        scene = self._scene
        left = self.present.intersection(self._engines)
        if not left:
            return "no engine is left"
        played = scene.plan.stages[stage]
        publish = [p for p in played.populations if scene.plan.populations[p].publications]
        if not isinstance(played.action, PublishAction) or self._programs_publish(publish):
            return None
        clients = sum(scene.fleet.hellos[agent].clients[p] for agent in left for p in publish)
        if publish and not clients:
            return f"no client is left that publishes in stage {played.name}"
        return None

    def _programs_publish(self, populations: Sequence[int]) -> bool:
        return any(self._scene.plan.populations[p].player != "engine" for p in populations)

    def _begin(self, agent: int, away: _Away) -> None:
        away.returns = True
        away.loss.back_ns = time.monotonic_ns()
        self._scene.progress.bring_back(agent)
        host = f" on {away.loss.replaced_on}" if away.loss.replaced_on else ""
        self._scene.note("restart", f"another engine{host} plays the clients of agent {agent}")
        self._start(agent, self._bring_back(agent))

    async def _bring_back(self, agent: int) -> None:
        """Brings an engine to where the run is."""
        scene = self._scene
        index = scene.progress.stage
        action, is_on = scene.plan.stages[index].action, self._open_until_ns is not None
        if is_on and isinstance(action, PublishAction):
            await self._join(agent)
            return
        await self._repeat(agent, index if is_on else index + 1)
        at_ns = time.monotonic_ns() + scene.fleet.patience.start_delay_ns
        until_ns = 0
        if is_on and isinstance(action, ConnectAction):
            starts = scene.presence.together(scene.plan.stages[index].populations)
            until_ns = at_ns + schedule_ns(starts, action.rate_per_s)
        there = self._repeated(index)
        if list(_changes(there, scene.presence)):
            self._short[agent] = there
        del self._away[agent]
        scene.progress.await_again(agent, until_ns)
        if is_on:
            at_ns = at_ns if isinstance(action, ConnectAction) else self._entered_ns
            await scene.fleet.command(EnterStage(index=index, at_ns=at_ns), to=[agent])

    async def _join(self, agent: int) -> None:
        """Lets the clients of an engine join the publish stage that is on, as those of a change:
        nobody sends what was due before. It passes over who joined and left until then by plan,
        and knows by itself at what rate they go on."""
        scene = self._scene
        index = scene.progress.stage
        at_ns = time.monotonic_ns() + scene.fleet.patience.start_delay_ns
        missing = list(_changes(Presence(scene.plan), scene.presence))
        asked = [
            ApplyChange(at_ns=change.at_ns, population=change.population, action=change.action)
            for change in scene.course.asked
            if change.stage == index
            and (isinstance(change.action, ChangeRate) or change not in scene.course.changes)
        ]
        del self._away[agent]
        scene.progress.await_again(agent, 0)
        await scene.fleet.command(EnterStage(index=index, at_ns=self._entered_ns), to=[agent])
        await self._unjudge(self._receivers)
        for command in asked:
            await scene.fleet.command(command, to=[agent])
        await self._change(agent, missing, at_ns)

    async def _repeat(self, agent: int, until: int) -> None:
        """The stages so far that connect and disconnect, one after the other."""
        scene = self._scene
        for index, stage in enumerate(scene.plan.stages[:until]):
            if not isinstance(stage.action, ConnectAction | DisconnectAction):
                continue
            now_ns = time.monotonic_ns()
            await scene.fleet.command(EnterStage(index=index, at_ns=now_ns), to=[agent])
            clients = sum(scene.plan.populations[p].clients for p in stage.populations)
            scheduled_ns = now_ns + schedule_ns(clients, stage.action.rate_per_s)
            timeout_ns = LEAVE_TIMEOUT_NS
            if isinstance(stage.action, ConnectAction):
                timeout_ns = stage.action.timeout_ns
            await self._settles(agent, index, scheduled_ns, timeout_ns)

    async def _settles(self, agent: int, stage: int, scheduled_ns: int, timeout_ns: int) -> None:
        """Until an agent has settled a stage, or nothing has moved for its timeout."""
        progress = self._scene.progress
        moved_ns, connected = scheduled_ns, progress.connected_of(agent)
        while not progress.has_settled(agent, stage):
            self._heard.clear()
            left_ns = moved_ns + timeout_ns - time.monotonic_ns()
            try:
                await asyncio.wait_for(self._heard.wait(), max(left_ns, 0) / SECOND_NS)
            except TimeoutError:
                return
            if connected != (connected := progress.connected_of(agent)):
                moved_ns = max(scheduled_ns, time.monotonic_ns())

    async def _change(
        self, agent: int, changes: Sequence[tuple[int, ChangeAction]], at_ns: int
    ) -> None:
        """Changes populations of one agent, in its own part of each."""
        for population, action in changes:
            over_ns = max(min(self._ramp_ns(population), self._room_ns(at_ns)), 0)
            timed = action.model_copy(update={"over_ns": over_ns})
            command = ApplyChange(at_ns=at_ns, population=population, action=timed)
            await self._scene.fleet.command(command, to=[agent])

    def _room_ns(self, at_ns: int) -> int:
        """How long clients may take to join the stage that is on."""
        action = self._scene.plan.stages[self._scene.progress.stage].action
        assert isinstance(action, PublishAction), "clients join publish stages only"
        return self._entered_ns + action.duration_ns - CLOSE_TO_END_NS - at_ns

    def _ramp_ns(self, population: int) -> int:
        """How long the stage that brought a population up takes by its rate, or took."""
        scene = self._scene
        for span in reversed(scene.course.spans):
            stage = scene.plan.stages[span.index]
            if isinstance(stage.action, ConnectAction) and population in stage.populations:
                clients = scene.presence.together(stage.populations)
                rate_per_s = stage.action.rate_per_s
                return schedule_ns(clients, rate_per_s) or span.to_ns - span.from_ns
        return 0

    def _repeated(self, until: int) -> Presence:
        """Who is there for an engine that has gone through the stages up to one, and that."""
        presence = Presence(self._scene.plan)
        for stage in self._scene.plan.stages[: until + 1]:
            presence.enter(stage)
        return presence


def _changes(there: Presence, wanted: Presence) -> Iterator[tuple[int, AddClients | RemoveClients]]:
    """What makes those who are there to those who are to be there, of what engines play."""
    both = zip(there.counts, wanted.counts, strict=True)
    for population, (now, then) in enumerate(both):
        if population in wanted.staying or now == then:
            continue
        kind = AddClients if then > now else RemoveClients
        yield population, kind(clients=abs(then - now), over_ns=0)
