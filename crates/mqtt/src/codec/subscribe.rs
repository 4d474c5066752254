//! SUBSCRIBE (3.8): topic filters, each with the highest QoS wanted.

use super::wire::{Reader, write_field, write_packet, write_packet_id};
use super::{DecodeError, EncodeError, PacketId, PacketType, QoS, Version};
use crate::topic;

/// A decoded SUBSCRIBE. To send one, see [`encode_subscribe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// Packet identifier, returned in the SUBACK `[MQTT-3.8.4-2]`.
    pub packet_id: PacketId,
    filters: &'a [u8],
}

/// The topic filters of a [`Subscribe`], in their order.
#[derive(Clone)]
pub struct SubscribeFilters<'a> {
    rest: Reader<'a>,
}

/// Appends one SUBSCRIBE with all `filters`, which are not checked beyond their length; see
/// [`topic::validate_filter`].
///
/// # Errors
/// [`EncodeError`] without a filter `[MQTT-3.8.3-3]`, without a packet identifier, or if something
/// is too long; `out` is then as it was.
pub fn encode_subscribe<'s>(
    version: Version,
    packet_id: PacketId,
    filters: impl IntoIterator<Item = (&'s str, QoS)>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    write_packet(PacketType::Subscribe, out, |out| {
        write_packet_id(out, packet_id)?;
        let filters_start = out.len();
        for (filter, qos) in filters {
            write_field(out, filter.as_bytes())?;
            match version {
                Version::V311 => out.push(qos as u8),
            }
        }
        if out.len() == filters_start { Err(EncodeError::NoFilters) } else { Ok(()) }
    })
}

impl<'a> Subscribe<'a> {
    /// The topic filters with their requested QoS.
    #[must_use]
    pub const fn filters(&self) -> SubscribeFilters<'a> {
        SubscribeFilters { rest: Reader::new(self.filters) }
    }

    /// Appends the packet to `out`.
    ///
    /// # Errors
    /// As [`encode_subscribe`].
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode_subscribe(version, self.packet_id, self.filters(), out)
    }

    pub(super) fn decode(version: Version, body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let packet_id = body.packet_id()?;
        let filters = body.rest();
        if filters.is_empty() {
            return Err(DecodeError::NoFilters);
        }
        while !body.is_empty() {
            topic::validate_filter(body.text()?)?;
            match version {
                Version::V311 => QoS::try_from(body.u8()?)?, // reserved bits: [MQTT-3-8.3-4]
            };
        }
        Ok(Self { packet_id, filters })
    }
}

impl<'a> Iterator for SubscribeFilters<'a> {
    type Item = (&'a str, QoS);

    /// The bytes were checked by `decode`, so the end is the only reason to stop.
    fn next(&mut self) -> Option<Self::Item> {
        let filter = self.rest.utf8().ok()?;
        let qos = QoS::try_from(self.rest.u8().ok()?).ok()?;
        Some((filter, qos))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_rejected;
    use super::super::{Decoded, Packet, decode};
    use super::*;
    use crate::topic::TopicError;

    #[test]
    fn several_filters_go_into_one_packet() {
        let filters = [("a/+", QoS::AtLeastOnce), ("#", QoS::ExactlyOnce)];
        let mut out = Vec::new();
        encode_subscribe(Version::V311, 10, filters, &mut out).unwrap();
        assert_eq!(out, b"\x82\x0c\0\x0a\0\x03a/+\x01\0\x01#\x02");
        let Ok(Decoded::Packet { packet: Packet::Subscribe(found), len: 14 }) =
            decode(Version::V311, &out)
        else {
            panic!("{:?}", decode(Version::V311, &out));
        };
        assert_eq!(found.packet_id, 10);
        assert!(found.filters().eq(filters));
    }

    #[test]
    fn no_filter_is_an_error() {
        let encoded = encode_subscribe(Version::V311, 10, [], &mut Vec::new());
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
}
