//! Meaning of the bytes of a server for a session.

use super::AmqpLimits;
use crate::field::Table;

/// Outcome of one step of [`super::AmqpSession::handle`].
#[derive(Debug, PartialEq)]
pub struct AmqpStep<'s, 'b, T> {
    /// Bytes at the front that the step has consumed; 0 for [`AmqpEvent::Incomplete`], and for a
    /// confirm that means more than one publication, up to the last of them.
    pub len: usize,
    /// Packets that are whole with these bytes: methods with their contents, and heartbeats.
    pub packets: u32,
    /// Packets that the step has appended.
    pub replies: u32,
    /// Meaning of the consumed bytes.
    pub event: AmqpEvent<'s, 'b, T>,
}

/// Meaning of the bytes of a server for the session. Messages may be borrowed from the session,
/// other texts are borrowed from the bytes.
#[derive(Debug, PartialEq)]
pub enum AmqpEvent<'s, 'b, T> {
    /// No complete frame: pass the same bytes again, followed by more.
    Incomplete,
    /// Part of a message whose rest follows, or a packet without a meaning for the caller.
    Handled,
    /// The server has begun, with the names of its login mechanisms: the caller calls
    /// [`super::AmqpSession::log_in`].
    Started(&'b str),
    /// The server offers limits: the caller calls [`super::AmqpSession::tune`].
    Tuned(AmqpLimits),
    /// The server has accepted the client.
    Connected,
    /// The server has answered a request; more answers are missing.
    Answered,
    /// The server has answered the last request.
    Prepared,
    /// A delivery.
    Message(AmqpMessage<'s>),
    /// The broker returns a message that no queue takes.
    Returned {
        /// Reply code.
        code: u16,
        /// The same in words.
        text: &'s str,
        /// Exchange to which the message was published.
        exchange: &'s [u8],
        /// Key of the message.
        routing_key: &'s [u8],
    },
    /// The broker has accepted the publication.
    Acknowledged(T),
    /// The broker has not accepted the publication.
    Rejected(T),
    /// A confirm of a publication that waits for none.
    UnknownConfirm,
    /// The server accepts no messages now, or accepts them again.
    Blocked(bool),
    /// The server has ended a consumer.
    Cancelled,
    /// The server does not accept the client: reply code, and the reason in words.
    Refused(u16, &'b str),
    /// The server ends the connection or one of its channels.
    Ended(u16, &'b str),
}

impl<'b, T> AmqpEvent<'_, 'b, T> {
    /// The event apart from the session; `None` for messages, which may be borrowed from it.
    pub fn apart(self) -> Option<AmqpEvent<'static, 'b, T>> {
        Some(match self {
            Self::Message(_) | Self::Returned { .. } => return None,
            Self::Incomplete => AmqpEvent::Incomplete,
            Self::Handled => AmqpEvent::Handled,
            Self::Started(mechanisms) => AmqpEvent::Started(mechanisms),
            Self::Tuned(limits) => AmqpEvent::Tuned(limits),
            Self::Connected => AmqpEvent::Connected,
            Self::Answered => AmqpEvent::Answered,
            Self::Prepared => AmqpEvent::Prepared,
            Self::Acknowledged(token) => AmqpEvent::Acknowledged(token),
            Self::Rejected(token) => AmqpEvent::Rejected(token),
            Self::UnknownConfirm => AmqpEvent::UnknownConfirm,
            Self::Blocked(is_blocked) => AmqpEvent::Blocked(is_blocked),
            Self::Cancelled => AmqpEvent::Cancelled,
            Self::Refused(code, text) => AmqpEvent::Refused(code, text),
            Self::Ended(code, text) => AmqpEvent::Ended(code, text),
        })
    }
}

/// A delivered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmqpMessage<'a> {
    /// Channel.
    pub channel: u16,
    /// Tag of the consumer.
    pub tag: &'a [u8],
    /// Number of the delivery on its channel.
    pub number: u64,
    /// True if the broker may have delivered the message before.
    pub is_redelivered: bool,
    /// Exchange to which the message was published.
    pub exchange: &'a [u8],
    /// Key of the message.
    pub routing_key: &'a [u8],
    /// Headers of the publisher.
    pub headers: Option<Table<'a>>,
    /// Body.
    pub payload: &'a [u8],
}
