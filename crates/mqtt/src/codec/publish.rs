//! PUBLISH (3.3): a message, in either direction. The hot path: one pass, no copy.

use super::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, Property, QoS, Reader, Version,
    write_len,
};
use crate::topic::{self, TopicError};

const DUP: u8 = 0b1000;
const RETAIN: u8 = 0b0001;
const QOS_SHIFT: u8 = 1;

/// A message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Publish<'a> {
    /// True if the message may be a re-delivery `[MQTT-3.3.1-1]`; never with QoS 0
    /// `[MQTT-3.3.1-2]`.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// To a server: retain the message. From a server: the message was retained `[MQTT-3.3.1-8]`.
    pub retain: bool,
    /// Topic name, without wildcards `[MQTT-3.3.2-2]`; empty if a topic alias of MQTT 5 stands for
    /// the name (3.3.2.3.4).
    pub topic: &'a str,
    /// Packet identifier; 0 with QoS 0 `[MQTT-2.3.1-5]`.
    pub packet_id: PacketId,
    /// Properties; not written before MQTT 5.
    pub properties: Properties<'a>,
    /// Bytes of the application.
    pub payload: &'a [u8],
}

/// Fields of a PUBLISH without topic and payload, for [`encode_publish_header`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishHeader<'a> {
    /// True for a re-delivery; ignored with QoS 0 `[MQTT-3.3.1-2]`.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// True if the server must retain the message.
    pub retain: bool,
    /// Packet identifier; not written with QoS 0, otherwise not 0.
    pub packet_id: PacketId,
    /// Properties; not written before MQTT 5.
    pub properties: Properties<'a>,
}

/// Appends a PUBLISH up to its payload; the caller then appends exactly `payload_len` bytes.
///
/// `write_topic` appends exactly `topic_len` bytes, so that the caller renders the topic in place.
/// Both lengths are in bytes. The function reserves room for the whole packet at once.
///
/// # Errors
/// [`EncodeError`] if the topic or the packet is too long or `packet_id` is missing. The function
/// then appends nothing and does not call `write_topic`.
#[inline]
pub fn encode_publish_header(
    version: Version,
    header: &PublishHeader<'_>,
    topic_len: usize,
    payload_len: usize,
    out: &mut Vec<u8>,
    write_topic: impl FnOnce(&mut Vec<u8>),
) -> Result<(), EncodeError> {
    let Ok(topic_len_u16) = u16::try_from(topic_len) else {
        return Err(EncodeError::FieldTooLong(topic_len));
    };
    let with_id = header.qos != QoS::AtMostOnce;
    if with_id && header.packet_id == 0 {
        return Err(EncodeError::ZeroPacketId);
    }
    let id_len = if with_id { 2 } else { 0 };
    let properties_len = match version {
        Version::V5 => header.properties.encoded_len(),
        Version::V31 | Version::V311 => 0,
    };
    let remaining = (2 + topic_len + id_len + properties_len).saturating_add(payload_len);
    let mut len_bytes = [0; 4];
    let len_len = write_len(&mut len_bytes, remaining)?;

    // Appending one fixed-size front is cheaper than appending each field.
    let mut front = [0; 7];
    front[0] = header.first_byte();
    front[1..5].copy_from_slice(&len_bytes);
    front[len_len + 1..len_len + 3].copy_from_slice(&topic_len_u16.to_be_bytes());
    out.reserve(1 + len_len + remaining);
    out.extend_from_slice(&front[..len_len + 3]);
    let topic_start = out.len();
    write_topic(out);
    debug_assert_eq!(out.len() - topic_start, topic_len, "write_topic must append topic_len bytes");
    if with_id {
        out.extend_from_slice(&header.packet_id.to_be_bytes());
    }
    header.properties.write(version, out)
}

impl PublishHeader<'_> {
    #[inline]
    fn first_byte(self) -> u8 {
        let dup = if self.dup && self.qos != QoS::AtMostOnce { DUP } else { 0 };
        let retain = if self.retain { RETAIN } else { 0 };
        PacketType::Publish.first_byte() | dup | (self.qos as u8) << QOS_SHIFT | retain
    }
}

impl<'a> Publish<'a> {
    /// Topic alias (3.3.2.3.4).
    pub(crate) fn alias(&self) -> Option<u16> {
        self.properties.number(Property::TopicAlias).map(|alias| alias as u16)
    }

