//! Messages of the server, which come in frames: whole ones are borrowed, others are kept up to
//! their last frame.

use crate::content::{self, ContentHeader};
use crate::error::AmqpError;
use crate::frame::{self, AmqpFrame, AmqpFrameKind};
use crate::limits::BODY_MAX;
use crate::method::{AmqpMethod, REDELIVERED};

use super::event::{AmqpEvent, AmqpMessage};

/// Bytes that a session keeps for the next message that comes in parts.
const KEPT_MAX: usize = 4096;

/// A message that has come in parts.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Payload of the method frame.
    method: Vec<u8>,
    /// Payload of the header frame; empty: the header is missing.
    header: Vec<u8>,
    /// Bytes of the body, by the header.
    body_bytes: u64,
    body: Vec<u8>,
}

impl Incoming {
    /// No message.
    pub(super) const NONE: Self =
        Self { method: Vec::new(), header: Vec::new(), body_bytes: 0, body: Vec::new() };

    /// A message of which the method has arrived.
    pub(super) fn begin(method: &[u8]) -> Self {
        Self { method: method.to_vec(), ..Self::NONE }
    }

    /// Adds a header or body frame. Returns true if the message is whole.
    pub(super) fn add(&mut self, frame: &AmqpFrame<'_>) -> Result<bool, AmqpError> {
        match (frame.kind, self.header.is_empty()) {
            (AmqpFrameKind::Header, true) => {
                let header = content::decode_header(frame.payload)?;
                if header.body_bytes > BODY_MAX {
                    return Err(AmqpError::BodyTooLong(header.body_bytes));
                }
                self.body_bytes = header.body_bytes;
                self.header.extend_from_slice(frame.payload);
            }
            (AmqpFrameKind::Header, false) => return Err(AmqpError::OutOfPlace("second header")),
            (AmqpFrameKind::Body, true) => {
                return Err(AmqpError::OutOfPlace("body without a header"));
            }
            _ => {
                if (self.body.len() + frame.payload.len()) as u64 > self.body_bytes {
                    return Err(AmqpError::BodyOverrun(self.body_bytes));
                }
                self.body.extend_from_slice(frame.payload);
            }
        }
        Ok(self.body.len() as u64 == self.body_bytes)
    }

    /// Meaning of a whole message.
    pub(super) fn event<'s, 'b, T>(
        &'s self,
        channel: u16,
    ) -> Result<AmqpEvent<'s, 'b, T>, AmqpError> {
        let method = AmqpMethod::decode(&self.method)?;
        let header = content::decode_header(&self.header)?;
        event(channel, method, header, &self.body)
    }

    /// Gives back the memory of a large message.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.body.capacity() > KEPT_MAX {
            *self = Self::NONE;
        }
    }
}

/// The header and the body of a message in one frame each at the front of `bytes`, and their
/// length; `None` if they are not so, or not whole.
#[inline]
pub(super) fn whole(
    bytes: &[u8],
    channel: u16,
    frame_max: u32,
) -> Option<(ContentHeader<'_>, &[u8], usize)> {
    let is_of = |frame: &AmqpFrame<'_>, kind| frame.channel == channel && frame.kind == kind;
    let (frame, len) = frame::decode(bytes, frame_max).ok()??;
    let header = content::decode_header(frame.payload).ok()?;
    if !is_of(&frame, AmqpFrameKind::Header) {
        return None;
    }
    if header.body_bytes == 0 {
        return Some((header, &[], len));
    }
    let (frame, more) = frame::decode(&bytes[len..], frame_max).ok()??;
    let is_whole =
        is_of(&frame, AmqpFrameKind::Body) && frame.payload.len() as u64 == header.body_bytes;
    is_whole.then_some((header, frame.payload, len + more))
}

/// Meaning of a message: a delivery or a return.
#[inline]
pub(super) fn event<'s, 'b, T>(
    channel: u16,
    method: AmqpMethod<'s>,
    header: ContentHeader<'s>,
    payload: &'s [u8],
) -> Result<AmqpEvent<'s, 'b, T>, AmqpError> {
    match method {
        AmqpMethod::BasicDeliver { tag, number, flags, exchange, routing_key } => {
            Ok(AmqpEvent::Message(AmqpMessage {
                channel,
                tag,
                number,
                is_redelivered: flags & REDELIVERED != 0,
                exchange,
                routing_key,
                headers: header.headers,
                payload,
            }))
        }
        AmqpMethod::BasicReturn { code, text, exchange, routing_key } => {
            Ok(AmqpEvent::Returned { code, text, exchange, routing_key })
        }
        other => Err(AmqpError::OutOfPlace(other.name())),
    }
}
