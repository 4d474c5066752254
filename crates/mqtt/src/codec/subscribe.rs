//! SUBSCRIBE (3.8): topic filters, each with the highest QoS requested and, in MQTT 5, options; and
//! UNSUBSCRIBE (3.10): topic filters to leave.

use super::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, QoS, Reader, Version, write_field,
    write_packet, write_packet_id,
};
use crate::topic;

const NO_LOCAL: u8 = 0b0100;
const RETAIN_AS_PUBLISHED: u8 = 0b1000;
const RETAIN_HANDLING_SHIFT: u8 = 4;
const RESERVED: u8 = 0b1100_0000;

/// A decoded SUBSCRIBE. [`encode_subscribe`] writes a SUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// Packet identifier, returned in the SUBACK `[MQTT-3.8.4-2]`.
    pub packet_id: PacketId,
    /// Properties; not written before MQTT 5.
    pub properties: Properties<'a>,
    filters: &'a [u8],
}

/// Options of one topic filter (3.8.3.1). Only the QoS is written before MQTT 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionOptions {
    /// Highest QoS requested.
    pub qos: QoS,
    /// True if the server does not send the client its own messages.
    pub no_local: bool,
    /// True if the server keeps the RETAIN flag of a message.
    pub retain_as_published: bool,
    /// Retained messages that the server sends.
    pub retain_handling: RetainHandling,
}

/// Retained messages that follow a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RetainHandling {
    /// All that match.
    #[default]
    Send = 0,
    /// All that match, if the subscription is new.
    SendIfNew = 1,
    /// None.
    Never = 2,
}

/// A decoded UNSUBSCRIBE. [`encode_unsubscribe`] writes an UNSUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// Packet identifier, returned in the UNSUBACK `[MQTT-3.10.4-4]`.
    pub packet_id: PacketId,
    /// Properties; not written before MQTT 5.
    pub properties: Properties<'a>,
    filters: &'a [u8],
}

/// Packet identifier and properties of a request.
type Head<'a> = (PacketId, Properties<'a>);

/// Appends one SUBSCRIBE with all `filters`. The function checks only the length of a filter;
/// [`topic::validate_filter`] checks the rest.
///
/// # Errors
/// [`EncodeError`] without a filter `[MQTT-3.8.3-3]`, without a packet identifier, or if a field or
/// the packet is too long. `out` is then unchanged.
pub fn encode_subscribe<'s>(
    version: Version,
    head: Head<'_>,
    filters: impl IntoIterator<Item = (&'s str, SubscriptionOptions)>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let filters = filters.into_iter().map(|(filter, options)| (filter, Some(options)));
    encode((version, PacketType::Subscribe), head, filters, out)
}

/// Appends one UNSUBSCRIBE with all `filters`.
///
/// # Errors
/// As [`encode_subscribe`] `[MQTT-3.10.3-2]`.
pub fn encode_unsubscribe<'s>(
    version: Version,
    head: Head<'_>,
    filters: impl IntoIterator<Item = &'s str>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let filters = filters.into_iter().map(|filter| (filter, None));
    encode((version, PacketType::Unsubscribe), head, filters, out)
}

fn encode<'s>(
    (version, packet_type): (Version, PacketType),
    (packet_id, properties): Head<'_>,
    filters: impl Iterator<Item = (&'s str, Option<SubscriptionOptions>)>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    write_packet(packet_type, out, |out| {
        write_packet_id(out, packet_id)?;
        properties.write(version, out)?;
        let filters_start = out.len();
        for (filter, options) in filters {
            write_field(out, filter.as_bytes())?;
            out.extend(options.map(|options| options.byte(version)));
        }
        if out.len() == filters_start { Err(EncodeError::NoFilters) } else { Ok(()) }
    })
}

/// Reads a request, of which `check` reads the options of each filter. Returns the bytes of its
/// filters, too.
fn decode<'a>(
    (version, packet_type): (Version, PacketType),
    body: &mut Reader<'a>,
    check: impl Fn(&str, &mut Reader<'a>) -> Result<(), DecodeError>,
) -> Result<(Head<'a>, &'a [u8]), DecodeError> {
    let packet_id = body.packet_id()?;
    let properties = Properties::read(version, packet_type, body)?;
    let filters = body.rest();
    if filters.is_empty() {
        return Err(DecodeError::NoFilters);
    }
    while !body.is_empty() {
        let filter = body.text()?;
        topic::validate_filter(filter)?;
        check(filter, body)?;
    }
    Ok(((packet_id, properties), filters))
}

