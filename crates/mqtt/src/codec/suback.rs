//! SUBACK and UNSUBACK (3.9, 3.11): the server's answer for each topic filter of a SUBSCRIBE or
//! UNSUBSCRIBE. An UNSUBACK has codes and properties since MQTT 5.

use super::wire::{Reader, write_packet, write_packet_id};
use super::{DecodeError, EncodeError, PacketId, PacketType, Properties, ReasonCode, Version};

/// The server's answer to SUBSCRIBE or UNSUBSCRIBE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubAck<'a> {
    /// Packet identifier of the request.
    pub packet_id: PacketId,
    /// Properties; not written before MQTT 5.
    pub properties: Properties<'a>,
    /// One code per filter, in the order of the filters `[MQTT-3.9.3-1]`. SUBACK: the granted QoS,
    /// or a failure. Empty in an UNSUBACK before MQTT 5.
    pub codes: &'a [u8],
}

impl<'a> SubAck<'a> {
    /// Code of a filter that the server refused; MQTT 5 has further codes above this one.
    pub const FAILURE: u8 = 0x80;

    pub(super) fn encode(
        &self,
        version: Version,
        packet_type: PacketType,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let has_codes = has_codes(version, packet_type);
        if has_codes && self.codes.is_empty() {
            return Err(EncodeError::NoFilters);
        }
        write_packet(packet_type, out, |out| {
            write_packet_id(out, self.packet_id)?;
            self.properties.write(version, out)?;
            if has_codes {
                out.extend_from_slice(self.codes);
            }
            Ok(())
        })
    }

    pub(super) fn decode(
        version: Version,
        packet: PacketType,
        body: &mut Reader<'a>,
    ) -> Result<Self, DecodeError> {
        let packet_id = body.packet_id()?;
        let properties = Properties::read(version, packet, body)?;
        if !has_codes(version, packet) {
            return Ok(Self { packet_id, properties, codes: &[] });
        }
        let codes = body.take_rest();
        if codes.is_empty() {
            return Err(DecodeError::NoFilters);
        }
        for &code in codes {
            check(version, packet, code)?;
        }
        Ok(Self { packet_id, properties, codes })
    }
}

const fn has_codes(version: Version, packet: PacketType) -> bool {
    matches!(packet, PacketType::SubAck) || matches!(version, Version::V5)
}

fn check(version: Version, packet: PacketType, code: u8) -> Result<(), DecodeError> {
    match version {
        Version::V5 => ReasonCode::of(packet, code).map(drop),
        Version::V31 | Version::V311 if code <= 2 || code == SubAck::FAILURE => Ok(()),
        Version::V31 | Version::V311 => Err(DecodeError::BadReasonCode { packet, code }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Packet;
    use super::super::tests::{assert_packet, assert_packet_5, assert_rejected, assert_rejected_5};
    use super::*;

    #[test]
    fn codes_are_in_the_order_of_the_filters() {
        let codes = &[0, 1, 2, SubAck::FAILURE];
        let suback = SubAck { packet_id: 10, codes, ..SubAck::default() };
        assert_packet(&[0x90, 6, 0, 10, 0, 1, 2, 0x80], Packet::SubAck(suback));
        assert_packet_5(&[0x90, 7, 0, 10, 0, 0, 1, 2, 0x80], Packet::SubAck(suback));
    }

    #[test]
    fn an_unsuback_has_codes_since_mqtt_5() {
        let unsuback = SubAck { packet_id: 10, ..SubAck::default() };
        assert_packet(&[0xb0, 2, 0, 10], Packet::UnsubAck(unsuback));
        let codes = &[0, 0x11, 0x87];
        let unsuback = Packet::UnsubAck(SubAck { codes, ..unsuback });
        assert_packet_5(&[0xb0, 6, 0, 10, 0, 0, 0x11, 0x87], unsuback);
        assert_rejected_5(&[0xb0, 3, 0, 10, 0], DecodeError::NoFilters);
    }

    #[test]
    fn unknown_codes_and_an_empty_list_are_rejected() {
        let packet = PacketType::SubAck;
        let bad = |code| DecodeError::BadReasonCode { packet, code };
        assert_rejected(&[0x90, 3, 0, 10, 3], bad(3));
        assert_rejected(&[0x90, 3, 0, 10, 0x87], bad(0x87));
        assert_rejected_5(&[0x90, 4, 0, 10, 0, 0x11], bad(0x11));
        assert_rejected(&[0x90, 2, 0, 10], DecodeError::NoFilters);
        assert_rejected(&[0x90, 3, 0, 0, 0], DecodeError::ZeroPacketId);
        let empty = Packet::SubAck(SubAck { packet_id: 1, ..SubAck::default() });
        assert_eq!(empty.encode(Version::V311, &mut Vec::new()), Err(EncodeError::NoFilters));
    }
}
