//! CONNACK (3.2): the server's answer to CONNECT.

use super::{
    DecodeError, EncodeError, PacketType, Properties, Reader, ReasonCode, Version, write_packet,
};

/// Return code before MQTT 5 for a version that the server does not speak `[MQTT-3.1.2-2]`.
const UNACCEPTABLE_VERSION: u8 = 1;

/// The server's answer to CONNECT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnAck<'a> {
    /// The server kept state of an earlier connection `[MQTT-3.2.2-2]`; false in MQTT 3.1.
    pub session_present: bool,
    /// Return code, or reason code of MQTT 5: 0 accepts, others refuse.
    pub code: u8,
    /// Properties; not written before MQTT 5.
    pub properties: Properties<'a>,
}

impl<'a> ConnAck<'a> {
    /// Appends the packet to `out`.
    ///
    /// # Errors
    /// [`EncodeError`] if the properties are too long.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write_packet(PacketType::ConnAck, out, |out| {
            let flags = u8::from(self.session_present && version != Version::V31);
            out.extend_from_slice(&[flags, self.code]);
            // MQTT 5 has no such code: only a server of an older version writes it.
            let is_older = self.code == UNACCEPTABLE_VERSION;
            if is_older { Ok(()) } else { self.properties.write(version, out) }
        })
    }

    pub(super) fn decode(version: Version, body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (flags, code) = (body.u8()?, body.u8()?);
        let session_present = match (version, flags, code) {
            (Version::V31, _, _) | (_, 0, _) => false, // MQTT 3.1 reserves the flags
            (_, 1, 0) => true,
            _ => return Err(DecodeError::BadConnAckFlags(flags)),
        };
        if version != Version::V5 {
            return Ok(Self { session_present, code, properties: Properties::NONE });
        }
        if code == UNACCEPTABLE_VERSION && body.is_empty() {
            // A server of an older version answers in its own format.
            return Ok(Self { session_present, code, properties: Properties::NONE });
        }
        ReasonCode::of(PacketType::ConnAck, code)?;
        let properties = Properties::read(version, PacketType::ConnAck, body)?;
        Ok(Self { session_present, code, properties })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_packet, assert_packet_5, assert_rejected, assert_rejected_5};
    use super::super::{DecodedPacket, Packet, Property, PropertyList, Value, decode};
    use super::*;

    #[test]
    fn acceptance_and_refusals_have_their_bytes() {
        let connack = |session_present, code| {
            Packet::ConnAck(ConnAck { session_present, code, ..ConnAck::default() })
        };
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
    fn mqtt_5_adds_properties_and_names_its_codes() {
        let mut list = PropertyList::new();
        list.push(Property::ReceiveMaximum, Value::Number(20)).unwrap();
        list.push(Property::TopicAliasMaximum, Value::Number(10)).unwrap();
        let properties = list.properties();
        let connack = ConnAck { properties, ..ConnAck::default() };
        let bytes = [0x20, 9, 0, 0, 6, 0x21, 0, 20, 0x22, 0, 10];
        assert_packet_5(&bytes, Packet::ConnAck(connack));
        assert_eq!(properties.number(Property::TopicAliasMaximum), Some(10));
        assert_packet_5(
            &[0x20, 3, 1, 0, 0],
            Packet::ConnAck(ConnAck { session_present: true, ..ConnAck::default() }),
        );
        let packet = PacketType::ConnAck;
        assert_rejected_5(&[0x20, 3, 0, 5, 0], DecodeError::BadReasonCode { packet, code: 5 });
        assert_rejected_5(&[0x20, 2, 0, 0], DecodeError::TooShort);
        let zero = DecodeError::BadPropertyValue { property: Property::ReceiveMaximum, value: 0 };
        assert_rejected_5(&[0x20, 6, 0, 0, 3, 0x21, 0, 0], zero);
    }

    #[test]
    fn an_older_server_refuses_the_version_in_its_own_format() {
        let packet = Packet::ConnAck(ConnAck { code: 1, ..ConnAck::default() });
        assert_packet_5(&[0x20, 2, 0, 1], packet);
        let packet = PacketType::ConnAck;
        assert_rejected_5(&[0x20, 2, 0, 2], DecodeError::BadReasonCode { packet, code: 2 });
        assert_rejected_5(&[0x20, 3, 0, 1, 0], DecodeError::BadReasonCode { packet, code: 1 });
    }

    #[test]
    fn mqtt_3_1_ignores_the_flags() {
        let found = decode(Version::V31, &[0x20, 2, 0xff, 0]);
        let packet = Packet::ConnAck(ConnAck::default());
        assert_eq!(found, Ok(DecodedPacket::Packet { packet, len: 4 }));
    }
}
