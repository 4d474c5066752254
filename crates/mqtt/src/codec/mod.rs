//! Packets and their bytes: one file per packet, each with its struct, `encode` and `decode`.
//! Nothing here remembers anything between two packets.

mod ack;
mod connack;
mod connect;
mod empty;
mod error;
mod header;
mod publish;
mod suback;
mod subscribe;
mod unsubscribe;
mod wire;

#[cfg(test)]
mod tests;

pub use connack::ConnAck;
pub use connect::{Connect, Will};
pub use error::{DecodeError, EncodeError};
pub use header::PacketType;
pub use publish::{Publish, PublishHeader, encode_publish_header};
pub use suback::SubAck;
pub use subscribe::{Subscribe, SubscribeFilters, encode_subscribe};
pub use unsubscribe::{Unsubscribe, UnsubscribeFilters, encode_unsubscribe};
pub use wire::LEN_MAX;

pub(crate) use ack::encode as encode_ack;
pub(crate) use empty::encode as encode_empty;

use header::FixedHeader;
use wire::Reader;

/// A packet identifier. Never 0 on the wire `[MQTT-2.3.1-1]`; 0 stands for "none" (QoS 0).
pub type PacketId = u16;

/// The protocol version, as data: what differs between versions is a `match` on this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// MQTT 3.1.1.
    #[default]
    V311,
}

impl Version {
    /// The protocol level byte of CONNECT `[MQTT-3.1.2-2]`.
    #[must_use]
    pub const fn protocol_level(self) -> u8 {
        match self {
            Self::V311 => 4,
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
    /// [`DecodeError::BadQoS`] for anything above 2 `[MQTT-3.3.1-4]`.
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
    ConnAck(ConnAck),
    Publish(Publish<'a>),
    PubAck { packet_id: PacketId },
    PubRec { packet_id: PacketId },
    PubRel { packet_id: PacketId },
    PubComp { packet_id: PacketId },
    Subscribe(Subscribe<'a>),
    SubAck(SubAck<'a>),
    Unsubscribe(Unsubscribe<'a>),
    UnsubAck { packet_id: PacketId },
    PingReq,
    PingResp,
    Disconnect,
}

impl Packet<'_> {
    /// Which packet this is.
    #[must_use]
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Connect(_) => PacketType::Connect,
            Self::ConnAck(_) => PacketType::ConnAck,
            Self::Publish(_) => PacketType::Publish,
            Self::PubAck { .. } => PacketType::PubAck,
            Self::PubRec { .. } => PacketType::PubRec,
            Self::PubRel { .. } => PacketType::PubRel,
            Self::PubComp { .. } => PacketType::PubComp,
            Self::Subscribe(_) => PacketType::Subscribe,
            Self::SubAck(_) => PacketType::SubAck,
            Self::Unsubscribe(_) => PacketType::Unsubscribe,
            Self::UnsubAck { .. } => PacketType::UnsubAck,
            Self::PingReq => PacketType::PingReq,
            Self::PingResp => PacketType::PingResp,
            Self::Disconnect => PacketType::Disconnect,
        }
    }

    /// Appends the packet to `out`. On an error `out` is as it was.
    ///
    /// # Errors
    /// [`EncodeError`] where a field is too long or the packet would be malformed.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match *self {
            Self::Connect(connect) => connect.encode(version, out),
            Self::ConnAck(connack) => connack.encode(version, out),
            Self::Publish(publish) => publish.encode(version, out),
            Self::Subscribe(subscribe) => subscribe.encode(version, out),
            Self::SubAck(suback) => suback.encode(version, out),
            Self::Unsubscribe(unsubscribe) => unsubscribe.encode(version, out),
            Self::PubAck { packet_id }
            | Self::PubRec { packet_id }
            | Self::PubRel { packet_id }
            | Self::PubComp { packet_id }
            | Self::UnsubAck { packet_id } => {
                if packet_id == 0 {
                    return Err(EncodeError::ZeroPacketId);
                }
                ack::encode(version, self.packet_type(), packet_id, out);
                Ok(())
            }
            Self::PingReq | Self::PingResp | Self::Disconnect => {
                empty::encode(version, self.packet_type(), out);
                Ok(())
            }
        }
    }
}

/// What the front of a byte buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A whole packet; the next one begins `len` bytes further.
    Packet {
        /// The packet, borrowing from the input.
        packet: Packet<'a>,
        /// Bytes it takes, header included.
        len: usize,
    },
    /// The front of a packet, valid so far.
    Incomplete {
        /// Bytes to have before decoding again: the whole packet where its header tells the
        /// length, otherwise one more than there are.
        needed: usize,
    },
}

/// Decodes the packet at the front of `bytes`, without allocation. Never panics.
///
/// # Errors
/// [`DecodeError`] for everything that the standard calls malformed; the connection is then to be
/// closed `[MQTT-4.8.0-1]`. A wrong first byte or length is reported before the rest has arrived.
#[inline]
pub fn decode(version: Version, bytes: &[u8]) -> Result<Decoded<'_>, DecodeError> {
    let Some(header) = FixedHeader::read(bytes)? else {
        return Ok(Decoded::Incomplete { needed: bytes.len() + 1 });
    };
    let len = header.len + header.remaining;
    let Some(body) = bytes.get(header.len..len) else {
        return Ok(Decoded::Incomplete { needed: len });
    };
    let packet = decode_body(version, header, &mut Reader::new(body))?;
    Ok(Decoded::Packet { packet, len })
}

#[inline]
fn decode_body<'a>(
    version: Version,
    header: FixedHeader,
    body: &mut Reader<'a>,
) -> Result<Packet<'a>, DecodeError> {
    let packet = match header.packet_type {
        PacketType::Connect => Packet::Connect(Connect::decode(version, body)?),
        PacketType::ConnAck => Packet::ConnAck(ConnAck::decode(version, body)?),
        PacketType::Publish => Packet::Publish(Publish::decode(version, header.flags, body)?),
        PacketType::PubAck => Packet::PubAck { packet_id: ack::decode(version, body)? },
        PacketType::PubRec => Packet::PubRec { packet_id: ack::decode(version, body)? },
        PacketType::PubRel => Packet::PubRel { packet_id: ack::decode(version, body)? },
        PacketType::PubComp => Packet::PubComp { packet_id: ack::decode(version, body)? },
        PacketType::Subscribe => Packet::Subscribe(Subscribe::decode(version, body)?),
        PacketType::SubAck => Packet::SubAck(SubAck::decode(version, body)?),
        PacketType::Unsubscribe => Packet::Unsubscribe(Unsubscribe::decode(version, body)?),
        PacketType::UnsubAck => Packet::UnsubAck { packet_id: ack::decode(version, body)? },
        PacketType::PingReq => Packet::PingReq,
        PacketType::PingResp => Packet::PingResp,
        PacketType::Disconnect => Packet::Disconnect,
    };
    body.finish()?;
    Ok(packet)
}
