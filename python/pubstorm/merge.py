"""The sum of all agents' snapshots. Counters and histograms add up in any order, by stage; gauges
are kept with their instants, so that sums over agents and their peaks follow from the set of
snapshots alone. It knows neither plan nor clock and judges nothing."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from operator import attrgetter
from typing import Literal

from pubstorm.histogram import HistogramSum
from pubstorm.packed import Packed, Row
from pubstorm.slices import Series, Slices
from pubstorm.snapshot import (
    ClockState,
    FlowSnapshot,
    PopulationSnapshot,
    Reason,
    Snapshot,
    Stall,
    TargetSnapshot,
)

STALLS_MAX = 100
"""Stalls that are kept, the earliest; all are counted."""

NOBODY = array("Q")
"""No client at any target."""
StallKey = tuple[int, int, int]
"""When a stall began, its population, and the client's number."""
Gauge = Literal["connected", "ready", "in_flight", "backlog", "away", "stalled"]
Count = Literal["sent", "acked", "received", "bytes_sent", "bytes_received"]


@dataclass(frozen=True, slots=True)
class PopulationInterval:
    """What the time line keeps of a population's interval."""

    connected: int
    ready: int
    in_flight: int
    backlog: int
    away: int
    stalled: int
    sent: int
    acked: int
    received: int
    bytes_sent: int
    bytes_received: int
    missing: int
    """Deliveries to it that were passed over, less those that came after all."""
    latency_count: int
    """Deliveries to it and acknowledgements of its messages, together."""
    latency_sum_ns: int
    """Their latencies from the intended send, in nanoseconds."""

    @classmethod
    def nothing(cls) -> PopulationInterval:
        """That nobody was there and nothing happened."""
        return cls(*(0 for _ in fields(cls)))


@dataclass(frozen=True, slots=True)
class Interval:
    """What the time line keeps of a snapshot."""

    agent: int
    sequence: int
    stage: int | None
    from_ns: int
    to_ns: int
    busy_ns: int
    populations: tuple[PopulationInterval, ...]
    connected_at: array[int] = field(default_factory=lambda: array("Q"))
    """Clients connected at the end, by target; those further on have none."""
    clock: ClockState | None = None
    """How well the agent knew the reference clock; None: its host has it."""
    starved_ns: int = 0
    """Time without a processor, in nanoseconds; 0 if the host gave the agent enough of them."""

    @property
    def starved(self) -> bool:
        """True if the host gave the agent too little of its processors."""
        return self.starved_ns > 0

    @property
    def connected(self) -> int:
        """Clients of all populations that were connected at the end."""
        return sum(population.connected for population in self.populations)

    def connected_to(self, targets: Iterable[int]) -> int:
        """Clients connected at some targets at the end."""
        told = len(self.connected_at)
        return sum(self.connected_at[target] for target in targets if target < told)

    def emptied(self, at_ns: int, stage: int) -> Interval:
        """An interval without length after this one, at whose end nobody is there."""
        nobody = tuple(PopulationInterval.nothing() for _ in self.populations)
        return Interval(self.agent, self.sequence + 1, stage, at_ns, at_ns, 0, nobody)

    def row(self) -> Row:
        """All of it as plain numbers."""
        clock = None if self.clock is None else tuple(self.clock.model_dump().values())
        populations = tuple(map(_NUMBERS, self.populations))
        return *_HEAD(self), populations, self.connected_at.tobytes(), clock

    @classmethod
    def of_row(cls, row: Row) -> Interval:
        """The interval that a row was made of."""
        *head, populations, connected_at, clock = row
        state = None if clock is None else dict(zip(ClockState.model_fields, clock, strict=True))
        return cls(
            **dict(zip(_HEAD_FIELDS, head, strict=True)),
            populations=tuple(PopulationInterval(*numbers) for numbers in populations),
            connected_at=array("Q", connected_at),
            clock=None if state is None else ClockState.model_construct(**state),
        )

    @classmethod
    def of(cls, snapshot: Snapshot) -> Interval:
        """The time line's part of a snapshot."""
        received, missing = Counter[int](), Counter[int]()
        count, sum_ns = Counter[int](), Counter[int]()
        for flow in snapshot.flows:
            received[flow.to] += flow.counters.received_total
            missing[flow.to] += flow.counters.missing_total
            count[flow.to] += flow.latency_intended.count
            sum_ns[flow.to] += flow.latency_intended.sum_ns
        populations = (
            PopulationInterval(
                connected=population.gauges.connected,
                ready=population.gauges.ready,
                in_flight=population.gauges.in_flight,
                backlog=population.gauges.backlog,
                away=population.gauges.away,
                stalled=population.gauges.stalled,
                sent=population.counters.sent_total,
                acked=population.counters.acked_total,
                received=received[index],
                bytes_sent=population.counters.bytes_sent_total,
                bytes_received=population.counters.bytes_received_total,
                missing=missing[index],
                latency_count=count[index] + population.ack_intended.count,
                latency_sum_ns=sum_ns[index] + population.ack_intended.sum_ns,
            )
            for index, population in enumerate(snapshot.populations)
        )
        return cls(
            agent=snapshot.agent,
            sequence=snapshot.sequence,
            stage=snapshot.stage,
            from_ns=snapshot.from_ns,
            to_ns=snapshot.to_ns,
            busy_ns=snapshot.engine.busy_ns,
            populations=tuple(populations),
            connected_at=_connected_at(snapshot.targets),
            clock=snapshot.clock,
            starved_ns=(snapshot.engine.run_delay_ns or 0) if snapshot.starved else 0,
        )


