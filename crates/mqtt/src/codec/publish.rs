//! PUBLISH (3.3): a message, in either direction. This is the hot path: one pass, no copy.

use super::wire::{Reader, write_len};
use super::{DecodeError, EncodeError, PacketId, PacketType, QoS, Version};
use crate::topic;

const DUP: u8 = 0b1000;
const RETAIN: u8 = 0b0001;
const QOS_SHIFT: u8 = 1;

/// A message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Possibly a re-delivery `[MQTT-3.3.1-1]`; never with QoS 0 `[MQTT-3.3.1-2]`.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// To a server: keep it. From a server: it was kept `[MQTT-3.3.1-8]`.
    pub retain: bool,
    /// Topic name, without wildcards `[MQTT-3.3.2-2]`.
    pub topic: &'a str,
    /// Packet identifier; 0 with QoS 0 `[MQTT-2.3.1-5]`.
    pub packet_id: PacketId,
    /// The application's bytes.
    pub payload: &'a [u8],
}

/// All of a PUBLISH but its topic and payload, for [`encode_publish_header`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishHeader {
    /// This is a re-delivery; dropped with QoS 0 `[MQTT-3.3.1-2]`.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// The server is to keep the message.
    pub retain: bool,
    /// Packet identifier; not written with QoS 0, otherwise not 0.
    pub packet_id: PacketId,
}

/// Appends a PUBLISH up to its payload; the caller then appends exactly `payload_len` bytes.
///
/// `write_topic` appends exactly `topic_len` bytes, so that a topic can be rendered in place.
/// Both lengths are in bytes. Room for the whole packet is reserved at once.
///
/// # Errors
/// [`EncodeError`] if the topic or the packet is too long or `packet_id` is missing; nothing is
/// then appended and `write_topic` is not called.
#[inline]
pub fn encode_publish_header(
    version: Version,
    header: &PublishHeader,
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
    let remaining = match version {
        Version::V311 => 2 + topic_len + id_len,
    }
    .saturating_add(payload_len);
    let mut len_bytes = [0; 4];
    let len_len = write_len(&mut len_bytes, remaining)?;

    // One fixed-size front is cheaper than an append per field.
    let mut front = [0; 7];
    front[0] = header.first_byte();
    front[1..5].copy_from_slice(&len_bytes);
    front[len_len + 1..len_len + 3].copy_from_slice(&topic_len_u16.to_be_bytes());
    out.reserve(1 + len_len + remaining);
    out.extend_from_slice(&front[..len_len + 3]);
    let topic_start = out.len();
    write_topic(out);
    debug_assert_eq!(out.len() - topic_start, topic_len, "write_topic must keep its promise");
    if with_id {
        out.extend_from_slice(&header.packet_id.to_be_bytes());
    }
    Ok(())
}

impl PublishHeader {
    #[inline]
    fn first_byte(self) -> u8 {
        let dup = if self.dup && self.qos != QoS::AtMostOnce { DUP } else { 0 };
        let retain = if self.retain { RETAIN } else { 0 };
        PacketType::Publish.first_byte() | dup | (self.qos as u8) << QOS_SHIFT | retain
    }
}

impl<'a> Publish<'a> {
    /// All but topic and payload.
    #[must_use]
    pub const fn header(&self) -> PublishHeader {
        let Self { dup, qos, retain, packet_id, .. } = *self;
        PublishHeader { dup, qos, retain, packet_id }
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
        topic::validate_topic(topic)?;
        let packet_id = if qos == QoS::AtMostOnce { 0 } else { body.packet_id()? };
        let payload = match version {
            Version::V311 => body.take_rest(),
        };
        Ok(Self { dup, qos, retain: flags & RETAIN != 0, topic, packet_id, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Packet;
    use super::super::tests::{assert_packet, assert_rejected};
    use super::*;
    use crate::topic::TopicError;

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
                unreachable!("the topic is not asked for")
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
}
