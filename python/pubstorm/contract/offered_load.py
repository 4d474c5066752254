"""The load that a plan offers, as `pubstorm-engine --explain` prints it: messages sent, expected
deliveries and requests of flapping clients a second, phase by phase. With it go two facts of a plan
by themselves: the target that a client connects to (`crates/plan/src/schedule/attachment.rs`), and
the templates that refer to rows."""

from __future__ import annotations

from collections.abc import Container, Sequence
from math import ceil, sqrt
from typing import Annotated

from pydantic import Field

from pubstorm.contract import Value
from pubstorm.contract.plan import Plan, PlannedAttachment, PlannedPopulation, PlannedTls
from pubstorm.contract.protocol import (
    FixedPayload,
    GaussianPayload,
    HistogramPayload,
    PlannedPublication,
    RecordedPayload,
    RecordsPayload,
    SparkplugPayload,
    TextPayload,
)
from pubstorm.contract.template import STAMP_BYTES, RowTable, Template, VariableKind, read_rows
from pubstorm.contract.template import mix as _mix
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


def target_of(plan: Plan, population: int, client: int) -> int:
    """Index of the target of a client of the population with this index."""
    at = plan.populations[population].at
    if at.choice == "turn":
        return at.first + (client + at.shift) % at.count
    drawn = _mix(_mix(plan.seed ^ _mix(PURPOSE + population)) ^ _mix(client))
    return at.first + (drawn * at.count >> 64)


def clients_at(plan: Plan, population: int, target: int) -> Sequence[int]:
    """The clients of the population with this index that connect to a target."""
    at, clients = plan.populations[population].at, plan.populations[population].clients
    if not at.first <= target < at.first + at.count:
        return ()
    if at.choice == "turn":
        return range((target - at.first - at.shift) % at.count, clients, at.count)
    return tuple(c for c in range(clients) if target_of(plan, population, c) == target)


def most_at_one(at: PlannedAttachment, clients: int) -> int:
    """Returns the largest number of clients at one of their targets. If targets are drawn, it is
    four standard deviations above the mean."""
    mean = clients / at.count
    spread = 4 * sqrt(mean) if at.choice == "random" and at.count > 1 else 0
    return min(clients, ceil(mean + spread))


def most_at_a_target(among: Sequence[tuple[PlannedAttachment, int]]) -> int:
    """Returns the largest number of clients at a target, by the attachments and their clients."""
    starts = {at.first for at, _ in among}
    at_each = (
        sum(most_at_one(a, n) for a, n in among if a.first <= target < a.first + a.count)
        for target in starts
    )
    return max(at_each, default=0)


PURPOSE = 1 << 40
"""Separates these draws from the draws of publications."""


def template_of(population: PlannedPopulation, source: str) -> Template:
    """A template of the population, which can be rendered for its clients; raises RowsError where
    its file cannot be read."""
    template = Template.parse(source)
    if population.rows is None or not template.columns:
        return template
    return Template.parse(source, rows_of(population))


def rows_of(population: PlannedPopulation) -> RowTable | None:
    """The rows of the population's clients; `None`: it has none."""
    rows = population.rows
    return None if rows is None else RowTable(read_rows(rows.file), rows.first)


OF_ONE_CLIENT = ("certificate", "key", "passphrase", "server_name")
"""Templates of TLS."""


def client_tls(population: PlannedPopulation, n: int) -> PlannedTls | None:
    """TLS of the population with the files of client number `n`, as templates of nothing else."""
    tls = population.tls
    if tls is None:
        return None
    own = {name: getattr(tls, name) for name in OF_ONE_CLIENT}
    texts = {k: template_of(population, text).text(n) for k, text in own.items() if text}
    literal = {name: t.replace("{", "{{").replace("}", "}}") for name, t in texts.items()}
    return tls.model_copy(update=literal)


def holds_stamp(publication: PlannedPublication) -> bool:
    """Returns True if every payload of a publication has a stamp, or room for one."""
    match publication.payload:
        case FixedPayload(bytes=size):
            return size >= STAMP_BYTES
        case GaussianPayload(mean_bytes=mean, sd_bytes=deviation):
            return mean - 4 * deviation >= STAMP_BYTES
        case HistogramPayload(bins=bins):
            return min(each.bytes for each in bins) >= STAMP_BYTES
        case RecordsPayload(stamped=stamped):
            return stamped
        case RecordedPayload(content=content):
            return content != "beside"
        case SparkplugPayload():
            return True
        case _:
            return has_stamped_text(publication)


def has_stamped_text(publication: PlannedPublication) -> bool:
    """Returns True if its payload is a text with a stamp."""
    payload = publication.payload
    return isinstance(payload, TextPayload) and Template.parse(payload.template).has(
        VariableKind.STAMP
    )


def lacks_stamps(publisher: PlannedPopulation, receiver: PlannedPopulation) -> bool:
    """Returns True if some messages between two populations carry no stamp."""
    return not all(carries_stamp(each, publisher, receiver) for each in publisher.publications)


def virtual_hosts(plan: Plan, target: int) -> list[str]:
    """Returns the virtual hosts that clients have at a target, each once."""
    hosts: dict[str, None] = {}
    for index, population in enumerate(plan.populations):
        source: str | None = getattr(population.protocol, "virtual_host", None)
        if source is not None:
            template, clients = template_of(population, source), clients_at(plan, index, target)
            some = clients if template.variables else clients[:1]
            hosts |= dict.fromkeys(template.text(population.first + client) for client in some)
    return [*hosts]


def payload_bytes_max(population: PlannedPopulation, publication: PlannedPublication) -> int:
    """Returns the bytes of the largest payload of a publication."""
    payload = publication.payload
    if isinstance(payload, FixedPayload):
        return payload.bytes
    if isinstance(payload, GaussianPayload):
        return payload.mean_bytes + 4 * payload.sd_bytes
    if isinstance(payload, HistogramPayload):
        return max(each.bytes for each in payload.bins)
    if isinstance(payload, RecordsPayload):
        return max(payload.sizes)
    if isinstance(payload, (RecordedPayload, SparkplugPayload)):
        return payload.max_bytes
    return template_of(population, payload.template).bytes_max


def carries_stamp(
    publication: PlannedPublication, publisher: PlannedPopulation, receiver: PlannedPopulation
) -> bool:
    """Returns True if the messages of a publication have a stamp that clients of a population
    receive: texts and data without one have it in a property, where both protocols have
    properties."""
    has_properties = publisher.can.has_properties and receiver.can.has_properties
    is_content = isinstance(publication.payload, (RecordedPayload, RecordsPayload, TextPayload))
    return (is_content and has_properties) or holds_stamp(publication)