impl From<QoS> for SubscriptionOptions {
    fn from(qos: QoS) -> Self {
        Self { qos, ..Self::default() }
    }
}

impl SubscriptionOptions {
    fn byte(self, version: Version) -> u8 {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        match version {
            Version::V31 | Version::V311 => self.qos as u8,
            Version::V5 => {
                self.qos as u8
                    | flag(self.no_local, NO_LOCAL)
                    | flag(self.retain_as_published, RETAIN_AS_PUBLISHED)
                    | (self.retain_handling as u8) << RETAIN_HANDLING_SHIFT
            }
        }
    }

    fn read(version: Version, byte: u8) -> Result<Self, DecodeError> {
        if version != Version::V5 {
            return Ok(Self::from(QoS::try_from(byte)?)); // reserved bits: [MQTT-3-8.3-4]
        }
        let bad = DecodeError::BadSubscriptionOptions(byte);
        let retain_handling = match byte >> RETAIN_HANDLING_SHIFT & 0b11 {
            0 => RetainHandling::Send,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::Never,
            _ => return Err(bad),
        };
        if byte & RESERVED != 0 {
            return Err(bad);
        }
        let no_local = byte & NO_LOCAL != 0;
        let retain_as_published = byte & RETAIN_AS_PUBLISHED != 0;
        let qos = QoS::try_from(byte & 0b11).map_err(|_| bad)?;
        Ok(Self { qos, no_local, retain_as_published, retain_handling })
    }
}

impl<'a> Subscribe<'a> {
    /// The topic filters with their options, in their order.
    pub fn filters(&self) -> impl Iterator<Item = (&'a str, SubscriptionOptions)> + use<'a> {
        let mut rest = Reader::new(self.filters);
        // `decode` has checked the bytes: only the end is no filter.
        std::iter::from_fn(move || {
            let filter = rest.utf8().ok()?;
            // Older versions have the same QoS, and no other bits.
            let options = SubscriptionOptions::read(Version::V5, rest.u8().ok()?).ok()?;
            Some((filter, options))
        })
    }

    /// Appends the packet to `out`.
    ///
    /// # Errors
    /// As [`encode_subscribe`].
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode_subscribe(version, (self.packet_id, self.properties), self.filters(), out)
    }

    pub(super) fn decode(version: Version, body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let check = |filter: &str, body: &mut Reader<'a>| {
            let byte = body.u8()?;
            let options = SubscriptionOptions::read(version, byte)?;
            if options.no_local && topic::shared(filter).is_some() {
                return Err(DecodeError::BadSubscriptionOptions(byte)); // [MQTT5-3.8.3-4]
            }
            Ok(())
        };
        let ((packet_id, properties), filters) =
            decode((version, PacketType::Subscribe), body, check)?;
        Ok(Self { packet_id, properties, filters })
    }
}

impl<'a> Unsubscribe<'a> {
    /// The topic filters, in their order.
    pub fn filters(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut rest = Reader::new(self.filters);
        std::iter::from_fn(move || rest.utf8().ok())
    }

