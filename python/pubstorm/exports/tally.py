"""Sums of a run's snapshots as metrics: counters since the start, present states, and histograms.
Names follow the conventions of Prometheus: seconds, bytes, `_total`."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pubstorm.contract.histogram import Histogram, bucket_upper_ns
from pubstorm.contract.snapshot import Snapshot
from pubstorm.contract.sums import RunSum
from pubstorm.exports import FaultState, Item, Run, Samples

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels, float | Histogram]
"""Name of a metric, labels, and the present value."""

OF_POPULATION = {
    "connect_attempts_total": "TCP connections begun",
    "connected_total": "Connections that the broker accepted",
    "connect_failed_total": "Connection attempts that failed",
    "disconnected_total": "Connections that the client did not end",
    "subscribed_total": "Filters that the broker granted",
    "unsubscribed_total": "Filters that the broker removed",
    "sent_total": "Messages sent",
    "acked_total": "Messages that the broker acknowledged",
    "rejected_total": "Messages that the broker refused",
    "resent_total": "Messages sent again after a reconnect",
    "abandoned_total": "Messages given up without acknowledgement",
    "skipped_total": "Messages that were scheduled and not sent",
    "stalled_total": "Times that a subscriber stalled",
    "bytes_sent_total": "Bytes written to sockets",
    "bytes_received_total": "Bytes read from sockets",
}
OF_FLOW = {
    "expected_total": "Expected deliveries",
    "received_total": "Deliveries received",
    "duplicate_total": "Deliveries of a message that the receiver already had",
    "reordered_total": "Deliveries after a later message of the same stream",
    "stale_total": "Deliveries too late to recognise duplicates",
    "expired_received_total": "Deliveries of messages that had expired",
}
GAUGES = {
    "pubstorm_clients_connected": ("connected", "Clients that the broker has accepted"),
    "pubstorm_clients_ready": ("ready", "Clients that are connected and subscribed"),
    "pubstorm_clients_offline": ("offline", "Clients between two session lifetimes"),
    "pubstorm_clients_stalled": ("stalled", "Subscribers that miss messages and receive none"),
    "pubstorm_messages_in_flight": ("in_flight", "Messages sent and not acknowledged"),
    "pubstorm_messages_backlog": ("backlog", "Messages scheduled and not yet sent"),
}
"""Field of the gauges of a population, and its description, by metric."""
HISTOGRAMS = {
    "connect_time": "From the start of TCP to the broker's acceptance",
    "subscribe_time": "From SUBSCRIBE to SUBACK, of clients that had unsubscribed",
    "unsubscribe_time": "From UNSUBSCRIBE to UNSUBACK",
    "ack_latency": "From the scheduled instant to the acknowledgement",
    "latency": "From the scheduled instant to the delivery",
    "round_trip": "From the scheduled instant of a request to its answer",
}
OTHERS: dict[str, tuple[Kind, str]] = {
    "pubstorm_messages_missing": ("gauge", "Messages passed over in streams and not received yet"),
    "pubstorm_messages_expired": (
        "gauge",
        "Messages for offline clients that may expire, and have not arrived",
    ),
    "pubstorm_problems_total": ("counter", "Outcomes that were not hoped for, by reason"),
    "pubstorm_stage_active": ("gauge", "1 for the stage that is played"),
    "pubstorm_fault_active": ("gauge", "1 while a fault is active, 0 after its repair"),
    "pubstorm_events_total": ("counter", "Events of the run, by kind"),
    "pubstorm_agent_cpu_seconds_total": ("counter", "CPU time of an agent"),
    "pubstorm_agent_busy_seconds_total": ("counter", "Time in which an agent's loop was at work"),
    "pubstorm_agent_resident_memory_bytes": ("gauge", "Resident memory of an agent"),
    "pubstorm_agent_lateness_seconds": ("histogram", "Lateness of messages that the agent caused"),
    "pubstorm_monitor": ("gauge", "Last sample of a monitor, in the unit of samples.csv"),
}
BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Upper ends of classic buckets, in seconds."""
AWAY = 3
"""Intervals without a snapshot after which an agent has no clients any more."""


def _name(field: str) -> str:
    """Returns the name of a counter; the unit stands before `_total`."""
    if field.startswith("bytes_"):
        field = f"{field.removeprefix('bytes_').removesuffix('_total')}_bytes_total"
    return f"pubstorm_{field}"


