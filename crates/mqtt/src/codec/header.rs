//! The fixed header: packet type, flags and remaining length (2.2).

use std::fmt;

use super::DecodeError;

/// The control packet types, with their numbers on the wire (2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the standard")]
#[repr(u8)]
pub enum PacketType {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
}

impl PacketType {
    /// The name as the standard writes it, such as `PUBLISH`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::ConnAck => "CONNACK",
            Self::Publish => "PUBLISH",
            Self::PubAck => "PUBACK",
            Self::PubRec => "PUBREC",
            Self::PubRel => "PUBREL",
            Self::PubComp => "PUBCOMP",
            Self::Subscribe => "SUBSCRIBE",
            Self::SubAck => "SUBACK",
            Self::Unsubscribe => "UNSUBSCRIBE",
            Self::UnsubAck => "UNSUBACK",
            Self::PingReq => "PINGREQ",
            Self::PingResp => "PINGRESP",
            Self::Disconnect => "DISCONNECT",
        }
    }

    /// The first byte of the packet; for PUBLISH without its flags.
    pub(super) const fn first_byte(self) -> u8 {
        (self as u8) << 4 | self.fixed_flags()
    }

    /// The low four bits where the standard fixes them `[MQTT-2.2.2-1]`.
    const fn fixed_flags(self) -> u8 {
        match self {
            Self::PubRel | Self::Subscribe | Self::Unsubscribe => 0b0010,
            _ => 0,
        }
    }

    const fn from_nibble(nibble: u8) -> Option<Self> {
        Some(match nibble {
            1 => Self::Connect,
            2 => Self::ConnAck,
            3 => Self::Publish,
            4 => Self::PubAck,
            5 => Self::PubRec,
            6 => Self::PubRel,
            7 => Self::PubComp,
            8 => Self::Subscribe,
            9 => Self::SubAck,
            10 => Self::Unsubscribe,
            11 => Self::UnsubAck,
            12 => Self::PingReq,
            13 => Self::PingResp,
            14 => Self::Disconnect,
            _ => return None,
        })
    }
}

impl fmt::Display for PacketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A decoded fixed header; type and flags are valid.
#[derive(Clone, Copy)]
pub(super) struct FixedHeader {
    pub(super) packet_type: PacketType,
    /// The low four bits of the first byte.
    pub(super) flags: u8,
    /// Bytes of the fixed header itself, 2 to 5.
    pub(super) len: usize,
    /// Bytes that follow it.
    pub(super) remaining: usize,
}

impl FixedHeader {
    /// Reads the header at the front of `bytes`; `None` if it is not all there yet.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
        let (packet_type, flags) = split_first_byte(first)?;
        let mut remaining = 0;
        for (index, &byte) in rest.iter().take(4).enumerate() {
            remaining |= usize::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(Some(Self { packet_type, flags, len: index + 2, remaining }));
            }
        }
        if rest.len() >= 4 { Err(DecodeError::BadRemainingLength) } else { Ok(None) }
    }
}

#[inline]
fn split_first_byte(first: u8) -> Result<(PacketType, u8), DecodeError> {
    let Some(packet) = PacketType::from_nibble(first >> 4) else {
        return Err(DecodeError::ReservedPacketType(first >> 4));
    };
    let flags = first & 0x0f;
    if packet != PacketType::Publish && flags != packet.fixed_flags() {
        return Err(DecodeError::BadHeaderFlags { packet, flags });
    }
    Ok((packet, flags))
}
