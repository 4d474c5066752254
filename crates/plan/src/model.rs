//! The plan as it travels: one JSON object, the same for every agent. Field names and units are
//! the contract (`contract/plan.schema.json`). It knows nothing of shards or time of day.

use serde::{Deserialize, Serialize};

use crate::template::Template;
use crate::tempo::Tempo;

/// A scenario with every choice made; what will be done, before sharding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of this format; [`Plan::FORMAT`].
    pub format: u32,
    /// The scenario's name.
    pub name: String,
    /// Marks this run's payloads; earlier runs' retained messages carry another.
    pub run_tag: u32,
    /// Seed of every random choice: the same plan makes the same load.
    pub seed: u64,
    /// Where clients connect, as each population's `at` says.
    pub targets: Vec<Target>,
    /// Whether a message published at one target reaches subscribers at the others.
    pub targets_joined: bool,
    /// Bridges between the targets.
    pub bridges: Vec<Bridges>,
    /// Source addresses, used in turn; empty leaves the choice to the kernel.
    pub sources: Vec<std::net::IpAddr>,
    /// Time between two snapshots, in nanoseconds.
    pub snapshot_interval_ns: u64,
    /// How long without progress the drain after a publish stage waits, in nanoseconds.
    pub drain_ns: u64,
    /// Longest time that timers of clients wait to be handled together, in nanoseconds: the
    /// lateness that an agent adds by itself. 0: each timer is handled by itself.
    #[serde(default)]
    pub coalescing_ns: u64,
    /// A subscriber that gets nothing for so long though messages are due to it has stalled, in
    /// nanoseconds; `None`: nobody looks.
    #[serde(default)]
    pub stall_ns: Option<u64>,
    /// Largest MQTT packet that a client accepts, in bytes.
    #[serde(default = "max_packet_bytes")]
    pub max_packet_bytes: u32,
    /// Clients that behave alike.
    pub populations: Vec<Population>,
    /// What happens, in order.
    pub stages: Vec<Stage>,
}

const fn max_packet_bytes() -> u32 {
    Plan::MAX_PACKET_BYTES
}

/// One broker address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Whether connections to it are under TLS, as each population's `tls` says.
    pub tls: bool,
}

/// Bridges from small brokers to one main broker, so that it is known what is owed where. A message
/// never goes back over the bridge that it came by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bridges {
    /// Index of the main broker's target.
    pub main: usize,
    /// Index of the first small broker's target.
    pub first: usize,
    /// How many small brokers; the one with number `n` is target `first + n`.
    pub count: usize,
    /// What crosses each of them.
    pub routes: Vec<Route>,
}

/// Topics that cross a bridge; `{n}` is the number of the small broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Topic filter, without the prefixes.
    pub filter: Template,
    /// Which way it crosses.
    pub direction: Direction,
    /// What stands before the topic on the small broker.
    pub local_prefix: Template,
    /// What stands before it on the main broker.
    pub remote_prefix: Template,
}

/// Which way topics cross a bridge.
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

/// Which targets the clients of a population connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// Index of the first target.
    pub first: usize,
    /// How many targets, from the first on.
    pub count: usize,
    /// Which of them a client gets.
    pub choice: Choice,
    /// With [`Choice::Turn`], the place among them that client 0 gets; the others count on from it.
    #[serde(default)]
    pub shift: usize,
}

/// Which target of several a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// Client `c` gets number `(c + shift) % count`.
    Turn,
    /// One at random, by the plan's seed.
    Random,
}

/// How a range in a topic is gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// From the first value to the last, again and again.
    Turn,
    /// Each value once in each round, in an order of each client's own that is drawn anew for each
    /// round.
    Shuffled,
}

/// Protocol that a population speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    /// MQTT 3.1.1.
    #[serde(rename = "mqtt-3.1.1")]
    Mqtt311,
    /// ZMTP 3.1, as ZeroMQ speaks it; its clients are PUB or SUB sockets.
    #[serde(rename = "zmtp-3.1")]
    Zmtp31,
}

/// Who plays the clients of a population.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Player {
    /// The engines, each its share.
    #[default]
    Engine,
    /// Sockets of libzmq, in `pubstorm-zmq`.
    Libzmq,
    /// Sockets of pyzmq, in a Python program.
    Pyzmq,
    /// Any other program that speaks this contract.
    Command,
}

/// Options of the ZeroMQ sockets of a population.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zmq {
    /// Messages that a publisher queues for one subscriber at most, and a subscriber of libzmq for
    /// itself, before it drops the next; 0: no limit.
    pub high_water_mark: u32,
    /// Threads of libzmq that do input and output.
    pub io_threads: u32,
    /// How peers prove who they are.
    pub security: Security,
}

/// Mechanism of a ZeroMQ connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Security {
    /// None.
    Null,
    /// The population's user name and password, in clear.
    Plain,
    /// Keys, which the run makes; the engine does not speak it.
    Curve,
}

