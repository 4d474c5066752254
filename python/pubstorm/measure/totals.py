"""The sums of all agents' snapshots, by stage, population, flow and agent. Snapshots add up in any
order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pubstorm.contract.explanation import ExplanationSum
from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.contract.snapshot import (
    Answer,
    FlowSnapshot,
    PopulationSnapshot,
    Reason,
    Snapshot,
    Stall,
)
from pubstorm.measure.series import TimeSeries

STALLS_MAX = 100
"""Stalls that are kept, the earliest; all are counted."""

MESSAGES_OF_AGENTS = (
    "connect_failed_total",
    "sent_total",
    "acked_total",
    "abandoned_total",
    "skipped_total",
)
"""Counters of populations that are kept for each agent."""
DELIVERIES_OF_AGENTS = ("expected_total", "received_total")
"""Counters of flows that are kept for each agent."""
StallKey = tuple[int, int, int]
"""Instant at which a stall began, its population, and the client's number."""


@dataclass
class PopulationTotals:
    """Sums of one population."""

    counters: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[Reason | Answer] = field(default_factory=Counter)
    explanations: ExplanationSum = field(default_factory=ExplanationSum)
    clients_by_deliveries: Counter[int] = field(default_factory=Counter)
    """Number of clients by the number of deliveries that each received in a publish stage."""
    connect_time: HistogramSum = field(default_factory=HistogramSum)
    ack_intended: HistogramSum = field(default_factory=HistogramSum)
    ack_actual: HistogramSum = field(default_factory=HistogramSum)
    receive_maximum_wait: HistogramSum = field(default_factory=HistogramSum)
    subscribe_time: HistogramSum = field(default_factory=HistogramSum)
    unsubscribe_time: HistogramSum = field(default_factory=HistogramSum)
    answers: Counter[str] = field(default_factory=Counter)
    round_trip: HistogramSum = field(default_factory=HistogramSum)

    def add_snapshot(self, snapshot: PopulationSnapshot) -> None:
        """Adds an interval of an agent."""
        self.counters.update(snapshot.counters.model_dump())
        self.outcomes.update(snapshot.outcomes)
        self.explanations.add(snapshot.explanations)
        self.clients_by_deliveries.update(dict(snapshot.clients_by_deliveries))
        self.connect_time.add(snapshot.connect_time)
        self.ack_intended.add(snapshot.ack_intended)
        self.ack_actual.add(snapshot.ack_actual)
        self.receive_maximum_wait.add(snapshot.receive_maximum_wait)
        self.subscribe_time.add(snapshot.subscribe_time)
        self.unsubscribe_time.add(snapshot.unsubscribe_time)
        self.answers.update(snapshot.answers.model_dump())
        self.round_trip.add(snapshot.round_trip)

    def add(self, other: PopulationTotals) -> None:
        """Adds other sums."""
        self.counters.update(other.counters)
        self.outcomes.update(other.outcomes)
        self.explanations.add(other.explanations.value())
        self.connect_time.add(other.connect_time.value())
        self.ack_intended.add(other.ack_intended.value())
        self.ack_actual.add(other.ack_actual.value())
        self.receive_maximum_wait.add(other.receive_maximum_wait.value())
        self.subscribe_time.add(other.subscribe_time.value())
        self.unsubscribe_time.add(other.unsubscribe_time.value())
        self.answers.update(other.answers)
        self.round_trip.add(other.round_trip.value())

    @property
    def unanswered(self) -> int:
        """Answers that were expected and have not arrived."""
        return max(self.answers["answers_expected_total"] - self.answers["answered_total"], 0)


@dataclass
class FlowTotals:
    """Sums of one flow."""

    counters: Counter[str] = field(default_factory=Counter)
    latency_intended: HistogramSum = field(default_factory=HistogramSum)
    latency_actual: HistogramSum = field(default_factory=HistogramSum)
    will_latency: HistogramSum = field(default_factory=HistogramSum)

    def add_snapshot(self, snapshot: FlowSnapshot) -> None:
        """Adds an interval of an agent."""
        self.counters.update(snapshot.counters.model_dump())
        self.latency_intended.add(snapshot.latency_intended)
        self.latency_actual.add(snapshot.latency_actual)
        self.will_latency.add(snapshot.will_latency)

    def add(self, other: FlowTotals) -> None:
        """Adds other sums."""
        self.counters.update(other.counters)
        self.latency_intended.add(other.latency_intended.value())
        self.latency_actual.add(other.latency_actual.value())
        self.will_latency.add(other.will_latency.value())


