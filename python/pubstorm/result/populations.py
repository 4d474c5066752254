"""What clients did and saw: by population, by flow and by stage. It knows no engine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pubstorm.result.measures import (
    HistogramPair,
    Latency,
    LatencyPair,
    Rates,
)
from pubstorm.snapshot import Counters, FlowCounters, Reason
from pubstorm.value import Value


class PopulationResult(Counters):
    """What the clients of a population did and saw in the whole run."""

    clients: int
    """Clients planned."""
    version: Literal["mqtt-3.1.1", "zmtp-3.1"] = "mqtt-3.1.1"
    """Protocol and version that they speak."""
    player: Literal["engine", "libzmq", "pyzmq", "command"] = "engine"
    """Who played them: the engines, or another program."""
    read_rate_per_s: float | None = None
    """Messages a second that each of them reads at most, of shares the slowest; null: whatever
    comes."""
    asked_max: int | None = None
    """Most clients that were to be there at once; null: all that were planned."""
    acknowledged: bool = True
    """True if it publishes messages that are acknowledged: with QoS 1 or 2."""
    lives: bool = False
    """Whether clients leave by themselves when their time is over."""
    connected_max: int = 0
    """Most clients connected at once."""
    ready_max: int = 0
    """Most clients at once that were connected with every filter answered."""
    reached_max: int | None = None
    """Most clients at once that were ready, or away after a life; null: as `ready_max`."""
    away_max: int = 0
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
    closed_loop: bool = False
    """Whether any of its publications is closed loop."""
    expected_total: int = 0
    """Expected deliveries to its clients."""
    received_total: int = 0
    """Deliveries seen, each message once for each receiver."""
    lost_total: int = 0
    """Expected deliveries that were not seen when the drain was over."""
    to_come_total: int = 0
    """Deliveries to its clients that were in flight when the run was cut short."""
    duplicate_total: int = 0
    """Deliveries of a message that the receiver already had."""
    reordered_total: int = 0
    """Deliveries after a later message of the same stream."""
    stale_total: int = 0
    """Deliveries too far behind their stream to be told from duplicates."""
    outcomes: dict[Reason, int] = Field(default_factory=dict)
    """What ended otherwise than hoped, by reason."""
    rates: Rates = Rates()
    """Over the steady windows."""
    latency_us: LatencyPair = LatencyPair()
    """From send to delivery, of all that its clients received."""
    ack_latency_us: LatencyPair = LatencyPair()
    """From send to acknowledgement, of what its clients sent with QoS 1 and 2."""
    connect_time_us: Latency = Latency()
    """From the start of TCP to CONNACK."""
    ack_histogram_ns: HistogramPair = HistogramPair()
    """The distributions behind `ack_latency_us`."""

    @property
    def asked(self) -> int:
        """Most clients that were to be there at once."""
        return self.clients if self.asked_max is None else self.asked_max

    @property
    def never_ready(self) -> int:
        """Clients that were to be there at once, less those that were ready, or away after a
        life."""
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
    """Deliveries seen beyond those owed, which only a ledger cut short makes."""
    latency_us: LatencyPair
    """From send to delivery."""
    histogram_ns: HistogramPair
    """The distributions behind `latency_us`."""


class StagePopulation(Rates):
    """What a population did in one stage."""

    connected_total: int
    """Connections accepted."""
    connect_failed_total: int
    """Attempts that failed."""
    disconnected_total: int
    """Connections lost."""
    sent_total: int
    """Messages sent."""
    acked_total: int
    """Messages acknowledged."""
    skipped_total: int
    """Messages due and not sent."""
    left_total: int = 0
    """Lives that ended as planned."""
    stalled_total: int = 0
    """Times that a subscriber stalled."""
    received_total: int
    """Messages received."""
    expected_total: int
    """Messages owed."""
    lost_total: int = 0
    """Messages owed and not seen."""
    duplicate_total: int = 0
    """Deliveries of a message that the receiver already had."""
    reordered_total: int = 0
    """Deliveries after a later message of the same stream."""
    stale_total: int = 0
    """Deliveries too far behind their stream to be told from duplicates."""
    latency_us: LatencyPair = LatencyPair()
    """From send to delivery."""
    ack_latency_us: LatencyPair = LatencyPair()
    """From send to acknowledgement."""


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
    """Its name in the scenario."""
    kind: Literal["connect", "publish", "hold", "disconnect"]
    """What it does."""
    start_s: float
    """Its start, after that of the run."""
    duration_s: float
    """How long it took, with drain."""
    steady_s: float
    """Length of the window that its rates are taken over; 0 where there is none."""
    settled: bool
    """Whether every agent had done all that it could."""
    connected: int = 0
    """Clients of all populations that were connected when it ended."""
    arrived_s: float = 0.0
    """Time from its start until the last message of it arrived: of publish stages."""
    arrivals_per_s: float = 0.0
    """Messages received a second in that time."""
    connects_per_s: float = 0.0
    """Connections accepted a second, of a connect stage."""
    disconnects_per_s: float = 0.0
    """Clients a second that were there before and not after it, of a disconnect stage."""
    populations: dict[str, StagePopulation]
    """By population; shares each by themselves."""
    wholes: dict[str, StagePopulation] = Field(default_factory=dict)
    """The sums of populations with shares."""
    flows: tuple[StageFlow, ...] = ()
    """The ledger of its messages, flow by flow."""
    unjudged: tuple[str, ...] = ()
    """Populations that subscribe and changed in it, or have lives: they are owed what they
    received."""

    def holds(self, at_s: float) -> bool:
        """Whether an instant of the run lies in it."""
        return self.start_s <= at_s <= self.start_s + self.duration_s
