//! The protocol that a population speaks, with the options of each protocol, and the program that
//! plays the population. Engines play clients of MQTT and NATS, and SUB sockets; other programs
//! play the rest.

use serde::{Deserialize, Serialize};

use super::bounds;
use super::capabilities::{self, Capabilities};
use super::property::Property;
use crate::text::template::Template;

/// Method of enhanced authentication that the engine plays.
pub const SCRAM_SHA_256: &str = "SCRAM-SHA-256";

/// Protocol of a population, with its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Protocol {
    /// Clients of an MQTT broker.
    Mqtt(Mqtt),
    /// PUB or SUB sockets of ZeroMQ, which speak ZMTP 3.1.
    Zmtp(Zmtp),
    /// Clients of a NATS server.
    Nats(Box<Nats>),
}

impl Protocol {
    /// Capabilities of clients with these options.
    #[must_use]
    pub const fn capabilities(&self) -> &'static Capabilities {
        match self {
            Self::Mqtt(Mqtt { version: MqttVersion::V5, .. }) => &capabilities::MQTT5,
            Self::Mqtt(_) => &capabilities::MQTT3,
            Self::Zmtp(Zmtp { player: Player::Engine, .. }) => &capabilities::ZMTP_SUB,
            Self::Zmtp(_) => &capabilities::ZMTP,
            Self::Nats(_) => &capabilities::NATS,
        }
    }

    /// Program that plays the clients.
    #[must_use]
    pub const fn player(&self) -> Player {
        match self {
            Self::Mqtt(_) | Self::Nats(_) => Player::Engine,
            Self::Zmtp(zmtp) => zmtp.player,
        }
    }

    /// Options of MQTT clients; `None` for another protocol.
    #[must_use]
    pub const fn mqtt(&self) -> Option<&Mqtt> {
        match self {
            Self::Mqtt(mqtt) => Some(mqtt),
            Self::Zmtp(_) | Self::Nats(_) => None,
        }
    }

    /// Options of ZeroMQ sockets; `None` for another protocol.
    #[must_use]
    pub const fn zmtp(&self) -> Option<&Zmtp> {
        match self {
            Self::Zmtp(zmtp) => Some(zmtp),
            Self::Mqtt(_) | Self::Nats(_) => None,
        }
    }

    /// Options of NATS clients; `None` for another protocol.
    #[must_use]
    pub fn nats(&self) -> Option<&Nats> {
        match self {
            Self::Nats(nats) => Some(nats),
            Self::Mqtt(_) | Self::Zmtp(_) => None,
        }
    }
}

/// Options of MQTT clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mqtt {
    /// Version of the protocol.
    pub version: MqttVersion,
    /// Template of the client identifier.
    pub client_id: Template,
    /// `true` if each connection starts without session state.
    pub clean_session: bool,
    /// `true` if clients set the bridge bit in the protocol level. The broker does not send such a
    /// client its own messages.
    #[serde(default)]
    pub bridge: bool,
    /// Message that the broker sends when the client dies.
    #[serde(default)]
    pub will: Option<Box<Will>>,
    /// Properties of CONNECT.
    #[serde(default)]
    pub properties: Vec<Property>,
    /// Enhanced authentication.
    #[serde(default)]
    pub authentication: Option<Authentication>,
}

/// Enhanced authentication of MQTT 5.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authentication {
    /// Name of the method.
    pub method: String,
    /// Template of the data in CONNECT. `None`: the method is SCRAM-SHA-256, with user name and
    /// password of the population, which CONNECT then does not have.
    #[serde(default)]
    pub data: Option<Template>,
}

/// Version of MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MqttVersion {
    /// MQTT 3.1.
    #[serde(rename = "3.1")]
    V31,
    /// MQTT 3.1.1.
    #[serde(rename = "3.1.1")]
    V311,
    /// MQTT 5.
    #[serde(rename = "5")]
    V5,
}

impl From<MqttVersion> for mqtt::Version {
    #[inline]
    fn from(version: MqttVersion) -> Self {
        match version {
            MqttVersion::V31 => Self::V31,
            MqttVersion::V311 => Self::V311,
            MqttVersion::V5 => Self::V5,
        }
    }
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
    /// `true` if the broker keeps the message.
    pub retain: bool,
    /// Properties of the message.
    #[serde(default)]
    pub properties: Vec<Property>,
}

/// Options of ZeroMQ sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zmtp {
    /// Program that plays the sockets.
    #[serde(default)]
    pub player: Player,
    /// Most messages that a publisher queues for one subscriber, and a subscriber of libzmq for
    /// itself, before it drops the next; 0: no limit.
    pub high_water_mark: u32,
    /// Threads of libzmq for input and output.
    pub io_threads: u32,
    /// Authentication of peers.
    pub security: Security,
}

/// Options of NATS clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nats {
    /// Template of the name that the server lists.
    pub client_name: Template,
    /// `true` if the server sends a client its own messages.
    pub echo: bool,
    /// Token with which clients log in.
    #[serde(default)]
    pub token: Option<Template>,
    /// Seed of the nkey with which clients sign.
    #[serde(default)]
    pub seed: Option<Template>,
    /// JSON Web Token of the user with that nkey.
    #[serde(default)]
    pub jwt: Option<Template>,
    /// Streams that each client creates, unless they exist with the same settings.
    #[serde(default)]
    pub streams: Vec<Stream>,
    /// Durable consumers of the subscriptions, one for each in their order; empty: none has one.
    #[serde(default)]
    pub consumers: Vec<Consumer>,
}

/// A stream of JetStream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Name.
    pub name: String,
    /// Subjects whose messages the stream stores.
    pub subjects: Vec<String>,
    /// `true` if the stream is in memory; `false`: in files.
    pub in_memory: bool,
    /// Number of servers that store each message.
    pub replicas: u8,
}

/// Durable consumers of a subscription: one for each filter of a client, or one for all members of
/// a queue group. The server keeps the messages of a client that is away, and expects an
/// acknowledgement of each delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consumer {
    /// Name of the stream.
    pub stream: String,
    /// Time after which the server delivers an unacknowledged message again, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub ack_wait_ns: u64,
}

/// Program that plays the clients of a population.
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

/// Security mechanism of a ZeroMQ connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Security {
    /// None.
    Null,
    /// The population's user name and password, in clear.
    Plain,
    /// Keys that the run makes. The engine does not speak this mechanism.
    Curve,
}
