"""Figures of clients by population, by flow and by stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from pubstorm.contract.histogram import Histogram
from pubstorm.contract.protocol import CAPABILITIES, Capabilities, Player, ProtocolName
from pubstorm.contract.snapshot import (
    AnswerCounters,
    Counters,
    Explanation,
    FlowCounters,
    Outcome,
)
from pubstorm.contract.value import Number, Value
from pubstorm.metrics.counters import COUNTERS
from pubstorm.result.measures import (
    ClientLoss,
    GroupShare,
    HistogramPair,
    Latency,
    LatencyPair,
    LatencyParts,
    Rates,
)


class PopulationSums(Counters, FlowCounters, AnswerCounters):
    """Counts and latencies of the clients of a population. Counters have the names of the
    snapshots; a histogram `NAME` of the snapshots is the latency `NAME_us`."""

    lost_total: int = 0
    """Expected deliveries that were not seen when the drain was over."""
    unanswered_total: int = 0
    """Expected answers that were not seen when the drain was over."""
    client_loss: ClientLoss = ClientLoss()
    """Loss of single clients in publish stages, as a share; only where all expect the same
    messages."""
    group_share: GroupShare = GroupShare()
    """Deliveries of the members of a shared group, as multiples of their mean."""
    latency_us: LatencyPair = LatencyPair()
    """Latency from send to delivery of all that its clients received."""
    ack_latency_us: LatencyPair = LatencyPair()
    """Latency from send to acknowledgement of what its clients sent with QoS 1 and 2."""
    wills_lost_total: int = 0
    """Expected deliveries of wills that were not seen when the drain was over; among the lost."""
    will_latency_us: Latency = Latency()
    """Time from the instant at which a will was due to its delivery to a client."""
    subscribe_time_us: Latency = Latency()
    """Time from SUBSCRIBE to the last SUBACK, of clients that had unsubscribed."""
    unsubscribe_time_us: Latency = Latency()
    """Time from UNSUBSCRIBE to UNSUBACK."""
    round_trip_us: Latency = Latency()
    """Time from the intended send of its requests to their answers."""
    round_trip_parts: LatencyParts | None = None
    """Parts of `round_trip_us`; null: not known."""

    @property
    def changed(self) -> str:
        """Past tense of what its clients did that excluded deliveries from loss; empty if no
        counter shows it."""
        did = (m.excludes for m in COUNTERS if m.excludes and getattr(self, m.field))
        return next(did, "")


class PopulationResult(PopulationSums):
    """Figures of the clients of a population in the whole run."""

    clients: int
    """Clients planned."""
    version: ProtocolName = "mqtt-3.1.1"
    """Protocol and version that they speak."""
    player: Player = "engine"
    """Program that played the clients: `pubstorm-engine` or another one."""
    read_rate_per_s: float | None = None
    """Messages a second that each of them reads at most, of shares the slowest; null: whatever
    comes."""
    asked_max: int | None = None
    """Most clients that were requested at once; null: all that were planned."""
    acknowledged: bool = True
    """True if it publishes messages that are acknowledged: with QoS 1 or 2."""
    delivery_qos: tuple[int, ...] = ()
    """Levels of QoS of the deliveries to it; empty if there were none, or the protocol has none."""
    lives: bool = False
    """True if clients leave by themselves at the end of their session lifetimes."""
    connected_max: int = 0
    """Most clients connected at once."""
    ready_max: int = 0
    """Most clients at once that were connected with every filter answered."""
    reached_max: int | None = None
    """Most clients at once that were ready or offline; null: as `ready_max`."""
    offline_max: int = 0
    """Most clients at once whose life was over."""
    in_flight_max: int = 0
    """Most messages at once sent and not acknowledged."""
    in_flight: int = 0
    """Messages sent and not acknowledged when the last publish stage ended."""
    backlog: int = 0
    """Messages due and not sent when the last publish stage ended."""
    stalled: int = 0
    """Subscribers that had stalled and got nothing more before their publish stages ended."""
    closed_loop_window: int | None = None
    """Window of its closed-loop publications of QoS 1 and 2, the smallest; null: there is none."""
    open_loop_window: int | None = None
    """Window of its open-loop publications of QoS 1 and 2, the smallest; null: there is none."""
    closed_loop: bool = False
    """True if any publication of the population is closed loop."""
    to_come_total: int = 0
    """Deliveries to its clients that were in flight when the run was cut short."""
    outcomes: dict[Outcome, int] = Field(default_factory=dict)
    """Problems of the clients, counted by reason."""
    explanations: tuple[Explanation, ...] = ()
    """Texts of the broker beside problems, a few of each outcome."""
    rates: Rates = Rates()
    """Rates over the steady windows."""
    connect_time_us: Latency = Latency()
    """Time from the start of TCP to CONNACK."""
    receive_maximum_wait_us: Latency = Latency()
    """Time for which the next message of a client waited for the Receive Maximum of the broker."""
    ack_histogram_ns: HistogramPair = HistogramPair()
    """The distributions behind `ack_latency_us`."""
    time_histograms_ns: dict[str, Histogram] = Field(default_factory=dict)
    """The distributions behind the other times, by the names of their fields; empty ones are left
    out."""

    @property
    def can(self) -> Capabilities:
        """Abilities of the protocol."""
        return CAPABILITIES[self.version]

    @property
    def asked(self) -> int:
        """Most clients that were requested at once."""
        return self.clients if self.asked_max is None else self.asked_max

    @property
    def never_ready(self) -> int:
        """Clients that were requested at once, less those that were ready, or offline after a
        session lifetime."""
        reached = self.ready_max if self.reached_max is None else self.reached_max
        return max(self.asked - reached, 0)


class FlowResult(FlowCounters):
    """The ledger of the messages from one population to another."""

    source: str
    """The publishing population."""
    to: str
    """The receiving population."""
    lost_total: int
    """Expected deliveries that were not seen when the drain was over."""
    in_flight_total: int = 0
    """Expected deliveries that were in flight when the run was cut short."""
    surplus_total: int
    """Deliveries beyond the expected ones, which are no part of those received."""
    wills_surplus_total: int = 0
    """Deliveries of wills among the surplus: no end of a connection explains them."""
    has_unstamped: bool = False
    """True if some messages carry no stamp: a message that came twice is no duplicate there, and
    can stand for one that was lost."""
    latency_us: LatencyPair
    """Latency from send to delivery."""
    histogram_ns: HistogramPair
    """The distributions behind `latency_us`."""

    @property
    def unstamped(self) -> int:
        """Messages received that were only counted, since they carried no stamp."""
        messages = self.received_total - self.wills_received_total
        return messages - self.latency_us.intended.count if self.has_unstamped else 0


class StagePopulation(Rates, PopulationSums):
    """Counts, latencies and rates of a population in one stage."""

    time_histograms_ns: dict[str, Histogram] = Field(default_factory=dict)
    """The distributions behind its times, by their places, such as `latency_us.intended`; empty
    ones are left out."""


class StageFlow(FlowCounters):
    """The ledger of the messages from one population to another, of one stage."""

    source: str
    """The publishing population."""
    to: str
    """The receiving population."""
    qos: tuple[int, ...]
    """Levels at which the clients publish or subscribe, the lower of both; several where they
    differ."""
    lost_total: int
    """Expected deliveries that were not seen when the drain was over."""
    in_flight_total: int = 0
    """Expected deliveries that were in flight when the run was cut short."""


class StageResult(Value):
    """A stage as it was played."""

    name: str
    """Name in the scenario."""
    kind: Literal["connect", "publish", "hold", "disconnect"]
    """Kind of its action."""
    start_s: Number
    """Start, after that of the run."""
    duration_s: Number
    """Duration of the stage, with drain."""
    steady_s: Number
    """Length of the window that its rates are taken over; 0 where there is none."""
    settled: bool
    """True if every agent had settled when the stage ended."""
    connected: int = 0
    """Clients of all populations that were connected when it ended."""
    arrived_s: Number = 0.0
    """Time from its start until the last message of it arrived: of publish stages."""
    arrivals_per_s: Number = 0.0
    """Messages received a second in that time."""
    connects_per_s: Number = 0.0
    """Connections accepted a second, of a connect stage."""
    disconnects_per_s: Number = 0.0
    """Clients a second that were connected before and not after it, of a disconnect stage."""
    populations: dict[str, StagePopulation]
    """Figures by population; each share apart."""
    wholes: dict[str, StagePopulation] = Field(default_factory=dict)
    """The sums of populations with shares."""
    flows: tuple[StageFlow, ...] = ()
    """The ledger of its messages, flow by flow."""
    excluded: tuple[str, ...] = ()
    """Populations excluded from loss: subscribers that changed in the stage, or whose clients have
    lifetimes. Their expected deliveries are those received."""

    def holds(self, at_s: float) -> bool:
        """Returns True if an instant of the run lies in the stage."""
        return self.start_s <= at_s <= self.start_s + self.duration_s


def receivers_by_qos(populations: Mapping[str, PopulationResult]) -> dict[str, list[str]]:
    """Returns the names of the populations that receive, by the QoS of the deliveries to them;
    under `mixed` those that receive at several."""
    found: dict[str, list[str]] = {}
    for name, population in populations.items():
        levels = population.delivery_qos
        if levels:
            found.setdefault(str(levels[0]) if len(levels) == 1 else "mixed", []).append(name)
    return dict(sorted(found.items()))
