"""Measurements of a run without a stored result, from the start, the plan and the snapshots that
its directory keeps: of a run that is not over yet, and of one whose controller was killed. The
result of a run whose controller stored none, since it was killed or its disk was full: made from
the start, the snapshots and the samples in the run directory, and marked invalid."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from pubstorm.contract.plan import Plan, PublishAction
from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from pubstorm.contract.sums import RunSum
from pubstorm.errors import StoredRunError, UsageError
from pubstorm.files import lines_of, text_of
from pubstorm.fleet.programs import Assignment
from pubstorm.measure.assemble import Assembly, limits_of
from pubstorm.measure.monitors.monitoring import Monitored
from pubstorm.measure.recorder import is_summed_up
from pubstorm.measure.run_log import (
    AppliedChange,
    AppliedFault,
    RunLog,
    StageEntered,
    StageSpan,
    Stored,
    StoredChange,
    StoredFault,
    stored_event,
)
from pubstorm.metrics.expressions import percentiles_in
from pubstorm.play.context import RunInfo, RunOutput, RunStart
from pubstorm.play.directory import PLAN_FILE, RunDirectory, stored_scenario
from pubstorm.play.display import Live
from pubstorm.play.record import record
from pubstorm.quantities import SECOND_NS
from pubstorm.report import SCENARIO_FILE, check_format
from pubstorm.result import Event
from pubstorm.result.journal import journal_lines, snapshots_in
from pubstorm.result.samples import EVENTS_FILE, START_FILE, Keeper, Tracks, read_samples
from pubstorm.result.timeline import Timeline
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.topology.started import is_alive

V = TypeVar("V", RunStart, Plan)


@dataclass
class _Reach:
    """The snapshots of one stage."""

    from_ns: int
    to_ns: int
    settled: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """End of the latest snapshot of each agent, and True if the agent had settled."""


class Kept:
    """A run as its directory keeps it. Snapshots are added in any order."""

    def __init__(self, path: Path) -> None:
        """Raises StoredRunError if start, plan or scenario cannot be read, or have another
        format."""
        check_format(path)
        self.path = path
        self.start = _read(path / START_FILE, RunStart)
        self.plan = _read(path / PLAN_FILE, Plan)
        self.scenario = kept_scenario(path, self.start)
        publishers = Assignment.among(self.plan, len(self.start.hellos)).publishers
        self._sums = RunSum()
        self._timeline = Timeline(self.plan, self.start.started_ns, publishers)
        self._reaches: dict[int, _Reach] = {}
        self._events: list[Event] = []
        self._changes: list[AppliedChange] = []
        self._by_user = set[int]()
        """Stages that the user ended."""
        self._faults: dict[tuple[int, str], AppliedFault] = {}
        """The last word on each fault, by stage and name."""

    def keeper(self) -> Keeper:
        """Returns a place for the readings of the run, which keeps its stages, changes and faults
        apart."""
        return Keeper(self._timeline.edges, self.scenario.monitors.interval / SECOND_NS)

    def add(self, snapshot: Snapshot) -> None:
        """Adds a snapshot."""
        self._sums.take(snapshot)
        self._timeline.take(snapshot)
        if snapshot.stage is None:
            return
        reach = self._reaches.setdefault(snapshot.stage, _Reach(snapshot.from_ns, snapshot.to_ns))
        reach.from_ns = min(reach.from_ns, snapshot.from_ns)
        reach.to_ns = max(reach.to_ns, snapshot.to_ns)
        latest = reach.settled.get(snapshot.agent, (0, False))
        reach.settled[snapshot.agent] = max(latest, (snapshot.to_ns, snapshot.settled))

    def note(self, stored: Stored | None) -> None:
        """Adds a line of the stored events."""
        match stored:
            case Event():
                self._events.append(stored)
            case StageEntered():
                if stored.by_user:
                    self._by_user.add(stored.stage - 1)
                self._timeline.keep_apart(self.start.started_ns + round(stored.at_s * SECOND_NS))
            case StoredChange() if stored.change.fits(self.plan):
                self._timeline.keep_apart(*stored.change.edges_ns(self.plan.snapshot_interval_ns))
                self._changes.append(stored.change)
            case StoredFault():
                self._timeline.keep_apart(*stored.fault.edges_ns)
                self._faults[stored.fault.stage, stored.fault.name] = stored.fault

    def run_log(self) -> RunLog:
        """Returns the log, with the stages that the snapshots show."""
        started_ns = self.start.started_ns
        ended_ns = max([started_ns, *(each.to_ns for each in self._reaches.values())])
        run_log = RunLog(
            started_ns,
            self.start.started_unix_ns,
            ended_ns=ended_ns,
            changes=[each for each in self._changes if each.stage in self._reaches],
            faults=[each for each in self._faults.values() if each.stage in self._reaches],
            events=list(self._events),
        )
        for index, stage in enumerate(self.plan.stages):
            if index not in self._reaches:
                break
            reach = self._reaches[index]
            load_until_ns = reach.from_ns
            if isinstance(stage.action, PublishAction):
                load_until_ns = min(reach.from_ns + stage.action.duration_ns, reach.to_ns)
            settled = all(is_settled for _, is_settled in reach.settled.values())
            span = StageSpan(
                index, reach.from_ns, load_until_ns, reach.to_ns, settled, index in self._by_user
            )
            run_log.spans.append(span)
        return run_log

    def output(self, run_log: RunLog, tracks: Tracks) -> RunOutput:
        """Returns everything that the run has brought so far. Changes the log: nothing counts as
        lost in a stage that is not settled."""
        if run_log.spans and not run_log.spans[-1].settled:
            receivers = (n for n, each in enumerate(self.plan.populations) if each.subscriptions)
            run_log.exclude_from_loss(run_log.spans[-1].index, receivers)
        assembly = Assembly(
            plan=self.plan,
            hellos=self.start.hellos,
            run_log=run_log,
            sums=self._sums,
            timeline=self._timeline,
            limits=limits_of(self.scenario),
            on=self.start.on,
            hosts=self.start.hosts,
            percentiles=percentiles_in(self.scenario.source_text),
        )
        return RunOutput(
            assembly=assembly,
            brokers=self.start.brokers,
            services=self.start.services,
            bridges=self.start.bridges,
            tracks=tracks,
            monitored=Monitored(),
            environment=self.start.environment,
        )

    def info(self, run_log: RunLog, directory: RunDirectory, live: Live) -> RunInfo:
        """Returns what the run is."""
        began = datetime.fromisoformat(self.start.started)
        took = timedelta(microseconds=(run_log.ended_ns - run_log.started_ns) / 1000)
        return RunInfo(
            scenario=self.scenario,
            directory=directory,
            live=live,
            started=began,
            command=self.start.command,
            reports=False,
            ended=began + took,
        )


def kept_tracks(path: Path, keeper: Keeper) -> Tracks:
    """Returns the samples in a run directory that a result sums up; none if their file cannot be
    read."""
    with contextlib.suppress(OSError, ValueError):
        return read_samples(path, is_summed_up, keeper)
    return {}


def kept_scenario(path: Path, start: RunStart) -> Scenario:
    """Returns the scenario in a run directory. Raises ScenarioError and StoredRunError."""
    text = stored_scenario(path / SCENARIO_FILE)
    return parse_scenario(text, start.file, start.overrides, start.target, lenient=True)


def _read(path: Path, model: type[V]) -> V:
    try:
        return model.model_validate_json(text_of(path))
    except OSError as error:
        text = f"cannot read {path}: {error.strerror}"
        raise StoredRunError(text, "name a folder that `pubstorm run` has made") from error
    except (ValidationError, UnicodeDecodeError) as error:
        raise StoredRunError(f"{path} is not complete") from error


REASON = "no result was stored: the controller was killed, or could not write any more"


def salvage(path: Path, live: Live) -> None:
    """Stores the result of the run in a folder. Raises StoredRunError if too little was kept, and
    UsageError if the run has not ended."""
    kept = Kept(path)
    if is_alive(kept.start.process):
        hint = "its result comes at its end; Ctrl-C there ends it with what it has measured"
        raise UsageError(f"the run in {path} is active (pid {kept.start.process.pid})", hint)
    with contextlib.suppress(OSError):
        for line in lines_of(path / EVENTS_FILE):
            kept.note(stored_event(line))
    with contextlib.suppress(OSError):
        lines = journal_lines(path, SNAPSHOTS_FILE)
        for snapshot in snapshots_in(lines, len(kept.plan.populations)):
            kept.add(snapshot)
    run_log = kept.run_log()
    run_log.interrupted = run_log.ended_early = True
    run_log.endings = {hello.agent: "ended with its controller" for hello in kept.start.hellos}
    run_log.note("interrupt", REASON, run_log.ended_ns)
    with RunDirectory(path) as directory:
        info = kept.info(run_log, directory, live)
        record(info, kept.output(run_log, kept_tracks(path, kept.keeper())))