_HEAD_FIELDS = ("agent", "sequence", "stage", "from_ns", "to_ns", "busy_ns", "starved_ns")
_HEAD = attrgetter(*_HEAD_FIELDS)
_NUMBERS = attrgetter(*(each.name for each in fields(PopulationInterval)))


@dataclass
class PopulationTotals:
    """Sums of one population."""

    counters: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[Reason] = field(default_factory=Counter)
    connect_time: HistogramSum = field(default_factory=HistogramSum)
    ack_intended: HistogramSum = field(default_factory=HistogramSum)
    ack_actual: HistogramSum = field(default_factory=HistogramSum)

    def add_snapshot(self, snapshot: PopulationSnapshot) -> None:
        """Adds an interval of an agent."""
        self.counters.update(snapshot.counters.model_dump())
        self.outcomes.update(snapshot.outcomes)
        self.connect_time.add(snapshot.connect_time)
        self.ack_intended.add(snapshot.ack_intended)
        self.ack_actual.add(snapshot.ack_actual)

    def add(self, other: PopulationTotals) -> None:
        """Adds other sums."""
        self.counters.update(other.counters)
        self.outcomes.update(other.outcomes)
        self.connect_time.add(other.connect_time.value())
        self.ack_intended.add(other.ack_intended.value())
        self.ack_actual.add(other.ack_actual.value())


