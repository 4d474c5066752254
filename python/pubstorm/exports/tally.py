"""Sums of a run's snapshots as metrics: counters since the start, present states, and histograms.
Names follow the conventions of Prometheus: seconds, bytes, `_total`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from pubstorm.contract import OF_LOAD
from pubstorm.contract.histogram import Histogram, bucket_upper_ns
from pubstorm.contract.snapshot import Snapshot
from pubstorm.contract.sums import RunSum
from pubstorm.exports import FaultState, Item, Run, Samples
from pubstorm.metrics import EXPORTED, Part, Reported
from pubstorm.metrics.metric import Kind

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels, float | Histogram]
"""Name of a metric, labels, and the present value."""

OWN: Mapping[str, tuple[Kind, str]] = {
    "pubstorm_problems_total": ("counter", "Outcomes that were not hoped for, by reason"),
    "pubstorm_stage_active": ("gauge", "1 for the stage that is played"),
    "pubstorm_fault_active": ("gauge", "1 while a fault is active, 0 after its repair"),
    "pubstorm_events_total": ("counter", "Events of the run, by kind"),
    "pubstorm_monitor": ("gauge", "Last sample of a monitor, in the unit of samples.csv"),
}
"""Figures of exports that are no metrics of the registry."""
METRICS: Mapping[str, tuple[Kind, str]] = {
    **{each.name: (each.kind, each.metric.export) for each in EXPORTED},
    **OWN,
}
"""Kind and description of each metric."""
BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Upper ends of classic buckets, in seconds."""
AWAY = 3
"""Intervals without a snapshot after which an agent has no clients any more."""


@dataclass(frozen=True)
class Family:
    """A metric with all its series."""

    name: str
    kind: Kind
    text: str
    """Description."""
    points: Sequence[tuple[Labels, float | Histogram]]


