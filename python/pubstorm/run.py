"""A whole run, from scenario to judged result: topology up, plan compiled, fleet up, stages
conducted, result assembled, judged and stored. It knows the order and no details."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from pubstorm.assemble import Assembly
from pubstorm.binaries import broker_path, engine_path
from pubstorm.conduct import Conductor, Happening, Interrupt
from pubstorm.control import Hello
from pubstorm.environment import raise_descriptor_limit, read_environment
from pubstorm.errors import PubstormError
from pubstorm.fleet import Fleet, Frame
from pubstorm.fleet.local import LocalSlot
from pubstorm.live import Live
from pubstorm.monitor.choice import monitors_for, profile_spec, watched_brokers
from pubstorm.monitor.perf import Perf
from pubstorm.monitor.profiling import FOLDER as PROFILE_FOLDER
from pubstorm.monitor.profiling import Profiler
from pubstorm.plan import Plan, compile_plan
from pubstorm.preflight import Host, agents_needed
from pubstorm.report.markdown import markdown
from pubstorm.result import BrokerResult, Event, Measured, Result, ValidityLimits
from pubstorm.run_directory import RunDirectory, new_path
from pubstorm.scenario import Scenario
from pubstorm.scenario.target import Target
from pubstorm.timeline import LoadTimeline
from pubstorm.topology import Topology
from pubstorm.topology.mosquitto import parent_death_prefix
from pubstorm.verdict import judge
from pubstorm.watch import Watch

RUNS = Path("runs")
"""Where run directories are made, in the current folder."""
INTERRUPTED = 130
"""Exit code of a run that was interrupted before there was anything to measure."""
SILENCE_S = 10.0
"""How long an agent may say nothing."""
SILENT_INTERVALS = 3
"""How many snapshots it may leave out, where they are far apart."""

T = TypeVar("T")


@dataclass(frozen=True)
class RunOptions:
    """What the command line adds to the scenario."""

    out: Path | None = None
    """The run directory, a new or empty folder; None: a new one in `runs`."""


def run_scenario(scenario: Scenario, options: RunOptions, live: Live) -> Result:
    """Plays a scenario and returns its judged result, stored in the folder that its
    `run_directory` names. Raises PubstormError where it comes to no measurement."""
    raise_descriptor_limit()
    started = datetime.now().astimezone()
    path = options.out or new_path(RUNS, scenario.name, started)
    directory = RunDirectory.create(path)
    directory.write("scenario.yaml", scenario.source_text)
    live.begin(scenario.name)
    try:
        return asyncio.run(_Run(scenario, directory, live, started).play())
    finally:
        live.end()
        directory.close()


class _Run:
    """One run, from brokers to result."""

    def __init__(
        self, scenario: Scenario, directory: RunDirectory, live: Live, started: datetime
    ) -> None:
        self._scenario = scenario
        self._directory = directory
        self._live = live
        self._started = started
        self._happenings: asyncio.Queue[Happening] = asyncio.Queue()
        self._interrupted = asyncio.Event()
        self._conducting = False

    async def play(self) -> Result:
        """Starts everything, plays the stages, stops everything, judges."""
        emit = self._happenings.put_nowait
        topology = Topology(
            self._scenario.topology.brokers, self._directory.topology, emit, broker_path
        )
        with self._signals():
            try:
                await self._unless_interrupted(topology.start())
                plan = self._compile(topology)
                fleet = self._fleet(plan)
                watch = self._watch(plan, topology)
                hellos = await self._unless_interrupted(fleet.up(plan.to_line()))
                try:
                    conductor = await self._conduct(plan, fleet, watch)
                finally:
                    await fleet.close()
            finally:
                await topology.stop()
        limits = _limits(self._scenario)
        assembly = Assembly(plan, hellos, conductor.course, conductor.progress.totals, limits)
        return self._result(assembly, topology.results(), watch)

    def _compile(self, topology: Topology) -> Plan:
        started = tuple(Target(host=host, port=port) for host, port in topology.addresses)
        targets = started or self._scenario.target
        plan = compile_plan(self._scenario, targets, run_tag=secrets.randbits(32))
        self._directory.write("plan.json", plan.model_dump_json(indent=2) + "\n")
        return plan

    def _fleet(self, plan: Plan) -> Fleet:
        host = Host.here()
        agents = self._scenario.fleet.agents or agents_needed(
            plan, descriptors=host.descriptors, cores=host.cores
        )
        engine, logs = engine_path(), self._directory.logs
        slots = [LocalSlot(engine, i, agents, logs / f"agent-{i}.log") for i in range(agents)]
        interval_s = plan.snapshot_interval_ns / 1e9
        silence_s = max(SILENCE_S, SILENT_INTERVALS * interval_s)
        return Fleet(slots, self._happenings.put_nowait, silence_s)

    def _watch(self, plan: Plan, topology: Topology) -> Watch:
        scenario, brokers = self._scenario, watched_brokers(topology.results(), plan.targets)
        profiler = None
        if (spec := profile_spec(scenario, plan, brokers)) is not None:
            folder = self._directory.path / PROFILE_FOLDER
            perf = Perf(folder, spec.frequency, parent_death_prefix())
            profiler = Profiler(spec, plan, perf)
        return Watch(
            tuple(monitors_for(scenario, plan, brokers)),
            scenario.monitors.interval,
            self._directory.append_samples,
            self._live,
            profiler,
        )

    async def _conduct(self, plan: Plan, fleet: Fleet, watch: Watch) -> Conductor:
        def keep(frame: Frame) -> None:
            self._directory.append_snapshot(frame.line)
            watch.take(frame.snapshot)

        await watch.prepare()
        conductor = Conductor(plan, fleet, self._happenings, self._live)
        self._conducting = True
        started_ns = conductor.course.started_ns
        watch.begin(LoadTimeline(plan, fleet.agents, started_ns), started_ns)
        try:
            await conductor.play(keep, watch.enter_stage)
        finally:
            await watch.end()
        return conductor

    def _result(
        self, assembly: Assembly, brokers: tuple[BrokerResult, ...], watch: Watch
    ) -> Result:
        course, hellos = assembly.course, assembly.hellos
        environment = read_environment(_version(hellos), brokers)
        self._directory.write("environment.json", environment.model_dump_json(indent=2) + "\n")
        measured = Measured(
            name=self._scenario.name,
            run_directory=str(self._directory.path),
            targets=tuple(str(target) for target in assembly.plan.targets),
            started=self._started.isoformat(timespec="seconds"),
            ended=datetime.now().astimezone().isoformat(timespec="seconds"),
            duration_s=round((course.ended_ns - course.started_ns) / 1e9, 3),
            interrupted=course.interrupted,
            ended_early=course.ended_early,
            populations=assembly.populations(),
            flows=assembly.flows(),
            stages=assembly.stages(),
            fleet=assembly.fleet(),
            brokers=brokers,
            monitors=watch.watched(*assembly.named_spans()),
            observers=watch.observers(),
            monitor_problems=watch.problems,
            profile=watch.profile,
            events=(*course.events, *self._storage_event(course.ended_ns - course.started_ns)),
            validity=assembly.limits,
            environment=environment,
        )
        return self._store(Result.judged(measured, judge(measured, self._scenario.thresholds)))

    def _store(self, result: Result) -> Result:
        self._directory.write("result.json", result.to_json())
        self._directory.write("report.md", markdown(result))
        return result

    def _storage_event(self, elapsed_ns: int) -> Iterator[Event]:
        if self._directory.failure is not None:
            text = f"{self._directory.failure}: what is stored of this run is not complete"
            self._live.note(text)
            yield Event(at_s=round(elapsed_ns / 1e9, 3), kind="storage", text=text)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _interrupt(self, number: signal.Signals) -> None:
        self._interrupted.set()
        if self._conducting:
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


def _limits(scenario: Scenario) -> ValidityLimits:
    validity = scenario.validity
    return ValidityLimits(lateness_p99_us=validity.lateness_p99 / 1000, busy=validity.busy)


def _version(hellos: Sequence[Hello]) -> str:
    return hellos[0].version if hellos else ""
