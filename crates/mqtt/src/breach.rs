//! A rule of the protocol that a server broke, in words: the packet, its field, and the rule.

use std::fmt;

use crate::codec::{self, DecodeError, PacketType, Version};
use crate::session::ProtocolError;

/// A packet that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// Bytes that are not a packet.
    Bytes {
        /// Type of the packet; `None` if its first byte is none.
        packet: Option<PacketType>,
        /// The field that cannot be read; `None` if the error names it, or concerns all.
        field: Option<&'static str>,
        /// The rule.
        rule: DecodeError,
    },
    /// A packet that must not come now.
    Turn(ProtocolError),
    /// A packet above the size that the client accepts.
    Size {
        /// Type of the packet.
        packet: PacketType,
        /// Its size, in bytes.
        bytes: usize,
        /// The largest size that the client accepts, in bytes.
        most: usize,
    },
}

impl Breach {
    /// The breach of the packet at the front of `bytes`, which [`decode`](crate::decode) refused.
    #[cold]
    #[must_use]
    pub fn of_bytes(version: Version, bytes: &[u8], rule: DecodeError) -> Self {
        let packet = bytes.first().and_then(|first| codec::packet_type(first >> 4));
        Self::Bytes { packet, field: codec::unreadable_field(version, bytes), rule }
    }

    /// The breach of a packet at the front of `bytes` that is too large.
    #[cold]
    #[must_use]
    pub fn of_size(bytes: &[u8], len: usize, most: usize) -> Self {
        let packet = bytes.first().and_then(|first| codec::packet_type(first >> 4));
        Self::Size { packet: packet.unwrap_or(PacketType::Publish), bytes: len, most }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bytes { packet, field, rule } => {
                if let Some(packet) = packet {
                    write!(f, "{packet}, ")?;
                }
                if let Some(field) = field {
                    write!(f, "{field}: ")?;
                }
                rule.fmt(f)
            }
            Self::Turn(error) => error.fmt(f),
            Self::Size { packet, bytes, most } => {
                write!(f, "{packet} of {bytes} bytes, at most {most} are accepted")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::decode;

    fn breach(version: Version, bytes: &[u8]) -> String {
        let rule = decode(version, bytes).expect_err("the packet is malformed");
        Breach::of_bytes(version, bytes, rule).to_string()
    }

    #[test]
    fn a_breach_names_packet_field_and_rule() {
        for (version, bytes, words) in [
            (Version::V311, &b"\x20\x01\0"[..], "CONNACK, return code: packet ends inside a field"),
            (
                Version::V311,
                b"\x30\x05\0\x03\xed\xa0\x80",
                "PUBLISH, topic name: string is not UTF-8 [MQTT-1.5.3-1]",
            ),
            (
                Version::V311,
                b"\x32\x04\0\x01a\0",
                "PUBLISH, packet identifier: packet ends inside a field",
            ),
            (
                Version::V5,
                b"\x30\x06\0\x01a\x05\x01\x01",
                "PUBLISH, properties: packet ends inside a field",
            ),
            (
                Version::V5,
                b"\x40\x03\0\x01\x01",
                "PUBACK, reason code 0x01 is not one of this packet [MQTT-3.9.3-2]",
            ),
            (
                Version::V5,
                b"\x40\x04\0\x01\0\x02",
                "PUBACK, properties: packet ends inside a field",
            ),
            (
                Version::V311,
                b"\x90\x02\0\x01",
                "SUBACK, list of topic filters is empty [MQTT-3.8.3-3]",
            ),
            (Version::V311, b"\xd0\x01\0", "PINGRESP, 1 bytes after the last field of the packet"),
            (Version::V311, b"\x00\0", "packet type 0 is reserved"),
        ] {
            assert_eq!(breach(version, bytes), words);
        }
    }

    #[test]
    fn a_size_and_a_wrong_turn_name_the_packet() {
        let size = Breach::of_size(b"\x30\xff\x7f", 300, 100).to_string();
        assert_eq!(size, "PUBLISH of 300 bytes, at most 100 are accepted");
        let turn = Breach::Turn(ProtocolError::TopicAlias(9)).to_string();
        assert!(turn.starts_with("PUBLISH with topic alias 9"), "{turn}");
    }
}
