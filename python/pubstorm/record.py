"""What a run brought, made into its judged result and stored: measurements put together, phases
cut, monitors summed up, the verdict, and the files of the run directory. It plays nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pubstorm.assemble import Assembly
from pubstorm.calibrate.headroom import headroom_of
from pubstorm.environment import read_environment
from pubstorm.faults.results import fault_results, fault_spans
from pubstorm.live import Live
from pubstorm.metrics.table import cells
from pubstorm.phases import phase_spans, phases, short_stages
from pubstorm.plan import targets_by_name
from pubstorm.readings import Span
from pubstorm.report import RESULT_FILE, write_reports
from pubstorm.result import (
    BridgeResult,
    BrokerResult,
    Environment,
    Event,
    Measured,
    MonitorGap,
    MonitorProblem,
    Observer,
    ProfileResult,
    Residue,
    Result,
    ServiceResult,
    Watched,
)
from pubstorm.run_directory import RunDirectory
from pubstorm.samples import SAMPLES_FILE, Tracks, read_samples
from pubstorm.scenario import Scenario
from pubstorm.scenario.defaults import conditions_of
from pubstorm.summary import Sources, with_summary
from pubstorm.verdict import judge


@dataclass(frozen=True)
class Recording:
    """Which run it is, and where it is kept."""

    scenario: Scenario
    directory: RunDirectory
    live: Live
    started: datetime
    command: str
    """The command line."""
    reports: bool = True
    """Whether files are made of the result."""
    ended: datetime | None = None
    """None: now."""
    environment: Environment | None = None
    """None: that of this process."""


class Monitored(Protocol):
    """The monitors of a run."""

    @property
    def profile(self) -> ProfileResult | None:
        """The profile of a broker, if one was made."""

    @property
    def problems(self) -> tuple[MonitorProblem, ...]:
        """Problems of the monitors."""

    @property
    def gaps(self) -> tuple[MonitorGap, ...]:
        """Times in which no monitor was read."""

    def watched(self, spans: Sequence[Span], load: Sequence[Span]) -> tuple[Watched, ...]:
        """Each figure over the run and over spans of it."""

    def observers(self) -> tuple[Observer, ...]:
        """Clients that only watch."""


@dataclass(frozen=True)
class Brought:
    """What came of a run."""

    assembly: Assembly
    brokers: tuple[BrokerResult, ...]
    services: tuple[ServiceResult, ...]
    bridges: tuple[BridgeResult, ...]
    watch: Monitored
    residue: tuple[Residue, ...]
    warnings: tuple[Event, ...]
    """What was to be said before the first stage."""


def record(recording: Recording, brought: Brought) -> Result:
    """The judged result, stored with the files that are made of it."""
    directory, scenario = recording.directory, recording.scenario
    directory.release()
    hellos = brought.assembly.hellos
    environment = recording.environment
    if environment is None:
        environment = read_environment(hellos[0].version if hellos else "", brought.brokers)
    directory.write("environment.json", environment.model_dump_json(indent=2) + "\n")
    measured = _measured(recording, brought, environment)
    judged = Result.judged(measured, judge(measured, conditions_of(scenario)))
    result = judged.model_copy(update={"table": cells(scenario.table, judged)})
    reason = directory.write(RESULT_FILE, result.to_json())
    if reason is not None:
        recording.live.warn(f"the result is not stored: {reason}")
    elif recording.reports:
        for problem in write_reports(directory.path, directory.write):
            recording.live.warn(problem)
    return result


def _measured(recording: Recording, brought: Brought, environment: Environment) -> Measured:
    assembly, watch, course = brought.assembly, brought.watch, brought.assembly.course
    headroom, word = headroom_of(assembly, environment)
    tracks = _tracks(recording.directory)
    found = phases(assembly, tracks)
    faults = fault_results(assembly, tracks, tuple(recording.scenario.topology.bridges))
    played = assembly.stages()
    stages, load = assembly.named_spans()
    spans = [*stages, *phase_spans(found), *fault_spans(faults, played)]
    duration_s = round((course.ended_ns - course.started_ns) / 1e9, 3)
    measured = Measured(
        name=recording.scenario.name,
        run_directory=str(recording.directory.path),
        targets=tuple(str(target) for target in assembly.plan.targets),
        started=recording.started.isoformat(timespec="seconds"),
        ended=(recording.ended or datetime.now().astimezone()).isoformat(timespec="seconds"),
        duration_s=duration_s,
        interrupted=course.interrupted,
        ended_early=course.ended_early,
        populations=assembly.populations(),
        wholes=assembly.wholes(),
        flows=assembly.flows(),
        stages=played,
        fleet=assembly.fleet(),
        faults=faults,
        phases=found,
        short_stages=short_stages(assembly),
        brokers=brought.brokers,
        publishers=assembly.publishers(),
        services=brought.services,
        bridges=brought.bridges,
        command=recording.command,
        monitors=watch.watched(spans, load),
        observers=watch.observers(),
        monitor_problems=watch.problems,
        monitor_gaps=watch.gaps,
        profile=watch.profile,
        residue=brought.residue,
        headroom=headroom,
        events=(
            *brought.warnings,
            *((Event(at_s=0.0, kind="host", text=word),) if word else ()),
            *course.events,
            *_storage_event(recording, duration_s),
        ),
        validity=assembly.limits,
        environment=environment,
    )
    sources = Sources(tracks, brought.brokers, targets_by_name(recording.scenario))
    return with_summary(measured, assembly, sources)


def _tracks(directory: RunDirectory) -> Tracks:
    try:
        return read_samples(directory.path / SAMPLES_FILE)
    except OSError:
        return {}


def _storage_event(recording: Recording, at_s: float) -> Iterator[Event]:
    failure = recording.directory.failure
    if failure is not None:
        text = f"{failure}: what is stored of this run is not complete"
        recording.live.warn(text)
        yield Event(at_s=at_s, kind="storage", text=text)
