//! The table of all properties of MQTT 5 (2.2.2.2).

use super::{PacketType, Packets, bit};

pub(super) const WILL: Packets = 1;
pub(super) const CONNECT: Packets = bit(PacketType::Connect);
pub(super) const CONNACK: Packets = bit(PacketType::ConnAck);
pub(super) const PUBLISH: Packets = bit(PacketType::Publish);
const ACKS: Packets = bit(PacketType::PubAck)
    | bit(PacketType::PubRec)
    | bit(PacketType::PubRel)
    | bit(PacketType::PubComp)
    | bit(PacketType::SubAck)
    | bit(PacketType::UnsubAck);
pub(super) const SUBSCRIBE: Packets = bit(PacketType::Subscribe);
pub(super) const UNSUBSCRIBE: Packets = bit(PacketType::Unsubscribe);
pub(super) const DISCONNECT: Packets = bit(PacketType::Disconnect);
pub(super) const AUTH: Packets = bit(PacketType::Auth);
const ALL: Packets =
    WILL | CONNECT | CONNACK | PUBLISH | ACKS | SUBSCRIBE | UNSUBSCRIBE | DISCONNECT | AUTH;

/// Data type of a property, with the values that its section allows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PropertyType {
    /// One byte, 0 or 1.
    Flag,
    /// Two bytes.
    Short,
    /// Two bytes, not 0.
    PositiveShort,
    /// Four bytes.
    Long,
    /// Four bytes, not 0.
    PositiveLong,
    /// A variable byte integer, not 0.
    PositiveVariable,
    /// Binary data.
    Binary,
    /// A UTF-8 string.
    Text,
    /// A UTF-8 string that is a topic name.
    Topic,
    /// Two UTF-8 strings: name and value.
    Pair,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub(super) struct PropertyRow {
    pub(super) property: Property,
    pub(super) name: &'static str,
    pub(super) kind: PropertyType,
    pub(super) packets: Packets,
    pub(super) repeats: bool,
}

/// Declares [`Property`] and the table of its rows: identifier, name of the standard, data type,
/// packets that may carry the property, and `many` if one packet may carry it more than once.
macro_rules! properties {
    ($($id:literal $variant:ident $name:literal $kind:ident $times:ident $packets:expr;)*) => {
        /// A property, by its identifier (table 2-4).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the names are those of the standard")]
        #[repr(u8)]
        pub enum Property { $($variant = $id,)* }

        pub(super) const TABLE: &[PropertyRow] = &[$(PropertyRow {
            property: Property::$variant,
            name: $name,
            kind: PropertyType::$kind,
            packets: $packets,
            repeats: is_many(stringify!($times)),
        },)*];
    };
}

properties! {
    0x01 PayloadFormatIndicator "Payload Format Indicator" Flag once PUBLISH | WILL;
    0x02 MessageExpiryInterval "Message Expiry Interval" Long once PUBLISH | WILL;
    0x03 ContentType "Content Type" Text once PUBLISH | WILL;
    0x08 ResponseTopic "Response Topic" Topic once PUBLISH | WILL;
    0x09 CorrelationData "Correlation Data" Binary once PUBLISH | WILL;
    0x0b SubscriptionIdentifier "Subscription Identifier" PositiveVariable many
        PUBLISH | SUBSCRIBE;
    0x11 SessionExpiryInterval "Session Expiry Interval" Long once
        CONNECT | CONNACK | DISCONNECT;
    0x12 AssignedClientIdentifier "Assigned Client Identifier" Text once CONNACK;
    0x13 ServerKeepAlive "Server Keep Alive" Short once CONNACK;
    0x15 AuthenticationMethod "Authentication Method" Text once CONNECT | CONNACK | AUTH;
    0x16 AuthenticationData "Authentication Data" Binary once CONNECT | CONNACK | AUTH;
    0x17 RequestProblemInformation "Request Problem Information" Flag once CONNECT;
    0x18 WillDelayInterval "Will Delay Interval" Long once WILL;
    0x19 RequestResponseInformation "Request Response Information" Flag once CONNECT;
    0x1a ResponseInformation "Response Information" Text once CONNACK;
    0x1c ServerReference "Server Reference" Text once CONNACK | DISCONNECT;
    0x1f ReasonString "Reason String" Text once CONNACK | ACKS | DISCONNECT | AUTH;
    0x21 ReceiveMaximum "Receive Maximum" PositiveShort once CONNECT | CONNACK;
    0x22 TopicAliasMaximum "Topic Alias Maximum" Short once CONNECT | CONNACK;
    0x23 TopicAlias "Topic Alias" PositiveShort once PUBLISH;
    0x24 MaximumQoS "Maximum QoS" Flag once CONNACK;
    0x25 RetainAvailable "Retain Available" Flag once CONNACK;
    0x26 UserProperty "User Property" Pair many ALL;
    0x27 MaximumPacketSize "Maximum Packet Size" PositiveLong once CONNECT | CONNACK;
    0x28 WildcardSubscriptionAvailable "Wildcard Subscription Available" Flag once CONNACK;
    0x29 SubscriptionIdentifierAvailable "Subscription Identifier Available" Flag once CONNACK;
    0x2a SharedSubscriptionAvailable "Shared Subscription Available" Flag once CONNACK;
}

/// Rows by identifier.
pub(super) const ROWS: [Option<PropertyRow>; 0x2b] = {
    let mut rows = [None; 0x2b];
    let mut index = 0;
    while index < TABLE.len() {
        rows[TABLE[index].property as usize] = Some(TABLE[index]);
        index += 1;
    }
    rows
};

const fn is_many(times: &str) -> bool {
    matches!(times.as_bytes(), b"many")
}
