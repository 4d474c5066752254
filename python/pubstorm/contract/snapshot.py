"""Counters, outcomes, histograms and own load of one agent in one interval. The engine's Rust types
are the original; golden files keep both equal."""

from __future__ import annotations

from enum import Enum, auto
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from pubstorm.contract import U64, Signed, Value
from pubstorm.contract.histogram import Delays, Histogram
from pubstorm.contract.reasons import Reason

SNAPSHOTS_FILE = "snapshots.jsonl"
"""File of a run directory with the snapshots of all agents, one on a line."""
STARVED_SHARE = 0.05
"""Share of an interval that an agent can wait for a processor before the host explains delays."""
SATURATED_SHARE = 0.9
"""Share of a processor from which an agent's own work explains its delays."""


class Rule(Enum):
    """Rule by which a field adds up over intervals and agents (`sums`). Histograms, delays,
    explanations and counts by key have rules of their own; other fields are no part of a sum."""

    COUNT = auto()
    """Values add; None adds nothing."""
    LARGEST = auto()
    """The largest value remains."""
    IN_STAGE = auto()
    """Pairs of a key and a count add by key within a stage; there are none over several stages."""


Count = Annotated[U64, Rule.COUNT]
SignedCount = Annotated[Signed, Rule.COUNT]
Largest = Annotated[U64, Rule.LARGEST]
Index = Annotated[int, Field(ge=0, lt=2**20), Rule.LARGEST]
"""Index of a population or target: all values of a sum have the same. Tables have a place for each
index, so an index has a bound."""


