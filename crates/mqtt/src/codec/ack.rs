//! Packets with a reason code and properties in MQTT 5: PUBACK, PUBREC, PUBREL and PUBCOMP (3.4 to
//! 3.7), DISCONNECT and AUTH (3.14, 3.15). A success without properties omits both. SUBACK and
//! UNSUBACK (3.9, 3.11) have a code for each filter.

use super::{
    DecodeError, EncodeError, PacketId, PacketType, Properties, Reader, ReasonCode, Version,
    write_packet, write_packet_id,
};

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
