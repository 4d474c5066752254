//! CONNECT (3.1): identity of the client, its session and its will message.

use super::{
    DecodeError, EncodeError, PacketType, Properties, QoS, Reader, Version, write_field,
    write_packet,
};
use crate::topic;

const CLEAN_SESSION: u8 = 0b0000_0010;
const WILL: u8 = 0b0000_0100;
const WILL_RETAIN: u8 = 0b0010_0000;
const PASSWORD: u8 = 0b0100_0000;
const USERNAME: u8 = 0b1000_0000;
const RESERVED: u8 = 0b0000_0001;
/// Bit of the protocol level that a bridge sets, as the bridges of mosquitto do.
pub(super) const BRIDGE: u8 = 0b1000_0000;
const WILL_QOS_SHIFT: u8 = 3;
const WILL_DETAILS: u8 = 0b0011_1000;

/// CONNECT, the first packet of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connect<'a> {
    /// Client identifier; empty lets the server choose one `[MQTT-3.1.3-6]`.
    pub client_id: &'a str,
    /// User name; `None` if the client has none.
    pub username: Option<&'a str>,
    /// Password; before MQTT 5 allowed only together with a user name `[MQTT-3.1.2-22]`.
    pub password: Option<&'a [u8]>,
    /// Message that the server publishes if the connection ends without DISCONNECT
    /// `[MQTT-3.1.2-8]`.
    pub will: Option<Will<'a>>,
    /// Longest silence of the client, in seconds; 0: no limit `[MQTT-3.1.2-23]`.
    pub keep_alive_s: u16,
    /// True if the server drops the earlier session `[MQTT-3.1.2-6]`. Before MQTT 5 the server then
    /// also keeps nothing of this session.
    pub clean_session: bool,
    /// True if the client announces itself as a bridge in the protocol level. The bit is no part of
    /// the standard. Brokers that support the bit do not send a bridge the messages that the bridge
    /// published.
    pub bridge: bool,
    /// Properties; not written before MQTT 5.
    pub properties: Properties<'a>,
}

/// A will message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Will<'a> {
    /// Topic name, without wildcards.
    pub topic: &'a str,
    /// Payload.
    pub payload: &'a [u8],
    /// Quality of service of the will.
    pub qos: QoS,
    /// True if the server retains the will.
    pub retain: bool,
    /// Properties of the will; not written before MQTT 5.
    pub properties: Properties<'a>,
}

impl<'a> Connect<'a> {
    /// Appends the packet to `out`.
    ///
    /// # Errors
    /// [`EncodeError`] if a field is longer than 65 535 bytes, or before MQTT 5 a password has no
    /// user name; `out` is then unchanged.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let needs_username = version != Version::V5 && self.password.is_some();
        if needs_username && self.username.is_none() {
            return Err(EncodeError::PasswordWithoutUsername);
        }
        write_packet(PacketType::Connect, out, |out| {
            write_field(out, version.protocol_name())?;
            let level = version.protocol_level() | if self.bridge { BRIDGE } else { 0 };
            out.extend_from_slice(&[level, self.flags()]);
            out.extend_from_slice(&self.keep_alive_s.to_be_bytes());
            self.properties.write(version, out)?;
            write_field(out, self.client_id.as_bytes())?;
            if let Some(will) = self.will {
                will.properties.write(version, out)?;
                write_field(out, will.topic.as_bytes())?;
                write_field(out, will.payload)?;
            }
            self.username.map_or(Ok(()), |username| write_field(out, username.as_bytes()))?;
            self.password.map_or(Ok(()), |password| write_field(out, password))
        })
    }

    fn flags(&self) -> u8 {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let will = self.will.map_or(0, |will| {
            WILL | (will.qos as u8) << WILL_QOS_SHIFT | flag(will.retain, WILL_RETAIN)
        });
        will | flag(self.clean_session, CLEAN_SESSION)
            | flag(self.username.is_some(), USERNAME)
            | flag(self.password.is_some(), PASSWORD)
    }

    /// Decodes the body. The order of the fields: client identifier, will, user name, password
    /// `[MQTT-3.1.3-1]`.
    pub(super) fn decode(version: Version, body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let name = body.field()?;
        if !Version::ALL.iter().any(|version| version.protocol_name() == name) {
            return Err(DecodeError::BadProtocolName);
        }
        let level = body.u8()?;
        if level & !BRIDGE != version.protocol_level() {
            return Err(DecodeError::UnsupportedProtocolLevel(level));
        }
        if name != version.protocol_name() {
            return Err(DecodeError::BadProtocolName);
        }
        let flags = body.u8()?;
        check_flags(version, flags)?;
        let keep_alive_s = body.u16()?;
        let properties = Properties::read(version, PacketType::Connect, body)?;
        let client_id = body.text()?;
        let has = |bit: u8| flags & bit != 0;
        let will = if has(WILL) { Some(Will::decode(version, flags, body)?) } else { None };
        let username = if has(USERNAME) { Some(body.text()?) } else { None };
        let password = if has(PASSWORD) { Some(body.field()?) } else { None };
        let clean_session = has(CLEAN_SESSION);
        let bridge = level & BRIDGE != 0;
        let identity = Self { client_id, username, password, will, ..Self::default() };
        Ok(Self { keep_alive_s, clean_session, bridge, properties, ..identity })
    }
}