@dataclass
class StageTotals:
    """Sums of one stage, or of several."""

    populations: dict[int, PopulationTotals] = field(default_factory=dict)
    flows: dict[tuple[int, int], FlowTotals] = field(default_factory=dict)
    targets: dict[int, Counter[str]] = field(default_factory=dict)
    """Connections accepted and attempts that failed, by target."""
    lateness: HistogramSum = field(default_factory=HistogramSum)
    lateness_starved: HistogramSum = field(default_factory=HistogramSum)
    """The part of `lateness` that belongs to starved intervals."""
    blocked: HistogramSum = field(default_factory=HistogramSum)

    def population(self, index: int) -> PopulationTotals:
        """Sums of a population, empty if no agent reported any."""
        return self.populations.setdefault(index, PopulationTotals())

    def together(self, indices: Iterable[int]) -> PopulationTotals:
        """Sums of several populations."""
        sums = PopulationTotals()
        for index in indices:
            sums.add(self.population(index))
        return sums

    def flow(self, source: int, to: int) -> FlowTotals:
        """Sums of a flow, empty if no agent reported any."""
        return self.flows.setdefault((source, to), FlowTotals())

    def sum_of(self, counter: str) -> int:
        """The sum of a counter over all populations."""
        return sum(totals.counters[counter] for totals in self.populations.values())

    def add_snapshot(self, snapshot: Snapshot, *, is_generator: bool = True) -> None:
        """Adds an interval of an agent; of one that is no generator without its own load."""
        for index, population in enumerate(snapshot.populations):
            self.population(index).add_snapshot(population)
        for flow in snapshot.flows:
            self.flow(flow.source, flow.to).add_snapshot(flow)
        for target in snapshot.targets:
            counts = self.targets.setdefault(target.target, Counter())
            counts["connected_total"] += target.connected_total
            counts["connect_failed_total"] += target.connect_failed_total
        if is_generator:
            self.lateness.add(snapshot.engine.lateness)
            if snapshot.starved:
                self.lateness_starved.add(snapshot.engine.lateness)
            self.blocked.add(snapshot.engine.blocked)

    def add(self, other: StageTotals) -> None:
        """Adds other sums."""
        for index, population in other.populations.items():
            self.population(index).add(population)
        for (source, to), flow in other.flows.items():
            self.flow(source, to).add(flow)
        for target, counts in other.targets.items():
            self.targets.setdefault(target, Counter()).update(counts)
        self.lateness.add(other.lateness.value())
        self.lateness_starved.add(other.lateness_starved.value())
        self.blocked.add(other.blocked.value())


