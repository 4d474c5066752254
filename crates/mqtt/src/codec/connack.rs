//! CONNACK (3.2): the server's answer to CONNECT.

use super::wire::Reader;
use super::{DecodeError, EncodeError, PacketType, Version};

/// The server's answer to CONNECT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnAck {
    /// The server kept state of an earlier connection `[MQTT-3.2.2-2]`.
    pub session_present: bool,
    /// Return code: 0 accepts, others refuse.
    pub code: u8,
}

impl ConnAck {
    /// The return code as a name, for counters by reason.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self.code {
            0 => "accepted",
            1 => "bad_protocol_version",
            2 => "identifier_rejected",
            3 => "server_unavailable",
            4 => "bad_credentials",
            5 => "not_authorized",
            _ => "unknown_code",
        }
    }

    /// Appends the packet to `out`.
    ///
    /// # Errors
    /// None in MQTT 3.1.1.
    pub fn encode(self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let flags = u8::from(self.session_present);
        match version {
            Version::V311 => {
                out.extend_from_slice(&[PacketType::ConnAck.first_byte(), 2, flags, self.code]);
            }
        }
        Ok(())
    }

    pub(super) fn decode(version: Version, body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (flags, code) = match version {
            Version::V311 => (body.u8()?, body.u8()?),
        };
        let session_present = match (flags, code) {
            (0, _) => false,
            (1, 0) => true,
            _ => return Err(DecodeError::BadConnAckFlags(flags)),
        };
        Ok(Self { session_present, code })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Packet;
    use super::super::tests::{assert_packet, assert_rejected};
    use super::*;

    #[test]
    fn acceptance_and_refusals_have_their_bytes() {
        let connack = |session_present, code| Packet::ConnAck(ConnAck { session_present, code });
        assert_packet(&[0x20, 2, 0, 0], connack(false, 0));
        assert_packet(&[0x20, 2, 1, 0], connack(true, 0));
        assert_packet(&[0x20, 2, 0, 5], connack(false, 5));
        assert_packet(&[0x20, 2, 0, 255], connack(false, 255));
    }

    #[test]
    fn reserved_flags_and_a_session_on_a_refusal_are_rejected() {
        assert_rejected(&[0x20, 2, 2, 0], DecodeError::BadConnAckFlags(2));
        assert_rejected(&[0x20, 2, 1, 5], DecodeError::BadConnAckFlags(1));
        assert_rejected(&[0x20, 1, 0], DecodeError::TooShort);
        assert_rejected(&[0x20, 3, 0, 0, 0], DecodeError::TrailingBytes(1));
    }

    #[test]
    fn every_code_has_a_name() {
        let names = (0..=6).map(|code| ConnAck { session_present: false, code }.reason());
        let expected = [
            "accepted",
            "bad_protocol_version",
            "identifier_rejected",
            "server_unavailable",
            "bad_credentials",
            "not_authorized",
            "unknown_code",
        ];
        assert!(names.eq(expected));
    }
}
