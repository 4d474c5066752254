//! Packet types, as the first byte of the fixed header has them (2.2).

use std::fmt;

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

/// Packets as bits: bit `PacketType as u8`; bit 0 stands for the will in CONNECT.
pub(super) type Packets = u16;

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
    pub(super) const fn fixed_flags(self) -> u8 {
        match self {
            Self::PubRel | Self::Subscribe | Self::Unsubscribe => 0b0010,
            _ => 0,
        }
    }
}

impl fmt::Display for PacketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The bit of a packet.
pub(super) const fn bit(packet: PacketType) -> Packets {
    1 << packet as u8
}