class Counters(Value):
    """Counts of the clients of a population."""

    connect_attempts_total: Count = 0
    """TCP connections begun."""
    connected_total: Count = 0
    """Connections accepted by the broker (CONNACK 0)."""
    connect_failed_total: Count = 0
    """Connection attempts that ended before the broker accepted them."""
    disconnected_total: Count = 0
    """Established connections that ended otherwise than by our DISCONNECT."""
    subscribed_total: Count = 0
    """Filters granted by the broker."""
    subscribe_failed_total: Count = 0
    """Filters refused by the broker."""
    unsubscribed_total: Count = 0
    """Filters that the broker removed at the request of a client: UNSUBACK."""
    unsubscribe_failed_total: Count = 0
    """Filters that the broker refused to remove: UNSUBACK of MQTT 5 with an error."""
    sent_total: Count = 0
    """Messages handed to the socket, each once."""
    acked_total: Count = 0
    """Messages acknowledged: PUBACK, or PUBCOMP for QoS 2."""
    rejected_total: Count = 0
    """Messages of QoS 1 and 2 that the broker refused: PUBACK or PUBREC with an error."""
    left_total: Count = 0
    """Session lifetimes that ended as planned."""
    stalled_total: Count = 0
    """Times that a subscriber stalled."""
    resent_total: Count = 0
    """Messages of QoS 1 and 2 sent again after a reconnect."""
    abandoned_total: Count = 0
    """Messages of QoS 1 and 2 given up unacknowledged, with their session."""
    unsent_dropped_total: Count = 0
    """Messages of QoS 0 that were counted as sent, and dropped with their connection before the
    socket took them."""
    skipped_total: Count = 0
    """Messages that were due and not sent."""
    receive_maximum_waits_total: Count = 0
    """Times that the next message of a client waited for the Receive Maximum of the broker."""
    returned_total: Count = 0
    """Mandatory messages of AMQP that came back, since no queue took them: `basic.return`."""
    redelivered_total: Count = 0
    """Deliveries of AMQP that the broker had begun before: the redelivered flag."""
    requeued_total: Count = 0
    """Deliveries of AMQP that clients refused, so that they come again. The ledger has only the
    later deliveries."""
    blocked_total: Count = 0
    """Times that a broker of AMQP blocked the publications of a client: `connection.blocked`, or
    `channel.flow`."""
    blocked_ns: Count = 0
    """Time for which publications of clients were blocked, in nanoseconds, over all clients."""
    requests_total: Count = 0
    """Messages sent that request an answer."""
    answers_total: Count = 0
    """Answers to requests, which `sent_total` contains too."""
    answers_dropped_total: Count = 0
    """Answers that were not sent: too many were waiting, or the broker did not accept them."""
    answers_of_others_total: Count = 0
    """Answers received to requests of other clients."""
    retained_total: Count = 0
    """Retained messages received, which are outside the ledger."""
    retained_as_published_total: Count = 0
    """Messages received with the RETAIN flag of their publisher, which are in the ledger."""
    expiry_reduced_total: Count = 0
    """Messages received by clients that were offline, whose Message Expiry Interval the broker has
    reduced."""
    expiries_checked_total: Count = 0
    """Retained messages received whose Message Expiry Interval could be compared with the time that
    they had waited: over two seconds, or the interval was wrong."""
    expiry_violations_total: Count = 0
    """Those of `expiries_checked_total` whose interval was missing, wrong or over."""
    properties_total: Count = 0
    """Properties received with messages that their publishers had set: User Property, Content Type,
    Payload Format Indicator, Response Topic and Correlation Data."""
    identifiers_total: Count = 0
    """Subscription Identifiers received with messages."""
    breaches_total: Count = 0
    """Rules that the peer broke, after which the connection continued."""
    server_keep_alives_total: Count = 0
    """Connections in which the broker replaces the keep-alive of the client."""
    sessions_resumed_total: Count = 0
    """Connections in which the broker continued a session: Session Present in CONNACK."""
    sessions_lost_total: Count = 0
    """Connections in which the broker had lost a session that it had to keep: the client had begun
    the session in this run, its expiry was not over, and CONNACK had no Session Present."""
    tls_full_total: Count = 0
    """Full handshakes of TLS that ended well."""
    tls_resumed_total: Count = 0
    """Handshakes of TLS in which the broker resumed a session."""
    tls_resume_refused_total: Count = 0
    """Full handshakes, which `tls_full_total` contains, of connections that had offered a
    session."""
    tls_early_accepted_total: Count = 0
    """Handshakes of QUIC, which `tls_resumed_total` contains, in which the broker accepted the
    client's first packets in 0-RTT."""
    tls_early_rejected_total: Count = 0
    """Handshakes of QUIC in which the broker rejected packets in 0-RTT: the client has sent them
    again."""
    tls_alpn_ignored_total: Count = 0
    """Handshakes of TLS in which the broker chose none of the protocols that the client had offered
    by ALPN, and continued."""
    tls_certificates_reread_total: Count = 0
    """Certificates of clients that the agent has read again because their files had changed."""
    migrated_total: Count = 0
    """Connections of QUIC that changed to another port while they were open."""
    migrations_followed_total: Count = 0
    """Migrations after which the broker sent something to the new port."""
    migrations_lost_total: Count = 0
    """Connections that ended after a migration before the broker had sent anything to the new
    port."""
    foreign_total: Count = 0
    """Messages received that no client of this run stamped, but for those of `unstamped_total`."""
    unstamped_total: Count = 0
    """Messages received without the stamp of a message of their name, under names to which declared
    flows lead: what carries them drops, changes or swaps stamps."""
    link_retransmissions_total: Count = 0
    """Segments that the link of a client lost, and that came later by a retransmission."""
    link_full_total: Count = 0
    """Times that the link of a client was full: it took no further bytes of its sender."""
    births_total: Count = 0
    """Births that edge nodes have sent, each NBIRTH and DBIRTH."""
    rebirths_total: Count = 0
    """NBIRTHs, which `births_total` contains, that a host has asked for."""
    births_received_total: Count = 0
    """NBIRTHs and DBIRTHs received."""
    deaths_received_total: Count = 0
    """NDEATHs and DDEATHs received."""
    old_deaths_total: Count = 0
    """NDEATHs, which `deaths_received_total` contains, of an earlier connection of their node."""
    gaps_total: Count = 0
    """Gaps in the sequence of an edge node that hosts have noticed, each once."""
    hidden_gaps_total: Count = 0
    """Gaps that the sequence numbers do not show, since a multiple of 256 messages is missing."""
    unborn_total: Count = 0
    """Times that a host received data of an edge node without a birth before."""
    rebirths_asked_total: Count = 0
    """Commands with which hosts have asked for births."""
    rebirths_received_total: Count = 0
    """NBIRTHs that hosts had asked for, and received."""
    unreadable_total: Count = 0
    """Messages with a topic of Sparkplug whose payload is none of Sparkplug."""
    nodes_unfollowed_total: Count = 0
    """Messages of edge nodes beyond those that a host can follow."""
    websocket_pings_total: Count = 0
    """Pings of WebSocket that were received, each answered with a pong."""
    websocket_pongs_total: Count = 0
    """Pongs of WebSocket that were received."""
    packets_sent_total: Count = 0
    """Packets of the protocol written."""
    packets_received_total: Count = 0
    """Packets of the protocol read."""
    bytes_sent_total: Count = 0
    """Bytes written to sockets, without those of TLS and of WebSocket's frames."""
    bytes_received_total: Count = 0
    """Bytes read from sockets, without those of TLS and of WebSocket's frames."""


