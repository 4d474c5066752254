"""Durations and rates of a result, and the way there from sums of snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field

from pubstorm.contract.delays import Delays, parts_ns
from pubstorm.contract.histogram import Histogram
from pubstorm.contract.snapshot import FlowSnapshot, PopulationSnapshot
from pubstorm.contract.value import Number, Value

RATED_MIN = 10
"""Fewest messages or clients whose rate or percentile is shown: that of fewer would mislead."""

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
