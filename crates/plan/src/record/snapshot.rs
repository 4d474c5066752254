//! Measurements of one agent in one interval: counters, outcomes, histograms and the agent's own
//! load. Every part adds up in any order, so agents and intervals merge exactly
//! (`contract/snapshot.schema.json`). Gauges are the state at the end of the interval.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::ClockState;
use crate::record::delays::Delays;
use crate::record::explanation::Explanations;
use crate::record::histogram::Histogram;
use crate::record::latency::Latencies;
use crate::record::reason::Reason;

/// Declares a struct of counters that adds up field by field.
macro_rules! counters {
    ($(#[$meta:meta])* $name:ident: $type:ty { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$doc])* pub $field: $type,)* }

        impl $name {
            /// Adds another interval or agent.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// Actions of the clients of a population.
    Counters: u64 {
        /// TCP connections begun.
        connect_attempts_total,
        /// Connections accepted by the broker (CONNACK 0).
        connected_total,
        /// Attempts that ended before CONNACK 0.
        connect_failed_total,
        /// Established connections that ended without a DISCONNECT of the client.
        disconnected_total,
        /// Filters granted by the broker.
        subscribed_total,
        /// Filters refused by the broker.
        subscribe_failed_total,
        /// Filters that the broker removed at the request of a client: UNSUBACK.
        #[serde(default)]
        unsubscribed_total,
        /// Filters that the broker refused to remove: UNSUBACK of MQTT 5 with an error.
        #[serde(default)]
        unsubscribe_failed_total,
        /// Messages handed to the socket, each once.
        sent_total,
        /// Messages acknowledged: PUBACK, or PUBCOMP for QoS 2.
        acked_total,
        /// Messages of QoS 1 and 2 that the broker refused: PUBACK or PUBREC with an error.
        rejected_total,
        /// Sessions that ended at their planned lifetime.
        left_total,
        /// Stalls of subscribers.
        stalled_total,
        /// Messages of QoS 1 and 2 sent again after a reconnect.
        resent_total,
        /// Unacknowledged messages of QoS 1 and 2 that were dropped with their session.
        abandoned_total,
        /// Messages of QoS 0 that were counted as sent, but dropped with their connection before
        /// the socket accepted them.
        unsent_dropped_total,
        /// Messages that were scheduled and not sent.
        skipped_total,
        /// Times that the next message of a client waited for the Receive Maximum of the broker.
        receive_maximum_waits_total,
        /// Messages sent that request an answer.
        requests_total,
        /// Answers to requests, which `sent_total` contains too.
        answers_total,
        /// Answers that were not sent: too many were waiting, or the broker did not accept them.
        answers_dropped_total,
        /// Answers received to requests of other clients.
        answers_of_others_total,
        /// Retained messages received, which are outside the ledger.
        retained_total,
        /// Messages received with the RETAIN flag of their publisher, which are in the ledger.
        #[serde(default)]
        retained_as_published_total,
        /// Messages received by clients that were offline, whose Message Expiry Interval the broker
        /// has reduced.
        #[serde(default)]
        expiry_reduced_total,
        /// Retained messages received whose Message Expiry Interval could be compared with the time
        /// that they had waited.
        #[serde(default)]
        expiries_checked_total,
        /// Those of `expiries_checked_total` whose interval was missing, wrong or over.
        #[serde(default)]
        expiry_violations_total,
        /// Properties received with messages that their publishers had set: User Property, Content
        /// Type, Payload Format Indicator, Response Topic and Correlation Data.
        #[serde(default)]
        properties_total,
        /// Subscription Identifiers received with messages.
        #[serde(default)]
        identifiers_total,
        /// Rules that the peer broke, after which the connection continued.
        #[serde(default)]
        breaches_total,
        /// Connections in which the broker replaces the keep-alive of the client.
        #[serde(default)]
        server_keep_alives_total,
        /// Connections in which the broker continued a session: Session Present in CONNACK.
        #[serde(default)]
        sessions_resumed_total,
        /// Connections in which the broker had lost a session that it had to keep: the client had
        /// begun the session in this run, its expiry was not over, and CONNACK had no Session
        /// Present.
        #[serde(default)]
        sessions_lost_total,
        /// Full handshakes of TLS that ended well.
        #[serde(default)]
        tls_full_total,
        /// Handshakes of TLS in which the broker resumed a session.
        #[serde(default)]
        tls_resumed_total,
        /// Full handshakes, which `tls_full_total` contains, of connections that had offered a
        /// session.
        #[serde(default)]
        tls_resume_refused_total,
        /// Handshakes of QUIC, which `tls_resumed_total` contains, in which the broker accepted the
        /// client's first packets in 0-RTT.
        #[serde(default)]
        tls_early_accepted_total,
        /// Handshakes of QUIC in which the broker rejected packets in 0-RTT: the client has sent
        /// them again.
        #[serde(default)]
        tls_early_rejected_total,
        /// Handshakes of TLS in which the broker chose none of the protocols that the client had
        /// offered by ALPN, and continued.
        #[serde(default)]
        tls_alpn_ignored_total,
        /// Certificates of clients that the agent has read again because their files had changed.
        #[serde(default)]
        tls_certificates_reread_total,
        /// Connections of QUIC that changed to another port while they were open.
        #[serde(default)]
        migrated_total,
        /// Migrations after which the broker sent something to the new port.
        #[serde(default)]
        migrations_followed_total,
        /// Connections that ended after a migration before the broker had sent anything to the new
        /// port.
        #[serde(default)]
        migrations_lost_total,
        /// Messages of AMQP that came back, because no queue took them: `basic.return`.
        #[serde(default)]
        returned_total,
        /// Deliveries of AMQP with the flag of an earlier delivery.
        #[serde(default)]
        redelivered_total,
        /// Deliveries of AMQP that the client refused, for the broker to queue them again. The
        /// ledger has their later deliveries only.
        #[serde(default)]
        requeued_total,
        /// Times that a broker of AMQP blocked the publishing of a client.
        #[serde(default)]
        blocked_total,
        /// Time in which publishing was blocked, over all clients, in nanoseconds.
        #[serde(default)]
        blocked_ns,
        /// Messages received without a stamp of this run, but for those of `unstamped_total`.
        foreign_total,
        /// Messages received without the stamp of a message of their name, with names to which
        /// flows of the plan lead: what carries them drops, changes or swaps stamps.
        #[serde(default)]
        unstamped_total,
        /// Segments that the link of a client lost, and that came later by a retransmission.
        #[serde(default)]
        link_retransmissions_total,
        /// Times that the link of a client was full: it took no further bytes of its sender.
        #[serde(default)]
        link_full_total,
        /// Births that edge nodes have sent, each NBIRTH and DBIRTH.
        #[serde(default)]
        births_total,
        /// NBIRTHs, which `births_total` contains, that a host has asked for.
        #[serde(default)]
        rebirths_total,
        /// NBIRTHs and DBIRTHs received.
        #[serde(default)]
        births_received_total,
        /// NDEATHs and DDEATHs received.
        #[serde(default)]
        deaths_received_total,
        /// NDEATHs, which `deaths_received_total` contains, of an earlier connection of their node.
        #[serde(default)]
        old_deaths_total,
        /// Gaps in the sequence of a node that hosts have noticed, each once.
        #[serde(default)]
        gaps_total,
        /// Gaps that the sequence numbers do not show, since a multiple of 256 messages is missing.
        #[serde(default)]
        hidden_gaps_total,
        /// Times that a host received data of a node without a birth before.
        #[serde(default)]
        unborn_total,
        /// Commands with which hosts have asked for births.
        #[serde(default)]
        rebirths_asked_total,
        /// NBIRTHs that hosts had asked for, and received.
        #[serde(default)]
        rebirths_received_total,
        /// Messages with a topic of Sparkplug whose payload is none of Sparkplug.
        #[serde(default)]
        unreadable_total,
        /// Messages of nodes beyond those that a host can follow.
        #[serde(default)]
        nodes_unfollowed_total,
        /// Pings of WebSocket that were received, each answered with a pong.
        websocket_pings_total,
        /// Pongs of WebSocket that were received.
        websocket_pongs_total,
        /// Packets of the protocol written.
        packets_sent_total,
        /// Packets of the protocol read.
        packets_received_total,
        /// Bytes written to sockets, without those of TLS and of WebSocket's frames.
        bytes_sent_total,
        /// Bytes read from sockets, without those of TLS and of WebSocket's frames.
        bytes_received_total,
    }
}

counters! {
    /// The ledger of one flow: messages from one population to another.
    FlowCounters: i64 {
        /// Expected deliveries: messages sent, times the clients with a matching filter.
        expected_total,
        /// Deliveries received, each message once for each receiver.
        received_total,
        /// Repeated deliveries of a message to one receiver.
        duplicate_total,
        /// Copies of a message for further subscriptions of one receiver that match its topic.
        #[serde(default)]
        copies_total,
        /// Deliveries after a later message of the same stream.
        reordered_total,
        /// Deliveries too far behind their stream to recognise duplicates.
        stale_total,
        /// Missing places in streams; the count falls when a place is filled.
        missing_total,
        /// Expected deliveries of wills, which `expected_total` contains.
        #[serde(default)]
        wills_expected_total,
        /// Deliveries of wills received, which `received_total` contains.
        #[serde(default)]
        wills_received_total,
        /// Messages with an expiry for clients that were offline, less those that arrived. They are
        /// not expected: the broker deletes a message whose expiry is over.
        #[serde(default)]
        expired_total,
        /// Deliveries of messages whose expiry was over before their receiver returned, which
        /// `received_total` contains.
        #[serde(default)]
        expired_received_total,
        /// Expected deliveries to clients that were offline when the message was sent, and whose
        /// session the broker keeps. `expected_total` contains them.
        #[serde(default)]
        queued_total,
        /// Those of `queued_total` that have arrived. `received_total` contains them.
        #[serde(default)]
        queued_received_total,
        /// Those of `queued_total` that have not arrived: the count falls when one arrives.
        #[serde(default)]
        queued_lost_total,
    }
}

counters! {
    /// Answers to the requests of a population. The flow from the responding population to this
    /// one contains them too.
    AnswerCounters: i64 {
        /// Expected answers: requests sent, times the responding clients that receive them, at
        /// least one for each request.
        answers_expected_total,
        /// Answers received, at most one for each request and responding client.
        answered_total,
        /// Further answers to a request.
        answers_duplicate_total,
        /// Answers among `answered_total` that came in a later stage than their requests.
        answers_late_total,
    }
}

counters! {
    /// State of a population at the end of the interval.
    Gauges: u64 {
        /// Clients that the broker has accepted.
        connected,
        /// Connected clients whose filters are all answered.
        ready,
        /// Messages sent and not acknowledged.
        in_flight,
        /// Messages scheduled and not yet sent.
        backlog,
        /// Offline clients, between two sessions.
        offline,
        /// Subscribers that have stalled and received nothing since.
        stalled,
    }
}

/// Number of problems by reason.
pub type Outcomes = BTreeMap<Reason, u64>;

/// One agent's interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "snapshot")]
pub struct Snapshot {
    /// Index of the agent's shard.
    pub agent: u32,
    /// Number of this snapshot, from 0.
    pub sequence: u64,
    /// Index of the stage of the interval; `None` before the first stage.
    pub stage: Option<usize>,
    /// Start of the interval by the reference clock, in nanoseconds.
    pub from_ns: u64,
    /// End of the interval, in nanoseconds.
    pub to_ns: u64,
    /// True if this agent has completed its part of the stage.
    /// - Connect: every client is ready or has given up.
    /// - Publish: every message is sent or skipped, and the ledger is balanced.
    /// - Hold: the time is over.
    /// - Disconnect: every client is disconnected.
    pub settled: bool,
    /// One entry for each population of the plan.
    pub populations: Vec<PopulationSnapshot>,
    /// Flows with activity in the interval.
    pub flows: Vec<FlowSnapshot>,
    /// Targets with activity in the interval.
    #[serde(default)]
    pub targets: Vec<TargetSnapshot>,
    /// Addresses of targets that are names, with activity in the interval.
    #[serde(default)]
    pub addresses: Vec<AddressSnapshot>,
    /// Subscribers that stalled or recovered, at most [`Snapshot::STALLS_MAX`].
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// The agent's own load.
    pub engine: EngineLoad,
    /// Relation to the reference clock; `bound_ns` is the largest of the interval. `None` if the
    /// clock of the agent's host is the reference clock.
    #[serde(default)]
    pub clock: Option<ClockState>,
}

impl Snapshot {
    /// Largest number of stalls listed in one snapshot; all stalls are counted.
    pub const STALLS_MAX: usize = 100;
}

/// Measurements of a target in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSnapshot {
    /// Index of the target.
    pub target: usize,
    /// Clients that the target has accepted, at the end of the interval.
    pub connected: u64,
    /// Connections that the target accepted.
    pub connected_total: u64,
    /// Connection attempts that ended before CONNACK 0.
    pub connect_failed_total: u64,
}

/// Attempts to connect to one address of a target in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressSnapshot {
    /// Index of the target.
    pub target: usize,
    /// IPv4 or IPv6 address.
    pub address: String,
    /// Attempts to connect.
    pub connect_attempts_total: u64,
    /// Connections that the target accepted: CONNACK 0.
    pub connected_total: u64,
    /// Attempts that ended before that.
    pub connect_failed_total: u64,
    /// Reasons of the failed attempts.
    pub outcomes: Outcomes,
}

/// A subscriber that received nothing while messages were scheduled for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Index of the subscriber's population.
    pub population: usize,
    /// Number `{n}` of the subscriber.
    pub number: u64,
    /// Time of the last delivery, or of the first possible delivery, by the reference clock in
    /// nanoseconds.
    pub since_ns: u64,
    /// Time of the next delivery; `None` while the subscriber is stalled.
    pub until_ns: Option<u64>,
    /// Approximate number of messages scheduled for the subscriber during the stall.
    pub due: u64,
}