class FlowCounters(Value):
    """The ledger of one flow: messages from one population to another."""

    expected_total: SignedCount = 0
    """Expected deliveries: messages sent, times the clients whose filters match."""
    received_total: SignedCount = 0
    """Deliveries seen, each message once for each receiver."""
    duplicate_total: SignedCount = 0
    """Deliveries of a message that this receiver already had."""
    copies_total: SignedCount = 0
    """Copies of a message for further subscriptions of one receiver that match its topic."""
    reordered_total: SignedCount = 0
    """Deliveries after a later message of the same stream."""
    stale_total: SignedCount = 0
    """Deliveries too late in their stream for duplicates to be recognised."""
    missing_total: SignedCount = 0
    """Places passed over in streams and not filled (yet): falls when they are."""
    wills_expected_total: SignedCount = 0
    """Expected deliveries of wills, which `expected_total` contains."""
    wills_received_total: SignedCount = 0
    """Deliveries of wills received, which `received_total` contains."""
    expired_total: SignedCount = 0
    """Messages with an expiry for clients that were offline, less those that arrived. They are not
    expected: the broker deletes a message whose expiry is over."""
    expired_received_total: SignedCount = 0
    """Deliveries of messages whose expiry was over before their receiver returned, which
    `received_total` contains."""
    queued_total: SignedCount = 0
    """Expected deliveries to clients that were offline when the message was sent, and whose session
    the broker keeps. `expected_total` contains them."""
    queued_received_total: SignedCount = 0
    """Those of `queued_total` that have arrived. `received_total` contains them."""
    queued_lost_total: SignedCount = 0
    """Those of `queued_total` that have not arrived: the count falls when one arrives."""


class AnswerCounters(Value):
    """Answers to the requests of a population. The flow from the responding population contains
    them too."""

    answers_expected_total: SignedCount = 0
    """Expected answers: requests sent, times the responding clients that receive them, at least one
    for each request."""
    answered_total: SignedCount = 0
    """Answers received, at most one for each request and responding client."""
    answers_duplicate_total: SignedCount = 0
    """Further answers to a request."""
    answers_late_total: SignedCount = 0
    """Answers received in a later stage than their requests were sent in."""


class Gauges(Value):
    """State of a population at the end of the interval."""

    connected: U64 = 0
    """Clients that the broker has accepted."""
    ready: U64 = 0
    """Clients that are connected and whose filters are all answered."""
    in_flight: U64 = 0
    """Messages sent and not acknowledged."""
    backlog: U64 = 0
    """Messages due and not yet sent."""
    offline: U64 = 0
    """Clients whose session lifetime is over, until they are ready again."""
    stalled: U64 = 0
    """Subscribers that have stalled and have had nothing since."""


Answer = Annotated[
    str, Field(pattern=r"^(connect|subscribe|unsubscribe|publish|disconnect)_[a-z0-9_-]+$")
]
"""A reason code of MQTT 5: the action of the client, and the name of the code in the standard."""
Outcome = Annotated[Reason | Answer, Field(union_mode="left_to_right")]
"""Reason of a problem, or the reason code of a broker's answer."""
TextProperty = Literal["reason_string", "server_reference", "detail"]
"""Property of a packet that holds a text of the broker, or a detail that the agent saw."""


class Explanation(Value):
    """A text beside an outcome."""

    outcome: Outcome
    """The outcome."""
    property: TextProperty
    """Property of the packet that held the text: Reason String (without properties, the text of a
    refusal), or Server Reference, another server that the client should use. `detail`: the packet,
    the field and the rule that the peer broke, or the answer that is missing, in words of the
    agent."""
    text: str | None
    """The text, escaped and cut to 200 characters; null for all other texts together."""
    count: U64
    """Number of outcomes with the text."""


