//! Frames: type, channel, size, payload, and 206 at the end (4.2.3 of AMQP 0-9-1).

use crate::error::AmqpError;
use crate::field::set_length;

/// First bytes of a client.
pub const PROTOCOL_HEADER: &[u8; 8] = b"AMQP\0\0\x09\x01";

/// A heartbeat, which is the only frame of its type.
pub const HEARTBEAT: &[u8; 8] = b"\x08\0\0\0\0\0\0\xce";

/// Bytes of a frame in front of its payload.
const FRONT: usize = 7;
/// Bytes of a frame around its payload.
pub(crate) const AROUND: u32 = 8;
/// Last byte of a frame.
const END: u8 = 206;

/// Type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmqpFrameKind {
    /// A method.
    Method = 1,
    /// The header of a message: its size and its properties.
    Header = 2,
    /// A part of the body of a message.
    Body = 3,
    /// A sign of life.
    Heartbeat = 8,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmqpFrame<'a> {
    /// Type.
    pub kind: AmqpFrameKind,
    /// Channel; 0 for the connection itself.
    pub channel: u16,
    /// Payload.
    pub payload: &'a [u8],
}

/// Decodes the frame at the front of `bytes`, and its length; `None` if the rest of the frame has
/// not arrived. `frame_max` is the size of the largest frame, in bytes.
///
/// # Errors
/// [`AmqpError`] if the protocol forbids the bytes.
#[inline]
pub fn decode(bytes: &[u8], frame_max: u32) -> Result<Option<(AmqpFrame<'_>, usize)>, AmqpError> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    let kind = match first {
        1 => AmqpFrameKind::Method,
        2 => AmqpFrameKind::Header,
        3 => AmqpFrameKind::Body,
        8 => AmqpFrameKind::Heartbeat,
        other => return Err(AmqpError::FrameType(other)),
    };
    let Some(&[_, c0, c1, s0, s1, s2, s3]) = bytes.first_chunk() else { return Ok(None) };
    let size = u32::from_be_bytes([s0, s1, s2, s3]);
    let len = u64::from(size) + u64::from(AROUND);
    if len > u64::from(frame_max) {
        return Err(AmqpError::FrameTooLong(len, frame_max));
    }
    let Some(payload) = bytes.get(FRONT..FRONT + size as usize) else { return Ok(None) };
    match bytes.get(FRONT + size as usize) {
        Some(&END) => {}
        Some(&other) => return Err(AmqpError::FrameEnd(other)),
        None => return Ok(None),
    }
    let channel = u16::from_be_bytes([c0, c1]);
    Ok(Some((AmqpFrame { kind, channel, payload }, len as usize)))
}

/// Appends a frame whose payload `write` appends.
#[inline]
pub fn push_frame(
    kind: AmqpFrameKind,
    channel: u16,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    out.push(kind as u8);
    out.extend_from_slice(&channel.to_be_bytes());
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    set_length(start, out);
    out.push(END);
}

/// Appends a body in as many frames as needed.
pub fn push_body(channel: u16, body: &[u8], frame_max: u32, out: &mut Vec<u8>) {
    for part in body.chunks(frame_max.saturating_sub(AROUND).max(1) as usize) {
        push_frame(AmqpFrameKind::Body, channel, out, |out| out.extend_from_slice(part));
    }
}
