//! Reason codes of MQTT 5 (2.4): one table of code, name and the packets that may carry the code.

use std::fmt;

use super::header::{Packets, bit};
use super::property::snake_case;
use super::{DecodeError, PacketType};

const CONNACK: Packets = bit(PacketType::ConnAck);
const PUBACK: Packets = bit(PacketType::PubAck) | bit(PacketType::PubRec);
const PUBREL: Packets = bit(PacketType::PubRel) | bit(PacketType::PubComp);
const SUBACK: Packets = bit(PacketType::SubAck);
const UNSUBACK: Packets = bit(PacketType::UnsubAck);
const DISCONNECT: Packets = bit(PacketType::Disconnect);
const AUTH: Packets = bit(PacketType::Auth);

/// Code, name in the standard, and packets. A code with several names has several rows.
const TABLE: &[(u8, &str, Packets)] = &[
    (0x00, "Success", CONNACK | PUBACK | PUBREL | UNSUBACK | AUTH),
    (0x00, "Normal disconnection", DISCONNECT),
    (0x00, "Granted QoS 0", SUBACK),
    (0x01, "Granted QoS 1", SUBACK),
    (0x02, "Granted QoS 2", SUBACK),
    (0x04, "Disconnect with Will Message", DISCONNECT),
    (0x10, "No matching subscribers", PUBACK),
    (0x11, "No subscription existed", UNSUBACK),
    (0x18, "Continue authentication", AUTH),
    (0x19, "Re-authenticate", AUTH),
    (0x80, "Unspecified error", CONNACK | PUBACK | SUBACK | UNSUBACK | DISCONNECT),
    (0x81, "Malformed Packet", CONNACK | DISCONNECT),
    (0x82, "Protocol Error", CONNACK | DISCONNECT),
    (0x83, "Implementation specific error", CONNACK | PUBACK | SUBACK | UNSUBACK | DISCONNECT),
    (0x84, "Unsupported Protocol Version", CONNACK),
    (0x85, "Client Identifier not valid", CONNACK),
    (0x86, "Bad User Name or Password", CONNACK),
    (0x87, "Not authorized", CONNACK | PUBACK | SUBACK | UNSUBACK | DISCONNECT),
    (0x88, "Server unavailable", CONNACK),
    (0x89, "Server busy", CONNACK | DISCONNECT),
    (0x8a, "Banned", CONNACK),
    (0x8b, "Server shutting down", DISCONNECT),
    (0x8c, "Bad authentication method", CONNACK | DISCONNECT),
    (0x8d, "Keep Alive timeout", DISCONNECT),
    (0x8e, "Session taken over", DISCONNECT),
    (0x8f, "Topic Filter invalid", SUBACK | UNSUBACK | DISCONNECT),
    (0x90, "Topic Name invalid", CONNACK | PUBACK | DISCONNECT),
    (0x91, "Packet Identifier in use", PUBACK | SUBACK | UNSUBACK),
    (0x92, "Packet Identifier not found", PUBREL),
    (0x93, "Receive Maximum exceeded", DISCONNECT),
    (0x94, "Topic Alias invalid", DISCONNECT),
    (0x95, "Packet too large", CONNACK | DISCONNECT),
    (0x96, "Message rate too high", DISCONNECT),
    (0x97, "Quota exceeded", CONNACK | PUBACK | SUBACK | DISCONNECT),
    (0x98, "Administrative action", DISCONNECT),
    (0x99, "Payload format invalid", CONNACK | PUBACK | DISCONNECT),
    (0x9a, "Retain not supported", CONNACK | DISCONNECT),
    (0x9b, "QoS not supported", CONNACK | DISCONNECT),
    (0x9c, "Use another server", CONNACK | DISCONNECT),
    (0x9d, "Server moved", CONNACK | DISCONNECT),
    (0x9e, "Shared Subscriptions not supported", SUBACK | DISCONNECT),
    (0x9f, "Connection rate exceeded", CONNACK | DISCONNECT),
    (0xa0, "Maximum connect time", DISCONNECT),
    (0xa1, "Subscription Identifiers not supported", SUBACK | DISCONNECT),
    (0xa2, "Wildcard Subscriptions not supported", SUBACK | DISCONNECT),
];