    /// All fields but topic and payload.
    #[must_use]
    pub const fn header(&self) -> PublishHeader<'a> {
        let Self { dup, qos, retain, packet_id, properties, .. } = *self;
        PublishHeader { dup, qos, retain, packet_id, properties }
    }

    /// Appends the packet to `out`.
    ///
    /// # Errors
    /// As [`encode_publish_header`].
    #[inline]
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (topic, payload) = (self.topic.as_bytes(), self.payload);
        encode_publish_header(version, &self.header(), topic.len(), payload.len(), out, |out| {
            out.extend_from_slice(topic);
        })?;
        out.extend_from_slice(payload);
        Ok(())
    }

    #[inline]
    pub(super) fn decode(
        version: Version,
        flags: u8,
        body: &mut Reader<'a>,
    ) -> Result<Self, DecodeError> {
        let qos = QoS::try_from((flags >> QOS_SHIFT) & 0b11)?;
        let dup = flags & DUP != 0;
        if dup && qos == QoS::AtMostOnce {
            return Err(DecodeError::DupOnQoS0);
        }
        let topic = body.utf8()?;
        let may_be_alias = version == Version::V5 && topic.is_empty();
        if !may_be_alias {
            topic::validate_topic(topic)?;
        }
        let packet_id = if qos == QoS::AtMostOnce { 0 } else { body.packet_id()? };
        let properties = Properties::read(version, PacketType::Publish, body)?;
        if may_be_alias && properties.number(Property::TopicAlias).is_none() {
            return Err(DecodeError::BadTopic(TopicError::Empty));
        }
        let (retain, payload) = (flags & RETAIN != 0, body.take_rest());
        Ok(Self { dup, qos, retain, topic, packet_id, properties, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_packet, assert_packet_5, assert_rejected, assert_rejected_5};
    use super::super::{Packet, PropertyList, Value};
    use super::*;

    #[test]
    fn a_message_of_each_qos_has_the_bytes_of_the_standard() {
        let message = Publish { topic: "a/b", payload: b"hi", ..Publish::default() };
        assert_packet(b"\x30\x07\0\x03a/bhi", Packet::Publish(message));
        let qos_1 =
            Publish { qos: QoS::AtLeastOnce, packet_id: 10, dup: true, retain: true, ..message };
        assert_packet(b"\x3b\x09\0\x03a/b\0\x0ahi", Packet::Publish(qos_1));
        let qos_2 = Publish { qos: QoS::ExactlyOnce, packet_id: 0xffff, payload: b"", ..message };
        assert_packet(b"\x34\x07\0\x03a/b\xff\xff", Packet::Publish(qos_2));
    }

    #[test]
    fn malformed_messages_are_rejected() {
        let cases: [(&[u8], DecodeError); 10] = [
            (b"\x36\x05\0\x01a\0\x01", DecodeError::BadQoS(3)),
            (b"\x38\x03\0\x01a", DecodeError::DupOnQoS0),
            (b"\x32\x05\0\x01a\0\0", DecodeError::ZeroPacketId),
            (b"\x32\x04\0\x01a\0", DecodeError::TooShort),
            (b"\x30\x00", DecodeError::TooShort),
            (b"\x30\x03\0\x02a", DecodeError::TooShort),
            (b"\x30\x02\0\0", DecodeError::BadTopic(TopicError::Empty)),
            (b"\x30\x03\0\x01+", DecodeError::BadTopic(TopicError::WildcardInName)),
            (b"\x30\x03\0\x01\0", DecodeError::BadTopic(TopicError::Nul)),
            (b"\x30\x05\0\x03\xed\xa0\x80", DecodeError::NotUtf8), // surrogate [MQTT-1.5.3-1]
        ];
        for (bytes, error) in cases {
            assert_rejected(bytes, error);
        }
    }

    #[test]
    fn a_topic_rendered_in_place_gives_the_same_packet() {
        let payload = [7; 500];
        let header = PublishHeader { qos: QoS::AtLeastOnce, packet_id: 3, ..Default::default() };
        let mut out = b"before".to_vec();
        encode_publish_header(Version::V311, &header, 6, payload.len(), &mut out, |out| {
            out.extend_from_slice(b"load/");
            out.push(b'7');
        })
        .unwrap();
        let (room, start) = (out.capacity(), out.as_ptr());
        out.extend_from_slice(&payload);
        assert_eq!((room, start), (out.capacity(), out.as_ptr()), "room was reserved");
        let publish = Publish {
            topic: "load/7",
            qos: QoS::AtLeastOnce,
            packet_id: 3,
            payload: &payload,
            ..Default::default()
        };
        assert_packet(&out[6..], Packet::Publish(publish));
    }

    #[test]
    fn dup_is_not_written_with_qos_0() {
        let header = PublishHeader { dup: true, ..Default::default() };
        let mut out = Vec::new();
        encode_publish_header(Version::V311, &header, 0, 0, &mut out, |_| ()).unwrap();
        assert_eq!(out[0], 0x30);
    }

    #[test]
    fn too_long_a_packet_or_a_missing_packet_id_is_an_error() {
        let encode = |qos, payload_len| {
            let header = PublishHeader { qos, ..Default::default() };
            encode_publish_header(Version::V311, &header, 1, payload_len, &mut Vec::new(), |_| {
                unreachable!("write_topic must not be called")
            })
        };
        let too_long = EncodeError::PacketTooLong(268_435_456);
        assert_eq!(encode(QoS::AtMostOnce, 268_435_453), Err(too_long));
        assert_eq!(
            encode(QoS::AtMostOnce, usize::MAX),
            Err(EncodeError::PacketTooLong(usize::MAX))
        );
        assert_eq!(encode(QoS::ExactlyOnce, 0), Err(EncodeError::ZeroPacketId));
    }

    #[test]
    fn mqtt_5_has_properties_before_the_payload() {
        let mut list = PropertyList::new();
        let message = Publish { topic: "a/b", payload: b"hi", ..Publish::default() };
        assert_packet_5(b"\x30\x08\0\x03a/b\0hi", Packet::Publish(message));
        list.push(Property::MessageExpiryInterval, Value::Number(7)).unwrap();
        list.push(Property::UserProperty, Value::Pair("k", "v")).unwrap();
        list.push(Property::UserProperty, Value::Pair("k", "w")).unwrap();
        let properties = list.properties();
        let qos = QoS::AtLeastOnce;
        let message = Publish { qos, packet_id: 1, properties, ..message };
        let bytes = b"\x32\x1d\0\x03a/b\0\x01\x13\x02\0\0\0\x07&\0\x01k\0\x01v&\0\x01k\0\x01whi";
        assert_packet_5(bytes, Packet::Publish(message));
        let pairs: Vec<_> = properties.iter().map(|(_, value)| value).skip(1).collect();
        assert_eq!(pairs, [Value::Pair("k", "v"), Value::Pair("k", "w")]);
    }

    #[test]
    fn a_topic_is_empty_only_with_an_alias() {
        let mut list = PropertyList::new();
        list.push(Property::TopicAlias, Value::Number(5)).unwrap();
        let message = Publish { properties: list.properties(), ..Publish::default() };
        assert_packet_5(b"\x30\x06\0\0\x03\x23\0\x05", Packet::Publish(message));
        assert_rejected_5(b"\x30\x03\0\0\0", DecodeError::BadTopic(TopicError::Empty));
    }

    #[test]
    fn malformed_properties_are_rejected() {
        let value = |property, value| DecodeError::BadPropertyValue { property, value };
        let cases: [(&[u8], DecodeError); 11] = [
            (b"\x30\x03\0\x01a", DecodeError::TooShort),
            (b"\x30\x04\0\x01a\x01", DecodeError::TooShort),
            (b"\x30\x05\0\x01a\x01\x04", DecodeError::UnknownProperty(4)),
            (b"\x30\x05\0\x01a\x01\xff", DecodeError::UnknownProperty(255)),
            (b"\x30\x05\0\x01a\x01\x01", DecodeError::TooShort),
            (b"\x30\x06\0\x01a\x02\x01\x02", value(Property::PayloadFormatIndicator, 2)),
            (b"\x30\x07\0\x01a\x03\x23\0\0", value(Property::TopicAlias, 0)),
            (b"\x30\x06\0\x01a\x02\x0b\0", value(Property::SubscriptionIdentifier, 0)),
            (
                b"\x30\x08\0\x01a\x04\x01\0\x01\0",
                DecodeError::RepeatedProperty(Property::PayloadFormatIndicator),
            ),
            (b"\x30\x05\0\x01a\x80\0", DecodeError::BadVariableInteger),
            (b"\x30\x08\0\x01a\x04\x08\0\x01#", DecodeError::BadTopic(TopicError::WildcardInName)),
        ];
        for (bytes, error) in cases {
            // A length in front of the packet that is too small is another error.
            let mut bytes = bytes.to_vec();
            bytes[1] = (bytes.len() - 2) as u8;
            assert_rejected_5(&bytes, error);
        }
    }
}
