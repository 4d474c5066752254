"""Brings a replacement to where the run is: it goes through the stages so far, or its clients join
the publish stage that is on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pubstorm.contract.changes import ActiveClients
from pubstorm.contract.commands import ApplyChange, EnterStage
from pubstorm.contract.plan import (
    AddClients,
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    PublishAction,
    RemoveClients,
)
from pubstorm.play.barriers import LEAVE_TIMEOUT_NS, Barrier, schedule_ns
from pubstorm.play.context import RunContext
from pubstorm.quantities import SECOND_NS

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
        self._rejoined(Rejoined(agent, until_ns, self._repeated(stage)))
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
    """Returns the changes that bring the clients of engines to the wanted numbers."""
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
