"""Plays one run, from scenario to stored result: topology up, plan compiled, fleet up, stages
played, everything down, result evaluated and stored. Signals that end a run: SIGINT, SIGTERM and
SIGHUP become events, and end what starts up."""

from __future__ import annotations

import asyncio
import secrets
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from pubstorm.contract.plan import Plan
from pubstorm.contract.sums import RunSum
from pubstorm.contract.target import PublisherTarget
from pubstorm.errors import PubstormError
from pubstorm.exports import Exports
from pubstorm.exports import Run as Exported
from pubstorm.fleet import Fleet
from pubstorm.fleet.choice import hosts_of, site_of
from pubstorm.fleet.programs import Assignment
from pubstorm.fleet.provision import Placement, Provision
from pubstorm.host.binaries import engine_path
from pubstorm.host.children import raised_priority, run_loop
from pubstorm.host.environment import raise_descriptor_limit, read_environment, watch_memory
from pubstorm.host.keys.clients import check_host_files
from pubstorm.host.signals import INTERRUPTED, ending_signals
from pubstorm.measure.assemble import Assembly, limits_of
from pubstorm.measure.monitors.choice import MonitoredRun, monitoring_of
from pubstorm.measure.monitors.monitoring import Monitored
from pubstorm.measure.recorder import Recorder
from pubstorm.measure.run_log import RunLog
from pubstorm.metrics.expressions import percentiles_in
from pubstorm.plan import placed_plan, planned_targets, provisional_plan, targets_by_name
from pubstorm.plan.stages import faulty_bridges, planned_faults
from pubstorm.play.abort import AbortWhen
from pubstorm.play.clean_start import CleanStart
from pubstorm.play.clean_start.remove import remove_bridges
from pubstorm.play.context import Check, RunContext, RunInfo, RunOutput, RunStart
from pubstorm.play.control_socket import listening
from pubstorm.play.directory import PLAN_FILE, RunDirectory, new_path
from pubstorm.play.display import Live
from pubstorm.play.faults import Breakable, FaultPlay
from pubstorm.play.oversights import oversights
from pubstorm.play.stages import Controller, ControllerOptions, Interrupt, RunEvent
from pubstorm.play.steering import Steering, steered
from pubstorm.quantities import SECOND_NS
from pubstorm.result import Environment, Event, Measured, RunResult, StaleState
from pubstorm.result.samples import START_FILE, Tracks
from pubstorm.result.timeline import Timeline
from pubstorm.scenario import Scenario
from pubstorm.scenario.document import redacted_override
from pubstorm.topology import Topology, TopologyContext
from pubstorm.topology.adapters import broker_kinds
from pubstorm.topology.faults import CommandFaults, Faults
from pubstorm.topology.started import this_process

T = TypeVar("T")


