"""Records one run while it is played: the sums of its agents, its samples and its log. Everything
is stored at once, so that a run whose controller is killed can still be evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pubstorm.contract.plan import Plan, PublishAction
from pubstorm.contract.source import Sample, Source, StoredSource
from pubstorm.contract.sums import RunSum
from pubstorm.exports import Exports, Samples
from pubstorm.fleet import SnapshotReceived
from pubstorm.fleet.assignment import Assignment
from pubstorm.measure.load_samples import LoadSampler
from pubstorm.measure.run_log import (
    AgentFailure,
    AppliedChange,
    AppliedFault,
    RunLog,
    StageEntered,
    StoredChange,
    StoredFault,
)
from pubstorm.metrics.populations import POPULATIONS
from pubstorm.result.samples import Keeper
from pubstorm.result.timeline import Timeline

SUMMED_UP = frozenset(metric.name for metric in POPULATIONS if metric.has_readings)
"""Figures of populations that the result sums up; all are stored."""


class Store(Protocol):
    """Keeps snapshots and samples beyond the life of this process."""

    def append_snapshot(self, line: bytes) -> None:
        """Keeps a snapshot as it came."""

    def append_samples(self, samples: Iterable[Sample]) -> None:
        """Keeps samples."""

    def append_event(self, line: str) -> None:
        """Keeps an event, the start of a stage or a source, as JSON."""


class NoStore:
    """Keeps nothing."""

    def append_snapshot(self, line: bytes) -> None:
        """Drops a snapshot."""

    def append_samples(self, samples: Iterable[Sample]) -> None:
        """Drops samples."""

    def append_event(self, line: str) -> None:
        """Drops an event."""


class Recorder:
    """Everything that one run has measured so far."""

    def __init__(
        self,
        plan: Plan,
        assignment: Assignment,
        run_log: RunLog,
        store: Store | None = None,
        exports: Exports | None = None,
    ) -> None:
        self.run_log = run_log
        self._plan = plan
        self.sums = RunSum()
        self.timeline = Timeline(plan, run_log.started_ns, assignment.publishers)
        self.kept = Keeper(self.timeline.edges)
        """Samples that the result sums up."""
        self._sampler = LoadSampler(plan, assignment, self.timeline)
        self._sources: set[Source] = set()
        """Sources that are stored."""
        self._store = store or NoStore()
        self._exports = exports or Exports()

    def take(self, received: SnapshotReceived, stage: int | None, *, early: bool = False) -> None:
        """Records a snapshot as part of a stage. `early`: its deliveries belong to the next."""
        snapshot = received.snapshot
        if stage != snapshot.stage:
            snapshot = snapshot.model_copy(update={"stage": stage})
        self._store.append_snapshot(received.line)
        self._exports.take(snapshot)
        self._exports.follow(self.run_log.events, self._faults())
        self.sums.take(snapshot, early=early)
        self._add_load(self._sampler.take(self.timeline.take(snapshot), snapshot))

    def _faults(self) -> Iterable[tuple[str, bool]]:
        """Yields the faults that began, each with True if it is active."""
        return ((each.name, each.repaired_ns is None) for each in self.run_log.faults)

    def add_samples(self, samples: Sequence[Sample]) -> None:
        """Records samples of a monitor, in the order of time."""
        self._append(samples)
        self._exports.take(Samples(samples))
        self.kept.take(samples)

    def enter(self, stage: int, at_ns: int) -> None:
        """Records the start of a stage."""
        # Agents that are late still count for the stage before.
        self.sums.close(stage - 2)
        action = self._plan.stages[stage].action
        load_ns = action.duration_ns if isinstance(action, PublishAction) else 0
        self.timeline.keep_apart(at_ns, at_ns + load_ns)
        by_user = any(span.by_user for span in self.run_log.spans[-1:])
        entered = StageEntered(at_s=self.run_log.at_s(at_ns), stage=stage, by_user=by_user)
        self._store.append_event(entered.model_dump_json())

    def change(self, change: AppliedChange) -> None:
        """Records a change that took effect."""
        self.run_log.changes.append(change)
        self.timeline.keep_apart(*change.edges_ns(self._plan.snapshot_interval_ns))
        self._store.append_event(StoredChange(change=change).model_dump_json())

    def store_fault(self, fault: AppliedFault) -> None:
        """Stores a fault as it is now: it began, or was repaired."""
        self.timeline.keep_apart(*fault.edges_ns)
        self._store.append_event(StoredFault(fault=fault.without_secrets()).model_dump_json())

    def note(self, kind: str, text: str, at_ns: int) -> None:
        """Records that something happened."""
        event = self.run_log.note(kind, text, at_ns)
        if not self.run_log.left_out:
            self._store.append_event(event.model_dump_json())

    def fail(self, failure: AgentFailure, stage: int) -> None:
        """Records that an agent failed in a stage: from then on it has no client, until its
        replacement reports."""
        self.run_log.failures.append(failure)
        self.note("failure", failure.text, failure.at_ns)
        emptied = self.timeline.fail(failure.agent, failure.at_ns, stage)
        self._sampler.fail(failure.agent, emptied)

    def finish(self) -> None:
        """Records the load since the last complete interval of all agents."""
        self._add_load(self._sampler.finish())
        self._exports.follow(self.run_log.events, self._faults())

    def _append(self, samples: Sequence[Sample]) -> None:
        """Stores samples, each source before the first of its samples."""
        for source in dict.fromkeys(each.source for each in samples):
            if source not in self._sources:
                self._sources.add(source)
                self._store.append_event(StoredSource(source=source).model_dump_json())
        self._store.append_samples(samples)

    def _add_load(self, samples: Sequence[Sample]) -> None:
        self._append(samples)
        self._exports.take(Samples(samples))
        self.kept.take(each for each in samples if is_summed_up(each.source, each.metric))


def is_summed_up(source: Source, metric: str) -> bool:
    """True if the result sums up a metric. Populations have too many metrics."""
    return source.kind != "population" or metric in SUMMED_UP
