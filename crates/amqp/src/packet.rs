//! Packets of a client as its peer reads them: methods with their contents, whose frames follow
//! each other.

use crate::content;
use crate::error::AmqpError;
use crate::frame::{AmqpFrame, AmqpFrameKind, PROTOCOL_HEADER, decode};
use crate::method::AmqpMethod;

/// A packet of a client: the header of the protocol, a method with its content, or a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPacket<'a> {
    /// Its length in bytes.
    pub len: usize,
    /// Its channel.
    pub channel: u16,
    /// Its method; `None` for the header of the protocol and a heartbeat.
    pub method: Option<AmqpMethod<'a>>,
}

/// Decodes the packet of a client at the front of `bytes`, whose frames follow each other; `None`
/// if a part is missing.
///
/// # Errors
/// [`AmqpError`] if the bytes are no packet of a client.
pub fn decode_packet(bytes: &[u8]) -> Result<Option<ClientPacket<'_>>, AmqpError> {
    if bytes.first() == PROTOCOL_HEADER.first() {
        let packet = ClientPacket { len: PROTOCOL_HEADER.len(), channel: 0, method: None };
        return Ok(Some(packet).filter(|packet| packet.len <= bytes.len()));
    }
    let Some((AmqpFrame { kind, channel, payload }, mut len)) = decode(bytes, u32::MAX)? else {
        return Ok(None);
    };
    let method = match kind {
        AmqpFrameKind::Method => Some(AmqpMethod::decode(payload)?),
        AmqpFrameKind::Heartbeat => None,
        AmqpFrameKind::Header | AmqpFrameKind::Body => {
            return Err(AmqpError::OutOfPlace("content"));
        }
    };
    if matches!(method, Some(AmqpMethod::BasicPublish { .. })) {
        let Some((header, more)) = decode(&bytes[len..], u32::MAX)? else { return Ok(None) };
        len += more;
        let mut left = content::decode_header(header.payload)?.body_bytes;
        while left > 0 {
            let Some((body, more)) = decode(&bytes[len..], u32::MAX)? else { return Ok(None) };
            len += more;
            left = left.saturating_sub(body.payload.len() as u64);
        }
    }
    Ok(Some(ClientPacket { len, channel, method }))
}
