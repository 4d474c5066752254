"""The load of a phase, due and done, by pure arithmetic: publishing clients, messages and
deliveries a second that the plan and its changes ask for, and tick by tick the sums over agents of
what was sent, received and waiting, from rows that each agent cut by its own clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import atanh, sqrt
from types import MappingProxyType

from pubstorm.contract.commands import ActiveClients
from pubstorm.contract.plan import ChangeRate, Plan
from pubstorm.contract.protocol import OpenPace, PlannedPublication
from pubstorm.measure.ledger import Ledger
from pubstorm.measure.run_log import AppliedChange
from pubstorm.quantities import SECOND_NS
from pubstorm.result.timeline import Timeline
from pubstorm.result.timeline.rows import Row

POISSON_DEVIATIONS = 4
"""Standard deviations of Poisson arrivals that are no shortfall."""
MINOR_SHARE = 0.05
"""Publications with a smaller share of the scheduled messages set no pace for the evaluation."""


@dataclass(frozen=True, slots=True)
class LoadDue:
    """The load of a span in which it stays the same."""

    clients: int
    """Clients that publish."""
    sent_per_s: float
    """Messages due a second."""
    acked_per_s: float
    """Those of them that are acknowledged: of QoS 1 and 2."""
    received_per_s: float
    """Deliveries due a second to the receivers that are evaluated."""
    period_ns: int
    """Longest time between two messages of a client, but for minor publications."""
    burst: int
    """Messages that are due at one instant, since their clients are aligned."""
    is_open: bool
    """True if all of it is open loop at a steady rate. A closed loop has nothing due by a
    clock, and recorded messages have no steady rate."""
    lump: int = 0
    """Most messages that a client sends at once, if it sends several."""
    scatter: float = 1.0
    """Messages by which a window may miss its mean, divided by the root of the mean."""


@dataclass
class Publishing:
    """Active clients of each population that publish, and the factor of their planned rate."""

    active: ActiveClients
    factors: dict[int, float] = field(default_factory=dict)
    away: set[int] = field(default_factory=set)
    """Populations of which some clients have left and are not back."""

    @classmethod
    def at_start_of(cls, plan: Plan, stage: int, changes: Iterable[AppliedChange]) -> Publishing:
        """The state when a stage begins, after the stages before it."""
        state, by_stage = cls(ActiveClients(plan)), list(changes)
        most = list(state.active.counts)
        for index, before in enumerate(plan.stages[:stage]):
            state.active.enter(before)
            most = [*map(max, most, state.active.counts)]
            for change in by_stage:
                if change.stage == index:
                    state.apply(change)
                    most = [*map(max, most, state.active.counts)]
        counts = enumerate(state.active.counts)
        state.away = {index for index, count in counts if count < most[index]}
        state.factors.clear()
        return state

    def apply(self, change: AppliedChange) -> None:
        """Takes a change in."""
        self.active.change(change.population, change.action)
        if isinstance(change.action, ChangeRate):
            self.factors[change.population] = change.action.factor


def load_due(
    plan: Plan, publishing: Publishing, populations: Sequence[int], fan_out: dict[int, float]
) -> LoadDue:
    """Returns the load of the populations that publish; `fan_out` is deliveries to evaluated
    receivers by message, by population."""
    flows = list(_flows(plan, publishing, populations))
    sent_per_s = sum(flow.per_s for flow in flows)
    paced = [flow for flow in flows if flow.per_s >= MINOR_SHARE * sent_per_s > 0]
    publishers = {flow.population for flow in flows}
    closed = any(
        not isinstance(publication.pace, OpenPace) or publication.recorded is not None
        for index in populations
        for publication in plan.populations[index].publications
    )
    return LoadDue(
        clients=sum(publishing.active.counts[index] for index in publishers),
        sent_per_s=sent_per_s,
        acked_per_s=sum(flow.per_s for flow in flows if flow.publication.qos > 0),
        received_per_s=sum(flow.per_s * fan_out.get(flow.population, 0.0) for flow in flows),
        period_ns=max((flow.period_ns for flow in paced), default=0),
        burst=round(sum(flow.clients for flow in flows if flow.is_aligned)),
        is_open=not closed,
        lump=max((flow.pace.burst for flow in flows if flow.pace.burst > 1), default=0),
        scatter=max((flow.scatter for flow in flows), default=1.0),
    )


def fan_out(
    ledger: Ledger,
    stage: int,
    receivers: Iterable[int],
    ready: Mapping[int, float] = MappingProxyType({}),
) -> dict[int, float]:
    """Expected deliveries to the receivers for each message that a population sent in a stage;
    `ready` are shares of populations whose clients were ready, where some never were. It is
    not below 0: snapshots that end early may correct deliveries that they never counted."""
    expected: dict[int, float] = {}
    for (source, to), flow in ledger.into(set(receivers), [stage]).items():
        count = flow.counters.expected_total * ready.get(to, 1.0)
        expected[source] = expected.get(source, 0.0) + count
    sent = {n: ledger.population([n], [stage]).counters.sent_total for n in expected}
    return {source: max(expected[source], 0.0) / n for source, n in sent.items() if n}


@dataclass(frozen=True, slots=True)
class _Flow:
    """A publication as the clients of a population send it."""

    population: int
    publication: PlannedPublication
    pace: OpenPace
    clients: float
    """Active clients; the mean number of clients with session lifetimes."""
    factor: float

    @property
    def per_s(self) -> float:
        """Messages a second: the mean of 1/period over periods that are spread evenly."""
        spread = self.pace.spread
        stretch = atanh(spread) / spread if spread else 1.0
        return self.clients * self.factor * stretch * SECOND_NS / self.pace.period_ns

    @property
    def period_ns(self) -> int:
        return round(self.pace.period_ns * (1 + self.pace.spread) / self.factor)

    @property
    def scatter(self) -> float:
        """The variance of a window with Poisson bursts is its mean times the size of a burst."""
        if self.pace.arrivals == "even":
            return 1.0
        return POISSON_DEVIATIONS * sqrt(self.pace.burst)

    @property
    def is_aligned(self) -> bool:
        return self.pace.phase == "aligned"


def _flows(plan: Plan, publishing: Publishing, populations: Sequence[int]) -> Iterator[_Flow]:
    for index in populations:
        population, clients = plan.populations[index], publishing.active.counts[index]
        lifetime, factor = population.lifetime, publishing.factors.get(index, 1.0)
        there = clients if lifetime is None else clients * lifetime.share_there
        for publication in population.publications:
            pace = None if publication.recorded else publication.pace
            if isinstance(pace, OpenPace) and clients and factor:
                yield _Flow(index, publication, pace, there, factor)


TICKS_MAX = 100_000
"""Ticks of a span: 40 MB. Those of a longer span are longer."""


@dataclass(slots=True)
class Tick:
    """One step of time."""

    from_ns: int
    """Its start, in nanoseconds on the monotonic clock."""
    to_ns: int
    """Its end."""
    sent: float = 0.0
    """Messages sent in it."""
    acked: float = 0.0
    """Messages acknowledged."""
    received: float = 0.0
    """Messages received by populations that are evaluated."""
    missing: float = 0.0
    """Messages to them that were passed over, less those that came after all."""
    latency_count: float = 0.0
    """Deliveries and acknowledgements together."""
    latency_sum_ns: float = 0.0
    """Their latencies from the intended send."""
    queue: int = 0
    """Messages due and unsent, or sent and unacknowledged, at its end."""
    starved_ns: float = 0.0
    """Time in which an agent had no processor: that of the agent with the longest."""
    expected: float = 0.0
    """Deliveries that follow from the messages sent in it."""
    expected_unsent: float = 0.0
    """Deliveries that would follow from those that are due and unsent at its end."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The ticks to make, and the populations that count."""

    from_ns: int
    """Start of the first tick."""
    to_ns: int
    """No tick ends later."""
    width_ns: int
    """Length of a tick."""
    publishers: Collection[int]
    """Populations whose messages count."""
    receivers: Collection[int]
    """Populations whose deliveries count."""
    fan_out: Mapping[int, float] = field(default_factory=dict)
    """Deliveries expected of each message, by population."""


