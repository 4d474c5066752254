//! Errors of received bytes ([`DecodeError`]) and of values to send ([`EncodeError`]). Clauses
//! `[MQTT5-...]` are of MQTT 5, the others of MQTT 3.1.1.

use super::{PacketType, Property};
use crate::topic::TopicError;

/// Reason why bytes are not an MQTT packet. The connection cannot continue after any of these
/// errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Packet type 0, which is reserved, or 15, which is reserved before MQTT 5.
    #[error("packet type {0} is reserved")]
    ReservedPacketType(u8),
    /// Low four bits of the first byte differ from the fixed ones; only PUBLISH has flags
    /// `[MQTT-2.2.2-2]`.
    #[error("header flags {flags:#06b} [MQTT-2.2.2-2]")]
    BadHeaderFlags {
        /// Packet type of the first byte.
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
    /// The protocol name is not `MQTT`, or `MQIsdp` of MQTT 3.1 `[MQTT-3.1.2-1]`.
    #[error("protocol name is not that of the version [MQTT-3.1.2-1]")]
    BadProtocolName,
    /// CONNECT of another version `[MQTT-3.1.2-2]`; a server answers with CONNACK code 1, or 0x84
    /// of MQTT 5.
    #[error("protocol level {0} [MQTT-3.1.2-2]")]
    UnsupportedProtocolLevel(u8),
    /// CONNECT flags that exclude each other, or the reserved flag `[MQTT-3.1.2-3]`,
    /// `[MQTT-3.1.2-13]`, `[MQTT-3.1.2-15]`, `[MQTT-3.1.2-22]`.
    #[error("CONNECT flags {0:#010b} [MQTT-3.1.2-3]")]
    BadConnectFlags(u8),
    /// CONNACK flags: a reserved bit, or session present on a refusal `[MQTT-3.2.2-4]`.
    #[error("CONNACK flags {0:#010b} [MQTT-3.2.2-4]")]
    BadConnAckFlags(u8),
    /// A reason code that the packet must not carry `[MQTT-3.9.3-2]`, 2.4 of MQTT 5.
    #[error("reason code {code:#04x} is not one of this packet [MQTT-3.9.3-2]")]
    BadReasonCode {
        /// Type of the packet.
        packet: PacketType,
        /// Code found.
        code: u8,
    },
    /// Options of a subscription with a reserved bit or value `[MQTT5-3.8.3-5]`, or No Local on a
    /// shared subscription `[MQTT5-3.8.3-4]`.
    #[error("subscription options {0:#010b} [MQTT5-3.8.3-4], [MQTT5-3.8.3-5]")]
    BadSubscriptionOptions(u8),
    /// A variable byte integer of more than four bytes, or of more than needed `[MQTT5-1.5.5-1]`.
    #[error("variable byte integer is not in its shortest form [MQTT5-1.5.5-1]")]
    BadVariableInteger,
    /// An identifier that no property has (table 2-4 of MQTT 5).
    #[error("property {0:#04x} is unknown")]
    UnknownProperty(u8),
    /// A property in a packet that must not carry the property (table 2-4 of MQTT 5).
    #[error("property {property} does not belong into this packet")]
    PropertyNotAllowed {
        /// Type of the packet; CONNECT also stands for its will.
        packet: PacketType,
        /// Property found.
        property: Property,
    },
    /// A property twice, of those that a packet may carry once (2.2.2.2 of MQTT 5).
    #[error("property {0} twice in one packet")]
    RepeatedProperty(Property),
    /// A number that the property does not allow (3.1.2.11, 3.2.2.3, 3.3.2.3 of MQTT 5).
    #[error("property {property} with value {value}")]
    BadPropertyValue {
        /// The property.
        property: Property,
        /// Value found.
        value: u32,
    },
    /// Authentication data without an authentication method (3.1.2.11.10 of MQTT 5).
    #[error("property Authentication Data without Authentication Method")]
    DataWithoutMethod,
    /// SUBSCRIBE, UNSUBSCRIBE or SUBACK without an entry `[MQTT-3.8.3-3]`, `[MQTT-3.10.3-2]`.
    #[error("list of topic filters is empty [MQTT-3.8.3-3]")]
    NoFilters,
}

/// Reason why a value cannot be written as a packet. The encoder then appends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A string or binary field of more than 65 535 bytes (1.5.3).
    #[error("field of {0} bytes, at most 65535 are allowed")]
    FieldTooLong(usize),
    /// A packet whose remaining length is above [`LEN_MAX`](crate::LEN_MAX) (2.2.3).
    #[error("packet of {0} bytes, at most 268435455 are allowed")]
    PacketTooLong(usize),
    /// A password without a user name before MQTT 5 `[MQTT-3.1.2-22]`.
    #[error("password without a user name [MQTT-3.1.2-22]")]
    PasswordWithoutUsername,
    /// No topic filter, or no SUBACK code `[MQTT-3.8.3-3]`, `[MQTT-3.10.3-2]`.
    #[error("list of topic filters is empty [MQTT-3.8.3-3]")]
    NoFilters,
    /// Packet identifier 0 in a packet that needs an identifier `[MQTT-2.3.1-1]`.
    #[error("packet identifier 0 [MQTT-2.3.1-1]")]
    ZeroPacketId,
    /// A value that the property does not allow, or of another type.
    #[error("property {0} does not allow the value")]
    BadProperty(Property),
    /// AUTH before MQTT 5.
    #[error("AUTH exists since MQTT 5")]
    NoAuth,
}
