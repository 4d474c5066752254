//! PUBACK, PUBREC, PUBREL and PUBCOMP (3.4 to 3.7): a packet identifier each; in MQTT 5 also a
//! reason code and properties, which a success without properties omits.

use super::reasoned::Reasoned;
use super::wire::{Reader, write_packet, write_packet_id};
use super::{DecodeError, EncodeError, PacketId, PacketType, Properties, ReasonCode, Version};

/// An acknowledgement of one step of a message's exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Packet identifier of the message.
    pub packet_id: PacketId,
    /// Reason code; success before MQTT 5.
    pub code: ReasonCode,
    /// Properties; not written before MQTT 5.
    pub properties: Properties<'a>,
}

/// Appends the acknowledgement `packet_type` of `packet_id`, which must not be 0: a success without
/// properties has the same bytes in every version.
#[inline]
pub(crate) fn encode_success(packet_type: PacketType, packet_id: PacketId, out: &mut Vec<u8>) {
    debug_assert_ne!(packet_id, 0, "[MQTT-2.3.1-1]");
    let [high, low] = packet_id.to_be_bytes();
    out.extend_from_slice(&[packet_type.first_byte(), 2, high, low]);
}

impl<'a> Ack<'a> {
    /// Success for a packet identifier.
    #[must_use]
    #[inline]
    pub const fn of(packet_id: PacketId) -> Self {
        Self { packet_id, code: ReasonCode::SUCCESS, properties: Properties::NONE }
    }

    pub(super) fn encode(
        &self,
        version: Version,
        packet_type: PacketType,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        write_packet(packet_type, out, |out| {
            write_packet_id(out, self.packet_id)?;
            let Self { code, properties, .. } = *self;
            Reasoned { code, properties }.write(version, out)
        })
    }

    #[inline]
    pub(super) fn decode(
        version: Version,
        packet_type: PacketType,
        body: &mut Reader<'a>,
    ) -> Result<Self, DecodeError> {
        let packet_id = body.packet_id()?;
        let Reasoned { code, properties } = Reasoned::decode(version, packet_type, body)?;
        Ok(Self { packet_id, code, properties })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_packet, assert_packet_5, assert_rejected, assert_rejected_5};
    use super::super::{Packet, Property, PropertyList, Value};
    use super::*;

    #[test]
    fn each_acknowledgement_is_four_bytes() {
        let ack = Ack::of(0x1234);
        for (first, packet) in [
            (0x40, Packet::PubAck(ack)),
            (0x50, Packet::PubRec(ack)),
            (0x62, Packet::PubRel(ack)),
            (0x70, Packet::PubComp(ack)),
        ] {
            assert_packet(&[first, 2, 0x12, 0x34], packet);
            assert_packet_5(&[first, 2, 0x12, 0x34], packet);
        }
    }

    #[test]
    fn a_wrong_length_or_packet_id_0_is_rejected() {
        for first in [0x40, 0x50, 0x62, 0x70, 0xb0] {
            assert_rejected(&[first, 2, 0, 0], DecodeError::ZeroPacketId);
            assert_rejected(&[first, 0], DecodeError::TooShort);
            assert_rejected(&[first, 1, 1], DecodeError::TooShort);
            assert_rejected(&[first, 3, 0, 1, 0], DecodeError::TrailingBytes(1));
        }
    }

    #[test]
    fn mqtt_5_adds_a_reason_code_and_properties() {
        let code = ReasonCode::of(PacketType::PubAck, 0x87).unwrap();
        let mut list = PropertyList::new();
        assert_packet_5(&[0x40, 3, 0, 1, 0x87], Packet::PubAck(Ack { code, ..Ack::of(1) }));
        list.push(Property::ReasonString, Value::Text("no")).unwrap();
        let refused = Ack { code, properties: list.properties(), ..Ack::of(1) };
        assert_packet_5(b"\x40\x09\0\x01\x87\x05\x1f\0\x02no", Packet::PubAck(refused));
        let packet = PacketType::PubAck;
        let bad = DecodeError::BadReasonCode { packet, code: 0x01 };
        assert_rejected_5(&[0x40, 3, 0, 1, 1], bad);
        assert_rejected_5(&[0x40, 4, 0, 1, 0, 2], DecodeError::TooShort);
        assert_rejected_5(&[0x40, 5, 0, 1, 0, 0, 0], DecodeError::TrailingBytes(1));
    }
}