    /// Appends the packet to `out`.
    ///
    /// # Errors
    /// As [`encode_unsubscribe`].
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode_unsubscribe(version, (self.packet_id, self.properties), self.filters(), out)
    }

    pub(super) fn decode(version: Version, body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let ((packet_id, properties), filters) =
            decode((version, PacketType::Unsubscribe), body, |_, _| Ok(()))?;
        Ok(Self { packet_id, properties, filters })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_rejected, assert_rejected_5};
    use super::super::{DecodedPacket, Packet, Property, PropertyList, Value, decode};
    use super::*;
    use crate::topic::TopicError;

    #[test]
    fn several_filters_go_into_one_packet() {
        let filters = [("a/+", QoS::AtLeastOnce.into()), ("#", QoS::ExactlyOnce.into())];
        let mut out = Vec::new();
        encode_subscribe(Version::V311, (10, Properties::NONE), filters, &mut out).unwrap();
        assert_eq!(out, b"\x82\x0c\0\x0a\0\x03a/+\x01\0\x01#\x02");
        let Ok(DecodedPacket::Packet { packet: Packet::Subscribe(found), len: 14 }) =
            decode(Version::V311, &out)
        else {
            panic!("{:?}", decode(Version::V311, &out));
        };
        assert_eq!(found.packet_id, 10);
        assert!(found.filters().eq(filters));
    }

    #[test]
    fn no_filter_is_an_error() {
        let encoded = encode_subscribe(Version::V311, (10, Properties::NONE), [], &mut Vec::new());
        assert_eq!(encoded, Err(EncodeError::NoFilters));
    }

    #[test]
    fn malformed_requests_are_rejected() {
        let cases: [(&[u8], DecodeError); 7] = [
            (b"\x82\x02\0\x0a", DecodeError::NoFilters),
            (b"\x82\x06\0\0\0\x01a\0", DecodeError::ZeroPacketId),
            (b"\x82\x06\0\x0a\0\x01a\x03", DecodeError::BadQoS(3)),
            (b"\x82\x06\0\x0a\0\x01a\x04", DecodeError::BadQoS(4)), // reserved bit
            (b"\x82\x05\0\x0a\0\x01a", DecodeError::TooShort),
            (b"\x82\x05\0\x0a\0\0\0", DecodeError::BadTopic(TopicError::Empty)),
            (b"\x82\x07\0\x0a\0\x02a#\0", DecodeError::BadTopic(TopicError::MisplacedHash)),
        ];
        for (bytes, error) in cases {
            assert_rejected(bytes, error);
        }
    }

    #[test]
    fn mqtt_5_has_options_and_an_identifier() {
        let mut list = PropertyList::new();
        list.push(Property::SubscriptionIdentifier, Value::Number(300)).unwrap();
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: true,
            retain_as_published: true,
            retain_handling: RetainHandling::Never,
        };
        let filters = [("a", options), ("b", QoS::AtMostOnce.into())];
        let mut out = Vec::new();
        encode_subscribe(Version::V5, (10, list.properties()), filters, &mut out).unwrap();
        assert_eq!(out, b"\x82\x0e\0\x0a\x03\x0b\xac\x02\0\x01a\x2d\0\x01b\0");
        let Ok(DecodedPacket::Packet { packet: Packet::Subscribe(found), len: 16 }) =
            decode(Version::V5, &out)
        else {
            panic!("{:?}", decode(Version::V5, &out));
        };
        assert_eq!(found.properties.number(Property::SubscriptionIdentifier), Some(300));
        assert!(found.filters().eq(filters));
    }

    #[test]
    fn malformed_options_and_identifiers_are_rejected() {
        for options in [0b0000_0011, 0b0011_0000, 0b0100_0000, 0b1000_0000] {
            let bytes = [0x82, 7, 0, 10, 0, 0, 1, b'a', options];
            assert_rejected_5(&bytes, DecodeError::BadSubscriptionOptions(options));
        }
        let shared = b"\x82\x10\0\x0a\0\0\x0a$share/g/a\x04";
        assert_rejected_5(shared, DecodeError::BadSubscriptionOptions(4));
        let twice = b"\x82\x0b\0\x0a\x04\x0b\x01\x0b\x02\0\x01a\0";
        assert_rejected_5(twice, DecodeError::RepeatedProperty(Property::SubscriptionIdentifier));
    }

    #[test]
    fn several_filters_leave_in_one_packet() {
        let mut out = Vec::new();
        let id = (10, Properties::NONE);
        encode_unsubscribe(Version::V311, id, ["a/+", "#"], &mut out).unwrap();
        assert_eq!(out, b"\xa2\x0a\0\x0a\0\x03a/+\0\x01#");
        let Ok(DecodedPacket::Packet { packet: Packet::Unsubscribe(found), len: 12 }) =
            decode(Version::V311, &out)
        else {
            panic!("{:?}", decode(Version::V311, &out));
        };
        assert_eq!(found.packet_id, 10);
        assert!(found.filters().eq(["a/+", "#"]));
    }

    #[test]
    fn no_filter_to_leave_is_an_error() {
        let encoded =
            encode_unsubscribe(Version::V311, (10, Properties::NONE), [], &mut Vec::new());
        assert_eq!(encoded, Err(EncodeError::NoFilters));
    }

    #[test]
    fn malformed_requests_to_leave_are_rejected() {
        let cases: [(&[u8], DecodeError); 4] = [
            (b"\xa2\x02\0\x0a", DecodeError::NoFilters),
            (b"\xa2\x05\0\0\0\x01a", DecodeError::ZeroPacketId),
            (b"\xa2\x05\0\x0a\0\x02a", DecodeError::TooShort),
            (b"\xa2\x06\0\x0a\0\x02a+", DecodeError::BadTopic(TopicError::MisplacedPlus)),
        ];
        for (bytes, error) in cases {
            assert_rejected(bytes, error);
        }
    }
}