@dataclass
class AgentTotals:
    """Sums of one agent."""

    snapshots: int = 0
    cpu_ns: int = 0
    rss_max_bytes: int = 0
    ledger_pairs_max: int = 0
    unfollowed_total: int = 0
    messages: Counter[str] = field(default_factory=Counter)
    """Counters of its clients and of the flows that it reported."""
    run_delay_ns: int | None = None
    """Time without a processor; None if no snapshot had it."""
    lateness: HistogramSum = field(default_factory=HistogramSum)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Adds an interval."""
        load = snapshot.engine
        self.snapshots += 1
        self.cpu_ns += load.cpu_ns
        self.rss_max_bytes = max(self.rss_max_bytes, load.rss_bytes)
        self.ledger_pairs_max = max(self.ledger_pairs_max, load.ledger_pairs)
        self.unfollowed_total += load.unfollowed_total
        for population in snapshot.populations:
            for name in MESSAGES_OF_AGENTS:
                self.messages[name] += getattr(population.counters, name)
        for flow in snapshot.flows:
            for name in DELIVERIES_OF_AGENTS:
                self.messages[name] += getattr(flow.counters, name)
        if load.run_delay_ns is not None:
            self.run_delay_ns = (self.run_delay_ns or 0) + load.run_delay_ns
        self.lateness.add(load.lateness)


@dataclass
class Totals:
    """Sums of everything that agents reported, and their load over time."""

    publishers: Collection[int] = ()
    """Agents that are under test: their own load is not the generator's."""
    stages: dict[int | None, StageTotals] = field(default_factory=dict)
    agents: dict[int, AgentTotals] = field(default_factory=dict)
    series: TimeSeries = field(init=False)
    stalls: dict[StallKey, Stall] = field(default_factory=dict)
    early: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    """Deliveries of the next stage that a stage counts, by that stage and by flow."""

    def __post_init__(self) -> None:
        self.series = TimeSeries(self.publishers)

    def add_snapshot(self, snapshot: Snapshot, *, early: bool = False) -> None:
        """Adds an interval of an agent. `early`: its deliveries belong to the next stage, since
        agents do not enter a stage at one instant."""
        stage = self.stages.setdefault(snapshot.stage, StageTotals())
        stage.add_snapshot(snapshot, is_generator=snapshot.agent not in self.publishers)
        self.agents.setdefault(snapshot.agent, AgentTotals()).add_snapshot(snapshot)
        self.series.add_snapshot(snapshot)
        self._add_stalls(snapshot.stalls)
        if early and snapshot.stage is not None:
            for flow in snapshot.flows:
                key = snapshot.stage, flow.source, flow.to
                self.early[key] += flow.counters.received_total

    def expect_received(self, stage: int, populations: Collection[int]) -> None:
        """Sets expected = received for these populations in a stage, so that no loss is counted.
        Early deliveries are expected in the stage that they belong to."""
        for (source, to), flow in self.stage(stage).flows.items():
            if to in populations:
                own = flow.counters["received_total"] - self.early[stage, source, to]
                flow.counters["expected_total"] = own
        for population in populations:
            answers = self.stage(stage).population(population).answers
            answers["answers_expected_total"] = answers["answered_total"]
        for (source, to), flow in self.stage(stage - 1).flows.items():
            if to in populations:
                flow.counters["expected_total"] += self.early[stage - 1, source, to]

    def stage(self, index: int) -> StageTotals:
        """Sums of a stage, empty if no agent reported any."""
        return self.stages.get(index, StageTotals())

    def whole(self) -> StageTotals:
        """Sums of the whole run."""
        whole = StageTotals()
        for stage in self.stages.values():
            whole.add(stage)
        return whole

    def _add_stalls(self, stalls: Iterable[Stall]) -> None:
        """Keeps the earliest stalls. A stall is reported again when it is over."""
        for stall in stalls:
            key = (stall.since_ns, stall.population, stall.number)
            self.stalls[key] = max(self.stalls.get(key, stall), stall, key=_completeness)
        for key in sorted(self.stalls)[STALLS_MAX:]:
            del self.stalls[key]


def merge(snapshots: Iterable[Snapshot], publishers: Collection[int] = ()) -> Totals:
    """The totals of some snapshots."""
    totals = Totals(publishers)
    for snapshot in snapshots:
        totals.add_snapshot(snapshot)
    return totals


def _completeness(stall: Stall) -> tuple[bool, int, int]:
    """Orders the reports of one stall, the most complete last."""
    return stall.until_ns is not None, stall.until_ns or 0, stall.due


def will_latency(flows: Iterable[FlowTotals]) -> Histogram:
    """Latencies of the wills of some flows together."""
    together = HistogramSum()
    for flow in flows:
        together.add(flow.will_latency.value())
    return together.value()


def lost_wills(flows: Iterable[FlowTotals]) -> int:
    """Expected deliveries of wills of some flows that did not arrive."""
    counters = (flow.counters for flow in flows)
    missing = (c["wills_expected_total"] - c["wills_received_total"] for c in counters)
    return sum(max(count, 0) for count in missing)