/// Packets that may carry each code.
const ALLOWED: [Packets; 256] = {
    let mut allowed = [0; 256];
    let mut index = 0;
    while index < TABLE.len() {
        let (code, _, packets) = TABLE[index];
        allowed[code as usize] |= packets;
        index += 1;
    }
    allowed
};

/// A reason code. Codes below 0x80 are no errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReasonCode(u8);

impl ReasonCode {
    /// Success, Normal disconnection or Granted QoS 0.
    pub const SUCCESS: Self = Self(0);
    /// Disconnect with Will Message.
    pub const DISCONNECT_WITH_WILL: Self = Self(4);
    /// Code 0x18 of AUTH.
    pub const CONTINUE_AUTHENTICATION: Self = Self(0x18);

    /// The code that `packet` carries.
    ///
    /// # Errors
    /// [`DecodeError::BadReasonCode`] if the table does not allow the code in this packet.
    #[inline]
    pub const fn of(packet: PacketType, code: u8) -> Result<Self, DecodeError> {
        if ALLOWED[code as usize] & bit(packet) == 0 {
            return Err(DecodeError::BadReasonCode { packet, code });
        }
        Ok(Self(code))
    }

    /// The code as a number.
    #[must_use]
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns true for 0x80 and above.
    #[must_use]
    #[inline]
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
    }

    /// Codes that a packet may carry.
    pub fn all_of(packet: PacketType) -> impl Iterator<Item = Self> {
        (0..=u8::MAX).filter_map(move |code| Self::of(packet, code).ok())
    }

    /// Name in the standard, in small letters with `_` for a space.
    #[must_use]
    pub fn identifier(self, packet: PacketType) -> String {
        snake_case(self.name(packet)).collect()
    }

    /// Name in the standard, in a packet of this type.
    #[must_use]
    pub fn name(self, packet: PacketType) -> &'static str {
        let is_it = |row: &&(u8, &str, Packets)| row.0 == self.0 && row.2 & bit(packet) != 0;
        TABLE.iter().find(is_it).map_or("Unknown", |row| row.1)
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_depend_on_the_packet() {
        let name = |packet, code| ReasonCode::of(packet, code).unwrap().name(packet);
        assert_eq!(name(PacketType::PubAck, 0), "Success");
        assert_eq!(name(PacketType::Disconnect, 0), "Normal disconnection");
        assert_eq!(name(PacketType::SubAck, 0), "Granted QoS 0");
        assert_eq!(name(PacketType::PubRec, 0x10), "No matching subscribers");
        assert_eq!(name(PacketType::ConnAck, 0x87), "Not authorized");
    }

    #[test]
    fn identifiers_are_names_in_small_letters() {
        let identifiers: Vec<_> =
            ReasonCode::all_of(PacketType::Auth).map(|c| c.identifier(PacketType::Auth)).collect();
        assert_eq!(identifiers, ["success", "continue_authentication", "re-authenticate"]);
    }

    #[test]
    fn a_code_is_refused_in_packets_that_must_not_carry_it() {
        for (packet, code) in [
            (PacketType::PubAck, 0x01),
            (PacketType::PubRel, 0x87),
            (PacketType::ConnAck, 0x04),
            (PacketType::SubAck, 0x03),
            (PacketType::Auth, 0x80),
            (PacketType::Disconnect, 0xff),
        ] {
            let error = DecodeError::BadReasonCode { packet, code };
            assert_eq!(ReasonCode::of(packet, code), Err(error));
        }
    }

    #[test]
    fn every_code_of_a_packet_has_one_name() {
        for (index, &(code, name, packets)) in TABLE.iter().enumerate() {
            let others = TABLE.iter().skip(index + 1).filter(|other| other.0 == code);
            assert!(others.clone().all(|other| other.2 & packets == 0), "{name}");
        }
        assert!(TABLE.is_sorted_by_key(|row| row.0), "rows in the order of the codes");
    }
}
