//! Meaning of a packet from the server ([`MqttEvent`]), violations by the server
//! ([`ProtocolError`]) and requests that cannot be sent ([`RequestError`]).

use crate::codec::{EncodeError, PacketId, PacketType, Properties, Publish, ReasonCode, Reasoned};

/// Meaning of a packet from the server for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MqttEvent<'a, T> {
    /// CONNACK with code 0.
    Connected {
        /// True if the server kept state of an earlier connection.
        session_present: bool,
        /// Messages in flight that the session has dropped, because a server of MQTT 5 has no state
        /// of an earlier connection `[MQTT5-3.2.2-5]`.
        dropped: usize,
        /// Properties of CONNACK.
        properties: Properties<'a>,
    },
    /// AUTH before CONNACK: the server continues the authentication (4.12). The caller appends AUTH
    /// with [`encode_auth`](crate::encode_auth).
    Challenged(Properties<'a>),
    /// CONNACK with another code; the server closes the connection `[MQTT-3.2.2-5]`.
    Refused {
        /// Return code, or reason code of MQTT 5.
        code: u8,
        /// Properties of CONNACK.
        properties: Properties<'a>,
    },
    /// SUBACK of an unanswered SUBSCRIBE.
    Subscribed {
        /// Packet id that [`MqttSession::subscribe`](crate::MqttSession::subscribe) returned.
        packet_id: PacketId,
        /// One code per filter, in the order of the filters: the granted QoS, or
        /// [`SubAck::FAILURE`](crate::SubAck::FAILURE) and above.
        codes: &'a [u8],
        /// Properties of SUBACK.
        properties: Properties<'a>,
    },
    /// UNSUBACK of an unanswered UNSUBSCRIBE.
    Unsubscribed {
        /// Packet id that [`MqttSession::unsubscribe`](crate::MqttSession::unsubscribe) returned.
        packet_id: PacketId,
        /// Number of filters of the UNSUBSCRIBE.
        filters: u32,
        /// One reason code per filter, in the order of the filters; empty before MQTT 5.
        codes: &'a [u8],
        /// Properties of UNSUBACK.
        properties: Properties<'a>,
    },
    /// A message. QoS 1 allows duplicates; the session suppresses duplicates of QoS 2. If the topic
    /// is empty, [`MqttSession::topic`](crate::MqttSession::topic) returns the topic of the alias.
    Delivered(Publish<'a>),
    /// A QoS 2 message that was delivered before and is not yet released; suppressed.
    Redelivered,
    /// PUBACK or PUBCOMP: the exchange of an own message is complete.
    Acknowledged(T),
    /// PUBACK or PUBREC of MQTT 5 with an error: the server has refused an own message.
    Rejected {
        /// Token of the message.
        token: T,
        /// Reason of the server.
        code: ReasonCode,
        /// Properties of PUBACK or PUBREC.
        properties: Properties<'a>,
    },
    /// DISCONNECT of MQTT 5: the server closes the connection.
    Disconnected(Reasoned<'a>),
    /// PUBREC: the server has an own QoS 2 message. The session has appended PUBREL.
    Received,
    /// PUBREL: the server has released a QoS 2 message. The session has appended PUBCOMP.
    Released,
    /// PINGRESP.
    Pong,
    /// An acknowledgement that matches no message in flight, such as a PUBACK for a QoS 2 message.
    /// The caller counts the acknowledgement and continues.
    UnknownAck,
}

/// Packet that the protocol forbids the server to send. The caller must close the connection
/// `[MQTT-4.8.0-1]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Another packet before CONNACK `[MQTT-3.2.0-1]`.
    #[error("{0} before CONNACK [MQTT-3.2.0-1]")]
    BeforeConnAck(PacketType),
    /// CONNACK without a CONNECT, or after DISCONNECT.
    #[error("CONNACK without CONNECT")]
    ConnAckWithoutConnect,
    /// CONNACK twice on one connection.
    #[error("second CONNACK on one connection")]
    SecondConnAck,
    /// Session present although CONNECT requested a clean session `[MQTT-3.2.2-1]`.
    #[error("CONNACK with session present on a clean session [MQTT-3.2.2-1]")]
    SessionPresentOnCleanSession,
    /// SUBACK with more or fewer codes than its SUBSCRIBE has filters `[MQTT-3.9.3-1]`.
    #[error("SUBACK with {codes} codes for {filters} filters [MQTT-3.9.3-1]")]
    SubAckCodes {
        /// Codes found.
        codes: usize,
        /// Filters of the SUBSCRIBE.
        filters: u32,
    },
    /// UNSUBACK of MQTT 5 with more or fewer codes than its UNSUBSCRIBE has filters (3.11.3).
    #[error("UNSUBACK with {codes} codes for {filters} filters")]
    UnsubAckCodes {
        /// Codes found.
        codes: usize,
        /// Filters of the UNSUBSCRIBE.
        filters: u32,
    },
    /// A packet that only clients send.
    #[error("{0} from a server")]
    FromClient(PacketType),
    /// DISCONNECT with the code that only clients send (3.14.2.1).
    #[error("DISCONNECT with reason code 0x04, which only clients send (3.14.2.1)")]
    WillFromServer,
    /// AUTH to a client that has named no authentication method `[MQTT5-4.12.0-6]`.
    #[error("AUTH without an authentication method [MQTT5-4.12.0-6]")]
    UnexpectedAuth,
    /// A topic alias above the client's maximum `[MQTT5-3.3.2-11]`, or without a topic before.
    #[error("PUBLISH with topic alias {0}, which is unknown or too large [MQTT5-3.3.2-11]")]
    TopicAlias(u32),
}

/// Reason why a message must wait for an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// All 65 535 packet identifiers are in flight.
    NoPacketId,
    /// As many messages are in flight as the server of MQTT 5 accepts `[MQTT5-3.3.4-7]`.
    ReceiveMaximum,
}

/// Reason why a SUBSCRIBE or UNSUBSCRIBE cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// All 65 535 packet identifiers are in flight.
    #[error("all packet identifiers are in flight")]
    NoPacketId,
    /// The packet cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}
