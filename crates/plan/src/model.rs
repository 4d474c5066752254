//! The plan as one JSON object, the same for every agent. Field names and units are the contract
//! (`contract/plan.schema.json`).

pub(crate) mod addresses;
pub(crate) mod bounds;
pub(crate) mod capabilities;
pub(crate) mod flows;
pub(crate) mod link;
pub(crate) mod names;
pub(crate) mod property;
pub(crate) mod protocol;
pub(crate) mod sparkplug;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::schedule::rate_profile::RatePoint;
use crate::schedule::sessions::SessionsRecording;
use crate::text::rows::Rows;
use crate::text::template::Template;
use addresses::{AddressUse, PlannedProxyProtocol};
use flows::{PlannedFlow, Publication, Responds, Subscription};
use link::LinkConditions;
use protocol::PlannedProtocol;

/// A scenario with every choice made, before sharding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of the format; [`Plan::FORMAT`].
    pub format: u32,
    /// Name of the scenario.
    pub name: String,
    /// Mark of this run's payloads; retained messages of earlier runs have other marks.
    pub run_tag: u32,
    /// Seed of every random choice: the same plan produces the same load.
    pub seed: u64,
    /// Addresses for clients; each population's `at` selects among them.
    pub targets: Vec<Target>,
    /// True if a message published at one target reaches subscribers at all targets.
    pub targets_joined: bool,
    /// Bridges between the targets.
    pub bridges: Vec<Bridges>,
    /// Flows that programs beside the brokers carry.
    #[serde(default)]
    pub flows: Vec<PlannedFlow>,
    /// Source addresses, used in turn; if empty, the kernel chooses.
    pub sources: Vec<std::net::IpAddr>,
    /// Use of several addresses of a target's name; `None`: each target has one address.
    #[serde(default)]
    pub addresses: Option<AddressUse>,
    /// Time between two snapshots, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub snapshot_interval_ns: u64,
    /// Time without progress after which the drain of a publish stage ends, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub drain_ns: u64,
    /// Longest time that expired timers of clients wait for a common batch, in nanoseconds. The
    /// agent adds this lateness to messages. 0: no timer coalescing.
    #[serde(default, deserialize_with = "bounds::number")]
    pub coalescing_ns: u64,
    /// Time without messages after which a subscriber has stalled, in nanoseconds. Applies only
    /// while messages are scheduled for the subscriber. `None`: no detection of stalls.
    #[serde(default, deserialize_with = "bounds::some_number")]
    pub stall_ns: Option<u64>,
    /// Largest MQTT packet that a client accepts, in bytes.
    #[serde(default = "max_packet_bytes")]
    pub max_packet_bytes: u32,
    /// Clients that behave alike.
    pub populations: Vec<Population>,
    /// Stages of the run, in order.
    pub stages: Vec<PlannedStage>,
}

impl Plan {
    /// Format that this code reads and writes.
    pub const FORMAT: u32 = 2;

    /// Default of [`Plan::max_packet_bytes`]: the largest frame that any client reads.
    pub const MAX_PACKET_BYTES: u32 = 64 * 1024 * 1024;
}

const fn max_packet_bytes() -> u32 {
    Plan::MAX_PACKET_BYTES
}

/// Address of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Host name or address.
    pub host: String,
    /// TCP port; with QUIC, the port of UDP.
    pub port: u16,
    /// True if connections use TLS, with the settings of each population's `tls`.
    pub tls: bool,
    /// Path of the WebSocket, with a query if there is one; `None`: MQTT over TCP.
    #[serde(default)]
    pub websocket: Option<String>,
    /// True if connections use QUIC, on the port of UDP. Its TLS has the settings of each
    /// population's `tls`.
    #[serde(default)]
    pub quic: bool,
    /// Ports of the same broker for clients of other protocols, by the name of the protocol.
    #[serde(default)]
    pub ports: BTreeMap<String, u16>,
    /// Addresses of the host; empty: each agent resolves it at its start.
    #[serde(default)]
    pub addresses: Vec<std::net::IpAddr>,
}