/// Measurements of a population in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PopulationSnapshot {
    /// State at the end of the interval.
    pub gauges: Gauges,
    /// Counters of the clients.
    pub counters: Counters,
    /// Problems of the clients.
    pub outcomes: Outcomes,
    /// Texts of the broker beside problems.
    #[serde(default)]
    pub explanations: Explanations,
    /// Pairs of a number of deliveries and the number of clients that received it in a publish
    /// stage. Only the stage's last snapshot has pairs, for clients that expect the same messages.
    #[serde(default)]
    pub clients_by_deliveries: Vec<(u64, u64)>,
    /// Time from the start of TCP to CONNACK.
    pub connect_time: Histogram,
    /// `connect_time` of connections with a full handshake of TLS.
    #[serde(default)]
    pub connect_time_tls_full: Histogram,
    /// `connect_time` of connections in which the broker resumed a session of TLS, without those of
    /// `connect_time_tls_early`.
    #[serde(default)]
    pub connect_time_tls_resumed: Histogram,
    /// `connect_time` of connections whose first packets the broker accepted in 0-RTT.
    #[serde(default)]
    pub connect_time_tls_early: Histogram,
    /// Those of `connect_time` in which the broker continued a session: Session Present in CONNACK.
    #[serde(default)]
    pub connect_time_resumed: Histogram,
    /// Time from the start of an attempt until TCP was established.
    #[serde(default)]
    pub connect_tcp: Histogram,
    /// Time from then, with QUIC from the start, to the end of the handshake of TLS or QUIC.
    #[serde(default)]
    pub connect_tls: Histogram,
    /// Time from then to CONNACK, with the upgrade of WebSocket.
    #[serde(default)]
    pub connect_accept: Histogram,
    /// Time from CONNACK to the last SUBACK, of clients that connect.
    #[serde(default)]
    pub connect_subscribe: Histogram,
    /// Time from the intended send to the acknowledgement.
    pub ack_intended: Histogram,
    /// Time from the actual send to the acknowledgement.
    pub ack_actual: Histogram,
    /// Parts of `ack_intended` before the actual send.
    #[serde(default)]
    pub ack_delays: Delays,
    /// Time for which the next message of a client waited for the Receive Maximum of the broker.
    #[serde(default)]
    pub receive_maximum_wait: Histogram,
    /// Time that bytes written or read at once were in the link of their client, in one direction.
    #[serde(default)]
    pub link_time: Histogram,
    /// Parts of `link_time` in which earlier bytes had the rate of the link.
    #[serde(default)]
    pub link_wait: Histogram,
    /// Time from SUBSCRIBE to the last SUBACK, of clients that had unsubscribed.
    #[serde(default)]
    pub subscribe_time: Histogram,
    /// Time from UNSUBSCRIBE to UNSUBACK.
    #[serde(default)]
    pub unsubscribe_time: Histogram,
    /// Time from the first missing message of a node to the notice of the gap by a host.
    #[serde(default)]
    pub gap_time: Histogram,
    /// Time from a host's command to the birth that it asks for.
    #[serde(default)]
    pub rebirth_time: Histogram,
    /// Answers to the requests of the clients.
    #[serde(default)]
    pub answers: AnswerCounters,
    /// Time from the intended send of a request to its answer.
    #[serde(default)]
    pub round_trip: Histogram,
    /// Parts of `round_trip` before the actual send.
    #[serde(default)]
    pub round_trip_delays: Delays,
}

