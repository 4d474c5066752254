//! Protocols of simulated connections.

use plan::PlannedProtocol;

use super::{amqp, nats};

/// Bytes that are no MQTT: a packet of a type that is reserved.
const GARBAGE: [u8; 4] = [0, 0xff, 0xff, 0xff];

/// Protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// MQTT, or that of a feed.
    Mqtt,
    /// NATS.
    Nats,
    /// AMQP 0-9-1.
    Amqp,
}

impl Spoken {
    /// Protocol of the clients of a population.
    pub const fn of(protocol: &PlannedProtocol) -> Self {
        match protocol {
            PlannedProtocol::Nats(_) => Self::Nats,
            PlannedProtocol::Amqp(_) => Self::Amqp,
            _ => Self::Mqtt,
        }
    }

    /// Protocol at a port of the targets.
    pub const fn at(port: u16) -> Self {
        match port {
            nats::PORT => Self::Nats,
            amqp::PORT => Self::Amqp,
            _ => Self::Mqtt,
        }
    }

    /// Bytes that are no packet of it.
    pub const fn garbage(self) -> &'static [u8] {
        match self {
            Self::Mqtt => &GARBAGE,
            Self::Nats => nats::GARBAGE,
            Self::Amqp => amqp::GARBAGE,
        }
    }

    /// A packet that carries no message; `None`: the broker chooses it.
    pub const fn packet(self) -> Option<&'static [u8]> {
        match self {
            Self::Mqtt => None,
            Self::Nats => Some(nats::PING),
            Self::Amqp => Some(amqp::BEAT),
        }
    }
}
