"""Makes the result of a run and stores it: puts measurements together, cuts phases, sums monitors
up, evaluates, and writes the files of the run directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from math import ceil

from pubstorm.host.environment import read_environment
from pubstorm.measure.faults import absences, fault_results, fault_spans
from pubstorm.measure.headroom import headroom_of
from pubstorm.measure.phases import phase_spans, phases, short_stages
from pubstorm.measure.summary import Sources, with_summary
from pubstorm.plan import targets_by_name
from pubstorm.play.info import RunInfo, RunOutput
from pubstorm.report import RESULT_FILE, write_reports
from pubstorm.result import (
    Environment,
    Event,
    FaultResult,
    Measured,
    Result,
)
from pubstorm.result.figures.table import cells
from pubstorm.result.samples import Schedule, watched
from pubstorm.result.verdict import evaluate_run
from pubstorm.scenario.defaults import conditions_of
from pubstorm.scenario.monitors import MEMBERS_PER_S


def record(info: RunInfo, output: RunOutput) -> Result:
    """Returns the evaluated result, stored with the files that are made of it."""
    directory, scenario = info.directory, info.scenario
    directory.release()
    environment = output.environment or read_environment("", output.brokers)
    directory.write("environment.json", environment.model_dump_json(indent=2) + "\n")
    measured = measured_of(info, output, environment)
    evaluated = Result.of(measured, evaluate_run(measured, conditions_of(scenario)))
    result = evaluated.model_copy(update={"table": cells(scenario.table, evaluated)})
    reason = directory.write(RESULT_FILE, result.to_json())
    if reason is not None:
        info.live.warn(f"the result is not stored: {reason}")
    elif info.reports:
        for problem in write_reports(directory.path, directory.write):
            info.live.warn(problem)
    return result


def measured_of(info: RunInfo, output: RunOutput, environment: Environment) -> Measured:
    """Returns the measurements of a run."""
    assembly, monitored, run_log = output.assembly, output.monitored, output.assembly.run_log
    headroom, word = headroom_of(assembly, environment)
    tracks = output.tracks
    found = phases(assembly, tracks)
    faults = fault_results(assembly, tracks, tuple(info.scenario.topology.bridges))
    played = assembly.stages
    stages, load = assembly.named_spans()
    spans = [*stages, *phase_spans(found), *fault_spans(faults, played)]
    duration_s = round((run_log.ended_ns - run_log.started_ns) / 1e9, 3)
    measured = Measured(
        name=info.scenario.name,
        run_directory=str(info.directory.path),
        targets=tuple(str(target) for target in assembly.plan.targets),
        started=info.started.isoformat(timespec="seconds"),
        started_unix_ns=run_log.started_unix_ns,
        started_monotonic_ns=run_log.started_ns,
        ended=(info.ended or datetime.now().astimezone()).isoformat(timespec="seconds"),
        duration_s=duration_s,
        interrupted=run_log.interrupted,
        ended_early=run_log.ended_early,
        populations=assembly.populations(),
        wholes=assembly.wholes(),
        flows=assembly.flows(),
        stages=played,
        fleet=assembly.fleet(),
        faults=faults,
        phases=found,
        short_stages=short_stages(assembly),
        brokers=output.brokers,
        publishers=assembly.publishers(),
        services=output.services,
        bridges=output.bridges,
        command=info.command,
        monitors=watched(tracks, spans, load, _schedule(info, output, faults, duration_s)),
        observers=monitored.observers,
        monitor_problems=monitored.problems,
        monitor_gaps=monitored.gaps,
        profile=monitored.profile,
        stale_state=output.stale_state,
        headroom=headroom,
        events=(
            *output.warnings,
            *((Event(at_s=0.0, kind="host", text=word),) if word else ()),
            *run_log.events,
            *assembly.resolutions(),
            *_storage_event(info, duration_s),
        ),
        validity=assembly.limits,
        environment=environment,
    )
    sources = Sources(tracks, output.brokers, targets_by_name(info.scenario))
    return with_summary(measured, assembly, sources)


def _schedule(
    info: RunInfo, output: RunOutput, faults: Sequence[FaultResult], until_s: float
) -> Schedule:
    """Returns the readings that were due of the monitors."""
    interval_s = info.scenario.monitors.interval / 1e9
    sizes = Counter(broker.group for broker in output.brokers)
    longer_s = {
        group: interval_s * ceil(size / MEMBERS_PER_S / interval_s) for group, size in sizes.items()
    }
    return Schedule(until_s, interval_s, longer_s, absences(faults, until_s))


def _storage_event(info: RunInfo, at_s: float) -> Iterator[Event]:
    failure = info.directory.failure
    if failure is not None:
        text = f"{failure}: what is stored of this run is not complete"
        info.live.warn(text)
        yield Event(at_s=at_s, kind="storage", text=text)