/// Bridges from small brokers to one main broker, from which expected deliveries follow. A message
/// never returns over the bridge by which it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bridges {
    /// Index of the target of the main broker.
    pub main: usize,
    /// Index of the target of the first small broker.
    pub first: usize,
    /// Number of small brokers; small broker `n` is target `first + n`.
    pub count: usize,
    /// Topics that cross each bridge.
    pub routes: Vec<Route>,
}

/// Topics that cross a bridge; `{n}` is the number of the small broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Topic filter, without the prefixes.
    pub filter: Template,
    /// Direction of the messages.
    pub direction: Direction,
    /// Prefix of the topic on the small broker.
    pub local_prefix: Template,
    /// Prefix of the topic on the main broker.
    pub remote_prefix: Template,
}

/// Direction of topics over a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the small broker to the main one.
    Out,
    /// From the main broker to the small one.
    In,
    /// Both ways.
    Both,
}

/// Targets of the clients of a population.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// Index of the first target.
    pub first: usize,
    /// Number of targets, from the first target on.
    pub count: usize,
    /// Choice of the target of a client.
    pub choice: Choice,
    /// Place of client 0 among the targets, with [`Choice::Turn`]; the other clients follow in
    /// turn.
    #[serde(default)]
    pub shift: usize,
}

/// Choice of a client's target among several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// Client `c` connects to number `(c + shift) % count`.
    Turn,
    /// A random target, drawn from the plan's seed.
    Random,
}

/// Clients that behave alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Population {
    /// Name in the scenario; a share has the name `WHOLE/SHARE`.
    pub name: String,
    /// Population of which this population is a share; `None` for a whole population.
    #[serde(default)]
    pub whole: Option<String>,
    /// Protocol and its options.
    pub protocol: PlannedProtocol,
    /// Number of clients; client `c` has number `n = first + c`.
    pub clients: u32,
    /// Number `{n}` of the first client.
    #[serde(deserialize_with = "bounds::number")]
    pub first: u64,
    /// Targets of the clients.
    pub at: Attachment,
    /// Template of the user name.
    pub username: Option<Template>,
    /// Template of the password.
    pub password: Option<Template>,
    /// TLS settings for targets with TLS; `None` without such a target.
    pub tls: Option<PlannedTls>,
    /// Header of the PROXY protocol that begins each connection; `None`: no header.
    #[serde(default)]
    pub proxy_protocol: Option<PlannedProxyProtocol>,
    /// Headers of the request with which a client opens a WebSocket.
    #[serde(default)]
    pub headers: Vec<Header>,
    /// Keep-alive in seconds; 0 turns it off.
    pub keep_alive_s: u16,
    /// The end of a client's connection when the client leaves.
    #[serde(default)]
    pub end: End,
    /// Longest wait for TCP, CONNACK and SUBACK together, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub connect_timeout_ns: u64,
    /// Retries of a lost or refused connection; `None`: no retries.
    pub reconnect: Option<Reconnect>,
    /// Largest number of messages a second that a client reads from its socket; `None`: no limit.
    #[serde(deserialize_with = "bounds::some_rate")]
    pub read_rate_per_s: Option<f64>,
    /// `true` if the kernel delays its acknowledgements of bytes that a client receives
    /// (`TCP_QUICKACK` off).
    #[serde(default)]
    pub delayed_acks: bool,
    /// Conditions of the link of each client, in the order of time; empty: no link.
    #[serde(default)]
    pub link: Vec<LinkConditions>,
    /// Session lifetime of a client once it is ready; `None`: until a stage disconnects the client.
    #[serde(default)]
    pub lifetime: Option<Lifetime>,
    /// Times between which a client unsubscribes and subscribes again; `None`: it stays subscribed.
    #[serde(default)]
    pub flapping: Option<Flapping>,
    /// Index of the population whose client identifiers its clients use: client `c` ends the
    /// connection of that population's client `c`. `None` if it has identifiers of its own.
    #[serde(default)]
    pub takes_over: Option<usize>,
    /// File with rows for the clients' templates; `None` without a file.
    #[serde(default)]
    pub rows: Option<Rows>,
    /// Subscriptions of each client.
    pub subscriptions: Vec<Subscription>,
    /// Publications of each client in publish stages.
    pub publications: Vec<Publication>,
    /// Answers to messages with a Response Topic; `None`: no answers. Only MQTT 5.
    #[serde(default)]
    pub responds: Option<Responds>,
}

