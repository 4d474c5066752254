//! What a packet from the server meant ([`Event`]), and what can go wrong: the server's fault
//! ([`ProtocolError`]) or a request that cannot be made ([`RequestError`]).

use crate::codec::{EncodeError, PacketId, PacketType, Publish};

/// What a packet from the server meant to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a, T> {
    /// CONNACK with code 0.
    Connected {
        /// The server kept state of an earlier connection.
        session_present: bool,
    },
    /// CONNACK with another code; the server closes the connection `[MQTT-3.2.2-5]`.
    Refused {
        /// The return code; [`crate::ConnAck::reason`] names it.
        code: u8,
    },
    /// SUBACK of an outstanding SUBSCRIBE.
    Subscribed {
        /// What [`Session::subscribe`](crate::Session::subscribe) returned.
        packet_id: PacketId,
        /// One code per filter, in its order: the granted QoS, or
        /// [`SubAck::FAILURE`](crate::SubAck::FAILURE).
        codes: &'a [u8],
    },
    /// UNSUBACK of an outstanding UNSUBSCRIBE.
    Unsubscribed {
        /// What [`Session::unsubscribe`](crate::Session::unsubscribe) returned.
        packet_id: PacketId,
    },
    /// A message. With QoS 1 possibly a duplicate; with QoS 2 never.
    Delivered(Publish<'a>),
    /// A QoS 2 message that was delivered before and is not released yet; suppressed.
    Redelivered,
    /// An own message is done: PUBACK, or PUBCOMP.
    Acknowledged(T),
    /// PUBREC: the server has an own QoS 2 message, PUBREL was appended.
    Received,
    /// PUBREL: the server has let go of a QoS 2 message, PUBCOMP was appended.
    Released,
    /// PINGRESP.
    Pong,
    /// An acknowledgement that fits nothing in flight, such as a PUBACK for a QoS 2 message. Not
    /// fatal: count it.
    UnknownAck,
}

/// What a server must not do. The connection is to be closed `[MQTT-4.8.0-1]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Another packet before CONNACK `[MQTT-3.2.0-1]`.
    #[error("{0} before CONNACK [MQTT-3.2.0-1]")]
    BeforeConnAck(PacketType),
    /// CONNACK although no CONNECT was sent, or after DISCONNECT.
    #[error("CONNACK without CONNECT")]
    ConnAckWithoutConnect,
    /// CONNACK twice on one connection.
    #[error("second CONNACK on one connection")]
    SecondConnAck,
    /// Session present although a clean session was asked for `[MQTT-3.2.2-1]`.
    #[error("session present on a clean session [MQTT-3.2.2-1]")]
    SessionPresentOnCleanSession,
    /// SUBACK with more or fewer codes than its SUBSCRIBE has filters `[MQTT-3.9.3-1]`.
    #[error("SUBACK with {codes} codes for {filters} filters [MQTT-3.9.3-1]")]
    SubAckCodes {
        /// Codes found.
        codes: usize,
        /// Filters of the SUBSCRIBE.
        filters: u32,
    },
    /// A packet that only clients send.
    #[error("{0} from a server")]
    FromClient(PacketType),
}

/// Why a SUBSCRIBE or UNSUBSCRIBE cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// All 65 535 packet identifiers are in flight.
    #[error("all packet identifiers are in flight")]
    NoPacketId,
    /// The packet cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}
