"""Durations and rates of a result, and the way there from sums of snapshots. Figures of clients by
population, by flow and by stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field

from pubstorm.contract import Number, Value
from pubstorm.contract.capabilities import CAPABILITIES, Capabilities, ProtocolName
from pubstorm.contract.histogram import Delays, Histogram, parts_ns
from pubstorm.contract.protocol import Player
from pubstorm.contract.queue_limits import QueueLimits
from pubstorm.contract.snapshot import (
    AnswerCounters,
    Counters,
    Explanation,
    FlowCounters,
    FlowSnapshot,
    Outcome,
    PopulationSnapshot,
)
from pubstorm.metrics.counters import COUNTERS

RATED_MIN = 10
"""Fewest messages or clients whose rate or percentile is shown: that of fewer would mislead."""
RATED_MIN_S = 0.1
"""Shortest time, in seconds, that has a rate."""

NO_OTHERS: Mapping[str, float] = MappingProxyType({})
"""No percentiles beyond those that are always kept."""


class Latency(Value):
    """A distribution of durations in microseconds; zeros if empty."""

    count: int = 0
    """Durations counted; negative ones only where there is a bound."""
    mean: Number = 0.0
    """Arithmetic mean."""
    min: Number = 0.0
    """The smallest."""
    p50: Number = 0.0
    """Half of the durations are not longer."""
    p90: Number = 0.0
    """90 % of the durations are not longer."""
    p99: Number = 0.0
    """99 % of the durations are not longer."""
    p999: Number = 0.0
    """99.9 % of the durations are not longer."""
    max: Number = 0.0
    """The largest."""
    percentiles: dict[str, Number] = Field(default_factory=dict)
    """Further percentiles that the scenario names, such as `p95`."""
    negative_total: int = 0
    """Negative durations, which only wrong clocks make. Where there is a bound they count as 0 in
    the other figures, else they are in none of them."""
    bound_us: Number = 0.0
    """Each figure is off by this much at most, since clocks of several hosts made it; 0: one clock
    did."""

    @property
    def tail(self) -> Literal["p99", "max"]:
        """The statistic that stands for its long durations: p99, or the largest of so few that
        there is no percentile."""
        return "p99" if self.count >= RATED_MIN else "max"

    @classmethod
    def of(
        cls, histogram: Histogram, bound_us: float = 0.0, shares: Mapping[str, float] = NO_OTHERS
    ) -> Latency:
        """The summary of a histogram of durations that are off by so much at most, with the
        percentiles of some `shares` by name. To leave the negative ones out would raise its
        percentiles by more than that."""
        negative_total = histogram.negative_total
        if bound_us:
            histogram = histogram.from_zero()
        us_p50, us_p90, us_p99, us_p999 = (
            histogram.quantile_ns(q) / 1000 for q in (0.5, 0.9, 0.99, 0.999)
        )
        return cls(
            count=histogram.count,
            mean=round(histogram.mean_ns() / 1000, 3),
            min=histogram.min_ns / 1000,
            p50=us_p50,
            p90=us_p90,
            p99=us_p99,
            p999=us_p999,
            max=histogram.max_ns / 1000,
            percentiles={
                name: histogram.quantile_ns(share) / 1000
                for name, share in shares.items()
                if histogram.count
            },
            negative_total=negative_total,
            bound_us=bound_us if histogram.count else 0.0,
        )


class ClientLoss(Value):
    """Deliveries that single clients lost, as shares of what was expected for each. Only clients
    that expect the same messages are counted; zeros if there are none."""

    count: int = 0
    """Clients counted, once for each publish stage."""
    mean: Number = 0.0
    """Arithmetic mean."""
    p50: Number = 0.0
    """Half of the clients lost no larger share."""
    p90: Number = 0.0
    """90 % of the clients lost no larger share."""
    p99: Number = 0.0
    """99 % of the clients lost no larger share."""
    max: Number = 0.0
    """The share that the client with the largest loss lost."""


class GroupShare(Value):
    """Deliveries of the members of a shared group, each as a multiple of the mean of its
    population. Only populations in one group and with no other filter are counted; zeros if there
    are none."""

    count: int = 0
    """Members counted, once for each publish stage."""
    idle: int = 0
    """Members that received nothing in a publish stage, of those counted."""
    fairness: Number = 0.0
    """Jain's index: 1 if all members received the same, 1/n if one of n received everything."""
    min: Number = 0.0
    """The member with the fewest deliveries."""
    p50: Number = 0.0
    """Half of the members received no larger multiple."""
    max: Number = 0.0
    """The member with the most deliveries."""


