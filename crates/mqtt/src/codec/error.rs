//! What can be wrong with bytes that arrive ([`DecodeError`]) and with values that are to be sent
//! ([`EncodeError`]).

use super::PacketType;
use crate::topic::TopicError;

/// Why bytes are not an MQTT packet. The connection cannot go on after any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Packet types 0 and 15 are reserved.
    #[error("packet type {0} is reserved")]
    ReservedPacketType(u8),
    /// The low four bits of the first byte are fixed for all packets but PUBLISH `[MQTT-2.2.2-2]`.
    #[error("{packet} with header flags {flags:#06b} [MQTT-2.2.2-2]")]
    BadHeaderFlags {
        /// The packet of the first byte.
        packet: PacketType,
        /// The low four bits found.
        flags: u8,
    },
    /// The remaining length has more than four bytes (2.2.3).
    #[error("remaining length of more than four bytes")]
    BadRemainingLength,
    /// A field reaches past the end of its packet.
    #[error("packet ends inside a field")]
    TooShort,
    /// Bytes are left after the last field.
    #[error("{0} bytes after the last field of the packet")]
    TrailingBytes(u32),
    /// A string is not UTF-8 `[MQTT-1.5.3-1]`.
    #[error("string is not UTF-8 [MQTT-1.5.3-1]")]
    NotUtf8,
    /// A string has U+0000 `[MQTT-1.5.3-2]`.
    #[error("string contains U+0000 [MQTT-1.5.3-2]")]
    NulInString,
    /// A packet identifier is 0 `[MQTT-2.3.1-1]`.
    #[error("packet identifier 0 [MQTT-2.3.1-1]")]
    ZeroPacketId,
    /// A quality of service above 2 `[MQTT-3.3.1-4]`, `[MQTT-3.1.2-14]`, `[MQTT-3-8.3-4]`.
    #[error("QoS byte {0:#04x} [MQTT-3.3.1-4]")]
    BadQoS(u8),
    /// DUP on a QoS 0 message `[MQTT-3.3.1-2]`.
    #[error("DUP on a QoS 0 message [MQTT-3.3.1-2]")]
    DupOnQoS0,
    /// A topic name or filter that is not allowed.
    #[error(transparent)]
    BadTopic(#[from] TopicError),
    /// The protocol name is not `MQTT` `[MQTT-3.1.2-1]`.
    #[error("protocol name is not MQTT [MQTT-3.1.2-1]")]
    BadProtocolName,
    /// CONNECT of another version `[MQTT-3.1.2-2]`: a server answers CONNACK code 1.
    #[error("protocol level {0} [MQTT-3.1.2-2]")]
    UnsupportedProtocolLevel(u8),
    /// CONNECT flags that exclude each other, or the reserved one `[MQTT-3.1.2-3]`,
    /// `[MQTT-3.1.2-13]`, `[MQTT-3.1.2-15]`, `[MQTT-3.1.2-22]`.
    #[error("CONNECT flags {0:#010b} [MQTT-3.1.2-3]")]
    BadConnectFlags(u8),
    /// CONNACK flags: a reserved bit, or session present on a refusal `[MQTT-3.2.2-4]`.
    #[error("CONNACK flags {0:#010b} [MQTT-3.2.2-4]")]
    BadConnAckFlags(u8),
    /// A SUBACK code other than 0, 1, 2 and 0x80 `[MQTT-3.9.3-2]`.
    #[error("SUBACK code {0:#04x} [MQTT-3.9.3-2]")]
    BadSubAckCode(u8),
    /// SUBSCRIBE, UNSUBSCRIBE or SUBACK without an entry `[MQTT-3.8.3-3]`, `[MQTT-3.10.3-2]`.
    #[error("list of topic filters is empty [MQTT-3.8.3-3]")]
    NoFilters,
}

/// Why a value cannot be written as a packet. Nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A string or binary field of more than 65 535 bytes (1.5.3).
    #[error("field of {0} bytes, at most 65535 are allowed")]
    FieldTooLong(usize),
    /// A packet whose remaining length is above [`LEN_MAX`](crate::LEN_MAX) (2.2.3).
    #[error("packet of {0} bytes, at most 268435455 are allowed")]
    PacketTooLong(usize),
    /// A password without a user name `[MQTT-3.1.2-22]`.
    #[error("password without a user name [MQTT-3.1.2-22]")]
    PasswordWithoutUsername,
    /// No topic filter, or no SUBACK code `[MQTT-3.8.3-3]`, `[MQTT-3.10.3-2]`.
    #[error("list of topic filters is empty [MQTT-3.8.3-3]")]
    NoFilters,
    /// Packet identifier 0 where one is needed `[MQTT-2.3.1-1]`.
    #[error("packet identifier 0 [MQTT-2.3.1-1]")]
    ZeroPacketId,
}
