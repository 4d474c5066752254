"""Plays the stages of a plan on a fleet: enters each at one instant on all agents, waits for the
barrier at its end, and drains. The run ends early if it cannot continue without a failed agent, if
no client connects, if a condition of its scenario is met, or if the user interrupts it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from pubstorm.contract.commands import ApplyChange, Close, EnterStage, unique_name
from pubstorm.contract.plan import (
    AddClients,
    ConnectAction,
    DisconnectAction,
    HoldAction,
    PlannedStage,
    PublishAction,
)
from pubstorm.errors import UsageError
from pubstorm.fleet import Ended, FleetEvent, SnapshotReceived
from pubstorm.host.environment import MemoryLow
from pubstorm.measure.run_log import StageSpan
from pubstorm.play.abort import AbortWhen
from pubstorm.play.agent_failure import JOIN_NS, AgentFailures, Replaced
from pubstorm.play.changes import StageChanges, by_hand_text
from pubstorm.play.context import Check, RunContext, stage_figures, unsent_text
from pubstorm.play.display.summary import summary_of
from pubstorm.play.faults import Breakable, FaultNews, FaultPlay
from pubstorm.play.progress import (
    DRAINS_MAX,
    LEAVE_TIMEOUT_NS,
    NEVER_NS,
    Barrier,
    connect_bound_ns,
    schedule_ns,
    wills_wait_ns,
)
from pubstorm.play.publisher_restarts import PublisherRestarts
from pubstorm.quantities import SECOND_NS, span_text
from pubstorm.scenario.fleet import OnAgentFailure
from pubstorm.topology import BrokerDied, BrokerEvent, BrokerRestarted, LinksDied, ServiceDied

CLOSE_TIMEOUT_NS = 5 * SECOND_NS
"""Longest time in which agents balance their ledgers after a close."""
PUBLISHER_GRACE_NS = 2 * SECOND_NS
"""Time after the end of a stage in which publishers end by themselves."""
INTERRUPTED_DRAIN_NS = SECOND_NS
"""Time for which an interrupted run waits for messages under way."""
LEAVE_S = 1e-4
"""Time for an agent to stop, for each client of the run that is still connected."""


@dataclass(frozen=True)
class Interrupt:
    """The user ends the run. A first SIGINT ends a publish or hold stage, which counts as it is;
    another signal ends the run at once, and one after that kills its agents."""

    signal: str


RunEvent = FleetEvent | BrokerEvent | FaultNews | MemoryLow | Interrupt | Replaced
"""An event in the queue of a run."""


@dataclass(frozen=True)
class ControllerOptions:
    """Options of a run beside its plan."""

    on_agent_failure: OnAgentFailure = "fail"
    faults: FaultPlay | None = None
    entered: Callable[[int, int], None] = lambda _index, _at_ns: None
    """Gets each stage that begins, with its instant in nanoseconds on the monotonic clock."""
    check: Check | None = None
    """Gets the figures of each stage that is over, in a thread, and may end the run."""
    abort: AbortWhen | None = None
    """Conditions of the scenario that end the run."""
    breakable: Breakable | None = None
    """Brokers and bridges that the user may break."""


class _RunOverError(Exception):
    """The run ends before its last stage; the run log says why."""


class Controller:
    """Plays one run."""

    def __init__(
        self,
        run: RunContext,
        queue: asyncio.Queue[RunEvent],
        options: ControllerOptions | None = None,
    ) -> None:
        self._run = run
        self._queue = queue
        options = options or ControllerOptions()
        self._faults = options.faults
        self._breakable = options.breakable
        self._entered = options.entered
        self._check = options.check
        self._abort = options.abort
        self._failures = AgentFailures(run, options.on_agent_failure, queue.put_nowait)
        self._restarts = PublisherRestarts(run)
        if self._faults is not None:
            self._faults.leave_publishers_to(self._restarts)
        self._changes = StageChanges(run)
        self._stopping = False
        self._stage_over = False
        """True if the user ended the present stage."""
        self._is_last = False
        """True if the user ends the run after the present stage."""
        self._cut_off = set[int]()
        """Populations with clients that had not joined when the user ended their stage."""
        self._until_ns = 0
        """Instant at which the time of the present stage is over."""
        self._load_over_ns = NEVER_NS
        """Instant at which the load of a stage ended before its time."""
        self._next_show_ns = 0

    async def play(self) -> None:
        """Plays every stage, then stops the fleet."""
        run, run_log = self._run, self._run.recorder.run_log
        try:
            for index, stage in enumerate(run.plan.stages):
                while self._failures.admit_waiting():
                    await self._all_rejoined()
                await self._play_stage(index, stage)
                await self._check_stage(index, stage)
                if self._is_last:
                    break
        except _RunOverError:
            run_log.ended_early = True
            await self._drain_interrupted()
        finally:
            await self._failures.stop()
            if self._faults is not None:
                await self._faults.stop()
        run_log.ended_ns = run.clock()
        await self._stop()

    async def change(self, words: str) -> str:
        """Changes a population beyond the plan, in the publish stage that is on. Returns the change
        in words. Raises UsageError if it cannot be made."""
        run = self._run
        taken = self._faults.names(run.progress.stage) if self._faults is not None else []
        asked = self._changes.ask(words, taken)
        for each in asked:
            command = ApplyChange(at_ns=each.at_ns, population=each.population, action=each.action)
            await run.fleet.command(command, to=self._failures.present)
        run.recorder.note("by_hand", by_hand_text(asked[0], words), asked[0].at_ns)
        at_s = (asked[0].at_ns - run.recorder.run_log.started_ns) / SECOND_NS
        return f"{asked[0].name} at {at_s:.1f} s"

    def inject(self, words: str) -> str:
        """Begins a fault beyond the plan, such as `kill main for 10s`. Returns its name. Raises
        UsageError if the run cannot have it now."""
        run, faults, breakable = self._run, self._faults, self._breakable
        stage = run.plan.stages[run.progress.stage]
        holds = isinstance(stage.action, HoldAction) and run.clock() < self._until_ns
        if faults is None or breakable is None or not (self._changes.are_open or holds):
            hint = "faults begin while messages are sent, or in a hold stage"
            raise UsageError("no publish stage is on", hint)
        asked = breakable.parse(words)
        changes = (each.name for each in run.recorder.run_log.changes)
        name = unique_name(asked.name, [stage.name, *faults.names(run.progress.stage), *changes])
        injected = faults.inject(replace(asked, name=name), self._until_ns).name
        run.recorder.note("by_hand", f"the user began the fault {injected}", run.clock())
        return injected

    def repair(self, name: str) -> str:
        """Repairs a fault before its time. Returns its name. Raises UsageError if none of this name
        is in effect."""
        if self._faults is None:
            raise UsageError(f"found no fault {name} to repair: this run has none")
        self._faults.repair(name)
        run = self._run
        run.recorder.note("by_hand", f"the user ended the fault {name}", run.clock())
        return name

    def end_stage(self, more: str = "") -> None:
        """Ends the present stage at once: nothing more of it is scheduled. `more` ends the text of
        the event. Raises UsageError if the stage cannot end before its time."""
        run = self._run
        stage = run.plan.stages[run.progress.stage]
        if isinstance(stage.action, DisconnectAction):
            raise UsageError(f"stage {stage.name} ends once its clients have left")
        if isinstance(stage.action, PublishAction) and not self._changes.are_open:
            raise UsageError(f"stage {stage.name} waits for messages in flight, and ends then")
        if self._faults is not None and not self._faults.done():
            raise UsageError(f"stage {stage.name} has faults, and ends once they are repaired")
        if not self._stage_over:
            self._stage_over = True
            run.note("by_hand", f"stage {stage.name} is ended by the user{more}")

    async def _play_stage(self, index: int, stage: PlannedStage) -> None:
        run, connects = self._run, isinstance(stage.action, ConnectAction)
        timeouts = run.fleet.timeouts
        at_ns = run.clock()
        at_ns += timeouts.connect_delay_ns if connects else timeouts.start_delay_ns
        run.progress.enter(index, at_ns)
        run.recorder.enter(index, at_ns)
        self._load_over_ns = NEVER_NS
        self._next_show_ns, self._stage_over = 0, False
        self._entered(index, at_ns)
        await run.fleet.command(EnterStage(index=index, at_ns=at_ns), to=self._failures.present)
        load_ns = stage.action.duration_ns if isinstance(stage.action, PublishAction) else 0
        holds_ns = stage.action.duration_ns if isinstance(stage.action, HoldAction) else 0
        self._until_ns = at_ns + load_ns + holds_ns
        run.active.enter(stage)
        if self._faults is not None:
            self._faults.enter(index, at_ns)
        try:
            self._end_if(await self._failures.enter(index, at_ns))
            cut_off = [each for each in run.receivers if each in self._cut_off]
            if cut_off and isinstance(stage.action, PublishAction):
                await self._failures.exclude(cut_off)
            await self._play_action(stage, at_ns)
        finally:
            self._failures.close()
            self._changes.end()
            settled = run.progress.settled()
            load_until_ns = min(at_ns + load_ns, self._load_over_ns)
            span = StageSpan(index, at_ns, load_until_ns, run.clock(), settled, self._stage_over)
            run.recorder.run_log.spans.append(span)
            self._cut_off = self._cut_off_by(span)
        if not self._stage_over and (unsent := unsent_text(run, index)):
            run.note("check", unsent)
        if not settled and not self._stage_over:
            run.note("stage", f"stage {stage.name} ended before every agent was done")

    def _cut_off_by(self, span: StageSpan) -> set[int]:
        """Returns the populations with clients that have not joined after a stage, since the user
        ended this one or an earlier one. Those of a connect stage join, as all of a disconnect
        stage leave."""
        stage = self._run.plan.stages[span.index]
        match stage.action:
            case PublishAction() | HoldAction() as action:
                until_ns = span.to_ns if isinstance(action, HoldAction) else span.load_until_ns
                joining = {
                    each.population
                    for each in self._run.recorder.run_log.changes
                    if each.stage == span.index and isinstance(each.action, AddClients)
                    if each.at_ns + each.ramp_ns > until_ns
                }
                return self._cut_off | joining if span.by_user else self._cut_off
            case ConnectAction() if span.by_user:
                active, present = self._run.active.counts, self._run.progress.present
                missing = {each for each in stage.populations if present(each) < active[each]}
                return self._cut_off.difference(stage.populations) | missing
            case _:
                return self._cut_off.difference(stage.populations)

    async def _check_stage(self, index: int, stage: PlannedStage) -> None:
        """Ends the run if a condition of the scenario is met, or if the user's check has a reason.
        Events wait until it has answered."""
        if self._abort is not None and not self._is_last:
            self._end_if(self._abort.after(self._run), "check")
        if self._check is not None:
            reason = await asyncio.to_thread(self._check, stage_figures(self._run, index))
            self._end_if(reason and f"check after stage {stage.name}: {reason}", "check")

    async def _play_action(self, stage: PlannedStage, at_ns: int) -> None:
        match stage.action:
            case ConnectAction() as action:
                await self._connect(stage, action, at_ns)
            case PublishAction() as action:
                self._changes.begin(action, at_ns)
                await self._publish(action, at_ns + action.duration_ns)
            case HoldAction() as action:
                self._changes.begin(action, at_ns)
                await self._hold(at_ns + action.duration_ns)
            case DisconnectAction() as action:
                await self._disconnect(stage, action, at_ns)

    async def _connect(self, stage: PlannedStage, action: ConnectAction, at_ns: int) -> None:
        """Waits until every client is ready or given up, nothing has moved for the stage's timeout,
        or the stage has reached its bound."""
        run, failures = self._run, self._failures
        starts = run.active.together(stage.populations)
        scheduled_ns = at_ns + schedule_ns(starts, action.rate_per_s)
        bound_ns = scheduled_ns + connect_bound_ns(starts, action.timeout_ns)

        def done() -> bool:
            self._give_up_if_hopeless()
            is_over = run.progress.settled() or self._stage_over
            return is_over and not failures.hold_barriers

        def until_ns() -> int:
            last_start_ns = max(scheduled_ns, run.progress.connecting_ns)
            return min(last_start_ns + action.timeout_ns, bound_ns)

        failures.admit()
        while not await self._passed(done, until_ns) and failures.hold_barriers:
            is_over = run.clock() >= bound_ns
            await self._all_rejoined()
            if is_over:
                break
        if run.progress.nothing_connected():
            self._give_up("no client is connected")

    async def _publish(self, action: PublishAction, load_until_ns: int) -> None:
        """Waits until the load is over, or its messages are sent, and every fault repaired, the
        backlog is out or closed, and all expected deliveries have come, nothing has moved for the
        drain's time, or the drain has reached its bound."""
        run, progress = self._run, self._run.progress
        self._failures.admit(load_until_ns - JOIN_NS)
        is_over = await self._wait_until(load_until_ns, counts=action.messages is not None)
        is_ended = is_over and self._stage_over
        if is_over and not is_ended:
            self._load_over_ns = load_until_ns = progress.settled_ns()
        await self._all_rejoined()
        if is_ended:
            load_until_ns = await self._end_load()
        self._failures.close()
        self._changes.close()
        await self._all_repaired()
        bound_ns = max(load_until_ns, run.clock()) + DRAINS_MAX * self._drain_ns
        if run.assignment.publishers:
            if self._engines_publish():
                await self._while_moving(lambda: progress.is_out(load_until_ns), bound_ns)
            await self._close_publishers(PUBLISHER_GRACE_NS)
        await self._while_moving(progress.settled, bound_ns)
        if not progress.settled():
            await run.fleet.command(self._close(), to=self._failures.present)
            await self._passed(progress.settled, run.clock() + CLOSE_TIMEOUT_NS)
        # The last delivery to a receiver that changed is not known.
        known = not run.recorder.run_log.excluded_from_loss(run.plan, progress.stage)
        await self._while_moving(lambda: known and progress.balanced(), bound_ns)
        if run.clock() >= bound_ns and not (known and progress.balanced()):
            name = run.plan.stages[progress.stage].name
            longest = span_text(DRAINS_MAX * self._drain_ns / SECOND_NS)
            text = f"messages still came after {longest}, the longest time of its drain"
            run.note("stage", f"stage {name} ended: {text}")

    async def _end_load(self) -> int:
        """Ends the load of a publish stage before its time, and returns the instant."""
        run = self._run
        self._load_over_ns = run.clock()
        if run.assignment.publishers:
            await self._close_publishers(grace_ns=0)
        else:
            await run.fleet.command(Close(), to=self._failures.present)
        return self._load_over_ns

    async def _close_publishers(self, grace_ns: int) -> None:
        """Waits until publishers have sent their last message of the stage, by themselves within a
        grace or after a command. Then the agents get the numbers of messages, from which they
        compute the expected deliveries."""
        run, publishers = self._run, self._run.assignment.publishers

        def settled() -> bool:
            return run.progress.settled(run.fleet.alive.intersection(publishers))

        if not await self._passed(settled, run.clock() + grace_ns):
            await run.fleet.command(Close(), to=publishers)
            if not await self._passed(settled, run.clock() + CLOSE_TIMEOUT_NS):
                names = [p.name for a, p in publishers.items() if not run.progress.settled([a])]
                text = f"publisher {', '.join(names)} did not end its stage: what it sends after"
                run.note("stage", f"{text} is not known")
        await run.fleet.command(self._close())

    def _engines_publish(self) -> bool:
        """True if clients of the engine publish beside publishers under test, in this stage."""
        run = self._run
        stage = run.plan.stages[run.progress.stage]
        populations = (run.plan.populations[index] for index in stage.populations)
        return any(each.publications and each.player == "engine" for each in populations)

    def _close(self) -> Close:
        return Close(sent=self._run.progress.sent())

    async def _hold(self, until_ns: int) -> None:
        """Waits until the time is over, every fault is repaired and every agent has settled."""
        self._failures.admit()
        is_ended = await self._wait_until(until_ns)
        await self._all_repaired()
        await self._all_rejoined()
        self._failures.close()
        if is_ended:
            return
        grace_ns = 2 * self._run.plan.snapshot_interval_ns + SECOND_NS
        deadline_ns = max(until_ns, self._run.clock()) + grace_ns
        await self._passed(self._run.progress.settled, deadline_ns)

    async def _disconnect(self, stage: PlannedStage, action: DisconnectAction, at_ns: int) -> None:
        """Waits until every client has left, and the wills of clients that left without DISCONNECT
        have come."""
        run = self._run
        leaving = [run.plan.populations[index] for index in stage.populations]
        scheduled_ns = at_ns + schedule_ns(sum(p.clients for p in leaving), action.rate_per_s)
        until_ns = scheduled_ns + LEAVE_TIMEOUT_NS + wills_wait_ns(leaving)
        await self._passed(run.progress.settled, until_ns)
        if any(each.will is not None and each.end != "disconnect" for each in leaving):
            bound_ns = run.clock() + DRAINS_MAX * self._drain_ns
            await self._while_moving(run.progress.balanced, bound_ns)

    async def _all_repaired(self) -> None:
        """Waits until every fault of the stage is repaired, except those that last. Each step of a
        repair has a limit of its own."""
        if self._faults is not None:
            await self._passed(self._faults.done, NEVER_NS)

    async def _all_rejoined(self) -> None:
        """Waits until every replacement that rejoins is where the run is. Each step of a rejoin has
        a limit of its own."""
        await self._passed(lambda: not self._failures.hold_barriers, NEVER_NS)

    async def _drain_interrupted(self) -> None:
        """Gives messages under way a moment to come, if there are agents left that report them."""
        self._stopping = True
        run, progress = self._run, self._run.progress
        stage = run.plan.stages[progress.stage]
        if isinstance(stage.action, PublishAction) and run.fleet.alive:
            if run.assignment.publishers:
                await self._close_publishers(grace_ns=0)
            else:
                await run.fleet.command(Close(), to=self._failures.present)
            deadline_ns = run.clock() + INTERRUPTED_DRAIN_NS
            await self._passed(lambda: progress.settled() and progress.balanced(), deadline_ns)

    async def _stop(self) -> None:
        """Stops every agent: it says bye and exits, or is ended by its watchdog. Publishers are the
        last, so that their subscribers do not miss them."""
        self._stopping = True
        fleet, publishers = self._run.fleet, frozenset(self._run.assignment.publishers)
        await self._stop_agents(fleet.alive - publishers)
        await self._stop_agents(publishers)
        await fleet.close()
        while not self._queue.empty():
            await self._apply(self._queue.get_nowait())

    async def _stop_agents(self, agents: frozenset[int]) -> None:
        """The fleet ends an agent that makes no progress: with those of others, its clients leave
        as fast as the processors let them."""
        fleet = self._run.fleet
        limit_s = fleet.timeouts.silence_s + self._run.progress.connected * LEAVE_S
        await fleet.stop(limit_s, to=agents)
        await self._passed(lambda: not fleet.alive & agents, NEVER_NS)

    @property
    def _drain_ns(self) -> int:
        """Time that a drain waits without progress. Without a snapshot no progress can be seen."""
        return max(self._run.plan.drain_ns, 2 * self._run.plan.snapshot_interval_ns)

    async def _while_moving(self, done: Callable[[], bool], bound_ns: int) -> None:
        """Waits until `done`, until nothing has moved for the drain's time, or until the bound."""
        progress, started_ns = self._run.progress, self._run.clock()

        def until_ns() -> int:
            return min(max(progress.moved_ns, started_ns) + self._drain_ns, bound_ns)

        await self._passed(done, until_ns)

    async def _wait_until(self, instant_ns: int, *, counts: bool = False) -> bool:
        """Handles events until an instant. Returns True if the stage ended before: by the user, by
        a condition of the scenario, or, if it `counts` messages, as all agents have sent theirs."""
        settled = self._run.progress.settled

        def ended() -> bool:
            return self._stage_over or self._is_aborted() or (counts and settled())

        return await self._passed(ended, instant_ns)

    def _is_aborted(self) -> bool:
        """Ends the present stage, and the run after it, if a condition of the scenario is met. The
        run ends at once if faults of the stage are not repaired."""
        reason = None if self._abort is None else self._abort.during(self._run)
        if reason is None:
            return False
        if self._faults is not None and not self._faults.done():
            self._end_if(reason, "check")
        self._run.note("check", reason)
        self._stage_over = self._is_last = True
        return True

    async def _passed(self, done: Callable[[], bool], until: int | Callable[[], int]) -> bool:
        """Handles events until a barrier is passed or its time is over. Returns `done`."""

        def until_ns() -> int:
            return until if isinstance(until, int) else until()

        passed = await Barrier(done, until_ns).passed(self._run.clock, self._next_event)
        if not passed:
            self._changes.note(min(self._run.clock(), until_ns()))
        return passed

    async def _next_event(self, wait_ns: int) -> None:
        """Handles the next event, if one comes in time, and shows the state of the run."""
        run, now_ns = self._run, self._run.clock()
        self._changes.note(now_ns)
        if now_ns >= self._next_show_ns:
            self._next_show_ns = now_ns + SECOND_NS
            run.live.show(summary_of(run.progress, run.recorder.run_log.started_ns, now_ns))
        wait_ns = min(wait_ns, self._next_show_ns - now_ns, self._changes.next_ns - now_ns)
        if self._queue.empty():
            try:
                async with asyncio.timeout(wait_ns / SECOND_NS):
                    event = await self._queue.get()
            except TimeoutError:
                return
        else:
            event = self._queue.get_nowait()
        await self._apply(event)

    async def _apply(self, event: RunEvent) -> None:
        run = self._run
        match event:
            case SnapshotReceived():
                stage = run.progress.take(event.snapshot)
                early = run.progress.is_early(event.snapshot)
                run.recorder.take(event, stage, early=early)
                self._failures.on_snapshot()
            case Ended():
                await self._apply_ending(event)
            case Replaced():
                if not self._stopping:
                    self._end_if(await self._failures.on_replaced(event))
            case BrokerDied():
                run.note("broker", event.text)
            case ServiceDied():
                run.note("service", event.text)
            case FaultNews():
                if event.applied is not None:
                    run.recorder.store_fault(event.applied)
                run.note("fault", event.text, event.at_ns)
            case BrokerRestarted():
                run.note("restart", event.text)
            case LinksDied():
                run.note("links", event.text)
            case MemoryLow():
                run.note(
                    "memory", f"{event.text}; {run.progress.connected:,} clients are connected"
                )
                self._end_run()
            case Interrupt():
                self._apply_interrupt(event)

    async def _apply_ending(self, ended: Ended) -> None:
        run_log = self._run.recorder.run_log
        run_log.endings[ended.agent] = "bye" if ended.how == "bye" else ended.text
        is_publisher = ended.agent in self._run.assignment.publishers
        kind = "publisher" if is_publisher else "agent"
        if self._restarts.expects(ended):
            return
        if not self._stopping:
            self._end_if(await self._failures.on_ended(ended), kind)
        elif ended.how == "silent" or (ended.how != "bye" and not run_log.ended_early):
            self._run.note(kind, ended.text)

    def _apply_interrupt(self, interrupt: Interrupt) -> None:
        run_log = self._run.recorder.run_log
        if run_log.interrupted and not self._is_last:
            self._run.fleet.kill()
            return
        self._is_last = not run_log.interrupted and interrupt.signal == "SIGINT" and self._ends()
        run_log.interrupted = True
        if not self._is_last:
            self._run.note("interrupt", f"interrupted by {interrupt.signal}")
            self._end_run()

    def _ends(self) -> bool:
        """Ends the present stage, if what was measured in it until now counts."""
        run = self._run
        stage = run.plan.stages[run.progress.stage]
        if not isinstance(stage.action, PublishAction | HoldAction) or self._stopping:
            return False
        planned_s = stage.action.duration_ns / SECOND_NS
        left_s = max(self._until_ns - run.clock(), 0) / SECOND_NS
        if left_s >= planned_s:
            return False
        done, planned = span_text(planned_s - left_s), span_text(planned_s)
        try:
            self.end_stage(f" after {done} of {planned}, and the run")
        except UsageError:
            return False
        return True

    def _give_up_if_hopeless(self) -> None:
        if (failing_ns := self._run.progress.hopeless_ns()) is not None:
            failing_s = failing_ns / SECOND_NS
            self._give_up(f"no client is connected after {failing_s:.0f} s of failing attempts")

    def _give_up(self, text: str) -> None:
        self._run.note("target", f"{text}: the run ends here")
        raise _RunOverError

    def _end_if(self, reason: str | None, kind: str = "agent") -> None:
        if reason is not None:
            self._run.note(kind, reason)
            raise _RunOverError

    def _end_run(self) -> None:
        """Ends the run, unless it stops already."""
        if not self._stopping:
            raise _RunOverError