METRICS: dict[str, tuple[Kind, str]] = {
    **{_name(field): ("counter", text) for field, text in (OF_POPULATION | OF_FLOW).items()},
    **{name: ("gauge", text) for name, (_, text) in GAUGES.items()},
    **{f"pubstorm_{name}_seconds": ("histogram", text) for name, text in HISTOGRAMS.items()},
    **OTHERS,
}
"""Kind and description of each metric."""


@dataclass(frozen=True)
class Family:
    """A metric with all its series."""

    name: str
    kind: Kind
    text: str
    """Description."""
    points: Sequence[tuple[Labels, float | Histogram]]


class Tally:
    """The metrics of the present run. Threads share it."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._sums = RunSum()
        self._values: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        """The last values of monitors and faults, the memory of agents, and counts of events."""
        self._latest: dict[int, Snapshot] = {}
        self._stage: int | None = None

    def take(self, run: Run, item: Item) -> None:
        """Adds an item. With another run the sums begin at zero."""
        with self._lock:
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
        with self._lock:
            self._latest, self._stage = {}, None

    def families(self) -> list[Family]:
        """Returns all metrics that have a series."""
        with self._lock:
            points: defaultdict[str, list[tuple[Labels, float | Histogram]]] = defaultdict(list)
            for name, values in self._values.items():
                points[name].extend(values.items())
            for name, labels, value in () if self.run is None else self._series(self.run):
                points[name].append((labels, value))
        return [
            Family(name, kind, text, tuple(points[name]))
            for name, (kind, text) in METRICS.items()
            if points[name]
        ]

    def _series(self, run: Run) -> Iterator[Series]:
        """Yields the sums of the run and its present state."""
        for stage in self._sums.stages:
            for name, labels, value in self._of_stage(run, stage):
                if isinstance(value, Histogram):
                    if value.count or value.negative_total:
                        yield name, labels, value.from_zero()
                elif value or stage is not None:
                    yield name, labels, value
        for agent in self._sums.agents:
            of_agent, part = (("run", run.name), ("agent", str(agent))), self._sums.agent([agent])
            yield "pubstorm_agent_cpu_seconds_total", of_agent, part.cpu_ns / 1e9
            yield "pubstorm_agent_busy_seconds_total", of_agent, part.busy_ns / 1e9
            if part.lateness.count or part.lateness.negative_total:
                yield "pubstorm_agent_lateness_seconds", of_agent, part.lateness.from_zero()
        present = self._present(run)
        for name, (field, _) in GAUGES.items():
            for place, _ in enumerate(run.plan.populations if present else ()):
                state = sum(getattr(each.populations[place].gauges, field) for each in present)
                yield name, _of_population(run, place), float(state)
        if self._stage is not None:
            of_run = (("run", run.name), ("stage", run.plan.stages[self._stage].name))
            yield "pubstorm_stage_active", of_run, 1.0

    def _of_stage(self, run: Run, stage: int | None) -> Iterator[Series]:
        of_stage = (("stage", "" if stage is None else run.plan.stages[stage].name),)
        for place, _ in enumerate(run.plan.populations):
            population = self._sums.population([place], [stage])
            labels = _of_population(run, place) + of_stage
            for field in OF_POPULATION:
                yield _name(field), labels, getattr(population.counters, field)
            for reason, count in population.outcomes.items():
                yield "pubstorm_problems_total", (*labels, ("reason", str(reason))), count
            yield "pubstorm_connect_time_seconds", labels, population.connect_time
            yield "pubstorm_subscribe_time_seconds", labels, population.subscribe_time
            yield "pubstorm_unsubscribe_time_seconds", labels, population.unsubscribe_time
            yield "pubstorm_ack_latency_seconds", labels, population.ack_intended
            yield "pubstorm_round_trip_seconds", labels, population.round_trip
        for flow in self._sums.flows([stage]).values():
            publisher = run.plan.populations[flow.source].name
            to = _of_population(run, flow.to, flow.source) + of_stage + (("publisher", publisher),)
            for field in OF_FLOW:
                yield _name(field), to, getattr(flow.counters, field)
            yield "pubstorm_messages_missing", to, flow.counters.missing_total
            yield "pubstorm_messages_expired", to, flow.counters.expired_total
            yield "pubstorm_latency_seconds", to, flow.latency_intended

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
        self._values["pubstorm_agent_resident_memory_bytes"][agent] = snapshot.engine.rss_bytes

    def _samples(self, run: Run, item: Samples) -> None:
        own = {name for each in run.plan.populations for name in (each.name, each.whole)}
        for each in item.samples:
            if each.source in own or each.source.startswith("agent-"):
                continue
            labels = (("run", run.name), ("source", each.source), ("metric", each.metric))
            self._values["pubstorm_monitor"][labels] = each.value


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