/// Clients that behave alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Population {
    /// Its name in the scenario; that of a share is `WHOLE/SHARE`.
    pub name: String,
    /// The population that it is a share of; `None`: it is one by itself.
    #[serde(default)]
    pub whole: Option<String>,
    /// Protocol and version.
    pub version: Version,
    /// Who plays its clients.
    #[serde(default)]
    pub player: Player,
    /// Options of its ZeroMQ sockets; `None` where it speaks MQTT.
    #[serde(default)]
    pub zmq: Option<Zmq>,
    /// How many clients; client `c` has number `n = first + c`.
    pub clients: u32,
    /// Number `{n}` of the first client.
    pub first: u64,
    /// Which targets they connect to.
    pub at: Attachment,
    /// Whether they set the bridge bit in the protocol level: the broker does not send a client
    /// what it published itself.
    pub bridge: bool,
    /// Template of the client identifier.
    pub client_id: Template,
    /// Template of the user name.
    pub username: Option<Template>,
    /// Template of the password.
    pub password: Option<Template>,
    /// How it connects to targets under TLS; `None` where there is no such target.
    pub tls: Option<Tls>,
    /// Keep-alive in seconds; 0 turns it off.
    pub keep_alive_s: u16,
    /// Whether each connection starts without session state.
    pub clean_session: bool,
    /// Message the broker sends when the client dies.
    pub will: Option<Will>,
    /// The end of a client's connection when the client leaves.
    #[serde(default)]
    pub end: End,
    /// Longest wait for TCP, CONNACK and SUBACK together, in nanoseconds.
    pub connect_timeout_ns: u64,
    /// How a lost or refused connection is tried again; `None`: it is not.
    pub reconnect: Option<Reconnect>,
    /// Messages a second that a client takes from its socket at most; `None`: no limit.
    pub read_rate_per_s: Option<f64>,
    /// `true` if the kernel delays its acknowledgements of bytes that a client receives
    /// (`TCP_QUICKACK` off).
    #[serde(default)]
    pub delayed_acks: bool,
    /// How long a client stays once it is ready; `None`: until it is told to go.
    #[serde(default)]
    pub lifetime: Option<Lifetime>,
    /// A file whose rows the clients' templates refer to; `None`: there is none.
    #[serde(default)]
    pub rows: Option<Rows>,
    /// What each client subscribes to, in one SUBSCRIBE.
    pub subscriptions: Vec<Subscription>,
    /// What each client publishes in publish stages.
    pub publications: Vec<Publication>,
}

/// TLS of the clients of a population. Paths are read by the engine, at its start where they are
/// the same for all clients, else at each client's first connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// File of the authorities that a broker's certificate is verified against; `None`: those of
    /// the system.
    pub ca: Option<String>,
    /// Whether the broker's certificate and its name are verified.
    pub verify: bool,
    /// Name that the certificate must have; `None`: the target's host.
    pub server_name: Option<String>,
    /// Template of the path of a client's certificate chain (PEM).
    pub certificate: Option<Template>,
    /// Template of the path of its private key (PEM).
    pub key: Option<Template>,
    /// A pre-shared key instead of certificates.
    pub psk: Option<Psk>,
    /// Lowest version.
    pub min_version: TlsVersion,
    /// Highest version.
    pub max_version: TlsVersion,
    /// Cipher list of TLS 1.2 in OpenSSL's words; `None`: OpenSSL's own, or with pre-shared keys
    /// those without a Diffie-Hellman exchange in a finite field.
    pub ciphers: Option<String>,
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

/// The will of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Will {
    /// Template of the topic.
    pub topic: Template,
    /// Template of the payload.
    pub payload: Template,
    /// QoS 0, 1 or 2.
    pub qos: u8,
    /// Whether the broker keeps it.
    pub retain: bool,
}

/// The end of a client's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With DISCONNECT, after which the broker discards the will.
    #[default]
    Disconnect,
    /// With a reset of the connection, after which the broker publishes the will.
    Abort,
}

/// How long clients stay: each draws a time anew whenever it has come, and then disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lifetime {
    /// Shortest time, in nanoseconds.
    pub min_ns: u64,
    /// Longest time, in nanoseconds.
    pub max_ns: u64,
    /// How long after it has gone a client comes back, in nanoseconds; `None`: it does not.
    pub again_ns: Option<u64>,
}

/// A file of comma-separated values with a line of headings: one row for each client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// Its path.
    pub file: String,
    /// The client number `{n}` that has the first row.
    pub first: u64,
    /// Whether clients beyond the last row begin with the first again.
    pub repeat: bool,
}

/// Exponential back-off with jitter, from `min_ns` doubling up to `max_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reconnect {
    /// First wait, in nanoseconds.
    pub min_ns: u64,
    /// Longest wait, in nanoseconds.
    pub max_ns: u64,
}

/// One topic filter of every client of a population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscription {
    /// Template of the filter; a range `{a..b}` makes one filter for each value.
    pub filter: Template,
    /// Highest QoS wanted.
    pub qos: u8,
}

