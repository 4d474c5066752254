"""The result of a run whose controller stored none, since it was killed or its disk was full: made
from the start, the snapshots and the samples in the run directory, and marked invalid."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from pubstorm.contract.plan import Plan, PublishAction
from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from pubstorm.errors import StoredRunError, UsageError
from pubstorm.fleet.assignment import Assignment
from pubstorm.measure.assemble import Assembly, limits_of
from pubstorm.measure.monitors.monitoring import Monitored
from pubstorm.measure.recorder import is_summed_up
from pubstorm.measure.run_log import AppliedChange, RunLog, StageSpan
from pubstorm.measure.totals import Totals, merge
from pubstorm.play.directory import (
    PLAN_FILE,
    START_FILE,
    RunDirectory,
    stored_scenario,
)
from pubstorm.play.display import Live
from pubstorm.play.info import RunInfo, RunOutput, RunStart
from pubstorm.play.record import record
from pubstorm.report import SCENARIO_FILE
from pubstorm.result.figures.metric import percentiles_in
from pubstorm.result.samples import SAMPLES_FILE, Tracks, read_samples
from pubstorm.scenario import parse_scenario
from pubstorm.topology.started import is_alive

V = TypeVar("V", RunStart, Plan)

REASON = "no result was stored: the controller was killed, or could not write any more"


def salvage(path: Path, live: Live) -> None:
    """Stores the result of the run in a folder. Raises StoredRunError if too little was kept, and
    UsageError if the run has not ended."""
    start = _read(path / START_FILE, RunStart)
    if is_alive(start.process):
        hint = "its result comes at its end; Ctrl-C there ends it with what it has measured"
        raise UsageError(f"the run in {path} is active (pid {start.process.pid})", hint)
    plan = _read(path / PLAN_FILE, Plan)
    text = stored_scenario(path / SCENARIO_FILE)
    scenario = parse_scenario(text, start.file, start.overrides, start.target, lenient=True)
    snapshots = list(_snapshots(path / SNAPSHOTS_FILE))
    run_log = _run_log(start, plan, snapshots)
    assembly = Assembly(
        plan=plan,
        hellos=start.hellos,
        run_log=run_log,
        totals=_totals(plan, snapshots, run_log),
        limits=limits_of(scenario),
        on=start.on,
        hosts=start.hosts,
        percentiles=percentiles_in(scenario.source_text),
    )
    began = datetime.fromisoformat(start.started)
    with contextlib.closing(RunDirectory(path)) as directory:
        info = RunInfo(
            scenario=scenario,
            directory=directory,
            live=live,
            started=began,
            command=start.command,
            reports=False,
            ended=began + timedelta(microseconds=(run_log.ended_ns - run_log.started_ns) / 1000),
            environment=start.environment,
        )
        output = RunOutput(
            assembly=assembly,
            brokers=start.brokers,
            services=start.services,
            bridges=start.bridges,
            tracks=salvaged_tracks(path / SAMPLES_FILE, plan),
            monitored=Monitored(),
        )
        record(info, output)


def salvaged_tracks(path: Path, plan: Plan) -> Tracks:
    """Returns the samples in a file that a result sums up; none if the file cannot be read."""
    populations = plan.members
    with contextlib.suppress(OSError, ValueError):
        return {
            (source, metric): track
            for (source, metric), track in read_samples(path).items()
            if source not in populations or is_summed_up(source, metric)
        }
    return {}


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


def _run_log(start: RunStart, plan: Plan, snapshots: Sequence[Snapshot]) -> RunLog:
    """Returns the run log, as far as snapshots show it."""
    ended_ns = max((each.to_ns for each in snapshots), default=start.started_ns)
    run_log = RunLog(
        start.started_ns,
        start.started_unix_ns,
        ended_ns=ended_ns,
        interrupted=True,
        ended_early=True,
    )
    run_log.endings = {hello.agent: "ended with its controller" for hello in start.hellos}
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
            run_log.changes += [
                AppliedChange(index, from_ns + c.after_ns, c.name, c.population, c.action)
                for c in stage.action.changes
                if from_ns + c.after_ns <= to_ns
            ]
        run_log.spans.append(StageSpan(index, from_ns, load_until_ns, to_ns, settled))
    run_log.note("interrupt", REASON, ended_ns)
    return run_log


def _totals(plan: Plan, snapshots: Sequence[Snapshot], run_log: RunLog) -> Totals:
    """The sum of the snapshots. Nothing counts as lost in a stage that was cut off."""
    assignment = Assignment.among(plan, 1 + max((each.agent for each in snapshots), default=0))
    totals = merge(snapshots, frozenset(assignment.publishers))
    if run_log.spans and not run_log.spans[-1].settled:
        last = run_log.spans[-1].index
        receivers = [n for n, each in enumerate(plan.populations) if each.subscriptions]
        run_log.exclude_from_loss(last, receivers)
        totals.expect_received(last, receivers)
    return totals
