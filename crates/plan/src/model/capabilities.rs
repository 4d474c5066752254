//! Capabilities of protocols as data: what a population may do, what names and filters are, and
//! how far its messages go. Checks, questions and the fan-out read the fields, so that a further
//! protocol is a further constant.

use super::names::Names;

/// Capabilities of the clients of a population.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Rule by which filters match names of messages. Messages stay among the populations of one
    /// rule.
    pub names: Names,
    /// A message reaches clients at all targets, if the plan joins them. `false`: it stays at the
    /// target of its publisher.
    pub joins_targets: bool,
    /// Publications of one population.
    pub publications: Publications,
    /// Highest QoS.
    pub qos_max: u8,
    /// Brokers keep the last message of a name.
    pub retains: bool,
    /// Schedules may have spread, jitter, Poisson arrivals, and a profile of the rate.
    pub varies_pace: bool,
    /// Clients unsubscribe and subscribe again on one connection.
    pub flaps: bool,
    /// Filters `$share/GROUP/FILTER` make shared groups.
    pub shares: bool,
    /// Clients answer messages that name a place for answers.
    pub answers: bool,
    /// Messages have user properties beside their payload.
    pub has_properties: bool,
    /// Connections may use TLS.
    pub secures: bool,
}

/// Publications that a population may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publications {
    /// Any number.
    Any,
    /// One, without subscriptions, and each client has a target of its own.
    Alone,
    /// None.
    None,
}

/// MQTT 3.1 and 3.1.1.
pub const MQTT3: Capabilities = Capabilities {
    names: Names::Topics,
    joins_targets: true,
    publications: Publications::Any,
    qos_max: 2,
    retains: true,
    varies_pace: true,
    flaps: true,
    shares: true,
    answers: false,
    has_properties: false,
    secures: true,
};

/// MQTT 5.
pub const MQTT5: Capabilities = Capabilities { answers: true, has_properties: true, ..MQTT3 };

/// Clients of NATS.
pub const NATS: Capabilities = Capabilities {
    names: Names::Subjects,
    joins_targets: true,
    publications: Publications::Any,
    // JetStream stores a message and acknowledges it.
    qos_max: 1,
    retains: false,
    varies_pace: true,
    flaps: true,
    shares: true,
    answers: false,
    has_properties: false,
    secures: true,
};

/// SUB sockets of ZMTP, as the engine plays them.
pub const ZMTP_SUB: Capabilities = Capabilities {
    names: Names::Prefixes,
    joins_targets: false,
    publications: Publications::None,
    qos_max: 0,
    retains: false,
    varies_pace: false,
    flaps: false,
    shares: false,
    answers: false,
    has_properties: false,
    secures: false,
};

/// PUB or SUB sockets of ZMTP, as other programs play them.
pub const ZMTP: Capabilities = Capabilities { publications: Publications::Alone, ..ZMTP_SUB };
