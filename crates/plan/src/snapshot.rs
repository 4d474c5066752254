//! What one agent saw in one interval: counters, outcomes, histograms and its own load. Every
//! part adds up, in any order, so agents and intervals merge exactly (`contract/
//! snapshot.schema.json`). Gauges are the state at the end of the interval. It knows no clock.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::ClockState;
use crate::histogram::Histogram;

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
    /// What the clients of a population did.
    Counters: u64 {
        /// TCP connections begun.
        connect_attempts_total,
        /// Connections accepted by the broker (CONNACK 0).
        connected_total,
        /// Attempts that ended before that.
        connect_failed_total,
        /// Established connections that ended otherwise than by our DISCONNECT.
        disconnected_total,
        /// Filters granted by the broker.
        subscribed_total,
        /// Filters refused by the broker.
        subscribe_failed_total,
        /// Messages handed to the socket, each once.
        sent_total,
        /// Messages acknowledged: PUBACK, or PUBCOMP for QoS 2.
        acked_total,
        /// Lives that ended as planned.
        left_total,
        /// Times that a subscriber stalled.
        stalled_total,
        /// Messages of QoS 1 and 2 sent again after a reconnect.
        resent_total,
        /// Messages of QoS 1 and 2 given up unacknowledged, with their session.
        abandoned_total,
        /// Messages of QoS 0 that were counted as sent, and dropped with their connection before
        /// the socket took them.
        unsent_dropped_total,
        /// Messages that were due and not sent.
        skipped_total,
        /// Retained messages received, which are outside the ledger.
        retained_total,
        /// Messages received that no client of this run stamped.
        foreign_total,
        /// MQTT packets written.
        packets_sent_total,
        /// MQTT packets read.
        packets_received_total,
        /// Bytes written to sockets.
        bytes_sent_total,
        /// Bytes read from sockets.
        bytes_received_total,
    }
}

counters! {
    /// The ledger of one flow: messages from one population to another.
    FlowCounters: i64 {
        /// Deliveries owed: messages sent, times the clients whose filters match.
        expected_total,
        /// Deliveries seen, each message once for each receiver.
        received_total,
        /// Deliveries of a message that this receiver already had.
        duplicate_total,
        /// Deliveries after a later message of the same stream.
        reordered_total,
        /// Deliveries too far behind their stream to be told from duplicates.
        stale_total,
        /// Places passed over in streams and not filled (yet): falls when they are.
        missing_total,
    }
}

counters! {
    /// State of a population at the end of the interval.
    Gauges: u64 {
        /// Clients that the broker has accepted.
        connected,
        /// Clients that are connected and whose filters are all answered.
        ready,
        /// Messages sent and not acknowledged.
        in_flight,
        /// Messages due and not yet sent.
        backlog,
        /// Clients whose life is over, and which may come back.
        away,
        /// Subscribers that have stalled and have had nothing since.
        stalled,
    }
}

/// Why something ended otherwise than hoped. An outcome, not an error: it has a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Nothing listens at the target.
    ConnectRefused,
    /// The target reset the connection before CONNACK.
    ConnectReset,
    /// The target closed the connection before CONNACK.
    ConnectClosed,
    /// No CONNACK and SUBACK within the time allowed.
    ConnectTimeout,
    /// No route to the target.
    ConnectUnreachable,
    /// The broker's certificate is over its time.
    CertificateExpired,
    /// No authority that is trusted has signed the broker's certificate.
    CertificateUntrusted,
    /// The broker's certificate is for another name.
    CertificateName,
    /// The broker refused the handshake with an alert: it does not accept this client's
    /// certificate, identity, key, version or ciphers.
    TlsRefused,
    /// The handshake failed otherwise.
    TlsFailed,
    /// CONNACK 1.
    BadProtocolVersion,
    /// CONNACK 2.
    IdentifierRejected,
    /// CONNACK 3.
    ServerUnavailable,
    /// CONNACK 4.
    BadCredentials,
    /// CONNACK 5.
    NotAuthorized,
    /// Another CONNACK code.
    ConnectRejected,
    /// SUBACK 0x80.
    SubscribeRefused,
    /// The broker closed an established connection.
    ClosedByBroker,
    /// The broker reset an established connection.
    ResetByBroker,
    /// No PINGRESP within the keep-alive.
    KeepAliveTimeout,
    /// The broker did not take DISCONNECT, and what was sent before it, within 2 seconds.
    DisconnectTimeout,
    /// The broker broke the protocol.
    ProtocolError,
    /// The broker sent a larger packet than the plan allows.
    PacketTooLarge,
    /// The broker acknowledged what is not in flight, or with the wrong packet.
    UnexpectedAck,
    /// This process has no free descriptor (EMFILE, ENFILE).
    NoDescriptors,
    /// No free source port to the target (EADDRNOTAVAIL).
    NoPorts,
    /// The kernel has no memory for the socket (ENOMEM, ENOBUFS).
    NoMemory,
    /// A source address is not this machine's.
    BadSource,
    /// Another error of the socket.
    SocketError,
}

