"""The load due in a phase: publishing clients, messages and deliveries a second, by arithmetic on
the plan and its changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import atanh, sqrt
from types import MappingProxyType

from pubstorm.contract.changes import ActiveClients
from pubstorm.contract.flows import OpenPace, PlannedPublication
from pubstorm.contract.plan import ChangeRate, Plan
from pubstorm.measure.ledger import Ledger
from pubstorm.measure.run_log import AppliedChange
from pubstorm.quantities import SECOND_NS

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
    """True if all of it is open loop; a closed loop has nothing due by a clock."""
    lump: int = 0
    """Most messages that a client sends at once, if it sends several."""
    scatter: float = 1.0
    """Messages by which a window may miss its mean, divided by the root of the mean."""


@dataclass
class Publishing:
    """Active clients of each population that publish, and the factor of their planned rate."""

    active: ActiveClients
    factors: dict[int, float] = field(default_factory=dict)

    @classmethod
    def at_start_of(cls, plan: Plan, stage: int, changes: Iterable[AppliedChange]) -> Publishing:
        """The state when a stage begins, after the stages before it."""
        state, by_stage = cls(ActiveClients(plan)), list(changes)
        for index, before in enumerate(plan.stages[:stage]):
            state.active.enter(before)
            for change in by_stage:
                if change.stage == index:
                    state.apply(change)
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
        not isinstance(publication.pace, OpenPace)
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
            if isinstance(publication.pace, OpenPace) and clients and factor:
                yield _Flow(index, publication, publication.pace, there, factor)
