//! PINGREQ, PINGRESP and DISCONNECT (3.12 to 3.14): packets without a body, which decode to
//! themselves.

use super::{PacketType, Version};

/// Appends `packet_type` without a body.
#[inline]
pub(crate) fn encode(version: Version, packet_type: PacketType, out: &mut Vec<u8>) {
    match version {
        Version::V311 => out.extend_from_slice(&[packet_type.first_byte(), 0]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_packet, assert_rejected};
    use super::super::{DecodeError, Packet};

    #[test]
    fn each_packet_without_a_body_is_two_bytes() {
        assert_packet(&[0xc0, 0], Packet::PingReq);
        assert_packet(&[0xd0, 0], Packet::PingResp);
        assert_packet(&[0xe0, 0], Packet::Disconnect);
    }

    #[test]
    fn a_body_is_rejected() {
        for first in [0xc0, 0xd0, 0xe0] {
            assert_rejected(&[first, 1, 0], DecodeError::TrailingBytes(1));
        }
    }
}
