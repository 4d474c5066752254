"""The load that a plan offers, as `pubstorm-engine --explain` prints it: messages sent, expected
deliveries and requests of flapping clients a second, phase by phase. Also bytes of packets, and
topics or filters that lead nowhere."""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated

from pydantic import Field

from pubstorm.contract.value import Value
from pubstorm.quantities import SECOND_NS

Amount = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class FlowLoad(Value):
    """The load of one publication."""

    population: Count
    """Index of the population that publishes."""
    publication: Count
    """Index of the publication within its population."""
    sent_per_s: Amount
    """Messages sent a second, in the mean of the phase. Of clients with a session lifetime the mean
    number publishes."""
    delivered_per_s: tuple[Amount, ...]
    """Expected deliveries a second, by receiving population."""


class FlapLoad(Value):
    """The load of the flapping clients of one population, if the broker answers at once."""

    population: Count
    """Index of the population."""
    requests_per_s: Amount
    """UNSUBSCRIBEs and SUBSCRIBEs a second, each with an answer."""
    sent_bytes_per_s: Amount
    """Bytes of these requests a second, in MQTT."""
    received_bytes_per_s: Amount
    """Bytes of the answers a second, in MQTT."""


class PhaseLoad(Value):
    """The load from one change to the next. Clients that join or leave over a time count from its
    start."""

    name: str
    """Name of the stage, or of the change that the phase begins with."""
    after_ns: Count
    """Start of the phase after the start of the stage, in nanoseconds."""
    duration_ns: Count
    """Duration in nanoseconds; 0 for a stage that connects or disconnects clients."""
    clients: tuple[Count, ...]
    """Active clients of each population: after the stage, where it connects or disconnects them."""
    flows: tuple[FlowLoad, ...]
    """Publications with a schedule and active clients."""
    flaps: tuple[FlapLoad, ...]
    """Populations with flapping subscriptions and active clients."""
    peak: Annotated[float, Field(ge=1)]
    """Largest rate of the flows, as a multiple of their mean rate; 1 without a rate profile."""

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return self.duration_ns / SECOND_NS

    @property
    def sent_per_s(self) -> float:
        """Messages sent a second."""
        return sum(flow.sent_per_s for flow in self.flows)

    @property
    def delivered_per_s(self) -> float:
        """Expected deliveries a second."""
        return sum(sum(flow.delivered_per_s) for flow in self.flows)

    @property
    def requests_per_s(self) -> float:
        """UNSUBSCRIBEs and SUBSCRIBEs of flapping clients a second, each with an answer."""
        return sum(each.requests_per_s for each in self.flaps)

    @property
    def at_peak(self) -> PhaseLoad:
        """The phase with its largest rates all the time."""
        flows = tuple(
            flow.model_copy(
                update={
                    "sent_per_s": flow.sent_per_s * self.peak,
                    "delivered_per_s": tuple(per_s * self.peak for per_s in flow.delivered_per_s),
                }
            )
            for flow in self.flows
        )
        return self.model_copy(update={"flows": flows, "peak": 1.0})

    def delivered_to_per_s(self, populations: Container[int]) -> float:
        """Expected deliveries a second to some populations, by their indices."""
        return sum(
            per_s
            for flow in self.flows
            for population, per_s in enumerate(flow.delivered_per_s)
            if population in populations
        )


class StageLoad(Value):
    """The load of one stage."""

    closed_loop: bool
    """True if a publication of the stage is a closed loop, which has no rate of its own and is not
    among the flows."""
    phases: tuple[PhaseLoad, ...]
    """The stage from each change to the next; a stage without changes has one phase."""

    @property
    def sent_total(self) -> float:
        """Messages sent in the stage."""
        return sum(phase.sent_per_s * phase.seconds for phase in self.phases)

    @property
    def delivered_total(self) -> float:
        """Expected deliveries in the stage."""
        return sum(phase.delivered_per_s * phase.seconds for phase in self.phases)


class Unmatched(Value):
    """Topics without subscriber, or filters without publication."""

    share: Annotated[float, Field(gt=0, le=1)]
    """Share of the sampled topics or filters, above 0 and up to 1."""
    example: str
    """One of them."""


class PublicationLoad(Value):
    """The facts of a publication that hold for the whole plan."""

    message_bytes: Count
    """Bytes of a PUBLISH of the last client at most; without MQTT, of topic and payload."""
    receivers: Amount
    """Receivers of a message while all clients of the plan are active, in the mean."""
    unmatched: Unmatched | None
    """Topics that no subscriber receives while the most clients are active, or null."""


class Opening(Value):
    """Bytes of the packets of one connection of MQTT, without properties."""

    connect_bytes: Count
    """Bytes of CONNECT."""
    subscribe_bytes: Count
    """Bytes of SUBSCRIBE with all filters; 0 without filters."""
    suback_bytes: Count
    """Bytes of SUBACK; 0 without filters."""


class PopulationLoad(Value):
    """The facts of a population that hold for the whole plan."""

    clients_max: Count
    """Most clients that are active at once."""
    opening: Opening | None
    """Packets of a connection of its last client, which has the longest number; null without
    MQTT."""
    publications: tuple[PublicationLoad, ...]
    """One for each publication."""
    subscriptions: tuple[Unmatched | None, ...]
    """One for each subscription: filters that no publication of the plan matches, or null."""


class OfferedLoad(Value):
    """The load that a plan offers, for preflight and for people. Where a publication has many
    topics, means are over sampled messages."""

    stages: tuple[StageLoad, ...]
    """One for each stage of the plan."""
    populations: tuple[PopulationLoad, ...]
    """One for each population of the plan."""

    def peak_of(self, population: int, publication: int) -> float:
        """Returns the messages a second of one publication in its busiest phase."""
        flows = (flow for phase in self.at_peaks for flow in phase.flows)
        wanted = (population, publication)
        own = (each for each in flows if (each.population, each.publication) == wanted)
        return max((flow.sent_per_s for flow in own), default=0.0)

    @property
    def phases(self) -> tuple[PhaseLoad, ...]:
        """The phases of all stages, in order."""
        return tuple(phase for stage in self.stages for phase in stage.phases)

    @property
    def peak_per_s(self) -> float:
        """Messages sent and delivered a second, and requests of flapping clients, at the peak of
        the busiest phase."""
        return max(
            (
                each.sent_per_s + each.delivered_per_s + each.requests_per_s
                for each in self.at_peaks
            ),
            default=0,
        )

    @property
    def at_peaks(self) -> tuple[PhaseLoad, ...]:
        """The phases of all stages, in order, with their largest rates all the time."""
        return tuple(phase.at_peak for phase in self.phases)

    @property
    def closed_loop(self) -> bool:
        """True if a stage has a closed loop."""
        return any(stage.closed_loop for stage in self.stages)
