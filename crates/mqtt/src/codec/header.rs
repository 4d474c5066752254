//! The fixed header: packet type, flags and remaining length (2.2).

use std::fmt;

use super::{DecodeError, Version};

/// The control packet types, with their numbers on the wire (2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    Auth = 15,
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
            Self::Auth => "AUTH",
        }
    }

    /// First byte of the packet; for PUBLISH without its flags.
    pub(super) const fn first_byte(self) -> u8 {
        (self as u8) << 4 | self.fixed_flags()
    }

    /// Low four bits of packets for which the standard fixes these bits `[MQTT-2.2.2-1]`.
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
            15 => Self::Auth,
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
    /// Bytes that follow the fixed header.
    pub(super) remaining: usize,
}

impl FixedHeader {
    /// Reads the header at the front of `bytes`; `None` if the header is incomplete.
    #[inline]
    pub(super) fn read(version: Version, bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
        let (packet_type, flags) = split_first_byte(version, first)?;
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
fn split_first_byte(version: Version, first: u8) -> Result<(PacketType, u8), DecodeError> {
    let reserved = DecodeError::ReservedPacketType(first >> 4);
    let packet = PacketType::from_nibble(first >> 4).ok_or(reserved)?;
    if packet == PacketType::Auth && version != Version::V5 {
        return Err(reserved);
    }
    let flags = first & 0x0f;
    let is_fixed = packet == PacketType::Publish || flags == packet.fixed_flags();
    if !is_fixed && !is_repeat_of_3_1(version, packet, flags) {
        return Err(DecodeError::BadHeaderFlags { packet, flags });
    }
    Ok((packet, flags))
}

/// MQTT 3.1 sets DUP in PUBREL, SUBSCRIBE and UNSUBSCRIBE that are sent again (2.1 there).
#[cold]
fn is_repeat_of_3_1(version: Version, packet: PacketType, flags: u8) -> bool {
    let fixed = packet.fixed_flags();
    version == Version::V31 && fixed != 0 && flags == fixed | 0b1000
}