class Tally:
    """The metrics of the present run."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self._forget()

    def _forget(self) -> None:
        self._sums = RunSum()
        self._values: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        """The last values of monitors and faults, the memory of agents, and counts of events."""
        self._latest: dict[int, Snapshot] = {}
        self._stage: int | None = None

    def take(self, run: Run, item: Item) -> None:
        """Adds an item. With another run the sums begin at zero."""
        if run is not self.run:
            self.run = run
            self._forget()
        if isinstance(item, Snapshot):
            self._snapshot(run, item)
        elif isinstance(item, Samples):
            self._samples(run, item)
        elif isinstance(item, FaultState):
            labels = (("run", run.name), ("fault", item.name))
            self._values["pubstorm_fault_active"][labels] = float(item.is_active)
        else:
            labels = (("run", run.name), ("kind", item.kind))
            events = self._values["pubstorm_events_total"]
            events[labels] = events.get(labels, 0) + 1

    def end(self) -> None:
        """The run has ended: sums stay, and there is no stage and no client any more."""
        self._latest, self._stage = {}, None

    def families(self) -> tuple[Family, ...]:
        """Returns all metrics that have a series."""
        points: defaultdict[str, list[tuple[Labels, float | Histogram]]] = defaultdict(list)
        for name, values in self._values.items():
            points[name].extend(values.items())
        for name, labels, value in () if self.run is None else self._series(self.run):
            points[name].append((labels, value))
        return tuple(
            Family(name, kind, text, tuple(points[name]))
            for name, (kind, text) in METRICS.items()
            if points[name]
        )

    def _series(self, run: Run) -> Iterator[Series]:
        """Yields the sums of the run and its present state."""
        for stage, places in self._stages_by_name(run).items():
            for name, labels, value in self._of_stage(run, stage, places):
                if isinstance(value, Histogram):
                    if value.count or value.negative_total:
                        yield name, labels, value.from_zero()
                elif value or stage:
                    yield name, labels, value
        for agent in self._sums.agents:
            of_agent, part = (("run", run.name), ("agent", str(agent))), self._sums.agent([agent])
            for each in _of("agent"):
                value = each.read(part)
                if not isinstance(value, Histogram):
                    yield each.name, of_agent, value / 1e9
                elif value.count or value.negative_total:
                    yield each.name, of_agent, value.from_zero()
        present = self._present(run)
        for state in _of("state"):
            for place, _ in enumerate(run.plan.populations if present else ()):
                found = (state.read(each.populations[place].gauges) for each in present)
                count = sum(each for each in found if isinstance(each, int))
                yield state.name, _of_population(run, place), float(count)
        if self._stage is not None:
            of_run = (("run", run.name), ("stage", run.plan.stages[self._stage].name))
            yield "pubstorm_stage_active", of_run, 1.0

    def _stages_by_name(self, run: Run) -> dict[str, list[int | None]]:
        """Returns the places of stages by their label: several stages may have one name."""
        found: dict[str, list[int | None]] = {}
        for stage in self._sums.stages:
            name = "" if stage is None else run.plan.stages[stage].name
            found.setdefault(name, []).append(stage)
        return found

    def _of_stage(self, run: Run, stage: str, places: Sequence[int | None]) -> Iterator[Series]:
        of_stage = (("stage", stage),)
        for place, _ in enumerate(run.plan.populations):
            population = self._sums.population([place], places)
            labels = _of_population(run, place) + of_stage
            for each in _of("population"):
                yield each.name, labels, each.read(population)
            for reason, count in population.outcomes.items():
                yield "pubstorm_problems_total", (*labels, ("reason", str(reason))), count
        for flow in self._sums.flows(places).values():
            publisher = run.plan.populations[flow.source].name
            to = _of_population(run, flow.to, flow.source) + of_stage + (("publisher", publisher),)
            for each in _of("flow"):
                yield each.name, to, each.read(flow)

    def _present(self, run: Run) -> list[Snapshot]:
        newest_ns = max((each.to_ns for each in self._latest.values()), default=0)
        since_ns = newest_ns - AWAY * run.plan.snapshot_interval_ns
        return [each for each in self._latest.values() if each.to_ns >= since_ns]

    def _snapshot(self, run: Run, snapshot: Snapshot) -> None:
        self._latest[snapshot.agent] = snapshot
        stage = snapshot.stage
        if stage is not None:
            self._stage = max(stage, self._stage or 0)
        self._sums.take(snapshot)
        agent = (("run", run.name), ("agent", str(snapshot.agent)))
        for each in _of("engine"):
            value = each.read(snapshot.engine)
            if isinstance(value, int):
                self._values[each.name][agent] = value

    def _samples(self, run: Run, item: Samples) -> None:
        for each in item.samples:
            if each.source.kind in OF_LOAD:
                continue
            labels = (("run", run.name), ("source", each.source.name), ("metric", each.metric))
            self._values["pubstorm_monitor"][labels] = each.value


@cache
def _of(part: Part) -> tuple[Reported, ...]:
    return tuple(each for each in EXPORTED if each.part == part)


def _of_population(run: Run, place: int, publisher: int | None = None) -> Labels:
    """Returns the labels of a population. Its QoS is that of its messages, or of the messages of
    the population `publisher`; without any it is that of its subscriptions."""
    plan = run.plan.populations
    sends = plan[place if publisher is None else publisher].publications
    levels = sorted({each.qos for each in sends or plan[place].subscriptions})
    qos = "+".join(map(str, levels))
    return (("run", run.name), ("population", plan[place].name), ("qos", qos))


def cumulative(histogram: Histogram) -> Iterator[tuple[float, int]]:
    """Yields each bound in seconds, and the number of durations up to it. Infinity is the last."""
    buckets, below = iter(histogram.buckets), 0
    waiting = next(buckets, None)
    for bound in BOUNDS_S:
        while waiting is not None and bucket_upper_ns(waiting[0]) <= bound * 1e9:
            below += waiting[1]
            waiting = next(buckets, None)
        yield bound, below
    yield math.inf, histogram.count


def exponential(histogram: Histogram, scale: int) -> tuple[int, int, list[int]]:
    """Returns a histogram in buckets that grow by the factor 2^(2^-scale), in seconds: the count of
    zeros, the index of the first bucket, and the counts. Bucket `i` ends at factor^(i + 1)."""
    counts: dict[int, int] = {}
    zeros = 0
    for index, count in histogram.buckets:
        upper_ns = bucket_upper_ns(index)
        if upper_ns == 0:
            zeros += count
            continue
        place = math.ceil(math.log2(upper_ns / 1e9) * 2**scale) - 1
        counts[place] = counts.get(place, 0) + count
    if not counts:
        return zeros, 0, []
    first, last = min(counts), max(counts)
    return zeros, first, [counts.get(place, 0) for place in range(first, last + 1)]
