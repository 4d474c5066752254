"""The result of a run whose controller stored none, since it was killed or its disk was full: made
from the start, the snapshots and the samples in the run directory, and marked invalid."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from pubstorm.assemble import Assembly, limits_of
from pubstorm.cast import Cast
from pubstorm.changes import AppliedChange
from pubstorm.course import Course, StageSpan
from pubstorm.errors import StoredRunError, UsageError
from pubstorm.live import Live
from pubstorm.merge import Totals
from pubstorm.metrics.percentiles import percentiles_in
from pubstorm.plan import Plan, PublishAction
from pubstorm.readings import Readings, Span
from pubstorm.record import Brought, Recording, record
from pubstorm.report import SCENARIO_FILE
from pubstorm.result import MonitorGap, MonitorProblem, Observer, ProfileResult, Watched
from pubstorm.run_directory import (
    PLAN_FILE,
    SNAPSHOTS_FILE,
    START_FILE,
    RunDirectory,
    stored_scenario,
)
from pubstorm.samples import SAMPLES_FILE, Sample, read_samples
from pubstorm.scenario import parse_scenario
from pubstorm.snapshot import Snapshot
from pubstorm.start import RunStart
from pubstorm.topology.started import is_alive
from pubstorm.watch import is_summed_up

V = TypeVar("V", RunStart, Plan)

REASON = "no result was stored: the controller was killed, or could not write any more"


def salvage(path: Path, live: Live) -> None:
    """Stores the result of the run in a folder. Raises StoredRunError if too little was kept, and
    UsageError while the run goes on."""
    start = _read(path / START_FILE, RunStart)
    if is_alive(start.process):
        hint = "its result comes at its end; Ctrl-C there ends it with what it has measured"
        raise UsageError(f"the run in {path} goes on (pid {start.process.pid})", hint)
    plan = _read(path / PLAN_FILE, Plan)
    text = stored_scenario(path / SCENARIO_FILE)
    scenario = parse_scenario(text, start.file, start.overrides, start.target, lenient=True)
    snapshots = list(_snapshots(path / SNAPSHOTS_FILE))
    course = _course(start, plan, snapshots)
    assembly = Assembly(
        plan=plan,
        hellos=start.hellos,
        course=course,
        totals=_totals(plan, snapshots, course),
        limits=limits_of(scenario),
        on=start.on,
        hosts=start.hosts,
        percentiles=percentiles_in(scenario.source_text),
    )
    began = datetime.fromisoformat(start.started)
    with contextlib.closing(RunDirectory(path)) as directory:
        recording = Recording(
            scenario=scenario,
            directory=directory,
            live=live,
            started=began,
            command=start.command,
            reports=False,
            ended=began + timedelta(microseconds=(course.ended_ns - course.started_ns) / 1000),
            environment=start.environment,
        )
        brought = Brought(
            assembly=assembly,
            brokers=start.brokers,
            services=start.services,
            bridges=start.bridges,
            watch=_StoredWatch.of(path / SAMPLES_FILE),
            residue=(),
            warnings=(),
        )
        record(recording, brought)


@dataclass(frozen=True)
class _StoredWatch:
    """Readings of monitors, taken from stored samples."""

    readings: Readings
    profile: ProfileResult | None = None
    problems: tuple[MonitorProblem, ...] = ()
    gaps: tuple[MonitorGap, ...] = ()

    @classmethod
    def of(cls, path: Path) -> _StoredWatch:
        """The samples in a file; none if it cannot be read."""
        readings = Readings()
        with contextlib.suppress(OSError, ValueError):
            for (source, metric), track in read_samples(path).items():
                points = enumerate(zip(track.at_s, track.values, strict=True))
                samples = (
                    Sample(at_s, source, metric, value, held=n in track.held)
                    for n, (at_s, value) in points
                )
                readings.add(sample for sample in samples if is_summed_up(sample))
        return cls(readings)

    def watched(self, spans: Sequence[Span], load: Sequence[Span]) -> tuple[Watched, ...]:
        """Each figure over the run and over spans of it."""
        return self.readings.watched(spans, load)

    def observers(self) -> tuple[Observer, ...]:
        """None: samples do not tell them from other sources."""
        return ()


def _read(path: Path, model: type[V]) -> V:
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"cannot read {path}: {error.strerror}"
        raise StoredRunError(text, "name a folder that `pubstorm run` has made") from error
    except ValidationError as error:
        raise StoredRunError(f"{path} is not complete") from error


def _snapshots(path: Path) -> Iterator[Snapshot]:
    """The snapshots of a file; the last line may be cut off."""
    with contextlib.suppress(OSError), path.open("rb") as lines:
        for line in lines:
            with contextlib.suppress(ValidationError):
                yield Snapshot.model_validate_json(line)


def _course(start: RunStart, plan: Plan, snapshots: Sequence[Snapshot]) -> Course:
    """The run log, as far as snapshots tell it."""
    ended_ns = max((each.to_ns for each in snapshots), default=start.started_ns)
    course = Course(start.started_ns, ended_ns=ended_ns, interrupted=True, ended_early=True)
    course.endings = {hello.agent: "ended with its controller" for hello in start.hellos}
    for index, stage in enumerate(plan.stages):
        own = [each for each in snapshots if each.stage == index]
        if not own:
            break
        from_ns, to_ns = min(each.from_ns for each in own), max(each.to_ns for each in own)
        latest = {each.agent: each for each in sorted(own, key=lambda each: each.to_ns)}
        settled = all(each.settled for each in latest.values())
        load_until_ns = from_ns
        if isinstance(stage.action, PublishAction):
            load_until_ns = min(from_ns + stage.action.duration_ns, to_ns)
            course.changes += [
                AppliedChange(index, from_ns + c.after_ns, c.name, c.population, c.action)
                for c in stage.action.changes
                if from_ns + c.after_ns <= to_ns
            ]
        course.spans.append(StageSpan(index, from_ns, load_until_ns, to_ns, settled))
    course.note("interrupt", REASON, ended_ns)
    return course


def _totals(plan: Plan, snapshots: Sequence[Snapshot], course: Course) -> Totals:
    """The sum of the snapshots. Nothing counts as lost in a stage that was cut off."""
    cast = Cast.among(plan, 1 + max((each.agent for each in snapshots), default=0))
    totals = Totals(publishers=frozenset(cast.publishers))
    for snapshot in snapshots:
        totals.add_snapshot(snapshot)
    if course.spans and not course.spans[-1].settled:
        last = course.spans[-1].index
        receivers = [n for n, each in enumerate(plan.populations) if each.subscriptions]
        course.owe_received(last, receivers)
        totals.owe_received(last, receivers)
    return totals