class PopulationSnapshot(Value):
    """A population's interval."""

    gauges: Gauges
    """State at the end."""
    counters: Counters
    """Counts of the interval."""
    outcomes: dict[Outcome, Count]
    """Problems, by reason."""
    explanations: tuple[Explanation, ...] = ()
    """Texts of the broker beside problems."""
    clients_by_deliveries: Annotated[tuple[tuple[U64, U64], ...], Rule.IN_STAGE] = ()
    """Pairs of a number of deliveries and the number of clients that received it in a publish
    stage. Only the stage's last snapshot has pairs, for clients that expect the same messages."""
    connect_time: Histogram
    """From the start of TCP to CONNACK."""
    connect_time_tls_full: Histogram = Histogram()
    """`connect_time` of connections with a full handshake of TLS."""
    connect_time_tls_resumed: Histogram = Histogram()
    """`connect_time` of connections in which the broker resumed a session of TLS, without those of
    `connect_time_tls_early`."""
    connect_time_tls_early: Histogram = Histogram()
    """`connect_time` of connections whose first packets the broker accepted in 0-RTT."""
    connect_time_resumed: Histogram = Histogram()
    """Those of `connect_time` in which the broker continued a session: Session Present in
    CONNACK."""
    connect_tcp: Histogram = Histogram()
    """From the start of an attempt until TCP was established."""
    connect_tls: Histogram = Histogram()
    """From then, with QUIC from the start, to the end of the handshake of TLS or QUIC."""
    connect_accept: Histogram = Histogram()
    """From then to CONNACK, with the upgrade of WebSocket."""
    connect_subscribe: Histogram = Histogram()
    """From CONNACK to the last SUBACK, of clients that connect."""
    ack_intended: Histogram
    """From the intended send to the acknowledgement."""
    ack_actual: Histogram
    """From the actual send to the acknowledgement."""
    ack_delays: Delays = ()
    """Delays before the actual send, of `ack_intended`."""
    receive_maximum_wait: Histogram = Histogram()
    """Time for which the next message of a client waited for the Receive Maximum of the broker."""
    link_time: Histogram = Histogram()
    """Time that bytes written or read at once were in the link of their client, in one
    direction."""
    link_wait: Histogram = Histogram()
    """Parts of `link_time` in which earlier bytes had the rate of the link."""
    subscribe_time: Histogram = Histogram()
    """From SUBSCRIBE to the last SUBACK, of clients that had unsubscribed."""
    unsubscribe_time: Histogram = Histogram()
    """From UNSUBSCRIBE to UNSUBACK."""
    gap_time: Histogram = Histogram()
    """From the first missing message of an edge node to the notice of the gap by a host."""
    rebirth_time: Histogram = Histogram()
    """From a host's command to the birth that it asks for."""
    answers: AnswerCounters = AnswerCounters()
    """Answers to the requests of the clients."""
    round_trip: Histogram = Histogram()
    """From the intended send of a request to its answer."""
    round_trip_delays: Delays = ()
    """Delays before the actual send, of `round_trip`."""


class FlowSnapshot(Value):
    """A flow's interval: what clients of population `to` saw of messages from population `from`."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    source: Index = Field(alias="from")
    """Index of the publishing population."""
    to: Index
    """Index of the receiving population."""
    counters: FlowCounters
    """The ledger."""
    latency_intended: Histogram
    """From the intended send to the delivery."""
    latency_actual: Histogram
    """From the actual send to the delivery."""
    latency_delays: Delays = ()
    """Delays before the actual send, of `latency_intended`."""
    will_latency: Histogram = Histogram()
    """From the instant at which a will was due to its delivery."""
    queued_latency: Histogram = Histogram()
    """Those of `latency_intended` of messages that were sent before their receiver returned to its
    session."""


class TargetSnapshot(Value):
    """A target's interval."""

    target: Index
    """Index of the target."""
    connected: U64 = 0
    """Clients that it has accepted, at the end."""
    connected_total: Count = 0
    """Connections that it accepted."""
    connect_failed_total: Count = 0
    """Attempts at it that ended before that."""


class AddressSnapshot(Value):
    """Attempts to connect to one address of a target in an interval."""

    target: Index
    """Index of the target."""
    address: str = ""
    """IPv4 or IPv6 address."""
    connect_attempts_total: Count = 0
    """Attempts to connect."""
    connected_total: Count = 0
    """Connections that the target accepted."""
    connect_failed_total: Count = 0
    """Attempts that ended before that."""
    outcomes: dict[Outcome, Count] = Field(default_factory=dict)
    """Reasons of the failed attempts."""


