//! Answers of a broker of MQTT 5 with a reason code, named after packet and code.

use std::fmt;

use mqtt::{PacketType, ReasonCode};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Packets whose codes are counted, with the first word of their names.
const PACKETS: [(PacketType, &str); 5] = [
    (PacketType::ConnAck, "connect"),
    (PacketType::SubAck, "subscribe"),
    (PacketType::UnsubAck, "unsubscribe"),
    (PacketType::PubAck, "publish"),
    (PacketType::Disconnect, "disconnect"),
];

/// Code of Session taken over.
const SESSION_TAKEN_OVER: u8 = 0x8e;

/// A reason code in CONNACK, SUBACK, UNSUBACK, PUBACK, PUBREC or DISCONNECT. Its text is the action
/// of the client and the name of the code: `publish_quota_exceeded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnswerCode {
    packet: PacketType,
    code: ReasonCode,
}

impl AnswerCode {
    /// The answer with a code; `None` if the packet cannot carry the code.
    #[must_use]
    pub fn of(packet: PacketType, code: u8) -> Option<Self> {
        let packet = if packet == PacketType::PubRec { PacketType::PubAck } else { packet };
        let code = ReasonCode::of(packet, code).ok()?;
        PACKETS.iter().any(|(counted, _)| *counted == packet).then_some(Self { packet, code })
    }

    /// Returns `true` for the end of a connection because another one uses the client identifier.
    #[must_use]
    pub fn is_takeover(self) -> bool {
        self.packet == PacketType::Disconnect && self.code.number() == SESSION_TAKEN_OVER
    }

    fn named(name: &str) -> Option<Self> {
        let all = PACKETS.iter().flat_map(|&(packet, _)| {
            ReasonCode::all_of(packet).map(move |code| Self { packet, code })
        });
        all.into_iter().find(|answer| answer.to_string() == name)
    }
}

impl fmt::Display for AnswerCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = PACKETS.iter().find(|(packet, _)| *packet == self.packet);
        let action = action.map_or("", |(_, action)| action);
        write!(f, "{action}_{}", self.code.identifier(self.packet))
    }
}

impl Serialize for AnswerCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AnswerCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::custom(format!("unknown reason '{name}'")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_named_after_packet_and_code() {
        let name = |packet, code| AnswerCode::of(packet, code).map(|answer| answer.to_string());
        assert_eq!(name(PacketType::PubRec, 0x97).unwrap(), "publish_quota_exceeded");
        assert_eq!(name(PacketType::Disconnect, 0x8e).unwrap(), "disconnect_session_taken_over");
        assert_eq!(name(PacketType::ConnAck, 0x95).unwrap(), "connect_packet_too_large");
        assert_eq!(name(PacketType::SubAck, 0x8b), None);
        let refused = name(PacketType::UnsubAck, 0x87).unwrap();
        assert_eq!(refused, "unsubscribe_not_authorized");
        assert_eq!(name(PacketType::PubComp, 0x92), None);
    }

    #[test]
    fn each_name_has_one_answer() {
        for (packet, _) in PACKETS {
            for code in ReasonCode::all_of(packet) {
                let answer = AnswerCode { packet, code };
                let stored = serde_json::to_string(&answer).unwrap();
                assert_eq!(
                    serde_json::from_str::<AnswerCode>(&stored).unwrap(),
                    answer,
                    "{stored}"
                );
            }
        }
        assert!(serde_json::from_str::<AnswerCode>("\"publish_nothing\"").is_err());
    }
}
