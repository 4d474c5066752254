//! PINGREQ and PINGRESP (3.12, 3.13): packets without a body.

use super::PacketType;

/// Appends `packet_type` without a body.
#[inline]
pub(crate) fn encode(packet_type: PacketType, out: &mut Vec<u8>) {
    out.extend_from_slice(&[packet_type.first_byte(), 0]);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_packet, assert_packet_5, assert_rejected, assert_rejected_5};
    use super::super::{DecodeError, Packet};

    #[test]
    fn each_packet_without_a_body_is_two_bytes() {
        for (bytes, packet) in [([0xc0, 0], Packet::PingReq), ([0xd0, 0], Packet::PingResp)] {
            assert_packet(&bytes, packet);
            assert_packet_5(&bytes, packet);
        }
    }

    #[test]
    fn a_body_is_rejected() {
        for first in [0xc0, 0xd0] {
            assert_rejected(&[first, 1, 0], DecodeError::TrailingBytes(1));
            assert_rejected_5(&[first, 1, 0], DecodeError::TrailingBytes(1));
        }
    }
}
