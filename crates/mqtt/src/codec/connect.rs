//! CONNECT (3.1): who the client is and what is to happen when it goes.

use super::wire::{Reader, write_field, write_packet};
use super::{DecodeError, EncodeError, PacketType, QoS, Version};
use crate::topic;

const CLEAN_SESSION: u8 = 0b0000_0010;
const WILL: u8 = 0b0000_0100;
const WILL_RETAIN: u8 = 0b0010_0000;
const PASSWORD: u8 = 0b0100_0000;
const USERNAME: u8 = 0b1000_0000;
const RESERVED: u8 = 0b0000_0001;
/// Set in the protocol level by a bridge, as mosquitto's are.
const BRIDGE: u8 = 0b1000_0000;
const WILL_QOS_SHIFT: u8 = 3;
const WILL_DETAILS: u8 = 0b0011_1000;

/// The first packet of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connect<'a> {
    /// Client identifier; empty lets the server choose one `[MQTT-3.1.3-6]`.
    pub client_id: &'a str,
    /// User name, if any.
    pub username: Option<&'a str>,
    /// Password; only together with a user name `[MQTT-3.1.2-22]`.
    pub password: Option<&'a [u8]>,
    /// Message to be published if the connection ends without DISCONNECT `[MQTT-3.1.2-8]`.
    pub will: Option<Will<'a>>,
    /// Longest silence of the client in seconds; 0 is no limit `[MQTT-3.1.2-23]`.
    pub keep_alive_s: u16,
    /// Forget what an earlier session left, keep nothing after this one `[MQTT-3.1.2-6]`.
    pub clean_session: bool,
    /// Whether the client says in the protocol level that it is a bridge: brokers that know this
    /// bit, which is no part of the standard, send it nothing of what it published itself.
    pub bridge: bool,
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
    /// Whether the will is retained.
    pub retain: bool,
}

impl<'a> Connect<'a> {
    /// Appends the packet to `out`.
    ///
    /// # Errors
    /// [`EncodeError`] if a field is longer than 65 535 bytes or a password has no user name; `out`
    /// is then as it was.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.password.is_some() && self.username.is_none() {
            return Err(EncodeError::PasswordWithoutUsername);
        }
        write_packet(PacketType::Connect, out, |out| {
            write_field(out, b"MQTT")?;
            let level = version.protocol_level() | if self.bridge { BRIDGE } else { 0 };
            out.extend_from_slice(&[level, self.flags()]);
            out.extend_from_slice(&self.keep_alive_s.to_be_bytes());
            write_field(out, self.client_id.as_bytes())?;
            if let Some(will) = self.will {
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

    /// The fields come in the order client identifier, will, user name, password `[MQTT-3.1.3-1]`.
    pub(super) fn decode(version: Version, body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if body.field()? != b"MQTT" {
            return Err(DecodeError::BadProtocolName);
        }
        let level = body.u8()?;
        if level & !BRIDGE != version.protocol_level() {
            return Err(DecodeError::UnsupportedProtocolLevel(level));
        }
        let flags = body.u8()?;
        check_flags(flags)?;
        let keep_alive_s = body.u16()?;
        let client_id = body.text()?;
        let has = |bit: u8| flags & bit != 0;
        let will = if has(WILL) { Some(Will::decode(flags, body)?) } else { None };
        let username = if has(USERNAME) { Some(body.text()?) } else { None };
        let password = if has(PASSWORD) { Some(body.field()?) } else { None };
        let clean_session = has(CLEAN_SESSION);
        let bridge = level & BRIDGE != 0;
        Ok(Self { client_id, username, password, will, keep_alive_s, clean_session, bridge })
    }
}

impl<'a> Will<'a> {
    fn decode(flags: u8, body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let qos = QoS::try_from((flags >> WILL_QOS_SHIFT) & 0b11)?;
        let topic = body.text()?;
        topic::validate_topic(topic)?;
        Ok(Self { topic, payload: body.field()?, qos, retain: flags & WILL_RETAIN != 0 })
    }
}

fn check_flags(flags: u8) -> Result<(), DecodeError> {
    let has = |bit: u8| flags & bit != 0;
    let reserved = has(RESERVED); // [MQTT-3.1.2-3]
    let will_details_without_will = !has(WILL) && has(WILL_DETAILS); // [MQTT-3.1.2-13], -15
    let password_without_username = has(PASSWORD) && !has(USERNAME); // [MQTT-3.1.2-22]
    if reserved || will_details_without_will || password_without_username {
        return Err(DecodeError::BadConnectFlags(flags));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Packet;
    use super::super::tests::{assert_packet, assert_rejected};
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
        let will = Will { topic: "w", payload: b"gone", qos: QoS::ExactlyOnce, retain: true };
        let connect = Connect {
            client_id: "",
            username: Some("u"),
            password: Some(b"\xff\0"),
            will: Some(will),
            keep_alive_s: 0,
            clean_session: false,
            bridge: false,
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
}