def width_of(from_ns: int, to_ns: int, interval_ns: int) -> int:
    """Returns the length of the ticks of a span: an interval, or as many as it takes."""
    return interval_ns * max(-(-(to_ns - from_ns) // (interval_ns * TICKS_MAX)), 1)


def ticks(timeline: Timeline, stage: int, grid: Grid) -> list[Tick]:
    """The ticks of a stage that every agent's rows cover."""
    starts = range(grid.from_ns, grid.to_ns - grid.width_ns + 1, grid.width_ns)
    made = [Tick(start, start + grid.width_ns) for start in starts]
    ends: list[int] = []
    for agent in timeline.agents:
        last = timeline.last(agent, stage)
        if last is not None:
            ends.append(last.to_ns)
            before = timeline.last(agent, stage, grid.from_ns)
            waiting = _Waiting() if before is None else _Waiting.of(before, grid)
            rows = timeline.rows_of(agent, stage, grid.from_ns, grid.to_ns)
            _add_agent(made, waiting, rows, grid)
    # Agents cut their intervals at nearly the same instants.
    covered_ns = min(min(ends, default=grid.from_ns) + grid.width_ns // 2, grid.to_ns)
    return made[: max(covered_ns - grid.from_ns, 0) // grid.width_ns]


def _add_agent(made: Sequence[Tick], waiting: _Waiting, rows: Iterable[Row], grid: Grid) -> None:
    """Adds the rows of an agent, in the order of their ends. Messages that came to wait after the
    end of the last tick do not count: a fault may have begun there."""
    starved_ns, place = [0.0] * len(made), 0
    for row in rows:
        while place < len(made) and row.to_ns > _until_ns(made[place], grid):
            waiting.add_to(made[place])
            place += 1
        waiting = _Waiting.of(row, grid)
        for number, share in row.shares(grid.from_ns, grid.width_ns, len(made)):
            _add_counts(made[number], row, share, grid)
            starved_ns[number] += share * row.starved_ns
    for tick in made[place:]:
        waiting.add_to(tick)
    for tick, time_ns in zip(made, starved_ns, strict=True):
        tick.starved_ns = max(tick.starved_ns, time_ns)


def _until_ns(tick: Tick, grid: Grid) -> int:
    return min(tick.to_ns + grid.width_ns // 2, grid.to_ns)


def _add_counts(tick: Tick, row: Row, share: float, grid: Grid) -> None:
    everybody = range(row.populations)
    tick.sent += share * row.count("sent", grid.publishers)
    tick.acked += share * row.count("acked", grid.publishers)
    tick.received += share * row.count("received", grid.receivers)
    tick.missing += share * row.count("missing", grid.receivers)
    tick.latency_count += share * row.count("latency_count", everybody)
    tick.latency_sum_ns += share * row.count("latency_sum_ns", everybody)
    for population, each in grid.fan_out.items():
        tick.expected += each * share * row.count("sent", [population])


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Messages of an agent that wait at an instant."""

    queue: int = 0
    expected_unsent: float = 0.0

    @classmethod
    def of(cls, row: Row, grid: Grid) -> _Waiting:
        """Returns those at the end of a row."""
        unsent = row.gauge("backlog", grid.publishers)
        expected = (each * row.gauge("backlog", [n]) for n, each in grid.fan_out.items())
        return cls(row.gauge("in_flight", grid.publishers) + unsent, sum(expected))

    def add_to(self, tick: Tick) -> None:
        """Adds them to a tick, at whose end they wait."""
        tick.queue += self.queue
        tick.expected_unsent += self.expected_unsent