@dataclass
class FlowTotals:
    """Sums of one flow."""

    counters: Counter[str] = field(default_factory=Counter)
    latency_intended: HistogramSum = field(default_factory=HistogramSum)
    latency_actual: HistogramSum = field(default_factory=HistogramSum)

    def add_snapshot(self, snapshot: FlowSnapshot) -> None:
        """Adds an interval of an agent."""
        self.counters.update(snapshot.counters.model_dump())
        self.latency_intended.add(snapshot.latency_intended)
        self.latency_actual.add(snapshot.latency_actual)

    def add(self, other: FlowTotals) -> None:
        """Adds other sums."""
        self.counters.update(other.counters)
        self.latency_intended.add(other.latency_intended.value())
        self.latency_actual.add(other.latency_actual.value())


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
        """Sums of a population, empty where nothing came."""
        return self.populations.setdefault(index, PopulationTotals())

    def together(self, indices: Iterable[int]) -> PopulationTotals:
        """Sums of several populations."""
        sums = PopulationTotals()
        for index in indices:
            sums.add(self.population(index))
        return sums

    def flow(self, source: int, to: int) -> FlowTotals:
        """Sums of a flow, empty where nothing came."""
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
        for told in snapshot.targets:
            counts = self.targets.setdefault(told.target, Counter())
            counts["connected_total"] += told.connected_total
            counts["connect_failed_total"] += told.connect_failed_total
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
    sent_total: int = 0
    skipped_total: int = 0
    run_delay_ns: int | None = None
    """Time without a processor; None if no snapshot had it."""
    lateness: HistogramSum = field(default_factory=HistogramSum)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Adds an interval."""
        load = snapshot.engine
        once = AgentTotals(1, load.cpu_ns, load.rss_bytes, load.ledger_pairs, load.unfollowed_total)
        for population in snapshot.populations:
            once.sent_total += population.counters.sent_total
            once.skipped_total += population.counters.skipped_total
        once.run_delay_ns = load.run_delay_ns
        once.lateness.add(load.lateness)
        self.add(once)

    def add(self, other: AgentTotals) -> None:
        """Adds other sums."""
        self.snapshots += other.snapshots
        self.cpu_ns += other.cpu_ns
        self.rss_max_bytes = max(self.rss_max_bytes, other.rss_max_bytes)
        self.ledger_pairs_max = max(self.ledger_pairs_max, other.ledger_pairs_max)
        self.unfollowed_total += other.unfollowed_total
        self.sent_total += other.sent_total
        self.skipped_total += other.skipped_total
        if other.run_delay_ns is not None:
            self.run_delay_ns = (self.run_delay_ns or 0) + other.run_delay_ns
        self.lateness.add(other.lateness.value())


@dataclass
class Totals:
    """Everything that came from the agents so far."""

    publishers: Collection[int] = ()
    """Agents that are under test: their own load is none of the generator's."""
    stages: dict[int | None, StageTotals] = field(default_factory=dict)
    agents: dict[int, AgentTotals] = field(default_factory=dict)
    intervals: Packed[Interval] = field(
        default_factory=lambda: Packed(Interval.row, Interval.of_row)
    )
    """Compressed: about 100 bytes for each snapshot."""
    slices: Slices = field(default_factory=Slices)
    stalls: dict[StallKey, Stall] = field(default_factory=dict)
    early: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    """Deliveries of the next stage that were counted to a stage, by that and by flow."""
    _line: list[Interval] = field(default_factory=list, compare=False, repr=False)
    """The time line as it was last asked for; intervals only become more."""
    _latest: dict[int, Interval] = field(default_factory=dict, compare=False, repr=False)
    """The last interval of each agent."""

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Adds an interval of an agent."""
        stage = self.stages.setdefault(snapshot.stage, StageTotals())
        stage.add_snapshot(snapshot, is_generator=snapshot.agent not in self.publishers)
        self.agents.setdefault(snapshot.agent, AgentTotals()).add_snapshot(snapshot)
        self._add_interval(Interval.of(snapshot))
        self._slice(snapshot)
        self._add_stalls(snapshot.stalls)

    def lose(self, agent: int, at_ns: int, stage: int) -> None:
        """An agent is lost: from this instant of a stage on it has no client, until there are
        intervals of another engine in its place."""
        latest = self._latest.get(agent)
        if latest is not None:
            self._add_interval(latest.emptied(max(at_ns, latest.to_ns), stage))

    def owe_received(self, stage: int, populations: Collection[int]) -> None:
        """Owes populations what they have received of a stage, and nothing else. What came early of
        the next one is owed there; what came early of this one is owed where it was counted."""
        for (source, to), flow in self.stage(stage).flows.items():
            if to in populations:
                own = flow.counters["received_total"] - self.early[stage, source, to]
                flow.counters["expected_total"] = own
        for (source, to), flow in self.stage(stage - 1).flows.items():
            if to in populations:
                flow.counters["expected_total"] += self.early[stage - 1, source, to]

    def note_early(self, snapshot: Snapshot) -> None:
        """What came in this interval is of the stage after the one that its agent is in: agents do
        not enter a stage at one instant."""
        for flow in snapshot.flows:
            if snapshot.stage is not None:
                self.early[snapshot.stage, flow.source, flow.to] += flow.counters.received_total

    def add(self, other: Totals) -> None:
        """Adds the snapshots of other totals, which must not have one in common with these."""
        for index, stage in other.stages.items():
            self.stages.setdefault(index, StageTotals()).add(stage)
        for agent, totals in other.agents.items():
            self.agents.setdefault(agent, AgentTotals()).add(totals)
        self.intervals.extend(other.intervals)
        for interval in other._latest.values():
            self._note_latest(interval)
        self.slices.add(other.slices)
        self._add_stalls(other.stalls.values())
        self.early.update(other.early)

    def stage(self, index: int) -> StageTotals:
        """Sums of a stage, empty where nothing came."""
        return self.stages.get(index, StageTotals())

    def whole(self) -> StageTotals:
        """Sums of the whole run."""
        whole = StageTotals()
        for stage in self.stages.values():
            whole.add(stage)
        return whole

    def time_line(self) -> list[Interval]:
        """Every interval, by its end."""
        if len(self._line) != len(self.intervals):
            self._line = sorted(self.intervals, key=lambda i: (i.to_ns, i.agent, i.sequence))
        return self._line

    def peak(self, populations: Collection[int], *gauges: Gauge) -> int:
        """The largest sum over agents, populations and gauges; each agent's counts until its next
        one."""

        def value(interval: Interval) -> int:
            parts = (interval.populations[population] for population in populations)
            return sum(getattr(part, gauge) for part in parts for gauge in gauges)

        return self._peak(value)

    def connected_peak(self) -> int:
        """The most clients of all populations together that were connected at once; what is under
        test is none."""
        return self._peak(self._connected)

    def connected_at(self, instant_ns: int) -> int:
        """Clients of all populations together that were connected at an instant, by the last
        interval of each agent."""
        before = (interval for interval in self.time_line() if interval.to_ns <= instant_ns)
        return sum({interval.agent: self._connected(interval) for interval in before}.values())

    def connected_peaks(self) -> dict[int, int]:
        """The most clients that were connected at once, by target."""
        latest: dict[int, array[int]] = {}
        connected, peaks = Counter[int](), dict[int, int]()
        for interval in self.time_line():
            before = latest.get(interval.agent, NOBODY)
            latest[interval.agent] = interval.connected_at
            both = zip_longest(before, interval.connected_at, fillvalue=0)
            for target, (was, now) in enumerate(both):
                if was != now:
                    connected[target] += now - was
                    peaks[target] = max(peaks.get(target, 0), connected[target])
        return peaks

    def at_end(self, stage: int, until_ns: int, populations: Collection[int], gauge: Gauge) -> int:
        """The sum over agents and populations of a gauge at the end of a stage: what agents say of
        it later is of their own end."""
        inside = [i for i in self.time_line() if i.stage == stage and i.to_ns <= until_ns]
        latest = {interval.agent: interval for interval in inside}
        return sum(getattr(i.populations[p], gauge) for i in latest.values() for p in populations)

    def inside(self, stage: int, from_ns: int, to_ns: int) -> list[Interval]:
        """The intervals of a stage that lie wholly in a span, give or take a hundredth."""
        return [
            interval
            for interval in self.time_line()
            if interval.stage == stage
            and interval.from_ns < interval.to_ns
            and lies_inside(interval, from_ns, to_ns)
        ]

    def _add_interval(self, interval: Interval) -> None:
        self.intervals.append(interval)
        self._note_latest(interval)

    def _note_latest(self, interval: Interval) -> None:
        latest = self._latest.get(interval.agent, interval)
        self._latest[interval.agent] = max(latest, interval, key=lambda each: each.to_ns)

    def _connected(self, interval: Interval) -> int:
        return 0 if interval.agent in self.publishers else interval.connected

    def _peak(self, reading: Callable[[Interval], int]) -> int:
        latest: dict[int, int] = {}
        total = peak = 0
        for interval in self.time_line():
            value = reading(interval)
            total += value - latest.get(interval.agent, 0)
            latest[interval.agent] = value
            peak = max(peak, total)
        return peak

    def _add_stalls(self, stalls: Iterable[Stall]) -> None:
        """Keeps the earliest; one that is told of again, now that it is over, is the same one."""
        for stall in stalls:
            key = (stall.since_ns, stall.population, stall.number)
            self.stalls[key] = max(self.stalls.get(key, stall), stall, key=_telling)
        for key in sorted(self.stalls)[STALLS_MAX:]:
            del self.stalls[key]

    def _slice(self, snapshot: Snapshot) -> None:
        stage, to_ns = snapshot.stage, snapshot.to_ns
        for index, population in enumerate(snapshot.populations):
            acknowledgements = Series(stage, "acknowledgement", index)
            self.slices.add_interval(acknowledgements, to_ns, population.ack_intended)
        for flow in snapshot.flows:
            deliveries = Series(stage, "delivery", flow.to)
            self.slices.add_interval(deliveries, to_ns, flow.latency_intended)
        if snapshot.agent not in self.publishers:
            self.slices.add_interval(Series(stage, "lateness"), to_ns, snapshot.engine.lateness)


def merge(snapshots: Iterable[Snapshot]) -> Totals:
    """The totals of some snapshots."""
    totals = Totals()
    for snapshot in snapshots:
        totals.add_snapshot(snapshot)
    return totals


def rate_per_s(intervals: Iterable[Interval], populations: Collection[int], count: Count) -> float:
    """Rate of populations over some intervals: the sum over agents of each agent's own."""
    counts = Counter[int]()
    spans_ns = Counter[int]()
    for interval in intervals:
        counts[interval.agent] += sum(getattr(interval.populations[p], count) for p in populations)
        spans_ns[interval.agent] += interval.to_ns - interval.from_ns
    return sum(1e9 * counts[agent] / span for agent, span in spans_ns.items() if span > 0)


def lies_inside(interval: Interval, from_ns: int, to_ns: int) -> bool:
    """Whether an interval lies wholly in a span, give or take a hundredth."""
    slack_ns = (interval.to_ns - interval.from_ns) // 100
    starts_inside = interval.from_ns >= from_ns - slack_ns
    return starts_inside and from_ns < interval.to_ns <= to_ns + slack_ns


def _connected_at(targets: Iterable[TargetSnapshot]) -> array[int]:
    connected = {told.target: told.connected for told in targets}
    return array(
        "Q", (connected.get(target, 0) for target in range(max(connected, default=-1) + 1))
    )


def _telling(stall: Stall) -> tuple[bool, int, int]:
    """Orders what was told of one stall by how much it says."""
    return stall.until_ns is not None, stall.until_ns or 0, stall.due
