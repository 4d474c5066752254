"""A whole run, from scenario to judged result: topology up, plan compiled, fleet up, stages
conducted, result assembled, judged and stored. It knows the order and no details."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from pubstorm.assemble import Assembly, limits_of
from pubstorm.binaries import engine_path
from pubstorm.cast import Cast
from pubstorm.children import watch_children_by_descriptor
from pubstorm.conduct import Conductor, Happening, Interrupt
from pubstorm.control_socket import listening
from pubstorm.course import Course
from pubstorm.environment import raise_descriptor_limit, read_environment
from pubstorm.errors import PubstormError
from pubstorm.faults.play import FaultPlay
from pubstorm.fleet import Fleet, Frame
from pubstorm.fleet.choice import site_of
from pubstorm.fleet.site import Site
from pubstorm.host_files import check_host_files
from pubstorm.live import Live
from pubstorm.losses import OnLoss
from pubstorm.memory import watch_memory
from pubstorm.metrics.percentiles import percentiles_in
from pubstorm.monitor.choice import (
    WatchedProcess,
    monitors_for,
    process_monitors,
    profile_spec,
    watched_brokers,
)
from pubstorm.monitor.perf import Perf
from pubstorm.monitor.profiling import FOLDER as PROFILE_FOLDER
from pubstorm.monitor.profiling import Profiler
from pubstorm.oversights import oversights
from pubstorm.plan import Plan, compile_plan, planned_targets, provisional_plan, targets_by_name
from pubstorm.plan.faults import faulty_bridges, planned_faults
from pubstorm.progress import Progress
from pubstorm.residue import CleanStart
from pubstorm.residue.bridges import remove_bridges
from pubstorm.result import Event, Residue, Result
from pubstorm.run_directory import PLAN_FILE, START_FILE, RunDirectory, new_path
from pubstorm.scenario import Scenario
from pubstorm.scenario.roles import is_zeromq, publishers_of
from pubstorm.scenario.secrets import redacted_override
from pubstorm.scenario.target import Target
from pubstorm.signals import INTERRUPTED, ending_signals
from pubstorm.staffing import Staff
from pubstorm.start import RunStart
from pubstorm.timeline import LoadTimeline
from pubstorm.topology import Topology
from pubstorm.topology.broker import parent_death_prefix
from pubstorm.topology.faults import Faults
from pubstorm.topology.ports import free_port
from pubstorm.topology.started import this_process
from pubstorm.watch import Watch

RUNS = Path("runs")
"""Where run directories are made, in the current folder."""

T = TypeVar("T")


@dataclass(frozen=True)
class RunOptions:
    """What the command line adds to the scenario."""

    out: Path | None = None
    """The run directory, a new or empty folder; None: a new one in `runs`."""
    command: str = ""
    """The command line, for the result."""
    topology: Topology | None = None
    """Brokers that outlive the run; None: it has its own."""
    reports: bool = True
    """Whether files are made of the result; `pubstorm report` makes them at any time."""


def run_scenario(scenario: Scenario, options: RunOptions, live: Live) -> Result:
    """Plays a scenario and returns its judged result, stored in the folder that its
    `run_directory` names. Raises PubstormError where it comes to no measurement."""
    return asyncio.run(play_scenario(scenario, options, live))


async def play_scenario(scenario: Scenario, options: RunOptions, live: Live) -> Result:
    """The same, for a loop that plays several runs."""
    raise_descriptor_limit()
    watch_children_by_descriptor()
    check_host_files(scenario, provisional_plan(scenario))
    run: _Run

    # Signals stay caught from before the run's folder exists until its result is stored. The loop
    # calls a handler between two steps, so it finds the run made.
    with caught_signals(lambda number: run.interrupt(number)):
        run = _Run(scenario, options, live)
        try:
            live.begin(scenario.name)
            return await run.play()
        finally:
            live.end()
            run.close()


@contextmanager
def caught_signals(handle: Callable[[signal.Signals], None]) -> Iterator[None]:
    """While it is open, SIGINT, SIGTERM and SIGHUP go to `handle` and end nothing; to the one
    opened before once it is closed."""
    _handlers.append(handle)
    _catch(handle)
    try:
        yield
    finally:
        _handlers.pop()
        _catch(_handlers[-1] if _handlers else None)


def _catch(handle: Callable[[signal.Signals], None] | None) -> None:
    loop = asyncio.get_running_loop()
    for number in ending_signals():
        if handle is None:
            loop.remove_signal_handler(number)
        else:
            loop.add_signal_handler(number, handle, number)


_handlers: list[Callable[[signal.Signals], None]] = []
"""Who gets signals, the last one first: a series, a run in it, the end of its brokers."""


class _Run:
    """One run, from brokers to result."""

    def __init__(self, scenario: Scenario, options: RunOptions, live: Live) -> None:
        self._scenario = scenario
        self._options = options
        self._live = live
        self._started = datetime.now().astimezone()
        path = options.out or new_path(RUNS, scenario.name, self._started)
        self._directory = RunDirectory.create(path)
        self._directory.write("scenario.yaml", scenario.source_text)
        self._happenings: asyncio.Queue[Happening] = asyncio.Queue()
        self._interrupted = asyncio.Event()
        self._warnings = [
            Event(at_s=0.0, kind="host", text=f"left out with this target: {text}")
            for text in scenario.source.left_out
        ]
        self._residue: tuple[Residue, ...] = ()
        self._faults: Faults | None = None
        self._pids: dict[str, int] = {}
        """The publishers' process ids, once they are up."""

    async def play(self) -> Result:
        """Starts everything, plays the stages, stops everything, judges."""
        emit = self._happenings.put_nowait
        is_own = self._options.topology is None
        topology = self._options.topology or Topology(
            self._scenario.topology,
            self._directory.topology,
            emit,
            targets=self._scenario.target,
            cut=faulty_bridges(self._scenario),
        )
        topology.tell(emit)
        self._topology = topology
        try:
            topology.keys.make(provisional_plan(self._scenario))
            topology.services.prepare(provisional_plan(self._scenario))
            await self._unless_interrupted(topology.start(self._live.starting))
            self._note_bridges(topology)
            self._note_oversights()
            plan = self._compile(topology)
            observed = self._observed(plan, topology)
            watch = self._watch(observed, topology)
            self._faults = Faults(topology, topology.bridges.links, topology.networks)
            kept = self._older_targets(is_own)
            residual = topology.keys.observing(observed)
            clean_start = CleanStart(residual, self._scenario.clean_start, kept)
            assembly = await self._play_cleanly(plan, watch, clean_start)
        finally:
            if is_own:
                await topology.stop()
                self._residue += await self._clean_outside(topology)
        # What makes the result is not held in memory while the load is played.
        from pubstorm.record import Brought, Recording, record

        return record(
            Recording(
                scenario=self._scenario,
                directory=self._directory,
                live=self._live,
                started=self._started,
                command=self._options.command,
                reports=self._options.reports,
            ),
            Brought(
                assembly=assembly,
                brokers=topology.results(),
                services=topology.service_results(),
                bridges=topology.bridges.results(),
                watch=watch,
                residue=self._residue,
                warnings=tuple(self._warnings),
            ),
        )

    def close(self) -> None:
        """Closes the files of its directory."""
        self._directory.close()

    def _older_targets(self, is_own: bool) -> Sequence[int]:
        """Indices of the targets that may hold what earlier runs left: not those that this run has
        started, not the many small ones of bridges, and no publishers, which keep nothing."""
        named = targets_by_name(self._scenario)
        small = {bridge.from_ for bridge in self._scenario.topology.bridges.values()}
        left_out = {*small, *publishers_of(self._scenario)}
        if is_zeromq(self._scenario):
            left_out.add("target")
        older = [name for name in named if name == "target" or not is_own]
        return [index for name in older if name not in left_out for index in named[name]]

    async def _play_cleanly(self, plan: Plan, watch: Watch, clean_start: CleanStart) -> Assembly:
        self._residue = await self._unless_interrupted(clean_start.before())
        if clean_start.refuses(self._residue):
            return self._refused(plan)
        assembly = await self._play(plan, watch)
        if clean_start.has_work_after and _anybody_connected(assembly):
            await self._clean(clean_start)
        return assembly

    async def _play(self, plan: Plan, watch: Watch) -> Assembly:
        site = site_of(self._scenario.fleet, self._directory.logs)
        try:
            return await self._play_on(site, plan, watch)
        finally:
            await site.close()

    async def _play_on(self, site: Site, plan: Plan, watch: Watch) -> Assembly:
        await self._unless_interrupted(site.open())
        line = site.localised(plan).to_line()
        fleet = await self._unless_interrupted(self._fleet(plan, site))
        hellos = await self._unless_interrupted(fleet.up(line))
        publishers = Cast.among(plan, fleet.agents).publishers
        self._pids.update({each.name: hellos[agent].pid for agent, each in publishers.items()})
        try:
            conductor = await self._conduct(plan, fleet, watch)
        finally:
            await fleet.close()
        return Assembly(
            plan=plan,
            hellos=tuple(fleet.hellos.get(agent, hello) for agent, hello in enumerate(hellos)),
            course=conductor.course,
            totals=conductor.progress.totals,
            limits=limits_of(self._scenario),
            on=self._scenario.fleet.on,
            hosts=fleet.hosts,
            percentiles=percentiles_in(self._scenario.source_text),
        )

    def _refused(self, plan: Plan) -> Assembly:
        """A run without any load, on a target that is not as clean as it has to be."""
        now_ns = time.monotonic_ns()
        course = Course(now_ns, ended_ns=now_ns, ended_early=True)
        course.note("residue", "nothing was played: clean_start is require")
        return Assembly(plan, (), course, Progress(plan).totals, limits_of(self._scenario))

    async def _clean(self, clean_start: CleanStart) -> None:
        """Removes what the run left, unless a (further) signal says that it is to end now."""
        self._live.note("removing what this run left on the broker")
        self._interrupted.clear()
        log = self._directory.logs / "clean.log"
        try:
            self._residue += await self._unless_interrupted(clean_start.after(engine_path(), log))
        except PubstormError:
            self._residue += (clean_start.interrupted(),)

    async def _clean_outside(self, topology: Topology) -> tuple[Residue, ...]:
        """Removes what bridges left on a target that is not the run's own."""
        if self._scenario.clean_start == "skip":
            return ()
        return await remove_bridges(topology.bridges.outside())

    def _compile(self, topology: Topology) -> Plan:
        given = self._scenario.target
        planned = planned_targets(self._scenario)[len(given) :]
        brokers = len(topology.addresses)
        started = (
            Target(host=host, port=port, tls=target.tls)
            for (host, port), target in zip(topology.addresses, planned[:brokers], strict=True)
        )
        publishers = (
            target.model_copy(update={"port": target.port or free_port()})
            for target in planned[brokers:]
        )
        targets = (*given, *started, *publishers)
        plan = compile_plan(self._scenario, targets, run_tag=secrets.randbits(32))
        plan = topology.keys.equip(plan)
        self._directory.write(PLAN_FILE, plan.without_secrets().model_dump_json(indent=2) + "\n")
        return plan

    async def _fleet(self, plan: Plan, site: Site) -> Fleet:
        staff = Staff(self._scenario, plan, site)
        fleet = await staff.fleet(self._directory.logs, self._happenings.put_nowait)
        for text in staff.shortages():
            self._live.warn(text)
            self._warnings.append(Event(at_s=0.0, kind="host", text=text))
        return fleet

    def _observed(self, plan: Plan, topology: Topology) -> Plan:
        """The plan with the targets where observers find the brokers."""
        brokers = (*self._scenario.target, *topology.observer_targets)
        return plan.at_targets((*brokers, *plan.targets[len(brokers) :]))

    def _watch(self, plan: Plan, topology: Topology) -> Watch:
        """What watches, from where observers find the brokers."""
        scenario = self._scenario
        brokers = len(scenario.target) + len(topology.addresses)
        watched = watched_brokers(
            topology.results(),
            plan.targets[:brokers],
            lambda name: topology.broker(name).pid,
            topology.keys.observer,
        )
        names = (each.name for each in Cast.of(plan, 0).publishers.values())
        publishers = [WatchedProcess(name, partial(self._pids.__getitem__, name)) for name in names]
        profiler = None
        if (spec := profile_spec(scenario, plan, watched.brokers)) is not None:
            folder = self._directory.path / PROFILE_FOLDER
            perf = Perf(folder, spec.frequency, parent_death_prefix())
            profiler = Profiler(spec, plan, perf)
        services = topology.services.monitors() if scenario.monitors.brokers else ()
        return Watch(
            (
                *monitors_for(scenario, plan, watched),
                *process_monitors(publishers if scenario.monitors.brokers else ()),
                *services,
                *topology.bridges.monitors(),
            ),
            scenario.monitors.interval,
            self._directory.append_samples,
            self._live,
            profiler,
        )

    def _note_bridges(self, topology: Topology) -> None:
        """Says which bridges are not up; the run goes on, since a part of them is a finding."""
        for text in topology.bridges.missing():
            self._live.warn(text)
            self._warnings.append(Event(at_s=0.0, kind="bridge", text=text))

    def _note_oversights(self) -> None:
        """Reports topics that lead nowhere and populations that no stage connects."""
        for oversight in oversights(self._scenario):
            text = f"{'.'.join(map(str, oversight.path))}: {oversight.text}"
            self._live.warn(text)
            self._warnings.append(Event(at_s=0.0, kind="scenario", text=text))

    async def _conduct(self, plan: Plan, fleet: Fleet, watch: Watch) -> Conductor:
        def keep(frame: Frame) -> None:
            self._directory.append_snapshot(frame.line)
            watch.take(frame.snapshot)

        await watch.prepare()
        conductor = Conductor(plan, fleet, self._happenings, self._live, self._fault_play())
        started_ns = conductor.course.started_ns
        self._store_start(started_ns, fleet)
        watch.begin(LoadTimeline(plan, fleet.agents, started_ns), started_ns)
        memory = asyncio.create_task(watch_memory(self._happenings.put_nowait))
        try:
            async with listening(self._directory.path, conductor.change, self._live.note):
                on_loss = OnLoss(self._scenario.fleet.on_agent_loss, watch.lose)
                await conductor.play(keep, watch.enter_stage, on_loss)
        finally:
            memory.cancel()
            await watch.end()
            if self._faults is not None and self._options.topology is not None:
                await self._faults.mend_all()
        return conductor

    def _store_start(self, started_ns: int, fleet: Fleet) -> None:
        """Keeps what the result needs beside snapshots, should this process be killed."""
        topology, source = self._topology, self._scenario.source
        hellos = tuple(hello for _, hello in sorted(fleet.hellos.items()))
        start = RunStart(
            process=this_process(),
            file=str(Path(source.file).absolute()),
            overrides=tuple(map(redacted_override, source.overrides)),
            target=source.target,
            command=self._options.command,
            started=self._started.isoformat(),
            started_ns=started_ns,
            hellos=hellos,
            on=self._scenario.fleet.on,
            hosts=dict(fleet.hosts),
            environment=read_environment(hellos[0].version, topology.results()),
            brokers=topology.results(),
            services=topology.service_results(),
            bridges=topology.bridges.results(),
        )
        self._directory.write(START_FILE, start.model_dump_json() + "\n")

    def _fault_play(self) -> FaultPlay | None:
        """What breaks brokers and bridges meanwhile; None where the scenario asks for nothing."""
        planned = planned_faults(self._scenario)
        if not planned or self._faults is None:
            return None
        return FaultPlay(planned, self._faults, self._happenings.put_nowait)

    def interrupt(self, number: signal.Signals) -> None:
        """Ends the run, with what it has measured: the start of the run, or else its conductor."""
        self._interrupted.set()
        self._happenings.put_nowait(Interrupt(number.name))

    async def _unless_interrupted(self, start: Coroutine[None, None, T]) -> T:
        """Starts something that cleans up after itself when it is cancelled."""
        starting = asyncio.create_task(start)
        interrupted = asyncio.create_task(self._interrupted.wait())
        await asyncio.wait({starting, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        interrupted.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            raise PubstormError("interrupted before the first stage", exit_code=INTERRUPTED)
        return starting.result()


def _anybody_connected(assembly: Assembly) -> bool:
    everybody = range(len(assembly.plan.populations))
    return assembly.totals.peak(everybody, "connected") > 0
