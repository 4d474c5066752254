//! Capabilities of protocols as data: what a population may do, what names and filters are, and
//! how far its messages go. Checks, questions and the fan-out read the fields, so that a further
//! protocol is a further constant beside its options.

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
    /// TLS of connections.
    pub secures: Secures,
}

/// Begin of TLS at a target that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secures {
    /// Connections do not use TLS.
    Never,
    /// TLS begins before the first bytes of the protocol.
    AtOnce,
    /// TLS begins on the open connection, when the peer has asked for it.
    OnRequest,
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
