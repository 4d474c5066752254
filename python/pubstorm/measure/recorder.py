"""Records one run while it is played: the sums of its agents, its samples and its log. Everything
is stored at once, so that a run whose controller is killed can still be evaluated. Samples of the
load are views of the timeline: counts are shared out by overlap, histograms belong to the middle of
their interval, and gauges hold until the agent's next row."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Protocol

from pubstorm.contract import Sample, Source, StoredSource
from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.contract.plan import Plan, PublishAction
from pubstorm.contract.protocol import OpenPace
from pubstorm.contract.snapshot import Snapshot
from pubstorm.contract.sums import RunSum
from pubstorm.exports import Exports, Samples
from pubstorm.fleet import SnapshotReceived
from pubstorm.fleet.programs import Assignment
from pubstorm.measure.run_log import (
    AgentFailure,
    AppliedChange,
    AppliedFault,
    RunLog,
    StageEntered,
    StoredChange,
    StoredFault,
)
from pubstorm.metrics.monitors import OF_AGENTS_UNDER_TEST
from pubstorm.metrics.populations import POPULATIONS
from pubstorm.quantities import SECOND_NS
from pubstorm.result.samples import Keeper
from pubstorm.result.timeline import Timeline
from pubstorm.result.timeline.cells import CONNECT_MEASURES, Measure
from pubstorm.result.timeline.rows import COUNTS, GAUGES, Count, Gauge, Row

OPEN_MAX = 8
"""Spans that are kept open for agents that are behind."""
MIN_COVERED = 0.1
"""Smallest share of a span with reports of an agent from which its rates are computed."""
SHOWN = frozenset(metric.name for metric in POPULATIONS if metric.lines)
KINDS: tuple[Count, ...] = tuple(kind for kind in COUNTS if f"{kind}_per_s" in SHOWN)
"""Counts of rows whose rates charts show."""
_Histograms = Mapping[tuple[Measure, int], Sequence[HistogramSum]]
"""Histograms of a span, by measure and population."""


@dataclass(slots=True)
class _Taken:
    """A row of an agent that may reach into a span that is not closed."""

    row: Row
    due: Sequence[int]
    """Messages that were sent, skipped, or added to the backlog, by population."""
    lateness: Histogram


@dataclass(slots=True)
class _Agent:
    """The rows of an agent that reach into spans that are not closed, and its state before them."""

    latest: Row
    taken: deque[_Taken] = field(default_factory=deque)
    state: Row | None = None
    """The last row that is over; its gauges hold."""
    missing: list[int] = field(default_factory=list)
    """Deliveries missing since the start, by population."""

    def advance(self, instant_ns: int) -> None:
        """Takes the rows that are over at an instant into the state."""
        while self.taken and self.taken[0].row.to_ns <= instant_ns:
            self.state = self.taken.popleft().row
            missing = self.state.column("missing")
            self.missing = list(map(add, self.missing, missing)) if self.missing else list(missing)


@dataclass(slots=True)
class _AgentActivity:
    """The activity of one agent in one span."""

    covered_ns: float = 0.0
    counts: dict[str, list[float]] = field(default_factory=dict)
    """Messages by kind, and by population."""
    cpu_ns: float = 0.0
    busy_ns: float = 0.0
    run_delay_ns: float | None = None
    """Time without a processor; None if the agents do not know."""
    lateness: HistogramSum = field(default_factory=HistogramSum)

    def add(self, taken: _Taken, covered_ns: int) -> None:
        """Adds the share of a row that covers a part of the span."""
        row, share = taken.row, covered_ns / taken.row.length_ns
        self.covered_ns += covered_ns
        self.cpu_ns += share * row.cpu_ns
        self.busy_ns += share * row.busy_ns
        if row.run_delay_ns is not None:
            self.run_delay_ns = (self.run_delay_ns or 0.0) + share * row.run_delay_ns
        for kind, column in (*((kind, row.column(kind)) for kind in KINDS), ("due", taken.due)):
            before = self.counts.get(kind, [0.0] * row.populations)
            self.counts[kind] = [n + share * count for n, count in zip(before, column, strict=True)]


class LoadSampler:
    """Turns rows into samples, span by span."""

    def __init__(self, plan: Plan, assignment: Assignment, timeline: Timeline) -> None:
        """`timeline` has each row before it is taken."""
        self._histograms = timeline.histograms
        self._expected = assignment.agents
        self._publishers = assignment.publishers
        self._started_ns = timeline.started_ns
        self._width_ns = plan.snapshot_interval_ns
        self._next = 0
        """The first span that is not closed."""
        self._agents: dict[int, _Agent] = {}
        self._failed: set[int] = set()
        """Agents that report nothing more."""
        self._delivers: set[int] = set()
        self._foreign: set[int] = set()
        """Populations that have received foreign messages."""
        self._subjects = plan.members
        """Subjects of samples: populations, and the sums of populations with shares."""
        self._scheduled = {
            name: _is_scheduled(plan, indices) for name, indices in self._subjects.items()
        }
        self._gauges = {name: _gauges(plan, indices) for name, indices in self._subjects.items()}

    def take(self, row: Row, snapshot: Snapshot) -> list[Sample]:
        """Adds the row of a snapshot; the samples of the spans that are complete with it."""
        if row.to_ns <= self._started_ns:
            return []
        flows = snapshot.flows
        self._delivers.update(flow.to for flow in flows if flow.latency_intended.count)
        self._foreign.update(n for n, count in enumerate(row.column("foreign")) if count)
        self._failed.discard(row.agent)
        self._add(row, snapshot.engine.lateness)
        return list(self._close(self._complete_until(row.to_ns)))

    def fail(self, agent: int, row: Row | None) -> None:
        """Adds the empty row of an agent that failed, if it reported anything. No span waits for it
        until its replacement reports."""
        self._failed.add(agent)
        if row is not None:
            self._add(row, Histogram())

    def finish(self) -> list[Sample]:
        """The samples of all spans that are still open."""
        last_ns = max((agent.latest.to_ns for agent in self._agents.values()), default=0)
        return list(self._close(self._index(last_ns) + 1))

    def _add(self, row: Row, lateness: Histogram) -> None:
        agent = self._agents.get(row.agent)
        backlog = [0] * row.populations if agent is None else agent.latest.column("backlog")
        sent, skipped, waiting = row.column("sent"), row.column("skipped"), row.column("backlog")
        columns = zip(sent, skipped, waiting, backlog, strict=True)
        due = [sum(counts) - before for *counts, before in columns]
        if agent is None:
            agent = self._agents[row.agent] = _Agent(row)
        agent.latest = row
        agent.taken.append(_Taken(row, due, lateness))

    def _complete_until(self, newest_ns: int) -> int:
        """Returns the first span that some agent has not reported completely, unless that agent is
        too far behind."""
        reported_ns = [
            agent.latest.to_ns for n, agent in self._agents.items() if n not in self._failed
        ]
        everybody = len(reported_ns) + len(self._failed) == self._expected
        slowest_ns = min(reported_ns) if reported_ns and everybody else self._started_ns
        return max(self._index(slowest_ns), self._index(newest_ns) - OPEN_MAX)

    def _close(self, until: int) -> Iterator[Sample]:
        for place in range(self._next, until):
            yield from self._samples(place)
        self._next = max(self._next, until)

    def _samples(self, place: int) -> Iterator[Sample]:
        parts, last_ns = self._parts(place)
        if not parts:
            return
        at_s = round((last_ns - self._started_ns) / SECOND_NS, 3)
        for agent in self._agents.values():
            agent.advance(last_ns)
        known = [(a.state, a.missing) for a in self._agents.values() if a.state is not None]
        enough = {
            number: part
            for number, part in sorted(parts.items())
            if part.covered_ns >= MIN_COVERED * self._width_ns
        }
        histograms = self._by_population(place)
        for name, indices in self._subjects.items():
            source = Source.single("population", name)
            figures: dict[str, float] = {
                **{g: sum(row.gauge(g, indices) for row, _ in known) for g in self._gauges[name]},
                **self._rates(name, enough.values()),
                "missing": sum(missing[index] for _, missing in known for index in indices),
                **_latencies("latency", self._latency(indices, histograms)),
                **_latencies("round_trip", _joined(histograms, "round trip", indices)),
            }
            for phase in CONNECT_MEASURES:
                if (ended := _joined(histograms, phase, indices)).count:
                    figures[f"{phase}_p99_us"] = ended.quantile_ns(0.99) / 1000
            for metric, value in figures.items():
                yield Sample(source, metric, at_s, value)
        for number, part in enough.items():
            state = self._agents[number].state
            if state is not None:
                yield from self._agent_samples(at_s, number, _agent_figures(part, state))

    def _parts(self, place: int) -> tuple[dict[int, _AgentActivity], int]:
        """Returns the activity of each agent in a span, and the end of the last row in it."""
        parts, last_ns = dict[int, _AgentActivity](), 0
        from_ns = self._started_ns + place * self._width_ns
        to_ns = from_ns + self._width_ns
        for number, agent in self._agents.items():
            for taken in agent.taken:
                row = taken.row
                covered_ns = min(to_ns, row.to_ns) - max(from_ns, row.from_ns)
                if covered_ns > 0:
                    parts.setdefault(number, _AgentActivity()).add(taken, covered_ns)
                    last_ns = max(last_ns, min(to_ns, row.to_ns))
                if number in parts and self._index((row.from_ns + row.to_ns) // 2) == place:
                    parts[number].lateness.add(taken.lateness)
        return parts, last_ns

    def _by_population(self, place: int) -> _Histograms:
        """Returns the histograms of a span over all stages, by measure and population."""
        found = defaultdict[tuple[Measure, int], list[HistogramSum]](list)
        for key, histogram in self._histograms.at(place):
            found[key.measure, key.population].append(histogram)
        return found

    def _agent_samples(
        self, at_s: float, agent: int, figures: Mapping[str, float]
    ) -> Iterator[Sample]:
        publisher = self._publishers.get(agent)
        source = Source.member("agent", "agent", agent) if publisher is None else publisher.source
        for metric, value in figures.items():
            if publisher is None or metric in OF_AGENTS_UNDER_TEST:
                yield Sample(source, metric, at_s, value)

    def _rates(self, name: str, parts: Collection[_AgentActivity]) -> dict[str, float]:
        """Returns rates over the reported time: the sum of each agent's own."""
        if not parts:
            return {}
        counted = [(part, index) for part in parts for index in self._subjects[name]]
        without = {"foreign"} if self._foreign.isdisjoint(self._subjects[name]) else ()
        kinds = [*KINDS, *(["due"] if self._scheduled[name] else [])]
        rates = {
            kind: sum(part.counts[kind][index] / part.covered_ns for part, index in counted)
            for kind in kinds
            if kind not in without
        }
        return {f"{kind}_per_s": round(rate * SECOND_NS, 2) for kind, rate in rates.items()}

    def _latency(self, populations: Sequence[int], histograms: _Histograms) -> Histogram:
        """Of deliveries, or of acknowledgements where they have received nothing yet."""
        delivers = not self._delivers.isdisjoint(populations)
        return _joined(histograms, "delivery" if delivers else "acknowledgement", populations)

    def _index(self, instant_ns: int) -> int:
        return (instant_ns - self._started_ns) // self._width_ns