/// One flow of messages that every client of a population sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    /// Template of the topic; a range `{a..b}` is gone through, message by message.
    pub topic: Template,
    /// How a range is gone through.
    pub order: Order,
    /// QoS 0, 1 or 2.
    pub qos: u8,
    /// Whether the broker keeps the last message.
    pub retain: bool,
    /// When messages are due.
    pub pace: Pace,
    /// Messages of a client in flight at most (QoS 1 and 2).
    pub window: u16,
    /// What a message carries.
    pub payload: Payload,
}

/// When messages are due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Pace {
    /// Open loop: an absolute schedule that does not wait for the broker.
    Open {
        /// Time between two messages of a client, in nanoseconds.
        period_ns: u64,
        /// A client's period differs from `period_ns` by up to this share, 0 to below 1.
        spread: f64,
        /// Each message moves on the schedule by up to half this share of the period, 0 to 1.
        jitter: f64,
        /// Where in the period each client starts.
        phase: Phase,
        /// What happens to a message that could not leave in time.
        late: Late,
        /// How many messages are due at once, each burst as many periods after the one before.
        #[serde(default = "one")]
        burst: u32,
    },
    /// Closed loop: the next message is due as soon as the window and the socket take it.
    Closed,
}

const fn one() -> u32 {
    1
}

/// Where in its period a client sends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Evenly spread over the period.
    Spread,
    /// At random in the period.
    Random,
    /// All at the same instant: a burst each period.
    Aligned,
}

/// Policy for a message that could not leave in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Late {
    /// It is sent when it can be, and its wait is part of the latency from intended time.
    Send,
    /// More than one period late, it is left out and counted as skipped.
    Skip,
}

/// What a message carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Payload {
    /// Every payload has this size.
    Fixed {
        /// Size in bytes.
        bytes: u32,
    },
    /// Sizes follow a normal distribution, cut at four standard deviations and at zero.
    Gaussian {
        /// Mean in bytes.
        mean_bytes: u32,
        /// Standard deviation in bytes.
        sd_bytes: u32,
    },
    /// The user's own text; without a stamp in it counted, but without latency or order.
    Text {
        /// Template of the text.
        template: Template,
        /// Whether it is JSON, so that values from a file are escaped.
        #[serde(default)]
        is_json: bool,
    },
}

/// A named span of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Its name in the scenario.
    pub name: String,
    /// What is done.
    pub action: Action,
    /// Indices of the populations that do it; the others go on as they are, without publishing.
    pub populations: Vec<usize>,
}

/// What a stage does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Connects and subscribes the clients of its populations.
    Connect {
        /// Connections started a second over all agents; `None`: as parallelism allows.
        rate_per_s: Option<f64>,
        /// Connections under way at once over all agents; `None`: no limit.
        parallelism: Option<u32>,
        /// How long after the last start the barrier waits, in nanoseconds.
        timeout_ns: u64,
        /// How many clients of each population of the stage are to be there after it, those with
        /// the lowest indices; `None`: all of them.
        #[serde(default)]
        clients: Option<Vec<u32>>,
    },
    /// Publishes for a time, then drains.
    Publish {
        /// In nanoseconds.
        duration_ns: u64,
        /// What changes meanwhile, in the order of time.
        changes: Vec<Change>,
    },
    /// Keeps the connections and publishes nothing.
    Hold {
        /// In nanoseconds.
        duration_ns: u64,
    },
    /// Disconnects the clients of its populations.
    Disconnect {
        /// Disconnections a second over all agents; `None`: all at once.
        rate_per_s: Option<f64>,
    },
}

/// A change of a population while a publish stage goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Name of the phase that begins with it.
    pub name: String,
    /// When it begins, after the start of the stage, in nanoseconds.
    pub after_ns: u64,
    /// Index of the population.
    pub population: usize,
    /// What changes.
    pub action: ChangeAction,
}

/// What changes in a population. Shared with the command of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ChangeAction {
    /// Clients that are not connected join: connect, subscribe and take part in publishing; those
    /// with the lowest indices first.
    Add {
        /// How many, over all agents.
        clients: u32,
        /// Time over which their starts are spread, in nanoseconds.
        over_ns: u64,
    },
    /// Clients disconnect and stop publishing; those with the highest indices first.
    Remove {
        /// How many, over all agents.
        clients: u32,
        /// Time over which they leave, in nanoseconds.
        over_ns: u64,
    },
    /// All clients of the population publish at `factor` times the rate of the plan from here on;
    /// 0 pauses them.
    Rate {
        /// Times the planned rate.
        factor: f64,
    },
}

impl ChangeAction {
    /// Time that it takes, in nanoseconds.
    #[must_use]
    pub const fn over_ns(&self) -> u64 {
        match *self {
            Self::Add { over_ns, .. } | Self::Remove { over_ns, .. } => over_ns,
            Self::Rate { .. } => 0,
        }
    }

    /// Whether its factor is in range.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        match self {
            Self::Rate { factor } => (0.0..=Tempo::FACTOR_MAX).contains(factor),
            Self::Add { .. } | Self::Remove { .. } => true,
        }
    }
}

impl Bridges {
    /// The small brokers' targets.
    #[must_use]
    pub const fn small(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.count
    }
}