@dataclass(frozen=True)
class RunDelay:
    """Time without a processor, as agents sample it."""

    longest_ns: int
    """Most of one agent in one interval."""
    interval_ns: int
    """Length of an interval."""

    def most_ns(self, latency_ns: float) -> float:
        """Returns the most that the sending and the receiving agent of a message can have waited
        for a processor within its latency, which can touch two intervals more than it fills."""
        intervals = latency_ns // self.interval_ns + 2
        return min(2 * intervals * self.longest_ns, latency_ns)


class Parts(Value):
    """Parts of a latency in microseconds, which add up to it: the means of the messages near it,
    in proportion."""

    generator: Number = 0.0
    """Lateness of the agent: it was busy, or had no processor."""
    window: Number = 0.0
    """The client waited for an acknowledgement, or for the Receive Maximum of the broker."""
    socket: Number = 0.0
    """The client waited until its socket had room for earlier bytes."""
    connection: Number = 0.0
    """The client was not connected, or not ready."""
    rest: Number = 0.0
    """Time after the send: network, broker and receivers."""
    host_most: Number | None = None
    """Most of `generator` and `rest` in which agents can have waited for a processor; null: not
    known."""


class LatencyParts(Value):
    """Parts of a latency from the scheduled instant."""

    p50: Parts
    """Parts of its median."""
    p99: Parts
    """Parts of its 99th percentile."""

    @classmethod
    def of(
        cls, delays: Delays, histogram: Histogram, run_delay: RunDelay | None
    ) -> LatencyParts | None:
        """Returns the parts of a distribution; None if agents reported no delays."""
        p50, p99 = (parts_ns(delays, histogram, quantile) for quantile in (0.5, 0.99))
        return cls(p50=_parts(p50, run_delay), p99=_parts(p99, run_delay)) if p50 else None


def _parts(found_ns: Mapping[str, float], run_delay: RunDelay | None) -> Parts:
    parts = {name: round(part_ns / 1000, 3) for name, part_ns in found_ns.items()}
    most_ns = None if run_delay is None else run_delay.most_ns(sum(found_ns.values()))
    return Parts(**parts, host_most=None if most_ns is None else round(most_ns / 1000, 3))


class LatencyPair(Value):
    """The two latencies of a message."""

    intended: Latency = Latency()
    """Latency from the scheduled instant."""
    actual: Latency = Latency()
    """Distribution from the write to the socket."""
    parts: LatencyParts | None = None
    """Parts of `intended`; null: not known."""


@dataclass(frozen=True, slots=True)
class EarlyDeliveries:
    """Deliveries that came before they were sent, by the clocks of those who sent and received
    them."""

    count: int
    of: int
    """Deliveries in all."""
    most_us: float
    """Time by which the earliest came too early, in microseconds."""


class HistogramPair(Value):
    """The full distributions behind a pair of latencies, in nanoseconds."""

    intended: Histogram = Histogram()
    """Distribution from the scheduled instant."""
    actual: Histogram = Histogram()
    """Distribution from the write to the socket."""

    @classmethod
    def of_deliveries(cls, flow: FlowSnapshot) -> HistogramPair:
        """The latencies of a flow."""
        return cls(intended=flow.latency_intended, actual=flow.latency_actual)

    @classmethod
    def of_acks(cls, population: PopulationSnapshot) -> HistogramPair:
        """The acknowledgement latencies of a population."""
        return cls(intended=population.ack_intended, actual=population.ack_actual)

    def named(self, field: str) -> dict[str, Histogram]:
        """Returns both by the places of their latencies below a field; empty ones are left out."""
        pair = {f"{field}.intended": self.intended, f"{field}.actual": self.actual}
        return {place: histogram for place, histogram in pair.items() if histogram.count}

    @property
    def early(self) -> EarlyDeliveries:
        """The negative durations of the distribution with the most negative one."""
        found = max(self.actual, self.intended, key=_most_negative)
        count = found.negative_total
        return EarlyDeliveries(count, found.count + count, -found.negative_min_ns / 1000)

    def latency_us(
        self,
        bound_us: float = 0.0,
        shares: Mapping[str, float] = NO_OTHERS,
        delays: Delays = (),
        run_delay: RunDelay | None = None,
    ) -> LatencyPair:
        """Returns both summaries, of durations that are off by `bound_us` at most."""
        intended = self.intended.from_zero() if bound_us else self.intended
        return LatencyPair(
            intended=Latency.of(self.intended, bound_us, shares),
            actual=Latency.of(self.actual, bound_us, shares),
            parts=LatencyParts.of(delays, intended, run_delay),
        )


