"""Plays the stages of a plan on a fleet: enters each at one instant on all agents, holds the
barrier at its end, drains, and ends the run early when an agent is lost, nothing connects or the
user says so. One function for each kind of stage. It knows neither processes nor the result, and of
faults only that a stage waits until they are mended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pubstorm.barriers import (
    DRAINS_MAX,
    LEAVE_TIMEOUT_NS,
    SECOND_NS,
    connect_bound_ns,
    schedule_ns,
)
from pubstorm.cast import Cast
from pubstorm.changes import AppliedChange, AskedChange, members_of, parse_change
from pubstorm.comeback import Scene
from pubstorm.control import ApplyChange, Close, EnterStage, Stop
from pubstorm.course import Course, StageSpan
from pubstorm.errors import UsageError
from pubstorm.faults.play import FaultNews, FaultPlay
from pubstorm.fleet import Ended, Fleet, FleetEvent, Frame
from pubstorm.live import Live
from pubstorm.losses import JOIN_NS, Losses, OnLoss, Replaced
from pubstorm.memory import MemoryLow
from pubstorm.phase_names import unique_name
from pubstorm.plan import (
    ConnectAction,
    DisconnectAction,
    HoldAction,
    Plan,
    Presence,
    PublishAction,
    Stage,
    together,
)
from pubstorm.progress import Progress
from pubstorm.quantity import span_text
from pubstorm.topology import BrokerDied, BrokerEvent, BrokerRestarted, LinksDied

HOPELESS_NS = 3 * SECOND_NS
"""How long attempts may fail while nothing is connected."""
CLOSE_TIMEOUT_NS = 5 * SECOND_NS
"""How long agents may take to balance their ledgers after a close."""
PUBLISHER_GRACE_NS = 2 * SECOND_NS
"""How long publishers may take after the end of a stage until they are told to stop."""
INTERRUPTED_DRAIN_NS = SECOND_NS
"""How long an interrupted run waits for messages under way."""
STOP_GRACE_NS = 5 * SECOND_NS
"""How long agents may take to say bye."""
LEAVE_NS = SECOND_NS // 10_000
"""How much longer for each client that is still connected."""


@dataclass(frozen=True)
class Interrupt:
    """The user wants the run to end; a second one wants it to end at once."""

    signal: str


Happening = FleetEvent | BrokerEvent | FaultNews | MemoryLow | Interrupt | Replaced
"""What can happen to a run, in the order of its queue."""


class _RunOverError(Exception):
    """The run ends before its last stage; the course says why."""


class Conductor:
    """Conducts one run."""

    def __init__(
        self,
        plan: Plan,
        fleet: Fleet,
        happenings: asyncio.Queue[Happening],
        live: Live,
        faults: FaultPlay | None = None,
    ) -> None:
        self._cast = Cast.among(plan, fleet.agents)
        self._plan = plan
        self._fleet = fleet
        self._happenings = happenings
        self._live = live
        self._faults = faults
        self._stopping = False
        self._presence = Presence(plan)
        self._upcoming: list[AppliedChange] = []
        self._load_until_ns: int | None = None
        self.progress = Progress(plan, self._cast)
        self.course = Course(time.monotonic_ns(), faults=faults.applied if faults else [])
        self._losses = self._losses_by(OnLoss())

    def _losses_by(self, on_loss: OnLoss) -> Losses:
        scene = Scene(
            plan=self._plan,
            fleet=self._fleet,
            cast=self._cast,
            progress=self.progress,
            presence=self._presence,
            course=self.course,
            live=self._live,
        )
        return Losses(scene, on_loss, self._happenings.put_nowait)

    async def play(
        self,
        keep: Callable[[Frame], None],
        entered: Callable[[int, int], None] | None = None,
        on_loss: OnLoss | None = None,
    ) -> None:
        """Plays every stage, then stops the fleet. `keep` gets every snapshot as it comes,
        `entered` each stage's index and the instant at which it begins; `on_loss` says what
        becomes of the run when an engine is lost."""
        self._keep = keep
        self._entered = entered
        self._losses = self._losses_by(on_loss or OnLoss())
        course = self.course
        self.progress.start()
        try:
            for index, stage in enumerate(self._plan.stages):
                while self._losses.begin_waiting():
                    await self._returned()
                await self._play_stage(index, stage)
        except _RunOverError:
            course.ended_early = True
            await self._drain_interrupted()
        finally:
            await self._losses.stop()
            if self._faults is not None:
                await self._faults.stop()
        course.ended_ns = time.monotonic_ns()
        await self._stop()
        for index, populations in course.owed_received.items():
            self.progress.totals.owe_received(index, populations)

    async def change(self, words: str) -> str:
        """Changes a population beyond the plan, in the publish stage that is on; what was done.
        Raises UsageError where that cannot be."""
        asked = self._asked(parse_change(words))
        self._upcoming = sorted([*self._upcoming, *asked], key=lambda change: change.at_ns)
        self.course.asked += asked
        for each in asked:
            command = ApplyChange(at_ns=each.at_ns, population=each.population, action=each.action)
            await self._fleet.command(command, to=self._losses.present)
        at_s = (asked[0].at_ns - self.course.started_ns) / SECOND_NS
        return f"{asked[0].name} at {at_s:.1f} s"

    def _asked(self, wanted: AskedChange) -> list[AppliedChange]:
        """The change that takes effect as soon as every agent has heard of it, one for each share
        of a population."""
        at_ns = time.monotonic_ns() + self._fleet.patience.start_delay_ns
        if self._load_until_ns is None:
            raise UsageError("no publish stage is on", "changes are made while messages are sent")
        if at_ns + wanted.over_ns > self._load_until_ns:
            left_s = max(self._load_until_ns - at_ns, 0) / SECOND_NS
            raise UsageError(f"the stage goes on for {left_s:.1f} s only, too short for the change")
        index = self.progress.stage
        stage = self._plan.stages[index]
        members, name = members_of(self._plan, stage), wanted.population
        if name not in members:
            allowed = ", ".join(members)
            raise UsageError(f"found population {name}, allowed are {allowed} in this stage")
        changes = [change for change in self.course.changes if change.stage == index]
        taken = [stage.name, *(change.name for change in (*changes, *self._upcoming))]
        taken += self._faults.names(index) if self._faults is not None else []
        change = unique_name(wanted.name, taken)
        actions = wanted.actions(self._presence, members[name])
        asked = [AppliedChange(index, at_ns, change, p, action) for p, action in actions.items()]
        self._check_clients(asked)
        return asked

    def _check_clients(self, asked: Sequence[AppliedChange]) -> None:
        """Whether there are clients for the change, and still for those planned after it."""
        presence = self._presence.copy()
        for change in sorted([*self._upcoming, *asked], key=lambda change: change.at_ns):
            if not presence.fits(change.population, change.action):
                name = self._plan.populations[change.population].name
                there = presence.counts[change.population]
                clients = self._plan.populations[change.population].clients
                what = f"{there} of {clients} clients of {name} are there"
                if change not in asked:
                    what = f"{what} then, and {change.name} is planned after it"
                raise UsageError(f"not so many clients: {what}")
            presence.change(change.population, change.action)

    async def _play_stage(self, index: int, stage: Stage) -> None:
        patience, connects = self._fleet.patience, isinstance(stage.action, ConnectAction)
        delay_ns = patience.connect_delay_ns if connects else patience.start_delay_ns
        at_ns = time.monotonic_ns() + delay_ns
        self.progress.enter(index, at_ns)
        if self._entered is not None:
            self._entered(index, at_ns)
        await self._fleet.command(EnterStage(index=index, at_ns=at_ns), to=self._losses.present)
        load_ns = stage.action.duration_ns if isinstance(stage.action, PublishAction) else 0
        self._presence.enter(stage)
        if self._faults is not None:
            self._faults.enter(index, at_ns)
        try:
            self._end_if(await self._losses.enter(index, at_ns))
            await self._play_action(stage, at_ns)
        finally:
            self._losses.closes()
            self._load_until_ns, self._upcoming = None, []
            now_ns, settled = time.monotonic_ns(), self.progress.settled()
            self.course.spans.append(StageSpan(index, at_ns, at_ns + load_ns, now_ns, settled))
        if not settled:
            self._note("stage", f"stage {stage.name} ended before every agent was done")

    async def _play_action(self, stage: Stage, at_ns: int) -> None:
        match stage.action:
            case ConnectAction() as action:
                await self._connect(stage, action, at_ns)
            case PublishAction() as action:
                self._plan_changes(action, at_ns)
                await self._publish(at_ns + action.duration_ns)
            case HoldAction() as action:
                await self._hold(at_ns + action.duration_ns)
            case DisconnectAction() as action:
                await self._disconnect(stage, action, at_ns)

    async def _connect(self, stage: Stage, action: ConnectAction, at_ns: int) -> None:
        """Until every client is ready or given up, nothing has moved for the stage's timeout, or
        the stage has lasted as long as it may."""
        progress, losses = self.progress, self._losses
        starts = self._presence.together(stage.populations)
        scheduled_ns = at_ns + schedule_ns(starts, action.rate_per_s)
        bound_ns = scheduled_ns + connect_bound_ns(starts, action.timeout_ns)

        def done() -> bool:
            self._give_up_if_hopeless()
            return progress.settled() and not losses.under_way

        def until_ns() -> int:
            return min(self._last_start_ns(scheduled_ns) + action.timeout_ns, bound_ns)

        losses.opens()
        while not await self._until(done, until_ns()):
            now_ns = time.monotonic_ns()
            if now_ns >= until_ns():
                if not losses.under_way:
                    break
                await self._returned()
                if now_ns >= bound_ns:
                    break
        if progress.nothing_connected():
            self._give_up("no client is connected")

    async def _publish(self, load_until_ns: int) -> None:
        """Until the load is over and every fault mended, the backlog is out or closed, and
        all expected deliveries have come, nothing has moved for the drain's time, or the drain has
        reached its bound."""
        progress = self.progress
        self._load_until_ns = load_until_ns
        self._losses.opens(load_until_ns - JOIN_NS)
        await self._until(lambda: False, load_until_ns)
        await self._returned()
        self._losses.closes()
        self._load_until_ns = None
        await self._mended()
        bound_ns = max(load_until_ns, time.monotonic_ns()) + DRAINS_MAX * self._patience_ns
        if self._cast.publishers:
            if self._engines_publish():
                await self._while_moving(lambda: progress.is_out(load_until_ns), bound_ns)
            await self._close_publishers(PUBLISHER_GRACE_NS)
        await self._while_moving(progress.settled, bound_ns)
        if not progress.settled():
            await self._fleet.command(self._close(), to=self._losses.present)
            await self._until(progress.settled, time.monotonic_ns() + CLOSE_TIMEOUT_NS)
        # Nobody can say which delivery is the last to a receiver that changed.
        known = not self.course.unjudged(self._plan, progress.stage)
        await self._while_moving(lambda: known and progress.balanced(), bound_ns)
        if time.monotonic_ns() >= bound_ns and not progress.balanced():
            name = self._plan.stages[progress.stage].name
            longest = span_text(DRAINS_MAX * self._patience_ns / SECOND_NS)
            text = f"messages still came after {longest}, {DRAINS_MAX} times its drain"
            self._note("stage", f"stage {name} ended: {text}")

    async def _close_publishers(self, grace_ns: int) -> None:
        """Until publishers have sent their last message of the stage, by themselves within a grace
        or because they are told to stop; then the engines hear what was sent, and so what is owed
        to subscribers."""
        publishers = self._cast.publishers

        def settled() -> bool:
            return self.progress.settled(self._fleet.alive.intersection(publishers))

        if not await self._until(settled, time.monotonic_ns() + grace_ns):
            await self._fleet.command(Close(), to=publishers)
            if not await self._until(settled, time.monotonic_ns() + CLOSE_TIMEOUT_NS):
                names = [p.name for a, p in publishers.items() if not self.progress.settled([a])]
                text = f"publisher {', '.join(names)} did not end its stage: what it sends after"
                self._note("stage", f"{text} is not known")
        await self._fleet.command(self._close())

    def _engines_publish(self) -> bool:
        """Whether clients of engines publish beside publishers under test, in this stage."""
        stage = self._plan.stages[self.progress.stage]
        populations = (self._plan.populations[index] for index in stage.populations)
        return any(each.publications and each.player == "engine" for each in populations)

    def _close(self) -> Close:
        return Close(sent=self.progress.sent())

    def _plan_changes(self, action: PublishAction, at_ns: int) -> None:
        """Agents know the plan's changes by themselves; here they are told to the user."""
        self._upcoming = [
            AppliedChange(
                self.progress.stage,
                at_ns + change.after_ns,
                change.name,
                change.population,
                change.action,
            )
            for change in action.changes
        ]

    def _note_changes(self, now_ns: int) -> None:
        """Notes the changes that have taken effect."""
        count = sum(change.at_ns <= now_ns for change in self._upcoming)
        begun, self._upcoming = self._upcoming[:count], self._upcoming[count:]
        for same in together(begun):
            for change in same:
                self._presence.change(change.population, change.action)
                self.course.changes.append(change)
            self.course.note("change", same[0].name, same[0].at_ns)
            self._live.note(same[0].name)

    async def _hold(self, until_ns: int) -> None:
        """Until the time is over, every fault is mended and every agent has said so."""
        self._losses.opens()
        await self._until(lambda: False, until_ns)
        await self._mended()
        await self._returned()
        self._losses.closes()
        grace_ns = 2 * self._plan.snapshot_interval_ns + SECOND_NS
        deadline_ns = max(until_ns, time.monotonic_ns()) + grace_ns
        await self._until(self.progress.settled, deadline_ns)

    async def _mended(self) -> None:
        """Until every fault of the stage that does not last for ever is mended; each step of a
        mending has a limit of its own, and so it has an end."""
        while self._faults is not None and not self._faults.done():
            await self._until(self._faults.done, time.monotonic_ns() + SECOND_NS)

    async def _returned(self) -> None:
        """Until every engine that is on its way to where the run is has come there; each step of
        the way has a limit of its own, and so it has an end."""
        while self._losses.under_way:
            await self._until(lambda: not self._losses.under_way, time.monotonic_ns() + SECOND_NS)

    async def _disconnect(self, stage: Stage, action: DisconnectAction, at_ns: int) -> None:
        """Until every client has left, and wills of clients that left without DISCONNECT came."""
        ends = sum(self._plan.populations[index].clients for index in stage.populations)
        scheduled_ns = at_ns + schedule_ns(ends, action.rate_per_s)
        await self._until(self.progress.settled, scheduled_ns + LEAVE_TIMEOUT_NS)
        leaving = (self._plan.populations[index] for index in stage.populations)
        if any(each.will is not None and each.end == "abort" for each in leaving):
            bound_ns = time.monotonic_ns() + DRAINS_MAX * self._patience_ns
            await self._while_moving(self.progress.balanced, bound_ns)

    async def _drain_interrupted(self) -> None:
        """What is under way gets a moment more, if there are agents left to tell of it."""
        self._stopping = True
        stage = self._plan.stages[self.progress.stage]
        if isinstance(stage.action, PublishAction) and self._fleet.alive:
            if self._cast.publishers:
                await self._close_publishers(grace_ns=0)
            else:
                await self._fleet.command(Close(), to=self._losses.present)
            deadline_ns = time.monotonic_ns() + INTERRUPTED_DRAIN_NS
            await self._until(
                lambda: self.progress.settled() and self.progress.balanced(), deadline_ns
            )

    async def _stop(self) -> None:
        """Every agent says bye and is gone, or is killed after a grace. Publishers are the last, so
        that they are not missed by their subscribers."""
        self._stopping = True
        publishers = frozenset(self._cast.publishers)
        await self._stop_agents(self._fleet.alive - publishers)
        await self._stop_agents(publishers)
        await self._fleet.close()
        while not self._happenings.empty():
            await self._apply(self._happenings.get_nowait())

    async def _stop_agents(self, agents: frozenset[int]) -> None:
        await self._fleet.command(Stop(), to=agents)
        grace_ns = STOP_GRACE_NS + self.progress.connected * LEAVE_NS
        deadline_ns = time.monotonic_ns() + grace_ns
        if not await self._until(lambda: not self._fleet.alive & agents, deadline_ns):
            for agent in sorted(self._fleet.alive & agents):
                kind, name = self._called(agent)
                self._note(kind, f"{name} did not stop in time and was killed")

    @property
    def _patience_ns(self) -> int:
        """Time that a drain waits without progress. Without a snapshot no progress can be seen."""
        return max(self._plan.drain_ns, 2 * self._plan.snapshot_interval_ns)

    async def _while_moving(self, done: Callable[[], bool], bound_ns: int) -> None:
        """Waits until `done`, until nothing has moved for the drain's time, or until the bound."""
        started_ns = time.monotonic_ns()
        while not done():
            moved_ns = max(self.progress.moved_ns, started_ns)
            until_ns = min(moved_ns + self._patience_ns, bound_ns)
            if time.monotonic_ns() >= until_ns:
                return
            await self._until(done, until_ns)

    async def _until(self, done: Callable[[], bool], deadline_ns: int) -> bool:
        """Takes happenings and shows the state until `done` or the deadline; whether it is done."""
        while not done():
            now_ns = time.monotonic_ns()
            self._note_changes(min(now_ns, deadline_ns))
            if now_ns >= deadline_ns:
                return False
            self.progress.show(self._live, now_ns)
            next_ns = min((change.at_ns for change in self._upcoming), default=deadline_ns)
            wait_ns = min(deadline_ns, self.progress.next_show_ns, next_ns) - now_ns
            happening = await self._next(wait_ns)
            if happening is not None:
                await self._apply(happening)
        return True

    async def _next(self, wait_ns: int) -> Happening | None:
        if not self._happenings.empty():
            return self._happenings.get_nowait()
        try:
            return await asyncio.wait_for(self._happenings.get(), wait_ns / SECOND_NS)
        except TimeoutError:
            return None

    async def _apply(self, happening: Happening) -> None:
        match happening:
            case Frame():
                self.progress.take(happening.snapshot)
                self._losses.hear()
                self._keep(happening)
            case Ended():
                await self._apply_ending(happening)
            case Replaced():
                if not self._stopping:
                    self._end_if(await self._losses.take_replaced(happening))
            case BrokerDied():
                self._note("broker", happening.text)
            case FaultNews():
                self.course.note("fault", happening.text, happening.at_ns)
                self._live.note(happening.text)
            case BrokerRestarted():
                self._note("restart", happening.text)
            case LinksDied():
                self._note("links", happening.text)
            case MemoryLow():
                self._apply_memory(happening)
            case Interrupt():
                self._apply_interrupt(happening)

    def _apply_memory(self, low: MemoryLow) -> None:
        self._note("memory", f"{low.text}; {self.progress.connected:,} clients are connected")
        if not self._stopping:
            raise _RunOverError

    async def _apply_ending(self, ended: Ended) -> None:
        self.course.endings[ended.agent] = "bye" if ended.how == "bye" else ended.text
        kind = self._called(ended.agent)[0]
        if not self._stopping:
            self._end_if(await self._losses.take(ended), kind)
        elif ended.how != "bye" and not self.course.ended_early:
            self._note(kind, ended.text)

    def _end_if(self, reason: str | None, kind: str = "agent") -> None:
        """Ends the run if there is a reason."""
        if reason is not None:
            self._note(kind, reason)
            raise _RunOverError

    def _called(self, agent: int) -> tuple[str, str]:
        """What kind of thing an agent is in events, and its name in messages."""
        publisher = self._cast.publishers.get(agent)
        if publisher is None:
            return "agent", f"agent {agent}"
        return "publisher", f"publisher {publisher.name}"

    def _apply_interrupt(self, interrupt: Interrupt) -> None:
        if self.course.interrupted:
            self._fleet.kill()
            return
        self.course.interrupted = True
        self._note("interrupt", f"interrupted by {interrupt.signal}")
        if not self._stopping:
            raise _RunOverError

    def _give_up_if_hopeless(self) -> None:
        failing_since_ns = self.progress.failing_since_ns
        if failing_since_ns is not None and self.progress.nothing_connected():
            failing_ns = time.monotonic_ns() - failing_since_ns
            if failing_ns >= HOPELESS_NS:
                failing_s = failing_ns / SECOND_NS
                self._give_up(f"no client is connected after {failing_s:.0f} s of failing attempts")

    def _give_up(self, text: str) -> None:
        self._note("target", f"{text}: the run ends here")
        raise _RunOverError

    def _note(self, kind: str, text: str) -> None:
        self.course.note(kind, text)
        self._live.note(text)

    def _last_start_ns(self, scheduled_ns: int) -> int:
        return max(scheduled_ns, self.progress.connecting_ns)