/// A header of HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Name of the header.
    pub name: String,
    /// Template of the value.
    pub value: Template,
}

/// TLS settings of the clients of a population. The engine reads files at its start if the path is
/// the same for all clients, otherwise at each client's first connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedTls {
    /// File of the authorities that verify a broker's certificate; `None`: the authorities of the
    /// system.
    pub ca: Option<String>,
    /// True if the engine verifies the broker's certificate and its name.
    pub verify: bool,
    /// Template of the name that the client asks for (SNI), and that the certificate must have;
    /// `None`: the target's host.
    pub server_name: Option<Template>,
    /// Template of the path of a client's certificate chain (PEM).
    pub certificate: Option<Template>,
    /// Template of the path of its private key (PEM).
    pub key: Option<Template>,
    /// Template of the passphrase of an encrypted private key.
    #[serde(default)]
    pub passphrase: Option<Template>,
    /// True if a client reads its certificate and its key again when the files have changed since
    /// its last connection.
    #[serde(default)]
    pub reread: bool,
    /// Pre-shared keys instead of certificates.
    pub psk: Option<Psk>,
    /// Lowest version.
    pub min_version: TlsVersion,
    /// Highest version.
    pub max_version: TlsVersion,
    /// Cipher list of TLS 1.2 in OpenSSL's notation. `None`: OpenSSL's default; with pre-shared
    /// keys, the ciphers without a Diffie-Hellman exchange in a finite field.
    pub ciphers: Option<String>,
    /// Cipher suites of TLS 1.3, in order of preference; empty: OpenSSL's default.
    #[serde(default)]
    pub suites: Vec<String>,
    /// Groups of the key exchange, in order of preference; empty: those of the engine.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Protocols that the client offers by ALPN, in order of preference; empty: no ALPN.
    #[serde(default)]
    pub alpn: Vec<String>,
    /// Share of the connections that offer the session of the client's last connection, from 0 to
    /// 1; 0: the agent keeps no session.
    #[serde(default)]
    pub resume: f64,
    /// True if a client that offers a session over QUIC sends its first packets with the offer, in
    /// 0-RTT.
    #[serde(default)]
    pub early_data: bool,
    /// File for the keys of all connections; the agent appends to the file. `None`: no such file.
    #[serde(default)]
    pub key_log: Option<String>,
}

/// Version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

/// Pre-shared keys: one identity for each client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Psk {
    /// File of lines `identity:key`, the key in hexadecimal.
    pub file: String,
    /// Template of a client's identity, which the file must have.
    pub identity: Template,
}

/// The end of a client's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With DISCONNECT, after which the broker discards the will.
    #[default]
    Disconnect,
    /// With DISCONNECT and the reason code 0x04, after which the broker publishes the will. Only
    /// MQTT 5.
    DisconnectWithWill,
    /// With a reset of the connection, after which the broker publishes the will.
    Abort,
    /// With silence: the client sends and reads nothing more and its connection stays open. The
    /// broker publishes the will once the keep-alive has expired.
    Vanish,
}

/// Session lifetime of clients: each client draws a time for each session, and then disconnects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lifetime {
    /// Shortest time, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub min_ns: u64,
    /// Longest time, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub max_ns: u64,
    /// Time offline between two sessions of a client, in nanoseconds; `None` if it does not return.
    #[serde(deserialize_with = "bounds::some_number")]
    pub offline_ns: Option<u64>,
    /// Recorded sessions, which clients play in publish stages instead of times that they draw. The
    /// other times are then means. `None`: clients draw.
    #[serde(default)]
    pub recorded: Option<SessionsRecording>,
}

/// Flapping subscriptions: each client draws a time for each time that it is subscribed, and then
/// unsubscribes from all of its filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flapping {
    /// Shortest time from the last SUBACK to UNSUBSCRIBE, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub min_ns: u64,
    /// Longest time from the last SUBACK to UNSUBSCRIBE, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub max_ns: u64,
    /// Time from UNSUBACK to the next SUBSCRIBE, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub unsubscribed_ns: u64,
}

