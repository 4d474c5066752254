//! Errors of the protocol, by the peer or by this side.

use crate::limits::{LINE_MAX, MESSAGE_MAX};

/// Reason why a connection cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatsError {
    /// The first bytes of the peer are not INFO.
    #[error("the peer does not speak NATS: its first bytes are not INFO")]
    NotNats,
    /// A control line above [`LINE_MAX`].
    #[error("control line of more than {LINE_MAX} bytes")]
    LineTooLong,
    /// A message above [`MESSAGE_MAX`], headers included.
    #[error("message of {0} bytes, at most {MESSAGE_MAX} are accepted")]
    MessageTooLong(u64),
    /// An operation that breaks its grammar.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// An operation that the protocol does not define.
    #[error("unknown operation")]
    Unknown,
    /// An operation that the state of the connection does not allow.
    #[error("{0} out of place")]
    OutOfPlace(&'static str),
}
