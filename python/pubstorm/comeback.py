"""How an engine in the place of a lost one comes to where the run is: it goes through the stages so
far, or its clients join the publish stage that is on. It knows no policy and no barrier."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pubstorm.barriers import LEAVE_TIMEOUT_NS, SECOND_NS, schedule_ns
from pubstorm.cast import Cast
from pubstorm.control import ApplyChange, EnterStage
from pubstorm.course import Course
from pubstorm.fleet import Fleet
from pubstorm.live import Live
from pubstorm.plan import (
    AddClients,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    Plan,
    Presence,
    PublishAction,
    RemoveClients,
)
from pubstorm.progress import Progress

LOOK_S = 0.02
"""How often it is looked whether a change has taken effect."""
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
    live: Live


class Comeback:
    """The way of engines to where the run is."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._heard = asyncio.Event()
        self.entered_ns = 0
        """When the stage that is on began, or begins."""

    def hear(self) -> None:
        """A snapshot has come."""
        self._heard.set()

    async def repeat(self, agent: int, until: int) -> None:
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

    def repeated(self, until: int) -> Presence:
        """Who is there for an engine that has gone through the stages up to one, and that."""
        presence = Presence(self._scene.plan)
        for stage in self._scene.plan.stages[: until + 1]:
            presence.enter(stage)
        return presence

    async def let_changes_pass(self, stage: int) -> None:
        """Until no planned change is about to take effect: who enters a publish stage just then may
        or may not play it."""
        while self._changes_soon(stage):
            await asyncio.sleep(LOOK_S)

    def missing(self, agent: int, stage: int) -> list[_PopulationChange]:
        """What makes those who are there to those who are to be there, for an engine that enters a
        publish stage with nobody."""
        return changes_between(self._comes_by_itself(agent, stage), self._scene.presence)

    def asked(self, stage: int) -> list[ApplyChange]:
        """What a user has changed in a publish stage, as an engine that comes later is to hear of
        it: rates, and who joins or leaves after this."""
        course = self._scene.course
        return [
            ApplyChange(at_ns=change.at_ns, population=change.population, action=change.action)
            for change in course.asked
            if change.stage == stage
            and (isinstance(change.action, ChangeRate) or change not in course.changes)
        ]

    async def change(self, agent: int, changes: Sequence[_PopulationChange], at_ns: int) -> None:
        """Changes populations of one agent, in its own part of each."""
        for population, action in changes:
            over_ns = max(min(self._ramp_ns(population), self._room_ns(at_ns)), 0)
            timed = action.model_copy(update={"over_ns": over_ns})
            command = ApplyChange(at_ns=at_ns, population=population, action=timed)
            await self._scene.fleet.command(command, to=[agent])

    def _changes_soon(self, stage: int) -> bool:
        """Whether a planned change takes effect within twice the time that a command takes."""
        action = self._scene.plan.stages[stage].action
        assert isinstance(action, PublishAction), "only publish stages change"
        soon_ns = time.monotonic_ns() + 2 * self._scene.fleet.patience.start_delay_ns
        planned = (self.entered_ns + change.after_ns for change in action.changes)
        taken = {change.at_ns for change in self._scene.course.changes}
        return any(at_ns <= soon_ns and at_ns not in taken for at_ns in planned)

    def _comes_by_itself(self, agent: int, stage: int) -> Presence:
        """Who joins by plan in a publish stage that an engine enters with nobody: it plays what it
        has seen begin, and passes over what was before it."""
        scene, presence = self._scene, Presence(self._scene.plan)
        if scene.fleet.hellos[agent].clock_ns <= self.entered_ns:
            for change in scene.course.changes:
                if change.stage == stage and change not in scene.course.asked:
                    presence.change(change.population, change.action)
        return presence

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

    def _room_ns(self, at_ns: int) -> int:
        """How long clients may take to join the stage that is on."""
        action = self._scene.plan.stages[self._scene.progress.stage].action
        assert isinstance(action, PublishAction), "clients join publish stages only"
        return self.entered_ns + action.duration_ns - CLOSE_TO_END_NS - at_ns

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


def changes_between(there: Presence, wanted: Presence) -> list[_PopulationChange]:
    """What makes those who are there to those who are to be there, of what engines play."""
    return list(_changes(there, wanted))


def _changes(there: Presence, wanted: Presence) -> Iterator[_PopulationChange]:
    both = zip(there.counts, wanted.counts, strict=True)
    for population, (now, then) in enumerate(both):
        if population in wanted.staying or now == then:
            continue
        kind = AddClients if then > now else RemoveClients
        yield population, kind(clients=abs(then - now), over_ns=0)


_PopulationChange = tuple[int, AddClients | RemoveClients]
"""A population and who joins or leaves it."""