impl<'a> Will<'a> {
    fn decode(version: Version, flags: u8, body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let qos = QoS::try_from((flags >> WILL_QOS_SHIFT) & 0b11)?;
        let properties = Properties::read_will(version, body)?;
        let topic = body.text()?;
        topic::validate_topic(topic)?;
        let retain = flags & WILL_RETAIN != 0;
        Ok(Self { topic, payload: body.field()?, qos, retain, properties })
    }
}

fn check_flags(version: Version, flags: u8) -> Result<(), DecodeError> {
    let has = |bit: u8| flags & bit != 0;
    let reserved = has(RESERVED); // [MQTT-3.1.2-3]
    let will_details_without_will = !has(WILL) && has(WILL_DETAILS); // [MQTT-3.1.2-13], -15
    let needs_username = version != Version::V5 && has(PASSWORD); // [MQTT-3.1.2-22]
    if reserved || will_details_without_will || (needs_username && !has(USERNAME)) {
        return Err(DecodeError::BadConnectFlags(flags));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_packet, assert_packet_5, assert_rejected, assert_rejected_5};
    use super::super::{DecodedPacket, Packet, Property, PropertyList, Value, decode};
    use super::*;
    use crate::topic::TopicError;

    #[test]
    fn a_bare_connect_has_the_bytes_of_the_standard() {
        let connect = Connect {
            client_id: "ab",
            keep_alive_s: 60,
            clean_session: true,
            ..Connect::default()
        };
        let bytes = b"\x10\x0e\0\x04MQTT\x04\x02\0\x3c\0\x02ab";
        assert_packet(bytes, Packet::Connect(connect));
    }

    #[test]
    fn a_bridge_sets_the_highest_bit_of_the_protocol_level() {
        let connect = Connect { client_id: "ab", bridge: true, ..Connect::default() };
        let bytes = b"\x10\x0e\0\x04MQTT\x84\0\0\0\0\x02ab";
        assert_packet(bytes, Packet::Connect(connect));
        let of_version_5 = b"\x10\x0e\0\x04MQTT\x85\0\0\0\0\x02ab";
        assert_rejected(of_version_5, DecodeError::UnsupportedProtocolLevel(0x85));
    }

    #[test]
    fn will_user_name_and_password_follow_the_client_id_in_this_order() {
        let qos = QoS::ExactlyOnce;
        let will = Will { topic: "w", payload: b"gone", qos, retain: true, ..Will::default() };
        let connect = Connect {
            client_id: "",
            username: Some("u"),
            password: Some(b"\xff\0"),
            will: Some(will),
            ..Connect::default()
        };
        let bytes = b"\x10\x1c\0\x04MQTT\x04\xf4\0\0\0\0\0\x01w\0\x04gone\0\x01u\0\x02\xff\0";
        assert_packet(bytes, Packet::Connect(connect));
    }

    #[test]
    fn a_password_without_a_user_name_is_not_sent() {
        let connect = Connect { password: Some(b"p"), ..Connect::default() };
        let encoded = connect.encode(Version::V311, &mut Vec::new());
        assert_eq!(encoded, Err(EncodeError::PasswordWithoutUsername));
    }

    #[test]
    fn flags_that_exclude_each_other_are_rejected() {
        let cases = [
            (0b0000_0001, DecodeError::BadConnectFlags(0b0000_0001)), // reserved
            (0b0000_1000, DecodeError::BadConnectFlags(0b0000_1000)), // will QoS without a will
            (0b0010_0000, DecodeError::BadConnectFlags(0b0010_0000)), // will retain without a will
            (0b0100_0000, DecodeError::BadConnectFlags(0b0100_0000)), // password without user name
            (0b0001_1100, DecodeError::BadQoS(3)),
            (0b1000_0000, DecodeError::TooShort), // user name announced, but missing
        ];
        for (flags, error) in cases {
            let mut bytes = *b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01a";
            bytes[9] = flags;
            assert_rejected(&bytes, error);
        }
    }

    #[test]
    fn other_protocols_bad_strings_and_bad_will_topics_are_rejected() {
        let cases: [(&[u8], DecodeError); 7] = [
            (b"\x10\x0d\0\x04MQTX\x04\x02\0\0\0\x01a", DecodeError::BadProtocolName),
            (b"\x10\x0d\0\x04MQTT\x05\x02\0\0\0\x01a", DecodeError::UnsupportedProtocolLevel(5)),
            (b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01\xff", DecodeError::NotUtf8),
            (b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01\0", DecodeError::NulInString),
            (b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x02a", DecodeError::TooShort),
            (b"\x10\x0e\0\x04MQTT\x04\x02\0\0\0\x01ab", DecodeError::TrailingBytes(1)),
            (
                b"\x10\x11\0\x04MQTT\x04\x04\0\0\0\0\0\x01#\0\0",
                DecodeError::BadTopic(TopicError::WildcardInName),
            ),
        ];
        for (bytes, error) in cases {
            assert_rejected(bytes, error);
        }
    }

    #[test]
    fn mqtt_5_has_properties_of_the_connection_and_of_the_will() {
        let (mut list, mut of_will) = (PropertyList::new(), PropertyList::new());
        list.push(Property::SessionExpiryInterval, Value::Number(9)).unwrap();
        of_will.push(Property::WillDelayInterval, Value::Number(1)).unwrap();
        let will = Will { topic: "w", properties: of_will.properties(), ..Will::default() };
        let connect = Connect {
            client_id: "c",
            password: Some(b"p"),
            will: Some(will),
            properties: list.properties(),
            ..Connect::default()
        };
        let bytes = b"\x10\x21\0\x04MQTT\x05\x44\0\0\x05\x11\0\0\0\x09\0\x01c\
            \x05\x18\0\0\0\x01\0\x01w\0\0\0\x01p";
        assert_packet_5(bytes, Packet::Connect(connect));
        let mut misplaced = *bytes;
        misplaced[13] = 0x18;
        let (packet, property) = (PacketType::Connect, Property::WillDelayInterval);
        let error = DecodeError::PropertyNotAllowed { packet, property };
        assert_rejected_5(&misplaced, error);
        misplaced = *bytes;
        misplaced[22] = 0x11;
        let property = Property::SessionExpiryInterval;
        assert_rejected_5(&misplaced, DecodeError::PropertyNotAllowed { packet, property });
    }

    #[test]
    fn mqtt_3_1_has_a_name_of_its_own() {
        let connect = Connect { client_id: "ab", ..Connect::default() };
        let mut out = Vec::new();
        connect.encode(Version::V31, &mut out).unwrap();
        assert_eq!(out, b"\x10\x10\0\x06MQIsdp\x03\0\0\0\0\x02ab");
        let packet = Packet::Connect(connect);
        assert_eq!(
            decode(Version::V31, &out),
            Ok(DecodedPacket::Packet { packet, len: out.len() })
        );
        assert_rejected(&out, DecodeError::UnsupportedProtocolLevel(3));
        out[10] = 4;
        assert_rejected(&out, DecodeError::BadProtocolName);
    }
}