/// Counts by reason.
pub type Outcomes = BTreeMap<Reason, u64>;

/// One agent's interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "snapshot")]
pub struct Snapshot {
    /// Index of the agent's shard.
    pub agent: u32,
    /// Number of this snapshot, from 0.
    pub sequence: u64,
    /// Index of the stage it lies in; `None` before the first.
    pub stage: Option<usize>,
    /// Start of the interval by the reference clock, in nanoseconds.
    pub from_ns: u64,
    /// End of the interval, in nanoseconds.
    pub to_ns: u64,
    /// Whether the stage has done all that this agent can: every client ready or given up;
    /// every message sent or skipped and the ledger balanced; time over; all disconnected.
    pub settled: bool,
    /// One entry for each population of the plan.
    pub populations: Vec<PopulationSnapshot>,
    /// Flows with anything to tell.
    pub flows: Vec<FlowSnapshot>,
    /// Targets with anything to tell.
    #[serde(default)]
    pub targets: Vec<TargetSnapshot>,
    /// Subscribers that stalled or went on, at most [`Snapshot::STALLS_MAX`].
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// The agent's own load.
    pub engine: EngineLoad,
    /// How well the agent knows the reference clock; `bound_ns` is the largest of the interval.
    /// `None`: its host's clock is the reference.
    #[serde(default)]
    pub clock: Option<ClockState>,
}

impl Snapshot {
    /// Stalls told in one snapshot at most; all are counted.
    pub const STALLS_MAX: usize = 100;
}

/// A target's interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSnapshot {
    /// Index of the target.
    pub target: usize,
    /// Clients that it has accepted, at the end.
    pub connected: u64,
    /// Connections that it accepted.
    pub connected_total: u64,
    /// Attempts at it that ended before that.
    pub connect_failed_total: u64,
}

/// A subscriber that got nothing for a while though messages were due to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Index of its population.
    pub population: usize,
    /// Its number `{n}`.
    pub number: u64,
    /// When it last got something, or could first have, by the reference clock in nanoseconds.
    pub since_ns: u64,
    /// When it got something again; `None`: it has stalled just now.
    pub until_ns: Option<u64>,
    /// Messages that were due to it meanwhile, about.
    pub due: u64,
}

/// A population's interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PopulationSnapshot {
    /// State at the end.
    pub gauges: Gauges,
    /// What happened.
    pub counters: Counters,
    /// What ended otherwise than hoped.
    pub outcomes: Outcomes,
    /// From the start of TCP to CONNACK.
    pub connect_time: Histogram,
    /// From the intended send to the acknowledgement.
    pub ack_intended: Histogram,
    /// From the actual send to the acknowledgement.
    pub ack_actual: Histogram,
}

impl PopulationSnapshot {
    /// Counts an outcome.
    pub fn outcome(&mut self, reason: Reason) {
        *self.outcomes.entry(reason).or_default() += 1;
    }
}

/// A flow's interval: what clients of population `to` saw of messages from population `from`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowSnapshot {
    /// Index of the publishing population.
    pub from: usize,
    /// Index of the receiving population.
    pub to: usize,
    /// The ledger.
    pub counters: FlowCounters,
    /// From the intended send to the delivery.
    pub latency_intended: Histogram,
    /// From the actual send to the delivery.
    pub latency_actual: Histogram,
}

/// What the agent itself did and needed, the ground for judging whether its numbers are valid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineLoad {
    /// Time the loop was not waiting, in nanoseconds.
    pub busy_ns: u64,
    /// CPU time of the process, in nanoseconds.
    pub cpu_ns: u64,
    /// Time in which the loop's thread could run and had no processor, in nanoseconds. `None`: the
    /// kernel does not count it.
    #[serde(default)]
    pub run_delay_ns: Option<u64>,
    /// Resident memory of the process at the end, in bytes.
    pub rss_bytes: u64,
    /// How late messages were written that nothing but the engine held up.
    pub lateness: Histogram,
    /// How late messages were written that the window, the socket or a lost connection held up.
    pub blocked: Histogram,
    /// (Stream, receiver) pairs that the ledger follows.
    pub ledger_pairs: u64,
    /// Deliveries outside the ledger's bound: counted, but not checked for order and duplicates.
    pub unfollowed_total: u64,
}
