//! Packets and their bytes: one file for packets of one shape, each with its struct, `encode` and
//! `decode`. The functions keep no state between two packets. The data representations of the
//! standard (1.5) are here, in both directions: integers, strings and lengths.

mod ack;
mod connack;
mod connect;
mod empty;
mod error;
mod fields;
mod header;
mod property;
mod publish;
mod reason_code;
mod subscribe;

#[cfg(test)]
mod tests;

pub use ack::{Ack, Reasoned, SubAck, encode_auth};
pub use connack::ConnAck;
pub use connect::{Connect, Will};
pub use error::{DecodeError, EncodeError};
pub use header::PacketType;
pub use property::{Properties, Property, PropertyIter, PropertyList, Value};
pub use publish::{Publish, PublishHeader, encode_publish_header};
pub use reason_code::ReasonCode;
pub use subscribe::{
    RetainHandling, Subscribe, SubscriptionOptions, Unsubscribe, encode_subscribe,
    encode_unsubscribe,
};

pub(crate) use ack::encode_success as encode_ack;
pub(crate) use empty::encode as encode_empty;
pub(crate) use fields::unreadable_field;

/// The largest remaining length of a packet, in bytes (2.2.3).
pub const LEN_MAX: usize = 268_435_455;

/// A packet identifier. Never 0 on the wire `[MQTT-2.3.1-1]`; 0 means "none" (QoS 0).
pub type PacketId = u16;

/// Protocol version. Code that differs between versions matches on this value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// MQTT 3.1.
    V31,
    /// MQTT 3.1.1.
    #[default]
    V311,
    /// MQTT 5.
    V5,
}

impl Version {
    /// All versions.
    pub const ALL: [Self; 3] = [Self::V31, Self::V311, Self::V5];

    /// The protocol level byte of CONNECT `[MQTT-3.1.2-2]`.
    #[must_use]
    pub const fn protocol_level(self) -> u8 {
        match self {
            Self::V31 => 3,
            Self::V311 => 4,
            Self::V5 => 5,
        }
    }

    /// The version of a protocol level in CONNECT; `None` if the level is unknown.
    #[must_use]
    pub fn of_level(level: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.protocol_level() == level)
    }

    /// The version of the CONNECT at the front of `bytes`; `None` if the bytes begin with another
    /// packet, or before the protocol level has arrived.
    #[must_use]
    pub fn of_connect(bytes: &[u8]) -> Option<Self> {
        let body = bytes.strip_prefix(&[PacketType::Connect.first_byte()])?;
        let length_len = body.iter().position(|byte| byte & 0x80 == 0)? + 1;
        let mut body = Reader::new(&body[length_len..]);
        body.utf8().ok()?;
        Self::of_level(body.u8().ok()? & !connect::BRIDGE)
    }

    /// The protocol name of CONNECT `[MQTT-3.1.2-1]`.
    const fn protocol_name(self) -> &'static [u8] {
        match self {
            Self::V31 => b"MQIsdp",
            Self::V311 | Self::V5 => b"MQTT",
        }
    }
}

/// Quality of service of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QoS {
    /// QoS 0: sent once, never acknowledged.
    #[default]
    AtMostOnce = 0,
    /// QoS 1: acknowledged by PUBACK.
    AtLeastOnce = 1,
    /// QoS 2: acknowledged by PUBREC, PUBREL, PUBCOMP.
    ExactlyOnce = 2,
}

impl TryFrom<u8> for QoS {
    type Error = DecodeError;

    /// # Errors
    /// [`DecodeError::BadQoS`] for a value above 2 `[MQTT-3.3.1-4]`.
    #[inline]
    fn try_from(value: u8) -> Result<Self, DecodeError> {
        match value {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            _ => Err(DecodeError::BadQoS(value)),
        }
    }
}

