//! PUBACK, PUBREC, PUBREL, PUBCOMP and UNSUBACK (3.4 to 3.7, 3.11): a packet identifier each.

use super::wire::Reader;
use super::{DecodeError, PacketId, PacketType, Version};

/// Appends the acknowledgement `packet_type` of `packet_id`, which is not 0.
#[inline]
pub(crate) fn encode(
    version: Version,
    packet_type: PacketType,
    packet_id: PacketId,
    out: &mut Vec<u8>,
) {
    debug_assert_ne!(packet_id, 0, "[MQTT-2.3.1-1]");
    let [high, low] = packet_id.to_be_bytes();
    match version {
        Version::V311 => out.extend_from_slice(&[packet_type.first_byte(), 2, high, low]),
    }
}

#[inline]
pub(super) fn decode(version: Version, body: &mut Reader<'_>) -> Result<PacketId, DecodeError> {
    match version {
        Version::V311 => body.packet_id(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_packet, assert_rejected};
    use super::super::{DecodeError, Packet};

    #[test]
    fn each_acknowledgement_is_four_bytes() {
        let packet_id = 0x1234;
        for (first, packet) in [
            (0x40, Packet::PubAck { packet_id }),
            (0x50, Packet::PubRec { packet_id }),
            (0x62, Packet::PubRel { packet_id }),
            (0x70, Packet::PubComp { packet_id }),
            (0xb0, Packet::UnsubAck { packet_id }),
        ] {
            assert_packet(&[first, 2, 0x12, 0x34], packet);
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
}
