"""What becomes of a run that loses an engine: it ends, goes on without the clients of that one, or
another engine plays them from then on. It keeps who is away, says what is not judged for it, and
begins the way back of who is there again. It knows no barrier: the conductor asks it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field

from pubstorm.barriers import SECOND_NS, schedule_ns
from pubstorm.comeback import Comeback, Scene, changes_between
from pubstorm.control import EnterStage, Unjudge
from pubstorm.course import Loss
from pubstorm.errors import FleetError
from pubstorm.fleet import Ended
from pubstorm.plan import ConnectAction, Presence, PublishAction
from pubstorm.quantity import count_text, counted
from pubstorm.scenario.fleet import OnAgentLoss

NEVER_NS = 2**63
"""Later than every instant."""
JOIN_NS = SECOND_NS
"""How much of a publish stage must be left for clients that join it."""


@dataclass(frozen=True)
class OnLoss:
    """What is to be done when an engine is lost."""

    policy: OnAgentLoss = "fail"
    """What becomes of the run."""
    heard: Callable[[int, int], None] = field(default=lambda _agent, _at_ns: None)
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
        self._comeback = Comeback(scene)
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
        self._comeback.hear()

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
        before = [each.at_ns for each in scene.course.losses if each.agent == ended.agent]
        told_ns = scene.progress.lose(ended.agent, now_ns)
        heard_ns = max([scene.course.started_ns, *before]) if told_ns is None else told_ns
        loss = Loss(ended.agent, now_ns, heard_ns, sum(shares), ended.text)
        scene.course.losses.append(loss)
        scene.course.note("agent", ended.text, now_ns)
        scene.live.note(ended.text)
        self._heard_of(ended.agent, now_ns)
        self._away[ended.agent] = _Away(loss, shares)
        if self._policy == "replace":
            self._start(ended.agent, self._replace(ended.agent))
        elif (reason := self._hopeless(scene.progress.stage)) is not None:
            return reason
        # What its clients received in a drain after its last snapshot, nobody knows.
        theirs = [p for p in self._receivers if shares[p]]
        for span in scene.course.spans:
            if span.to_ns > heard_ns:
                self._owe_received(span.index, theirs)
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
        if self._open_until_ns is not None and time.monotonic_ns() < self._open_until_ns:
            self._begin(replaced.agent, away)
        return None

    async def enter(self, stage: int, at_ns: int) -> str | None:
        """A stage begins; why it cannot be played."""
        scene = self._scene
        self._comeback.entered_ns = at_ns
        if scene.course.owed_received.get(stage - 1):
            scene.progress.forget_owed()
        if not isinstance(scene.plan.stages[stage].action, PublishAction):
            return None
        left_out = {p for away in self._away.values() for p, n in enumerate(away.shares) if n}
        for agent, there in self._short.items():
            changes = changes_between(there, scene.presence)
            left_out.update(population for population, _ in changes)
            await self._comeback.change(agent, changes, at_ns)
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
        self._owe_received(stage, populations)
        if isinstance(scene.plan.stages[stage].action, PublishAction):
            engines = self.present.intersection(self._engines)
            await scene.fleet.command(Unjudge(populations=tuple(populations)), to=engines)

    def _owe_received(self, stage: int, populations: Sequence[int]) -> None:
        """Owes populations what they receive in a stage; where nobody publishes, only sessions that
        are kept get what was meant for them before."""
        plan = self._scene.plan
        publishes = isinstance(plan.stages[stage].action, PublishAction)
        get = [p for p in populations if publishes or not plan.populations[p].clean_session]
        if get:
            self._scene.course.owe_received(stage, get)

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
        away.loss.replaced_on = self._scene.fleet.hosts.get(agent, "")
        self._scene.progress.bring_back(agent)
        host = f" on {away.loss.replaced_on}" if away.loss.replaced_on else ""
        text = f"another engine{host} plays the clients of agent {agent}"
        self._scene.course.note("restart", text, away.loss.back_ns)
        self._scene.live.note(text)
        self._start(agent, self._bring_back(agent))

    async def _bring_back(self, agent: int) -> None:
        """Brings an engine to where the run is."""
        scene = self._scene
        index = scene.progress.stage
        action, is_on = scene.plan.stages[index].action, self._open_until_ns is not None
        if is_on and isinstance(action, PublishAction):
            await self._join(agent)
            return
        shares = self._away[agent].shares
        self._owe_received(index, [p for p in self._receivers if shares[p]])
        await self._comeback.repeat(agent, index if is_on else index + 1)
        at_ns = time.monotonic_ns() + scene.fleet.patience.start_delay_ns
        until_ns = 0
        if is_on and isinstance(action, ConnectAction):
            starts = scene.presence.together(scene.plan.stages[index].populations)
            until_ns = at_ns + schedule_ns(starts, action.rate_per_s)
        there = self._comeback.repeated(index)
        if changes_between(there, scene.presence):
            self._short[agent] = there
        del self._away[agent]
        scene.progress.await_again(agent, until_ns)
        if is_on:
            at_ns = at_ns if isinstance(action, ConnectAction) else self._comeback.entered_ns
            await scene.fleet.command(EnterStage(index=index, at_ns=at_ns), to=[agent])

    async def _join(self, agent: int) -> None:
        """Lets the clients of an engine join the publish stage that is on, as those of a change:
        nobody sends what was due before. It knows by itself at what rate they go on."""
        scene = self._scene
        index = scene.progress.stage
        await self._comeback.let_changes_pass(index)
        at_ns = time.monotonic_ns() + scene.fleet.patience.start_delay_ns
        missing = self._comeback.missing(agent, index)
        asked = self._comeback.asked(index)
        del self._away[agent]
        scene.progress.await_again(agent, 0)
        await scene.fleet.command(
            EnterStage(index=index, at_ns=self._comeback.entered_ns), to=[agent]
        )
        await self._unjudge(self._receivers)
        for command in asked:
            await scene.fleet.command(command, to=[agent])
        await self._comeback.change(agent, missing, at_ns)
