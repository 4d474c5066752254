//! UNSUBSCRIBE (3.10): topic filters to leave.

use super::wire::{Reader, write_field, write_packet, write_packet_id};
use super::{DecodeError, EncodeError, PacketId, PacketType, Properties, Version};
use crate::topic;

/// A decoded UNSUBSCRIBE. [`encode_unsubscribe`] writes an UNSUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// Packet identifier, returned in the UNSUBACK `[MQTT-3.10.4-4]`.
    pub packet_id: PacketId,
    /// Properties; not written before MQTT 5.
    pub properties: Properties<'a>,
    filters: &'a [u8],
}

/// The topic filters of an [`Unsubscribe`], in their order.
#[derive(Clone)]
pub struct UnsubscribeFilters<'a> {
    rest: Reader<'a>,
}

/// Appends one UNSUBSCRIBE with all `filters`.
///
/// # Errors
/// [`EncodeError`] without a filter `[MQTT-3.10.3-2]`, without a packet identifier, or if a field
/// or the packet is too long. `out` is then unchanged.
pub fn encode_unsubscribe<'s>(
    version: Version,
    (packet_id, properties): (PacketId, Properties<'_>),
    filters: impl IntoIterator<Item = &'s str>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    write_packet(PacketType::Unsubscribe, out, |out| {
        write_packet_id(out, packet_id)?;
        properties.write(version, out)?;
        let filters_start = out.len();
        for filter in filters {
            write_field(out, filter.as_bytes())?;
        }
        if out.len() == filters_start { Err(EncodeError::NoFilters) } else { Ok(()) }
    })
}

impl<'a> Unsubscribe<'a> {
    /// The topic filters.
    #[must_use]
    pub const fn filters(&self) -> UnsubscribeFilters<'a> {
        UnsubscribeFilters { rest: Reader::new(self.filters) }
    }

    /// Appends the packet to `out`.
    ///
    /// # Errors
    /// As [`encode_unsubscribe`].
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode_unsubscribe(version, (self.packet_id, self.properties), self.filters(), out)
    }

    pub(super) fn decode(version: Version, body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let packet_id = body.packet_id()?;
        let properties = Properties::read(version, PacketType::Unsubscribe, body)?;
        let filters = body.rest();
        if filters.is_empty() {
            return Err(DecodeError::NoFilters);
        }
        while !body.is_empty() {
            topic::validate_filter(body.text()?)?;
        }
        Ok(Self { packet_id, properties, filters })
    }
}

impl<'a> Iterator for UnsubscribeFilters<'a> {
    type Item = &'a str;

    /// Returns `None` only at the end, because `decode` has checked the bytes.
    fn next(&mut self) -> Option<&'a str> {
        self.rest.utf8().ok()
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
        let mut out = Vec::new();
        let id = (10, Properties::NONE);
        encode_unsubscribe(Version::V311, id, ["a/+", "#"], &mut out).unwrap();
        assert_eq!(out, b"\xa2\x0a\0\x0a\0\x03a/+\0\x01#");
        let Ok(Decoded::Packet { packet: Packet::Unsubscribe(found), len: 12 }) =
            decode(Version::V311, &out)
        else {
            panic!("{:?}", decode(Version::V311, &out));
        };
        assert_eq!(found.packet_id, 10);
        assert!(found.filters().eq(["a/+", "#"]));
    }

    #[test]
    fn no_filter_is_an_error() {
        let encoded =
            encode_unsubscribe(Version::V311, (10, Properties::NONE), [], &mut Vec::new());
        assert_eq!(encoded, Err(EncodeError::NoFilters));
    }

    #[test]
    fn malformed_requests_are_rejected() {
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