/// One control packet of either direction. Strings and payloads are borrowed from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the packet of that name; its struct has the docs")]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    ConnAck(ConnAck<'a>),
    Publish(Publish<'a>),
    PubAck(Ack<'a>),
    PubRec(Ack<'a>),
    PubRel(Ack<'a>),
    PubComp(Ack<'a>),
    Subscribe(Subscribe<'a>),
    SubAck(SubAck<'a>),
    Unsubscribe(Unsubscribe<'a>),
    UnsubAck(SubAck<'a>),
    PingReq,
    PingResp,
    Disconnect(Reasoned<'a>),
    Auth(Reasoned<'a>),
}

impl Packet<'_> {
    /// Type of this packet.
    #[must_use]
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Connect(_) => PacketType::Connect,
            Self::ConnAck(_) => PacketType::ConnAck,
            Self::Publish(_) => PacketType::Publish,
            Self::PubAck(_) => PacketType::PubAck,
            Self::PubRec(_) => PacketType::PubRec,
            Self::PubRel(_) => PacketType::PubRel,
            Self::PubComp(_) => PacketType::PubComp,
            Self::Subscribe(_) => PacketType::Subscribe,
            Self::SubAck(_) => PacketType::SubAck,
            Self::Unsubscribe(_) => PacketType::Unsubscribe,
            Self::UnsubAck(_) => PacketType::UnsubAck,
            Self::PingReq => PacketType::PingReq,
            Self::PingResp => PacketType::PingResp,
            Self::Disconnect(_) => PacketType::Disconnect,
            Self::Auth(_) => PacketType::Auth,
        }
    }

    /// Appends the packet to `out`. An error leaves `out` unchanged.
    ///
    /// # Errors
    /// [`EncodeError`] if a field is too long or the packet would be malformed.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let packet_type = self.packet_type();
        match self {
            Self::Connect(connect) => connect.encode(version, out),
            Self::ConnAck(connack) => connack.encode(version, out),
            Self::Publish(publish) => publish.encode(version, out),
            Self::PubAck(ack) | Self::PubRec(ack) | Self::PubRel(ack) | Self::PubComp(ack) => {
                ack.encode(version, packet_type, out)
            }
            Self::Subscribe(subscribe) => subscribe.encode(version, out),
            Self::SubAck(suback) | Self::UnsubAck(suback) => {
                suback.encode(version, packet_type, out)
            }
            Self::Unsubscribe(unsubscribe) => unsubscribe.encode(version, out),
            Self::Disconnect(reasoned) | Self::Auth(reasoned) => {
                reasoned.encode(version, packet_type, out)
            }
            Self::PingReq | Self::PingResp => {
                empty::encode(packet_type, out);
                Ok(())
            }
        }
    }
}

/// Content of the front of a byte buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedPacket<'a> {
    /// A whole packet; the next one begins `len` bytes further.
    Packet {
        /// The packet, borrowing from the input.
        packet: Packet<'a>,
        /// Bytes of the packet, header included.
        len: usize,
    },
    /// The front of a packet, valid so far.
    Incomplete {
        /// Bytes to collect before decoding again. The length of the packet if its header is
        /// complete, otherwise one byte more than now.
        needed: usize,
    },
}

/// Decodes the packet at the front of `bytes`, without allocation. Never panics.
///
/// # Errors
/// [`DecodeError`] for all input that the standard calls malformed. The caller must then close the
/// connection `[MQTT-4.8.0-1]`. The decoder reports a wrong first byte or length before the rest
/// has arrived.
#[inline(always)]
pub fn decode(version: Version, bytes: &[u8]) -> Result<DecodedPacket<'_>, DecodeError> {
    let Some(header) = FixedHeader::read(version, bytes)? else {
        return Ok(DecodedPacket::Incomplete { needed: bytes.len() + 1 });
    };
    let len = header.len + header.remaining;
    let Some(body) = bytes.get(header.len..len) else {
        return Ok(DecodedPacket::Incomplete { needed: len });
    };
    let mut body = Reader::new(body);
    // The hot paths, which move the fields of no other packet.
    let packet = match header.packet_type {
        PacketType::Publish => Packet::Publish(Publish::decode(version, header.flags, &mut body)?),
        PacketType::PubAck => {
            let ack = Ack::decode(version, PacketType::PubAck, &mut body)?;
            body.finish()?;
            Packet::PubAck(ack)
        }
        _ => decode_rest(version, header, &mut body)?,
    };
    Ok(DecodedPacket::Packet { packet, len })
}

/// Decodes the body of a packet.
#[inline(never)]
fn decode_rest<'a>(
    version: Version,
    header: FixedHeader,
    body: &mut Reader<'a>,
) -> Result<Packet<'a>, DecodeError> {
    let packet_type = header.packet_type;
    let packet = match packet_type {
        PacketType::Connect => Packet::Connect(Connect::decode(version, body)?),
        PacketType::ConnAck => Packet::ConnAck(ConnAck::decode(version, body)?),
        PacketType::Publish => Packet::Publish(Publish::decode(version, header.flags, body)?),
        PacketType::PubAck => Packet::PubAck(Ack::decode(version, packet_type, body)?),
        PacketType::PubRec => Packet::PubRec(Ack::decode(version, packet_type, body)?),
        PacketType::PubRel => Packet::PubRel(Ack::decode(version, packet_type, body)?),
        PacketType::PubComp => Packet::PubComp(Ack::decode(version, packet_type, body)?),
        PacketType::Subscribe => Packet::Subscribe(Subscribe::decode(version, body)?),
        PacketType::SubAck => Packet::SubAck(SubAck::decode(version, packet_type, body)?),
        PacketType::Unsubscribe => Packet::Unsubscribe(Unsubscribe::decode(version, body)?),
        PacketType::UnsubAck => Packet::UnsubAck(SubAck::decode(version, packet_type, body)?),
        PacketType::PingReq => Packet::PingReq,
        PacketType::PingResp => Packet::PingResp,
        PacketType::Disconnect => Packet::Disconnect(Reasoned::decode(version, packet_type, body)?),
        PacketType::Auth => Packet::Auth(Reasoned::decode(version, packet_type, body)?),
    };
    body.finish()?;
    Ok(packet)
}

/// A decoded fixed header; type and flags are valid.
#[derive(Clone, Copy)]
struct FixedHeader {
    packet_type: PacketType,
    /// The low four bits of the first byte.
    flags: u8,
    /// Bytes of the fixed header itself, 2 to 5.
    len: usize,
    /// Bytes that follow the fixed header.
    remaining: usize,
}

impl FixedHeader {
    /// Reads the header at the front of `bytes`; `None` if the header is incomplete.
    #[inline]
    fn read(version: Version, bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
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
    let packet = packet_type(first >> 4).ok_or(reserved)?;
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

/// The packet type of the upper four bits of the first byte; `None` if there is none.
pub(crate) const fn packet_type(nibble: u8) -> Option<PacketType> {
    Some(match nibble {
        1 => PacketType::Connect,
        2 => PacketType::ConnAck,
        3 => PacketType::Publish,
        4 => PacketType::PubAck,
        5 => PacketType::PubRec,
        6 => PacketType::PubRel,
        7 => PacketType::PubComp,
        8 => PacketType::Subscribe,
        9 => PacketType::SubAck,
        10 => PacketType::Unsubscribe,
        11 => PacketType::UnsubAck,
        12 => PacketType::PingReq,
        13 => PacketType::PingResp,
        14 => PacketType::Disconnect,
        15 => PacketType::Auth,
        _ => return None,
    })
}

/// The body of one packet, read from front to back.
#[derive(Clone, Copy, Debug)]
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    const fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// Bytes that have not been read.
    #[inline]
    const fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Takes all bytes that have not been read, as the last field.
    #[inline]
    const fn take_rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    const fn is_empty(self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    fn u8(&mut self) -> Result<u8, DecodeError> {
        let (&value, rest) = self.rest.split_first().ok_or(DecodeError::TooShort)?;
        self.rest = rest;
        Ok(value)
    }

    #[inline]
    fn u16(&mut self) -> Result<u16, DecodeError> {
        let (&value, rest) = self.rest.split_first_chunk().ok_or(DecodeError::TooShort)?;
        self.rest = rest;
        Ok(u16::from_be_bytes(value))
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        let (&value, rest) = self.rest.split_first_chunk().ok_or(DecodeError::TooShort)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(value))
    }

    /// A variable byte integer of MQTT 5, in as few bytes as possible `[MQTT5-1.5.5-1]`.
    #[inline]
    fn variable(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0;
        for index in 0..4 {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                let is_shortest = index == 0 || byte != 0;
                return if is_shortest { Ok(value) } else { Err(DecodeError::BadVariableInteger) };
            }
        }
        Err(DecodeError::BadVariableInteger)
    }

    /// The next `len` bytes.
    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::TooShort)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn packet_id(&mut self) -> Result<PacketId, DecodeError> {
        match self.u16()? {
            0 => Err(DecodeError::ZeroPacketId),
            packet_id => Ok(packet_id),
        }
    }

    /// A binary field with its length in front.
    #[inline]
    fn field(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = usize::from(self.u16()?);
        self.take(len)
    }

    /// Reads a UTF-8 field that may contain U+0000, for callers that check the characters
    /// themselves.
    #[inline]
    fn utf8(&mut self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.field()?).map_err(|_| DecodeError::NotUtf8)
    }

    /// A UTF-8 field without U+0000.
    fn text(&mut self) -> Result<&'a str, DecodeError> {
        let text = self.utf8()?;
        if text.as_bytes().contains(&0) { Err(DecodeError::NulInString) } else { Ok(text) }
    }

    /// Checks that no bytes are left.
    #[inline]
    fn finish(self) -> Result<(), DecodeError> {
        match u32::try_from(self.rest.len()) {
            Ok(0) => Ok(()),
            left => Err(DecodeError::TrailingBytes(left.unwrap_or(u32::MAX))),
        }
    }
}

