//! The protocol that a population speaks. A protocol is a module here, with the options of its
//! clients, and an arm of [`PlannedProtocol`].

mod amqp;
mod amqp1;
mod kafka;
mod mqtt;
mod nats;
mod zmtp;

use serde::{Deserialize, Serialize};

use super::Population;
use super::capabilities::Capabilities;
use crate::error::PlanError;
use crate::text::template::Template;

pub(crate) use self::amqp::check_shared;
pub use self::amqp::{
    Acknowledge, Amqp, AmqpArgument, AmqpMechanism, AmqpValue, ExchangeType, PlannedExchange,
    PlannedQueue, QueueType,
};
pub use self::amqp1::{Amqp1, Amqp1Mechanism, Amqp1Source, SourceCapability};
pub use self::kafka::Kafka;
pub use self::mqtt::{Authentication, Mqtt, MqttVersion, PlannedWill, SCRAM_SHA_256};
pub use self::nats::{Nats, PlannedConsumer, PlannedStream};
pub use self::zmtp::{Security, Zmtp};

/// Protocol of a population, with its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PlannedProtocol {
    /// Clients of an MQTT broker.
    Mqtt(Mqtt),
    /// PUB or SUB sockets of ZeroMQ, which speak ZMTP 3.1.
    Zmtp(Zmtp),
    /// Clients of a NATS server.
    Nats(Box<Nats>),
    /// Clients of a broker of AMQP 0-9-1.
    Amqp(Box<Amqp>),
    /// Consumers of Kafka, which no engine plays.
    Kafka(Kafka),
    /// Receivers of AMQP 1.0, which no engine plays.
    Amqp1(Amqp1),
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
    /// Consumers of librdkafka, in a Python program.
    Librdkafka,
    /// Receivers of Qpid Proton, in a Python program.
    Proton,
    /// Any other program that speaks this contract.
    Command,
}

/// Options of the clients of one protocol.
pub(crate) trait ProtocolOptions {
    /// Name of the protocol in the plan.
    fn name(&self) -> &'static str;

    /// Capabilities of clients with these options.
    fn capabilities(&self) -> &'static Capabilities;

    /// Program that plays the clients.
    fn player(&self) -> Player {
        Player::Engine
    }

    /// Returns `true` if the peer keeps the session of a client that is offline.
    fn keeps_session(&self) -> bool {
        false
    }

    /// Returns `true` if the peer does not send a client its own messages.
    fn skips_own_messages(&self) -> bool {
        false
    }

    /// Templates of the options, each with its path in them.
    fn templates(&self) -> Vec<(String, &Template)>;

    /// Checks options and messages of a population that go together: `path` is its place in the
    /// plan.
    fn check(&self, population: &Population, path: &str) -> Result<(), PlanError>;
}

impl PlannedProtocol {
    /// Options of the clients, as all protocols have them.
    #[inline]
    pub(crate) fn options(&self) -> &dyn ProtocolOptions {
        match self {
            Self::Mqtt(options) => options,
            Self::Zmtp(options) => options,
            Self::Nats(options) => &**options,
            Self::Amqp(options) => &**options,
            Self::Kafka(options) => options,
            Self::Amqp1(options) => options,
        }
    }

    /// Options of MQTT clients; `None` for another protocol.
    #[must_use]
    pub const fn mqtt(&self) -> Option<&Mqtt> {
        let Self::Mqtt(mqtt) = self else { return None };
        Some(mqtt)
    }
}
