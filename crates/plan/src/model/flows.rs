//! Flows of a plan: the subscriptions and publications of a population, with the schedule and the
//! payload of messages (`contract/plan.schema.json`).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::property::Property;
use crate::model::bounds;
use crate::schedule::recorded::{Recorded, Recording};
use crate::text::records::Records;
use crate::text::template::Template;

/// One topic filter of every client of a population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscription {
    /// Template of the filter; a range `{a..b}` makes one filter for each value.
    pub filter: Template,
    /// Highest QoS requested.
    pub qos: u8,
    /// `true` if the broker does not send a client its own messages. Only MQTT 5.
    #[serde(default)]
    pub no_local: bool,
    /// `true` if the broker keeps the RETAIN flag of messages that it forwards. Only MQTT 5.
    #[serde(default)]
    pub retain_as_published: bool,
    /// Retained messages that the broker sends. Only MQTT 5.
    #[serde(default)]
    pub retain_handling: PlannedRetainHandling,
    /// Identifier that the broker repeats in matching messages. Only MQTT 5.
    #[serde(default)]
    pub identifier: Option<u32>,
}

/// Retained messages that follow a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedRetainHandling {
    /// All that match.
    #[default]
    Send,
    /// All that match, if the subscription is new.
    SendIfNew,
    /// None.
    Never,
}

/// One flow of messages that every client of a population sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    /// Template of the topic; with a range `{a..b}`, each message has the next value.
    pub topic: Template,
    /// Order of the values of a range.
    pub order: Order,
    /// Messages of each value of the range in a round; empty: one of each, in `order`.
    #[serde(default)]
    pub weights: Vec<u32>,
    /// QoS 0, 1 or 2.
    pub qos: u8,
    /// True if the broker retains the last message.
    pub retain: bool,
    /// Schedule of the messages.
    pub pace: Pace,
    /// Largest number of messages of a client in flight (QoS 1 and 2).
    pub window: u16,
    /// Payload of the messages.
    pub payload: Payload,
    /// Properties of the messages. Only MQTT 5.
    #[serde(default)]
    pub properties: Vec<Property>,
    /// `true` if a topic alias replaces a topic that the broker knows. Only MQTT 5.
    #[serde(default)]
    pub topic_alias: bool,
    /// `true` if each message is a request: its correlation data holds the stamp, and answers to
    /// its Response Topic are round trips. Only MQTT 5.
    #[serde(default)]
    pub request: bool,
}

impl Publication {
    /// Sums of the weights up to each value of the topic; empty without weights.
    #[must_use]
    pub fn weight_ends(&self) -> Vec<u32> {
        let sum = |sum: &mut u32, weight: &u32| {
            *sum = sum.saturating_add(*weight);
            Some(*sum)
        };
        self.weights.iter().scan(0, sum).collect()
    }
}

/// Schedule of the messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Pace {
    /// Open loop: an absolute schedule that does not wait for the broker.
    Open {
        /// Time between two messages of a client, in nanoseconds.
        #[serde(deserialize_with = "bounds::number")]
        period_ns: u64,
        /// Variation of the clients' periods: up to this fraction of `period_ns`, 0 to below 1.
        spread: f64,
        /// Variation of each message on the schedule: up to half this fraction of the period, 0 to
        /// 1.
        jitter: f64,
        /// Start of each client in the period.
        phase: Phase,
        /// Policy for messages that could not be sent in time.
        late: Late,
        /// Number of messages scheduled at once. The time between two bursts is this number of
        /// periods.
        #[serde(default = "one")]
        burst: u32,
        /// Process of the messages on the schedule.
        #[serde(default)]
        arrivals: Process,
    },
    /// Closed loop: the next message is scheduled as soon as the window and the socket accept it.
    Closed,
}

const fn one() -> u32 {
    1
}

/// Process of the messages of a client on its schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Process {
    /// One message, or one burst, in each period.
    #[default]
    Even,
    /// A Poisson process: the times between two messages or bursts are exponential, with the same
    /// mean. Without `jitter` and with `phase` spread, which have no meaning here.
    Poisson,
}

/// Start of a client in its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Evenly spread over the period.
    Spread,
    /// At random in the period.
    Random,
    /// All clients at the same instant: a burst each period.
    Aligned,
}

/// Policy for a message that could not leave in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Late {
    /// The client sends the message as soon as possible. The wait is part of the latency from
    /// intended time.
    Send,
    /// The client skips messages that are more than one period late, and counts them as skipped.
    Skip,
}

/// Payload of the messages.
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
    /// Sizes are drawn from a histogram.
    Histogram {
        /// Sizes, with the ends of their parts of all draws.
        bins: Vec<SizeBin>,
    },
    /// Data that was made before the run: message `k` of a client has record `k`, and again the
    /// first one after the last.
    Records {
        /// The payloads.
        records: Records,
        /// Order of the records.
        order: Order,
        /// True if a stamp of 32 bytes precedes the data in the payload.
        #[serde(default)]
        stamped: bool,
    },
    /// The user's own text. Without a stamp, messages are counted without latency or order, unless
    /// MQTT 5 has the stamp in a user property.
    Text {
        /// Template of the text.
        template: Template,
        /// True if the text is JSON, so that values from a file are escaped.
        #[serde(default)]
        is_json: bool,
    },
    /// Data of an edge node of Sparkplug B or of its devices, by turns over the topics. A stamp and
    /// the number of the message are in the body of the payload.
    Sparkplug {
        /// Metrics of the device, or of the node.
        metrics: u32,
        /// Metrics in each message.
        changed: u32,
        /// Largest size of a payload, in bytes.
        max_bytes: u32,
    },
    /// Sizes of recorded messages. Their instants and topics are recorded too.
    Recorded(Recording),
}

impl Payload {
    /// The recorded messages, once their file is read; `None` for other payloads.
    #[must_use]
    pub fn recorded(&self) -> Option<&Arc<Recorded>> {
        match self {
            Self::Recorded(recording) => recording.messages.get(),
            _ => None,
        }
    }
}

/// A size of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeBin {
    /// Size in bytes.
    pub bytes: u32,
    /// Sum of the weights up to this size, with its own.
    #[serde(deserialize_with = "bounds::number")]
    pub end: u64,
}

/// Order of the values of a range in a topic, or of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// From the first value to the last, repeated.
    Turn,
    /// Each value once in each round. Each client has its own order, drawn for each round.
    Shuffled,
}

/// Messages that a program beside the brokers carries from one broker or name to another:
/// those of one publication arrive at the target of other clients too, under another name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedFlow {
    /// Index of the publishing population.
    pub population: usize,
    /// Index of the publication in its population.
    pub publication: usize,
    /// Template of the name with which a message arrives. Its variables are those of the publishing
    /// client; a range has the value that the topic has.
    pub to: Template,
    /// Index of a population whose clients are at the target at which the messages arrive. The name
    /// follows the rule of its protocol.
    pub at: usize,
}

/// Answers of the clients of a population.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Responds {
    /// QoS 0, 1 or 2.
    pub qos: u8,
    /// Size of the payload, in bytes.
    pub bytes: u32,
}
