"""Makes the result of a run and stores it: puts measurements together, cuts phases, sums monitors
up, evaluates, and writes the files of the run directory. A part that fails costs no other part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import TypeVar

from pubstorm.host.environment import read_environment
from pubstorm.measure.faults import absences, fault_results, fault_spans
from pubstorm.measure.phases import outage_events, phase_spans, phases, short_stages
from pubstorm.measure.summary import Sources, headroom_of, summaries
from pubstorm.plan import targets_by_name
from pubstorm.play.context import RunInfo, RunOutput
from pubstorm.report import RESULT_FILE, write_reports
from pubstorm.result import (
    Environment,
    Event,
    FaultResult,
    FleetResult,
    LimitedBy,
    Measured,
    RunResult,
    Status,
    Verdict,
)
from pubstorm.result.figures.table import cells
from pubstorm.result.samples import Schedule, watched
from pubstorm.result.verdict import evaluate_run
from pubstorm.scenario.defaults import conditions_of
from pubstorm.scenario.monitors import MEMBERS_PER_S

T = TypeVar("T")
S = TypeVar("S")


@dataclass
class PartMaker:
    """Makes the parts of a result. A part that fails is replaced, and becomes an event."""

    events: list[Event] = field(default_factory=list)
    """The failures, in words."""

    def part(self, name: str, make: Callable[[], T], otherwise: S) -> T | S:
        """Returns a part, or what takes its place if it fails."""
        try:
            return make()
        except Exception as error:  # whatever is wrong with a part must not cost the others
            text = f"{name} could not be made: {type(error).__name__}: {error}"
            self.events.append(Event(at_s=0.0, kind="summary", text=text))
            return otherwise


def record(info: RunInfo, output: RunOutput) -> RunResult:
    """Returns the evaluated result, stored with the files that are made of it."""
    directory, scenario = info.directory, info.scenario
    directory.release()
    environment = output.environment or read_environment("", output.brokers)
    directory.write("environment.json", environment.model_dump_json(indent=2) + "\n")
    measured = measured_of(info, output, environment)
    evaluated = RunResult.of(measured, _verdict(measured, info))
    maker = PartMaker()
    table = maker.part("the table", lambda: cells(scenario.table, evaluated), None) or {}
    events = (*evaluated.events, *maker.events)
    result = evaluated.model_copy(update={"table": table, "events": events})
    reason = directory.write(RESULT_FILE, result.to_json())
    if reason is not None:
        info.live.warn(f"the result is not stored: {reason}")
        result = result.model_copy(update={"verdict": result.verdict.unstored(reason)})
    elif info.reports:
        for problem in write_reports(directory.path, directory.write):
            info.live.warn(problem)
    return result


def _verdict(measured: Measured, info: RunInfo) -> Verdict:
    """Returns the verdict. If it cannot be made, the run is invalid."""
    maker = PartMaker()
    unknown = Verdict(
        headline="Invalid: the verdict could not be made.",
        status=Status.INVALID,
        limited_by=LimitedBy.UNKNOWN,
        evidence=(),
        thresholds=(),
    )
    found = maker.part(
        "the verdict", lambda: evaluate_run(measured, conditions_of(info.scenario)), unknown
    )
    failures = tuple(event.text for event in maker.events)
    return found.model_copy(update={"evidence": (*failures, *found.evidence)})


def measured_of(info: RunInfo, output: RunOutput, environment: Environment) -> Measured:
    """Returns the measurements of a run."""
    assembly, monitored, run_log = output.assembly, output.monitored, output.assembly.run_log
    maker, tracks, scenario = PartMaker(), output.tracks, info.scenario
    given = scenario.target_sources
    headroom, word = maker.part("headroom", lambda: headroom_of(assembly, environment), (None, ""))
    found = maker.part("phases", lambda: phases(assembly, tracks), ())
    bridges = tuple(scenario.topology.bridges)
    faults = maker.part("faults", lambda: fault_results(assembly, tracks, bridges), ())
    played = maker.part("stages", lambda: assembly.stages, ())
    stages, load = assembly.named_spans()
    spans = [*stages, *phase_spans(found), *fault_spans(faults, played)]
    duration_s = round((run_log.ended_ns - run_log.started_ns) / 1e9, 3)
    schedule = _schedule(info, output, faults, duration_s)
    merged_s = max((track.merged_s for track in tracks.values()), default=0.0)
    measured = Measured(
        name=scenario.name,
        run_directory=str(info.directory.path),
        targets=tuple(str(target) for target in assembly.plan.targets),
        target_names=tuple(source.name for source in given),
        started=info.started.isoformat(timespec="seconds"),
        started_unix_ns=run_log.started_unix_ns,
        started_monotonic_ns=run_log.started_ns,
        ended=(info.ended or datetime.now().astimezone()).isoformat(timespec="seconds"),
        duration_s=duration_s,
        interrupted=run_log.interrupted,
        ended_early=run_log.ended_early,
        populations=maker.part("populations", assembly.populations, {}),
        wholes=maker.part("sums of shares", assembly.wholes, {}),
        flows=maker.part("flows", assembly.flows, ()),
        stages=played,
        fleet=maker.part("agents", assembly.fleet, FleetResult()),
        faults=faults,
        phases=found,
        short_stages=maker.part("short stages", lambda: short_stages(assembly), ()),
        brokers=output.brokers,
        publishers=maker.part("publishers", assembly.publishers, ()),
        services=output.services,
        bridges=output.bridges,
        command=info.command,
        monitors=maker.part("monitors", lambda: watched(tracks, spans, load, schedule), ()),
        observers=monitored.observers,
        monitor_problems=monitored.problems,
        monitor_gaps=monitored.gaps,
        profile=monitored.profile,
        stale_state=output.stale_state,
        headroom=headroom,
        validity=assembly.limits,
        environment=environment,
    )
    sources = Sources(tracks, output.brokers, targets_by_name(scenario), given)
    parts = {
        name: maker.part(name, make, otherwise)
        for name, (make, otherwise) in summaries(measured, assembly, sources).items()
    }
    events = (
        *output.warnings,
        *((Event(at_s=0.0, kind="host", text=word),) if word else ()),
        *run_log.events,
        *maker.part("outages", lambda: tuple(outage_events(assembly, tracks)), ()),
        *maker.part("resolution", lambda: tuple(assembly.resolutions(merged_s)), ()),
        *maker.events,
        *_storage_event(info, duration_s),
    )
    return measured.model_copy(update={**parts, "events": events})


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
