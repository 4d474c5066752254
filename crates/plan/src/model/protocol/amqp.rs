//! Clients of a broker of AMQP 0-9-1.

mod checks;

use serde::{Deserialize, Serialize};

use super::ProtocolOptions;
use crate::error::PlanError;
use crate::model::Population;
use crate::model::bounds;
use crate::model::capabilities::{Capabilities, Publications, Secures};
use crate::model::names::Names;
use crate::text::template::Template;

pub use checks::check_shared;

const CAPABILITIES: Capabilities = Capabilities {
    names: Names::Keys,
    joins_targets: true,
    publications: Publications::Any,
    // The broker confirms messages.
    qos_max: 1,
    retains: false,
    varies_pace: true,
    flaps: false,
    shares: true,
    answers: false,
    has_properties: false,
    secures: Secures::AtOnce,
};

/// Options of AMQP clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amqp {
    /// Template of the name that the broker lists.
    pub connection_name: Template,
    /// Template of the virtual host.
    pub virtual_host: Template,
    /// Login of the clients.
    #[serde(default)]
    pub mechanism: AmqpMechanism,
    /// Channels of a connection: publications and queues use the channels in turn.
    #[serde(default = "one")]
    pub channels: u16,
    /// Exchanges that each client declares.
    #[serde(default)]
    pub exchanges: Vec<PlannedExchange>,
    /// Queues of the subscriptions, one for each in their order.
    #[serde(default)]
    pub queues: Vec<PlannedQueue>,
    /// For each publication `true` if the broker returns messages that no queue takes; empty: for
    /// none.
    #[serde(default)]
    pub mandatory: Vec<bool>,
    /// For each publication `true` if the broker stores its messages on disk; empty: for none.
    #[serde(default)]
    pub persistent: Vec<bool>,
}

/// Mechanism of a login (SASL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmqpMechanism {
    /// User name and password.
    #[default]
    Plain,
    /// The certificate of the client.
    External,
}

/// An exchange. The declaration changes nothing if the exchange exists with the same settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedExchange {
    /// Name.
    pub name: String,
    /// Rule by which the exchange chooses queues.
    #[serde(rename = "type")]
    pub kind: ExchangeType,
    /// `true` if the exchange outlasts the broker's process.
    #[serde(default)]
    pub durable: bool,
    /// Further settings.
    #[serde(default)]
    pub arguments: Vec<AmqpArgument>,
}

/// Rule by which an exchange chooses queues (3.1.3 of AMQP 0-9-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeType {
    /// The routing key of the message is the key of the binding.
    Direct,
    /// All queues.
    Fanout,
    /// Keys with wildcards.
    Topic,
    /// Headers of the message.
    Headers,
}

/// A queue. The declaration changes nothing if the queue exists with the same settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedQueue {
    /// Template of the name; empty: the broker chooses a name.
    pub name: Template,
    /// Storage of the messages.
    #[serde(default, rename = "type")]
    pub kind: QueueType,
    /// `true` if the queue exists already: the client neither declares nor binds the queue.
    #[serde(default)]
    pub exists: bool,
    /// `true` if the queue outlasts the broker's process.
    #[serde(default)]
    pub durable: bool,
    /// `true` if the queue belongs to its connection alone and ends with the connection.
    #[serde(default)]
    pub exclusive: bool,
    /// `true` if the queue ends with its last consumer.
    #[serde(default)]
    pub auto_delete: bool,
    /// Further settings.
    #[serde(default)]
    pub arguments: Vec<AmqpArgument>,
    /// Largest number of deliveries without acknowledgement; 0: no limit.
    #[serde(default)]
    pub prefetch: u16,
    /// Acknowledgements of deliveries.
    #[serde(default)]
    pub acknowledge: Acknowledge,
    /// Share of first deliveries that the client refuses, for the broker to queue them again, 0 to
    /// 1.
    #[serde(default)]
    pub refused: f64,
}

/// Storage of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueType {
    /// On one node.
    #[default]
    Classic,
    /// On a majority of several nodes.
    Quorum,
    /// A log, whose messages stay.
    Stream,
}

/// Acknowledgements of the deliveries of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Acknowledge {
    /// The broker expects none.
    None,
    /// One for each delivery, at once.
    #[default]
    Each,
    /// One for a number of deliveries.
    Multiple {
        /// The number.
        every: u32,
    },
    /// One for each delivery, later.
    Late {
        /// Time after the delivery, in nanoseconds.
        #[serde(deserialize_with = "bounds::number")]
        delay_ns: u64,
    },
    /// None, although the broker expects them.
    Never,
}

/// An argument of a queue or an exchange.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AmqpArgument {
    /// Name.
    pub name: String,
    /// Value.
    pub value: AmqpValue,
}

/// Value of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AmqpValue {
    /// `true` or `false`.
    Flag(bool),
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

const fn one() -> u16 {
    1
}

impl Amqp {
    /// Returns `true` if the broker confirms the messages of a channel.
    #[must_use]
    pub fn confirms(&self, population: &Population, channel: u16) -> bool {
        let own = population.publications.iter().enumerate();
        own.filter(|(index, _)| self.channel_of(*index) == channel).any(|(_, own)| own.qos > 0)
    }

    /// Channel of a publication or of a queue with this index, from 0.
    #[must_use]
    pub const fn channel_of(&self, index: usize) -> u16 {
        (index % self.channels as usize) as u16
    }
}

impl ProtocolOptions for Amqp {
    fn name(&self) -> &'static str {
        "amqp"
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    /// A queue keeps messages for its clients if neither a connection nor the last consumer ends
    /// it; a consumer of a stream begins with the next message. A client without queues publishes
    /// again what the broker has not confirmed.
    fn keeps_session(&self) -> bool {
        let is_kept = |queue: &PlannedQueue| {
            let ends = queue.exclusive || queue.auto_delete || queue.kind == QueueType::Stream;
            !(ends || queue.name.source().is_empty())
        };
        self.queues.is_empty() || self.queues.iter().any(is_kept)
    }

    fn templates(&self) -> Vec<(String, &Template)> {
        let own =
            [("connection_name", &self.connection_name), ("virtual_host", &self.virtual_host)]
                .map(|(path, template)| (path.to_owned(), template));
        let queues = self.queues.iter().enumerate();
        let queues = queues.map(|(q, queue)| (format!("queues[{q}].name"), &queue.name));
        own.into_iter().chain(queues).collect()
    }

    fn check(&self, population: &Population, path: &str) -> Result<(), PlanError> {
        checks::check(self, population, path)
    }
}

#[cfg(test)]
mod tests;