/// Exponential back-off with jitter, from `min_ns` doubling up to `max_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reconnect {
    /// First wait, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub min_ns: u64,
    /// Longest wait, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub max_ns: u64,
}

/// A named span of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedStage {
    /// Name in the scenario.
    pub name: String,
    /// Action of the stage.
    pub action: Action,
    /// Indices of the populations of the stage. The other populations keep their connections and do
    /// not publish.
    pub populations: Vec<usize>,
}

/// Action of a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Connects and subscribes the clients of its populations.
    Connect {
        /// Connections started a second over all agents; `None`: as parallelism allows.
        #[serde(deserialize_with = "bounds::some_rate")]
        rate_per_s: Option<f64>,
        /// Connections under way at once over all agents; `None`: no limit.
        parallelism: Option<u32>,
        /// Time that the barrier waits after the last start, in nanoseconds.
        #[serde(deserialize_with = "bounds::number")]
        timeout_ns: u64,
        /// Number of active clients of each population of the stage after the stage; the clients
        /// with the lowest indices. `None`: all clients.
        #[serde(default)]
        clients: Option<Vec<u32>>,
    },
    /// Publishes for a time, or up to a number of messages, then drains.
    Publish {
        /// Duration in nanoseconds; with a number of messages the longest.
        #[serde(deserialize_with = "bounds::number")]
        duration_ns: u64,
        /// Changes during the stage, in the order of time.
        changes: Vec<Change>,
        /// Factor of the planned rates of all populations over time, which changes of a rate
        /// multiply; empty: always 1.
        #[serde(default)]
        rate_profile: Vec<RatePoint>,
        /// Messages of each population of the stage, divided evenly among the clients that are
        /// active at its start. An agent ends the stage when its clients have sent theirs. `None`:
        /// as many as are scheduled.
        #[serde(default)]
        messages: Option<Vec<u64>>,
    },
    /// Publishes nothing, and keeps the connections of clients that no change removes.
    Hold {
        /// Duration in nanoseconds.
        #[serde(deserialize_with = "bounds::number")]
        duration_ns: u64,
        /// Clients that join or leave during the stage, in the order of time.
        #[serde(default)]
        changes: Vec<Change>,
    },
    /// Disconnects the clients of its populations.
    Disconnect {
        /// Disconnections a second over all agents; `None`: all at once.
        #[serde(deserialize_with = "bounds::some_rate")]
        rate_per_s: Option<f64>,
    },
}

/// A change of a population during a publish or hold stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Name of the phase that begins with the change.
    pub name: String,
    /// Time from the start of the stage to the change, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub after_ns: u64,
    /// Index of the population.
    pub population: usize,
    /// Kind of the change.
    pub action: ChangeAction,
}

/// Kind of a change. The command of the same name uses this type too.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ChangeAction {
    /// Clients join: they connect, subscribe and publish. Inactive clients with the lowest indices
    /// join first.
    Add {
        /// Number of clients over all agents.
        clients: u32,
        /// Time over which their starts are spread, in nanoseconds.
        #[serde(deserialize_with = "bounds::number")]
        over_ns: u64,
    },
    /// Clients disconnect and stop publishing. Active clients with the highest indices leave first.
    Remove {
        /// Number of clients over all agents.
        clients: u32,
        /// Time over which the clients leave, in nanoseconds.
        #[serde(deserialize_with = "bounds::number")]
        over_ns: u64,
    },
    /// Connections of QUIC change to another port of UDP while they are open: those of the active
    /// clients with the lowest indices. No client joins or leaves.
    Migrate {
        /// Number of clients over all agents.
        clients: u32,
        /// Time over which the connections change, in nanoseconds.
        #[serde(deserialize_with = "bounds::number")]
        over_ns: u64,
    },
    /// All clients of the population publish at `factor` times the planned rate from now on; 0
    /// pauses publishing.
    Rate {
        /// Multiple of the planned rate.
        factor: f64,
    },
}