impl PopulationSnapshot {
    /// Histograms and delays of the acknowledgements.
    #[inline]
    pub const fn acknowledgements(&mut self) -> Latencies<'_> {
        Latencies {
            intended: &mut self.ack_intended,
            actual: &mut self.ack_actual,
            delays: &mut self.ack_delays,
        }
    }

    /// Counts a rule that the peer broke, after which the connection continues.
    pub fn breach(&mut self, reason: Reason) {
        self.counters.breaches_total += 1;
        self.outcome(reason);
    }

    /// Counts a problem.
    pub fn outcome(&mut self, reason: Reason) {
        *self.outcomes.entry(reason).or_default() += 1;
    }
}

/// Measurements of a flow in an interval: deliveries to population `to` of messages from population
/// `from`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowSnapshot {
    /// Index of the publishing population.
    pub from: usize,
    /// Index of the receiving population.
    pub to: usize,
    /// Counters of the ledger.
    pub counters: FlowCounters,
    /// Time from the intended send to the delivery.
    pub latency_intended: Histogram,
    /// Time from the actual send to the delivery.
    pub latency_actual: Histogram,
    /// Parts of `latency_intended` before the actual send.
    #[serde(default)]
    pub latency_delays: Delays,
    /// Time from the instant at which a will was due to its delivery.
    #[serde(default)]
    pub will_latency: Histogram,
    /// Those of `latency_intended` of messages that were sent before their receiver returned to its
    /// session.
    #[serde(default)]
    pub queued_latency: Histogram,
}