class Rates(Value):
    """Rates over the steady windows: the intervals that lie wholly in a publish stage's time."""

    sent_per_s: Number = 0.0
    """Messages sent."""
    acked_per_s: Number = 0.0
    """Messages acknowledged."""
    received_per_s: Number = 0.0
    """Messages received."""
    bytes_sent_per_s: Number = 0.0
    """Bytes that clients wrote, or that a publisher gave to its socket."""
    bytes_received_per_s: Number = 0.0
    """Bytes that clients read: the traffic of their connections."""


def _most_negative(histogram: Histogram) -> tuple[int, int]:
    return -histogram.negative_min_ns, histogram.negative_total


def fields_of(
    model: type[Value], part: Value, shares: Mapping[str, float] = NO_OTHERS
) -> Iterator[tuple[str, Any]]:
    """Yields the fields of a sum that a class of results has too: a histogram `NAME` is its latency
    `NAME_us`, with the percentiles of some `shares` by name."""
    for name, value in part:
        if isinstance(value, Histogram):
            if f"{name}_us" in model.model_fields:
                yield f"{name}_us", Latency.of(value, shares=shares)
        elif name in model.model_fields:
            yield name, value


def histograms_of(model: type[Value], part: Value) -> dict[str, Histogram]:
    """Returns the histograms of a sum whose latencies a class of results has, by their fields;
    empty ones are left out."""
    return {
        f"{name}_us": value
        for name, value in part
        if isinstance(value, Histogram) and value.count and f"{name}_us" in model.model_fields
    }


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
    connect_time_us: Latency = Latency()
    """Time from the start of TCP to CONNACK."""
    connect_time_tls_full_us: Latency = Latency()
    """`connect_time_us` of connections with a full handshake of TLS."""
    connect_time_tls_resumed_us: Latency = Latency()
    """`connect_time_us` of connections in which the broker resumed a session of TLS, without those
    of `connect_time_tls_early_us`."""
    connect_time_tls_early_us: Latency = Latency()
    """`connect_time_us` of connections whose first packets the broker accepted in 0-RTT."""
    connect_time_resumed_us: Latency = Latency()
    """Those of `connect_time_us` in which the broker continued a session: Session Present in
    CONNACK."""
    connect_tcp_us: Latency = Latency()
    """Time from the start of an attempt to connect until TCP was established."""
    connect_tls_us: Latency = Latency()
    """Time from then, with QUIC from the start, to the end of the handshake of TLS or QUIC."""
    connect_accept_us: Latency = Latency()
    """Time from then to CONNACK or its like, with the upgrade of WebSocket."""
    connect_subscribe_us: Latency = Latency()
    """Time from CONNACK to the last SUBACK, of clients that connect."""
    queued_latency_us: Latency = Latency()
    """Those of `latency_us.intended` of messages that were sent before their receiver returned to
    its session."""
    live_latency_us: Latency = Latency()
    """Those of `latency_us.intended` without `queued_latency_us`. Its ends are those of buckets,
    which are 0.8 % wide."""
    will_latency_us: Latency = Latency()
    """Time from the instant at which a will was due to its delivery to a client."""
    link_time_us: Latency = Latency()
    """Time that bytes written or read at once were in the link of their client, in one
    direction."""
    link_wait_us: Latency = Latency()
    """Parts of `link_time_us` in which earlier bytes had the rate of the link."""
    subscribe_time_us: Latency = Latency()
    """Time from SUBSCRIBE to the last SUBACK, of clients that had unsubscribed."""
    unsubscribe_time_us: Latency = Latency()
    """Time from UNSUBSCRIBE to UNSUBACK."""
    gap_time_us: Latency = Latency()
    """Time from the first missing message of an edge node to the notice of the gap by a host."""
    rebirth_time_us: Latency = Latency()
    """Time from a host's command to the birth that it asks for."""
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
    leaves_deliveries: bool = False
    """True if it acknowledges no delivery of a queue, so that the broker keeps them."""
    queue_limits: QueueLimits | None = None
    """Limits that the scenario gives deliveries of its queues; null: none."""
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
    """Most clients at once whose session lifetime was over, and that were not ready again."""
    in_flight_max: int = 0
    """Most messages at once sent and not acknowledged."""
    in_flight: int = 0
    """Messages sent and not acknowledged when the last publish stage ended."""
    backlog: int = 0
    """Messages due and not sent when the last publish stage ended."""
    stalled: int = 0
    """Subscribers that had stalled and got nothing more before their publish stages ended."""
    closed_loop_window: int | None = None
    """Messages that a client may have in flight of its closed-loop publications of QoS 1 and 2, if
    each has the smallest window; null: there is none."""
    open_loop_window: int | None = None
    """The same of its open-loop publications."""
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