class Stall(Value):
    """A subscriber that got nothing for a while though messages were due to it."""

    population: U64
    """Index of its population."""
    number: U64
    """Its number `{n}`."""
    since_ns: U64
    """Last delivery, or the first possible instant, by the reference clock in nanoseconds."""
    until_ns: U64 | None
    """Next delivery; null: it stalls now."""
    due: U64
    """Messages that were due to it meanwhile, about."""


class EngineLoad(Value):
    """Work and resources of the agent itself, which show whether its numbers are valid."""

    busy_ns: Count
    """Time the loop was not waiting, in nanoseconds."""
    cpu_ns: Count
    """CPU time of the process, in nanoseconds."""
    run_delay_ns: Annotated[U64 | None, Rule.COUNT] = None
    """Time in which the loop's thread could run and had no processor, in nanoseconds; null: the
    kernel does not count it."""
    rss_bytes: Largest
    """Resident memory of the process at the end, in bytes."""
    lateness: Histogram
    """Lateness of messages that only the engine delayed."""
    blocked: Histogram
    """Lateness of messages that the window, the socket or a lost connection delayed."""
    ledger_pairs: Largest
    """(Stream, receiver) pairs that the ledger follows."""
    unfollowed_total: Count
    """Deliveries outside the ledger's bound: counted, but not checked for order and duplicates."""
    held_ns: U64 = 0
    """Time in which the agent published nothing because the controller did not read its snapshots,
    in nanoseconds."""


class ClockState(Value):
    """State of an agent's reference clock, from exchanges with the controller."""

    offset_ns: Signed
    """Offset that is added to its host's clock, in nanoseconds."""
    drift_ppb: Signed
    """Drift of the reference clock against the host's, in parts of 10^9."""
    bound_ns: U64
    """Its time is off by this much at most, in nanoseconds."""
    round_trip_ns: U64
    """Shortest round trip of the exchanges that it relies on, in nanoseconds."""
    exchanges_total: U64
    """Exchanges that were answered."""

    def merged_with(self, following: ClockState) -> ClockState:
        """Returns the later state, with the largest bound and the shortest round trip of both."""
        worst = {
            "bound_ns": max(self.bound_ns, following.bound_ns),
            "round_trip_ns": min(self.round_trip_ns, following.round_trip_ns),
        }
        return following.model_copy(update=worst)


class Snapshot(Value):
    """One agent's interval."""

    kind: Literal["snapshot"] = "snapshot"
    agent: U64
    """Index of the agent's shard."""
    sequence: U64
    """Number of this snapshot, from 0."""
    stage: U64 | None
    """Index of the stage it lies in; null before the first."""
    from_ns: U64
    """Start of the interval by the reference clock, in nanoseconds."""
    to_ns: U64
    """End of the interval, in nanoseconds."""
    settled: bool
    """True if the agent has done everything of the stage: every client ready or given up; every
    message sent or skipped and the ledger balanced; time over; all disconnected."""
    populations: tuple[PopulationSnapshot, ...]
    """One entry for each population of the plan."""
    flows: tuple[FlowSnapshot, ...]
    """Flows with anything to report."""
    targets: tuple[TargetSnapshot, ...] = ()
    """Targets with anything to report."""
    addresses: tuple[AddressSnapshot, ...] = ()
    """Addresses with anything to report, of targets that are names."""
    stalls: tuple[Stall, ...] = ()
    """Subscribers that stalled or recovered, at most 100; the counters contain all of them."""
    engine: EngineLoad
    """The agent's own load."""
    clock: ClockState | None = None
    """State of the agent's reference clock; `bound_ns` is the largest of the interval. Null: its
    host's clock is the reference."""

    def fits(self, populations: int) -> bool:
        """Returns True if it is of a plan with so many populations."""
        last = max((max(flow.source, flow.to) for flow in self.flows), default=-1)
        return len(self.populations) == populations > last

    @property
    def starved(self) -> bool:
        """True if the agent waited for a processor and was not saturated by its own work."""
        span_ns = self.to_ns - self.from_ns
        waited = (self.engine.run_delay_ns or 0) > STARVED_SHARE * span_ns
        return waited and self.engine.cpu_ns <= SATURATED_SHARE * span_ns