impl FlowSnapshot {
    /// Histograms and delays of the deliveries.
    #[inline]
    pub const fn deliveries(&mut self) -> Latencies<'_> {
        Latencies {
            intended: &mut self.latency_intended,
            actual: &mut self.latency_actual,
            delays: &mut self.latency_delays,
        }
    }
}

/// Load of the agent, from which the controller evaluates the validity of the agent's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineLoad {
    /// Time in which the loop was not waiting, in nanoseconds.
    pub busy_ns: u64,
    /// CPU time of the process, in nanoseconds.
    pub cpu_ns: u64,
    /// Time in which the loop's thread was ready and had no processor, in nanoseconds. `None` if
    /// the kernel does not count this time.
    #[serde(default)]
    pub run_delay_ns: Option<u64>,
    /// Resident memory of the process at the end of the interval, in bytes.
    pub rss_bytes: u64,
    /// Lateness of messages that only the engine delayed.
    pub lateness: Histogram,
    /// Lateness of messages that the window, the socket or a lost connection delayed.
    pub blocked: Histogram,
    /// Number of (stream, receiver) pairs in the ledger.
    pub ledger_pairs: u64,
    /// Deliveries outside the ledger's limit: counted, but not checked for order and duplicates.
    pub unfollowed_total: u64,
    /// Time in which the agent published nothing because the controller did not read its snapshots,
    /// in nanoseconds.
    #[serde(default)]
    pub held_ns: u64,
}
