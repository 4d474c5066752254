//! DISCONNECT and AUTH (3.14, 3.15): in MQTT 5 a reason code and properties, which a success
//! without properties omits. Before MQTT 5, DISCONNECT has no body and AUTH does not exist.

use super::wire::{Reader, write_packet};
use super::{DecodeError, EncodeError, PacketType, Properties, ReasonCode, Version};

/// Body of DISCONNECT or AUTH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasoned<'a> {
    /// Reason code; success before MQTT 5.
    pub code: ReasonCode,
    /// Properties; not written before MQTT 5.
    pub properties: Properties<'a>,
}

/// Appends AUTH of MQTT 5, which continues an authentication.
///
/// # Errors
/// [`EncodeError`] if the properties are too long.
pub fn encode_auth(properties: Properties<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let auth = Reasoned { code: ReasonCode::CONTINUE_AUTHENTICATION, properties };
    auth.encode(Version::V5, PacketType::Auth, out)
}

impl<'a> Reasoned<'a> {
    pub(crate) fn encode(
        &self,
        version: Version,
        packet_type: PacketType,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        if version != Version::V5 && packet_type == PacketType::Auth {
            return Err(EncodeError::NoAuth);
        }
        write_packet(packet_type, out, |out| self.write(version, out))
    }

    /// Appends code and properties.
    pub(super) fn write(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if version != Version::V5 || *self == Self::default() {
            return Ok(());
        }
        out.push(self.code.number());
        if self.properties.is_empty() { Ok(()) } else { self.properties.write(version, out) }
    }

    /// Reads code and properties, up to the end of a packet.
    #[inline]
    pub(super) fn decode(
        version: Version,
        packet_type: PacketType,
        body: &mut Reader<'a>,
    ) -> Result<Self, DecodeError> {
        if version != Version::V5 || body.is_empty() {
            return Ok(Self::default());
        }
        let code = ReasonCode::of(packet_type, body.u8()?)?;
        if body.is_empty() {
            return Ok(Self { code, ..Self::default() });
        }
        Ok(Self { code, properties: Properties::read(version, packet_type, body)? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_packet, assert_packet_5, assert_rejected, assert_rejected_5};
    use super::super::{Packet, Property, PropertyList, Value};
    use super::*;

    #[test]
    fn disconnect_has_no_body_before_mqtt_5() {
        assert_packet(&[0xe0, 0], Packet::Disconnect(Reasoned::default()));
        assert_rejected(&[0xe0, 1, 0], DecodeError::TrailingBytes(1));
    }

    #[test]
    fn a_server_says_why_it_disconnects() {
        let code = ReasonCode::of(PacketType::Disconnect, 0x9c).unwrap();
        let mut list = PropertyList::new();
        list.push(Property::ServerReference, Value::Text("b2")).unwrap();
        let reasoned = Reasoned { code, properties: list.properties() };
        assert_packet_5(&[0xe0, 0], Packet::Disconnect(Reasoned::default()));
        assert_packet_5(b"\xe0\x07\x9c\x05\x1c\0\x02b2", Packet::Disconnect(reasoned));
        let plain = Reasoned { properties: Properties::NONE, ..reasoned };
        assert_packet_5(b"\xe0\x01\x9c", Packet::Disconnect(plain));
        let packet = PacketType::Disconnect;
        assert_rejected_5(&[0xe0, 1, 1], DecodeError::BadReasonCode { packet, code: 1 });
        let property = Property::TopicAlias;
        let error = DecodeError::PropertyNotAllowed { packet, property };
        assert_rejected_5(&[0xe0, 5, 0, 3, 0x23, 0, 1], error);
    }

    #[test]
    fn auth_carries_method_and_data() {
        let code = ReasonCode::of(PacketType::Auth, 0x18).unwrap();
        let mut list = PropertyList::new();
        list.push(Property::AuthenticationMethod, Value::Text("m")).unwrap();
        list.push(Property::AuthenticationData, Value::Binary(b"\0")).unwrap();
        let auth = Reasoned { code, properties: list.properties() };
        assert_packet_5(b"\xf0\x0a\x18\x08\x15\0\x01m\x16\0\x01\0", Packet::Auth(auth));
        assert_rejected_5(b"\xf0\x06\x18\x04\x16\0\x01\0", DecodeError::DataWithoutMethod);
        assert_rejected(&[0xf0], DecodeError::ReservedPacketType(15));
        let encoded = Packet::Auth(auth).encode(Version::V311, &mut Vec::new());
        assert_eq!(encoded, Err(EncodeError::NoAuth));
    }
}