def _is_scheduled(plan: Plan, indices: Sequence[int]) -> bool:
    """True if populations publish, and all of it by a schedule."""
    publications = [each for index in indices for each in plan.populations[index].publications]
    return bool(publications) and all(isinstance(each.pace, OpenPace) for each in publications)


def _gauges(plan: Plan, indices: Sequence[int]) -> tuple[Gauge, ...]:
    """Returns the gauges that populations can have: only those with a session lifetime are offline,
    only subscribers stall."""
    populations = [plan.populations[index] for index in indices]
    subscribe = plan.stall_ns is not None and any(each.subscriptions for each in populations)
    without = {
        *(() if any(each.lifetime is not None for each in populations) else ("offline",)),
        *(() if subscribe else ("stalled",)),
    }
    return tuple(gauge for gauge in GAUGES if gauge not in without)


def _joined(histograms: _Histograms, measure: Measure, populations: Iterable[int]) -> Histogram:
    together = HistogramSum()
    for index in populations:
        for each in histograms.get((measure, index), ()):
            together.merge(each)
    return together.value()


def _latencies(metric: str, histogram: Histogram) -> dict[str, float]:
    """Returns the statistics of a histogram, by the names of samples; nothing if it is empty."""
    if not histogram.count:
        return {}
    return {
        f"{metric}_p50_us": histogram.quantile_ns(0.5) / 1000,
        f"{metric}_p99_us": histogram.quantile_ns(0.99) / 1000,
        f"{metric}_max_us": histogram.max_ns / 1000,
    }


def _agent_figures(part: _AgentActivity, state: Row) -> dict[str, float]:
    figures: dict[str, float] = {
        "cpu": round(part.cpu_ns / part.covered_ns, 4),
        "busy": round(part.busy_ns / part.covered_ns, 4),
        "rss_bytes": state.rss_bytes,
    }
    if part.run_delay_ns is not None:
        figures["run_delay"] = round(part.run_delay_ns / part.covered_ns, 4)
    lateness = part.lateness.value()
    if lateness.count:
        figures["lateness_p99_us"] = lateness.quantile_ns(0.99) / 1000
    if state.clock is not None:
        figures["clock_bound_us"] = state.clock.bound_ns / 1000
    return figures


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
        self.empty(failure.agent, failure.at_ns, stage)

    def empty(self, agent: int, at_ns: int, stage: int) -> None:
        """Records that an agent has no client from an instant on, until it reports again."""
        self._sampler.fail(agent, self.timeline.fail(agent, at_ns, stage))

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