class Interruption:
    """The user's wish that a run ends."""

    def __init__(self, report: Callable[[Interrupt], None]) -> None:
        self._report = report
        self._came = asyncio.Event()

    def on_signal(self, number: signal.Signals) -> None:
        """Ends the start of the run, or reports to its controller."""
        self._came.set()
        self._report(Interrupt(number.name))

    def forget(self) -> None:
        """Waits for a further signal."""
        self._came.clear()

    async def unless(self, start: Coroutine[None, None, T]) -> T:
        """Runs a coroutine that cleans up when it is cancelled. Raises PubstormError if a signal
        comes before its end."""
        starting = asyncio.create_task(start)
        interrupted = asyncio.create_task(self._came.wait())
        await asyncio.wait({starting, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        interrupted.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            raise PubstormError("interrupted before the first stage", exit_code=INTERRUPTED)
        return starting.result()


@contextmanager
def caught_signals(handle: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Directs SIGINT, SIGTERM and SIGHUP to `handle` while it is open, and to the handler that was
    opened before once it is closed. Only the main thread gets signals; for other threads there is
    `interrupt_thread`."""
    handlers = _handlers.setdefault(threading.get_ident(), [])
    handlers.append((asyncio.get_running_loop(), handle))
    _catch(handle)
    try:
        yield
    finally:
        handlers.pop()
        _catch(handlers[-1][1] if handlers else None)


def interrupt_thread(thread: int) -> bool:
    """Ends what a thread plays, as SIGINT would. Returns False if the thread plays nothing."""
    handlers = _handlers.get(thread)
    if not handlers:
        return False
    loop, handle = handlers[-1]
    loop.call_soon_threadsafe(handle, signal.SIGINT)
    return True


def _catch(handle: Callable[[signal.Signals], None] | None) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in ending_signals():
        if handle is None:
            loop.remove_signal_handler(number)
        else:
            loop.add_signal_handler(number, handle, number)


_handlers: dict[int, list[tuple[asyncio.AbstractEventLoop, Callable[[signal.Signals], None]]]] = {}
"""Handlers of each thread, the present one last: of a series, a run in it, the end of its
brokers."""


RUNS = Path("runs")
"""Folder of run directories, below the current one."""


@dataclass(frozen=True)
class RunOptions:
    """Options of the command line beside the scenario."""

    out: Path | None = None
    """The run directory, a new or empty folder. Default: a new one in `runs`."""
    command: str = ""
    """The command line, for the result."""
    topology: Topology | None = None
    """Brokers that outlive the run. Default: the run has its own."""
    reports: bool = True
    """True if reports are made of the result; `pubstorm report` makes them at any time."""
    check: Check | None = None
    """A check of the user after each stage."""


def run_scenario(scenario: Scenario, options: RunOptions, live: Live) -> RunResult:
    """Plays a scenario and returns its result, stored in the folder that its `run_directory` names.
    Raises PubstormError if the run comes to no measurement."""
    return run_loop(play_scenario(scenario, options, live))


async def play_scenario(scenario: Scenario, options: RunOptions, live: Live) -> RunResult:
    """Does the same in the loop of a series or search."""
    raise_descriptor_limit()
    provisional = provisional_plan(scenario)
    check_host_files(scenario, provisional)
    queue: asyncio.Queue[RunEvent] = asyncio.Queue()
    interruption = Interruption(queue.put_nowait)
    # Signals stay caught from before the run's folder exists until its result is stored.
    with raised_priority(), caught_signals(interruption.on_signal), ExitStack() as stack:
        info = _info(scenario, options, live)
        stack.enter_context(info.directory)
        stack.callback(live.end)
        live.begin(scenario.name, info.directory.path)
        output = await _Run(info, provisional, options.topology, queue, interruption).play()
        # The code that makes the result takes no memory while the load is played.
        from pubstorm.play.record import record

        return record(info, output)


def _info(scenario: Scenario, options: RunOptions, live: Live) -> RunInfo:
    """Makes the run directory, with the scenario in it."""
    started = datetime.now().astimezone()
    directory = RunDirectory.create(options.out or new_path(RUNS, scenario.name, started))
    directory.write("scenario.yaml", scenario.source_text)
    return RunInfo(
        scenario, directory, live, started, options.command, options.reports, options.check
    )


@dataclass(frozen=True)
class _Run:
    """One run, from brokers to measurements."""

    info: RunInfo
    provisional: Plan
    """The plan before any broker has a port."""
    shared: Topology | None
    """Brokers that outlive the run."""
    queue: asyncio.Queue[RunEvent]
    interruption: Interruption
    stale_state: list[StaleState] = field(default_factory=list)
    warnings: list[Event] = field(default_factory=list)

    async def play(self) -> RunOutput:
        """Starts everything, plays the stages, and stops everything."""
        for text in self.info.scenario.source.left_out:
            self._store_warning(Event(at_s=0.0, kind="host", text=f"left out: {text}"))
        async with AsyncExitStack() as stack:
            topology = await self._topology(stack)
            plan = await self.interruption.unless(self._plan(topology))
            clean_start = self._clean_start(plan, topology)
            self.stale_state.extend(await self.interruption.unless(clean_start.before()))
            if clean_start.refuses(self.stale_state):
                load = self._refused(plan)
            else:
                load = await self._load(plan, topology)
            await self._clean(clean_start, load.assembly)
        return RunOutput(
            assembly=load.assembly,
            tracks=load.tracks,
            monitored=load.monitored,
            brokers=topology.results(),
            services=topology.service_results(),
            bridges=topology.bridges.results(),
            stale_state=tuple(self.stale_state),
            warnings=tuple(self.warnings),
            environment=load.environment,
        )

    async def _topology(self, stack: AsyncExitStack) -> Topology:
        """Starts the brokers, bridges and services; the stack stops them."""
        scenario, report = self.info.scenario, self.queue.put_nowait
        topology = self.shared or Topology(
            scenario.topology,
            self.info.directory.topology,
            report,
            TopologyContext(
                targets=scenario.target,
                cut=faulty_bridges(scenario),
                hosts=hosts_of(scenario, self.info.directory.logs),
                directory=scenario.directory,
            ),
        )
        topology.notify(report)
        if self.shared is None:
            stack.push_async_callback(self._clean_outside, topology)
            stack.push_async_callback(topology.stop)
        topology.keys.make(self.provisional)
        topology.services.prepare(self.provisional)
        await self.interruption.unless(topology.start(self.info.live.starting))
        # The run continues without some bridges: each missing bridge is a finding.
        self._warn("bridge", topology.bridges.missing())
        self._warn("host", topology.unlimited())
        found = oversights(scenario, self.provisional)
        self._warn("scenario", (f"{'.'.join(map(str, o.path))}: {o.text}" for o in found))
        return topology

    async def _plan(self, topology: Topology) -> Plan:
        """Puts the plan at the brokers that were started, and stores it."""
        scenario = self.info.scenario
        placement = Placement(scenario, topology.hosts)
        await placement.open()
        planned = planned_targets(scenario)[len(scenario.target) :]
        brokers = len(topology.addresses)
        started = (
            target.model_copy(update={"host": host, "port": port, "ports": ports})
            for (host, port), ports, target in zip(
                topology.addresses, topology.other_ports, planned[:brokers], strict=True
            )
        )
        publishers = await placement.targets(planned[brokers:])
        targets = (*scenario.target, *started, *publishers)
        plan = topology.keys.equip(
            placed_plan(scenario, self.provisional, targets, run_tag=secrets.randbits(32))
        )
        await topology.provide(plan)
        text = plan.without_secrets().model_dump_json(indent=2) + "\n"
        self.info.directory.write(PLAN_FILE, text)
        return plan

    def _clean_start(self, plan: Plan, topology: Topology) -> CleanStart:
        scenario = self.info.scenario
        observed = topology.keys.observing(_observed(scenario, plan, topology))
        older = _older_targets(scenario, is_shared=self.shared is not None)
        return CleanStart(observed, scenario.clean_start, older)

    async def _load(self, plan: Plan, topology: Topology) -> _Load:
        """Starts the agents and plays the stages."""
        scenario = self.info.scenario
        async with AsyncExitStack() as stack:
            site = site_of(scenario, self.info.directory.logs)
            stack.push_async_callback(site.close)
            await self.interruption.unless(site.open())
            line = site.localised(plan).to_line()
            placement = Placement(scenario, topology.hosts)
            kinds = broker_kinds(scenario.topology)
            provision = Provision(scenario, plan, site, placement, kinds)
            fleet = await self.interruption.unless(self._fleet(provision))
            here = dict.fromkeys(provision.programs_here, plan.to_line())
            await self.interruption.unless(fleet.up(line, here))
            stack.push_async_callback(fleet.close)
            load = await self._play_stages(plan, topology, fleet)
        recorder = load.recorder
        assembly = self._assembly(fleet, recorder, plan)
        return _Load(assembly, recorder.kept.tracks, load.monitored, load.environment)

    def _assembly(self, fleet: Fleet, recorder: Recorder, plan: Plan) -> Assembly:
        scenario = self.info.scenario
        return Assembly(
            plan=plan,
            hellos=tuple(hello for _, hello in sorted(fleet.hellos.items())),
            run_log=recorder.run_log,
            sums=recorder.sums,
            timeline=recorder.timeline,
            limits=limits_of(scenario),
            on=scenario.fleet.on,
            hosts=fleet.hosts,
            percentiles=percentiles_in(scenario.source_text),
        )

    async def _fleet(self, provision: Provision) -> Fleet:
        fleet = await provision.fleet(self.info.directory.logs, self.queue.put_nowait)
        self._warn("host", provision.shortages())
        return fleet

    async def _play_stages(self, plan: Plan, topology: Topology, fleet: Fleet) -> _Played:
        """Plays the stages, with faults, monitors and the user's changes."""
        scenario, directory, live = self.info.scenario, self.info.directory, self.info.live
        publishers = Assignment.among(plan, fleet.agents).publishers
        observed = _observed(scenario, plan, topology)
        processes = {
            each.source: (fleet.hosts[agent], partial(_pid, fleet, agent))
            for agent, each in publishers.items()
        }
        surroundings = MonitoredRun(topology, processes, directory.path)
        monitoring = monitoring_of(scenario, observed, surroundings, live.note)
        await monitoring.prepare()
        commands = CommandFaults(scenario.directory, directory.logs)
        breaker = Faults(topology, topology.bridges.links, topology.networks, commands)
        faults = FaultPlay(planned_faults(scenario), breaker, self.queue.put_nowait)
        run_log = RunLog(time.monotonic_ns(), time.time_ns(), faults=faults.applied)
        exports = live.exports
        recorder = Recorder(plan, Assignment.among(plan, fleet.agents), run_log, directory, exports)
        recorder.kept.interval_s = scenario.monitors.interval / SECOND_NS
        directory.merging = recorder.kept.merging
        run = RunContext(plan, fleet, recorder, live)
        environment = self._store_start(run_log, fleet, topology)
        options = ControllerOptions(
            scenario.fleet.on_agent_failure,
            faults,
            monitoring.enter_stage,
            self.info.check,
            self._abort(run, topology, environment),
            Breakable(scenario, faulty_bridges(scenario)),
        )
        controller = Controller(run, self.queue, options)
        name = directory.path.resolve().name
        exports.begin(
            Exported(name, scenario.name, plan, run_log.started_ns, run_log.started_unix_ns)
        )
        async with AsyncExitStack() as stack:
            stack.push_async_callback(_end_exports, exports, run)
            if self.shared is not None:
                stack.push_async_callback(breaker.repair_all)
            stack.push_async_callback(_undo_commands, breaker, run)
            stack.callback(recorder.finish)
            monitoring.begin(run_log.started_ns, recorder.add_samples)
            stack.push_async_callback(monitoring.end)
            memory = asyncio.create_task(watch_memory(self.queue.put_nowait))
            stack.callback(memory.cancel)
            interrupt = partial(self.interruption.on_signal, signal.SIGINT)
            steering = Steering(run, controller, interrupt)
            socket = listening(directory.path, steering.ask, live.note)
            await stack.enter_async_context(socket)
            await stack.enter_async_context(steered(run, steering))
            await controller.play()
        return _Played(recorder, monitoring.found(), environment)

    def _abort(
        self, run: RunContext, topology: Topology, environment: Environment
    ) -> AbortWhen | None:
        """Returns the conditions of the scenario that end the run; None if it has none."""
        conditions = self.info.scenario.abort_when
        if not conditions:
            return None
        # The code that makes results takes no memory in other runs.
        from pubstorm.play.record import measured_of

        info, recorder = replace(self.info, live=Live()), run.recorder

        def measure(run_log: RunLog) -> Measured:
            output = RunOutput(
                assembly=replace(self._assembly(run.fleet, recorder, run.plan), run_log=run_log),
                tracks=recorder.kept.tracks,
                monitored=Monitored(),
                brokers=topology.results(),
                services=topology.service_results(),
                bridges=topology.bridges.results(),
                environment=environment,
            )
            return measured_of(info, output, environment)

        return AbortWhen(conditions, measure)

    def _store_start(self, run_log: RunLog, fleet: Fleet, topology: Topology) -> Environment:
        """Stores what the result needs beside snapshots, should this process be killed. Returns the
        environment of the run."""
        info, source = self.info, self.info.scenario.source
        hellos = tuple(hello for _, hello in sorted(fleet.hellos.items()))
        start = RunStart(
            process=this_process(),
            file=str(Path(source.file).absolute()),
            overrides=tuple(map(redacted_override, source.overrides)),
            target=source.target,
            command=info.command,
            started=info.started.isoformat(),
            started_ns=run_log.started_ns,
            started_unix_ns=run_log.started_unix_ns,
            hellos=hellos,
            on=info.scenario.fleet.on,
            hosts=dict(fleet.hosts),
            environment=read_environment(hellos[0].version, topology.results()),
            brokers=topology.results(),
            services=topology.service_results(),
            bridges=topology.bridges.results(),
        )
        info.directory.write(START_FILE, start.model_dump_json() + "\n")
        return start.environment

    def _refused(self, plan: Plan) -> _Load:
        """Returns a run without any load, on a target that is not as clean as it has to be."""
        now_ns = time.monotonic_ns()
        run_log = RunLog(now_ns, time.time_ns(), ended_ns=now_ns, ended_early=True)
        run_log.note("stale_state", "nothing was played: clean_start is require", now_ns)
        limits = limits_of(self.info.scenario)
        timeline = Timeline(plan, now_ns)
        return _Load(Assembly(plan, (), run_log, RunSum(), timeline, limits), {}, Monitored())

    async def _clean(self, clean_start: CleanStart, assembly: Assembly) -> None:
        """Removes what the run left, unless a further signal ends the clean-up."""
        peaks, everybody = assembly.timeline.peaks(), range(len(assembly.plan.populations))
        was_connected = any(peaks.of([index], "connected") for index in everybody)
        self.interruption.forget()
        log = self.info.directory.logs / "clean.log"
        try:
            deleted = await self.interruption.unless(clean_start.delete_names())
            self.stale_state.extend(deleted)
            if clean_start.has_work_after and was_connected:
                self.info.live.note("removing what this run left on the broker")
                removed = await self.interruption.unless(clean_start.after(engine_path(), log))
                self.stale_state.extend(removed)
        except PubstormError:
            self.stale_state.append(clean_start.interrupted())

    async def _clean_outside(self, topology: Topology) -> None:
        """Removes what bridges left on a target that is not the run's own."""
        if self.info.scenario.clean_start != "skip":
            self.stale_state.extend(await remove_bridges(topology.bridges.outside()))

    def _warn(self, kind: str, texts: Iterable[str]) -> None:
        """Shows and records warnings of the start-up. Runs of one experiment lack the same of a
        host, in other amounts."""
        for text in texts:
            self.info.live.warn_once(text, text.partition(":")[0] if kind == "host" else text)
            self._store_warning(Event.model_validate({"at_s": 0.0, "kind": kind, "text": text}))

    def _store_warning(self, event: Event) -> None:
        self.warnings.append(event)
        self.info.directory.append_event(event.model_dump_json())


@dataclass(frozen=True)
class _Played:
    """The stages as they were played."""

    recorder: Recorder
    monitored: Monitored
    environment: Environment


@dataclass(frozen=True)
class _Load:
    """The measurements of the load."""

    assembly: Assembly
    tracks: Tracks
    monitored: Monitored
    environment: Environment | None = None


def _pid(fleet: Fleet, agent: int) -> int:
    """Returns the process id that an agent has now, or had last."""
    return fleet.hellos[agent].pid


async def _end_exports(exports: Exports, run: RunContext) -> None:
    """Finishes the exports of the run, and records what they did not hand over."""
    if exports.are_asked_for:
        for text in await asyncio.to_thread(exports.end):
            run.note("export", text)


async def _undo_commands(breaker: Faults, run: RunContext) -> None:
    """Undoes faults by command that an early end of the run left."""
    for text in await breaker.undo_commands():
        run.note("fault", text)


def _observed(scenario: Scenario, plan: Plan, topology: Topology) -> Plan:
    """Returns the plan with the targets where observers find the brokers."""
    given = plan.targets[: len(scenario.target)]
    brokers = (*given, *topology.observer_targets)
    return plan.at_targets((*brokers, *plan.targets[len(brokers) :]))


def _older_targets(scenario: Scenario, *, is_shared: bool) -> Sequence[int]:
    """Returns the indices of targets that may hold stale state. Left out are targets that this run
    started, the many small ones of bridges, and publishers, which keep nothing."""
    named = targets_by_name(scenario)
    small = {bridge.from_ for bridge in scenario.topology.bridges.values()}
    given = {target.name: target for target in scenario.target}
    publishing = (name for name, target in given.items() if isinstance(target, PublisherTarget))
    left_out = {*small, *scenario.publishers, *publishing}
    older = [name for name in named if name in given or is_shared]
    return [index for name in older if name not in left_out for index in named[name]]