/// Appends a field with its length in front.
fn write_field(out: &mut Vec<u8>, field: &[u8]) -> Result<(), EncodeError> {
    let len = u16::try_from(field.len()).map_err(|_| EncodeError::FieldTooLong(field.len()))?;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(field);
    Ok(())
}

fn write_packet_id(out: &mut Vec<u8>, packet_id: PacketId) -> Result<(), EncodeError> {
    if packet_id == 0 {
        return Err(EncodeError::ZeroPacketId);
    }
    out.extend_from_slice(&packet_id.to_be_bytes());
    Ok(())
}

/// Appends a packet whose length is unknown until its body is written. The function then moves the
/// body by the 1 to 4 bytes of its length, so the hot path does not use this function. An error
/// leaves `out` unchanged.
fn write_packet(
    packet_type: PacketType,
    out: &mut Vec<u8>,
    write_body: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.push(packet_type.first_byte());
    let written = write_body(out).and_then(|()| insert_len(out, start + 1));
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn insert_len(out: &mut Vec<u8>, body_start: usize) -> Result<(), EncodeError> {
    let mut len_bytes = [0; 4];
    let body_end = out.len();
    let len_len = write_len(&mut len_bytes, body_end - body_start)?;
    let len_bytes = &len_bytes[..len_len];
    out.extend_from_slice(len_bytes);
    out.copy_within(body_start..body_end, body_start + len_len);
    out[body_start..][..len_len].copy_from_slice(len_bytes);
    Ok(())
}

/// Appends a variable byte integer.
#[inline]
fn write_variable(out: &mut Vec<u8>, value: usize) -> Result<(), EncodeError> {
    let mut bytes = [0; 4];
    let len = write_len(&mut bytes, value)?;
    out.extend_from_slice(&bytes[..len]);
    Ok(())
}

/// Writes a remaining length and returns the number of bytes written.
#[inline]
fn write_len(bytes: &mut [u8; 4], len: usize) -> Result<usize, EncodeError> {
    if len > LEN_MAX {
        return Err(EncodeError::PacketTooLong(len));
    }
    let mut rest = len;
    let mut used = 0;
    loop {
        let low = (rest & 0x7f) as u8;
        rest >>= 7;
        bytes[used] = if rest == 0 { low } else { low | 0x80 };
        used += 1;
        if rest == 0 {
            return Ok(used);
        }
    }
}
