//! Reasons of problems, each counted on its own. The names are the contract
//! (`contract/snapshot.schema.json`).

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::record::answer::AnswerCode;

/// Reason of a problem. A problem is counted and is not an error of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The target has no listener.
    ConnectRefused,
    /// The target reset the connection before CONNACK.
    ConnectReset,
    /// The target closed the connection before CONNACK.
    ConnectClosed,
    /// No CONNACK within the time allowed.
    ConnectTimeout,
    /// No route to the target.
    ConnectUnreachable,
    /// The broker's certificate has expired.
    CertificateExpired,
    /// No trusted authority has signed the broker's certificate.
    CertificateUntrusted,
    /// The broker's certificate is for another name.
    CertificateName,
    /// The broker refused the handshake with an alert: it does not accept this client's
    /// certificate, identity, key, version or ciphers.
    TlsRefused,
    /// The handshake failed for another reason.
    TlsFailed,
    /// The broker refused the handshake because it speaks none of the protocols that the client
    /// offered by ALPN.
    AlpnRefused,
    /// The target speaks another version of QUIC.
    QuicVersion,
    /// The target ended the handshake of QUIC with an error.
    QuicRefused,
    /// The handshake of QUIC failed for another reason.
    QuicFailed,
    /// The target closed the connection instead of answering the upgrade to WebSocket.
    UpgradeClosed,
    /// The target answered the upgrade with something that is not HTTP.
    UpgradeInvalid,
    /// The target answered the upgrade with success and without an upgrade.
    UpgradeIgnored,
    /// The accept key of the answer does not follow from the key of the upgrade.
    WrongAcceptKey,
    /// The target upgraded the connection without the subprotocol `mqtt`.
    NoSubprotocol,
    /// CONNACK 1.
    BadProtocolVersion,
    /// CONNACK 2.
    IdentifierRejected,
    /// CONNACK 3.
    ServerUnavailable,
    /// CONNACK 4.
    BadCredentials,
    /// CONNACK 5.
    NotAuthorized,
    /// Another CONNACK code.
    ConnectRejected,
    /// AUTH of the broker is not a step of the method of the client.
    AuthenticationInvalid,
    /// The broker accepted the client and did not prove that it has the client's password.
    ServerUnproved,
    /// SUBACK 0x80.
    SubscribeRefused,
    /// SUBSCRIBE or UNSUBSCRIBE is larger than the broker accepts.
    FiltersTooLarge,
    /// No answer to the subscriptions within the time allowed, such as SUBACK.
    SubscribeTimeout,
    /// No UNSUBACK within the connect timeout.
    UnsubscribeTimeout,
    /// The broker closed an established connection.
    ClosedByBroker,
    /// The broker reset an established connection.
    ResetByBroker,
    /// Nothing acknowledged what the kernel sent: the path to the broker is gone (ETIMEDOUT).
    PathTimeout,
    /// The broker gave up a client that reads too slowly.
    SlowConsumer,
    /// Bytes of an established connection that TLS cannot read, or a fatal alert of the broker.
    TlsBroken,
    /// Either side ended an established connection because the other one broke QUIC.
    QuicBroken,
    /// Nothing arrived within the idle timeout of QUIC.
    QuicIdleTimeout,
    /// The broker closed the connection of QUIC with a code other than 0.
    QuicClosedWithCode,
    /// The broker sent frames that are not those of MQTT over WebSocket.
    WebsocketInvalid,
    /// No PINGRESP within the keep-alive.
    KeepAliveTimeout,
    /// The broker did not accept DISCONNECT, and the bytes sent before it, within 2 seconds.
    DisconnectTimeout,
    /// The broker broke the protocol.
    ProtocolError,
    /// The broker sent a packet larger than the plan allows.
    PacketTooLarge,
    /// A packet of the client cannot be written: this program, or its plan, is wrong.
    CannotEncode,
    /// A message is larger than the broker, or the protocol, accepts.
    MessageTooLarge,
    /// The broker does not accept messages of this QoS.
    QosUnsupported,
    /// The broker does not retain messages.
    RetainUnsupported,
    /// The broker acknowledged a message that is not in flight, or with the wrong packet.
    UnexpectedAck,
    /// The broker had more messages in flight than the client's Receive Maximum.
    ReceiveMaximumExceeded,
    /// The broker sent a packet above the client's Maximum Packet Size.
    PacketSizeExceeded,
    /// The broker assigned no identifier to a client without one.
    NoClientIdAssigned,
    /// The broker of AMQP refused a message: `basic.nack`.
    Nacked,
    /// The broker of AMQP ended the consumer of a queue: `basic.cancel`.
    ConsumerCancelled,
    /// PUBCOMP with an error.
    PubcompError,
    /// AUTH or CONNACK with another authentication method than that of the client, or with none.
    OtherAuthenticationMethod,
    /// SUBACK grants a kind of subscription that CONNACK said is not available.
    UnavailableGranted,
    /// A retained message came without the Message Expiry Interval that it was published with.
    ExpiryMissing,
    /// The Message Expiry Interval of a retained message does not follow from its wait.
    ExpiryWrong,
    /// A retained message came after its Message Expiry Interval was over.
    ExpiryPassed,
    /// This process has no free descriptor (EMFILE, ENFILE).
    NoDescriptors,
    /// No free source port to the target (EADDRNOTAVAIL).
    NoPorts,
    /// The kernel has no memory for the socket (ENOMEM, ENOBUFS).
    NoMemory,
    /// A source address does not belong to this host.
    BadSource,
    /// Another error of the socket.
    SocketError,
    /// A reason code of MQTT 5.
    #[serde(untagged)]
    Answer(AnswerCode),
    /// A number of another protocol.
    #[serde(untagged)]
    Code(Code),
}

/// Protocol whose numbers are reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Status of HTTP, instead of an upgrade.
    Http,
    /// Close code of WebSocket.
    WebsocketClose,
    /// Error of JetStream: its exact number, or the one of its kind.
    Jetstream,
    /// Reply code of AMQP 0-9-1 (1.1 of the XML specification).
    Amqp,
}

/// A number of a protocol as a reason: its row in the table of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub struct Code(u8);

/// Names of numbers: the first row with the number counts, and the last row of a family has all.
const CODES: [(Family, RangeInclusive<u16>, &str); 55] = [
    (Family::Http, 300..=399, "http_redirect"),
    (Family::Http, 400..=400, "http_bad_request"),
    (Family::Http, 401..=401, "http_unauthorized"),
    (Family::Http, 403..=403, "http_forbidden"),
    (Family::Http, 404..=404, "http_not_found"),
    (Family::Http, 426..=426, "http_upgrade_required"),
    (Family::Http, 429..=429, "http_too_many_requests"),
    (Family::Http, 502..=502, "http_bad_gateway"),
    (Family::Http, 503..=503, "http_unavailable"),
    (Family::Http, 500..=599, "http_server_error"),
    (Family::Http, 0..=u16::MAX, "http_other"),
    (Family::WebsocketClose, 1000..=1000, "websocket_closed"),
    (Family::WebsocketClose, 1001..=1001, "websocket_going_away"),
    (Family::WebsocketClose, 1002..=1002, "websocket_protocol_error"),
    (Family::WebsocketClose, 1003..=1003, "websocket_unsupported_data"),
    (Family::WebsocketClose, 1007..=1007, "websocket_invalid_data"),
    (Family::WebsocketClose, 1008..=1008, "websocket_policy_violation"),
    (Family::WebsocketClose, 1009..=1009, "websocket_too_big"),
    (Family::WebsocketClose, 1011..=1011, "websocket_server_error"),
    (Family::WebsocketClose, 1012..=1012, "websocket_service_restart"),
    (Family::WebsocketClose, 1013..=1013, "websocket_try_again_later"),
    (Family::WebsocketClose, 0..=u16::MAX, "websocket_other_code"),
    (Family::Jetstream, 503..=503, "jetstream_no_responders"),
    (Family::Jetstream, 10_008..=10_008, "jetstream_unavailable"),
    (Family::Jetstream, 10_013..=10_013, "jetstream_consumer_exists"),
    (Family::Jetstream, 10_023..=10_023, "jetstream_no_resources"),
    (Family::Jetstream, 10_028..=10_028, "jetstream_no_memory"),
    (Family::Jetstream, 10_039..=10_039, "jetstream_not_for_account"),
    (Family::Jetstream, 10_047..=10_047, "jetstream_no_storage"),
    (Family::Jetstream, 10_058..=10_058, "jetstream_stream_exists"),
    (Family::Jetstream, 10_059..=10_059, "jetstream_no_stream"),
    (Family::Jetstream, 10_065..=10_065, "jetstream_subjects_overlap"),
    (Family::Jetstream, 10_076..=10_076, "jetstream_not_enabled"),
    (Family::Jetstream, 10_077..=10_077, "jetstream_store_failed"),
    (Family::Jetstream, 10_093..=10_093, "jetstream_filter_outside_stream"),
    (Family::Jetstream, 0..=u16::MAX, "jetstream_other"),
    (Family::Amqp, 311..=311, "amqp_content_too_large"),
    (Family::Amqp, 312..=312, "amqp_no_route"),
    (Family::Amqp, 313..=313, "amqp_no_consumers"),
    (Family::Amqp, 320..=320, "amqp_connection_forced"),
    (Family::Amqp, 402..=402, "amqp_invalid_path"),
    (Family::Amqp, 403..=403, "amqp_access_refused"),
    (Family::Amqp, 404..=404, "amqp_not_found"),
    (Family::Amqp, 405..=405, "amqp_resource_locked"),
    (Family::Amqp, 406..=406, "amqp_precondition_failed"),
    (Family::Amqp, 501..=501, "amqp_frame_error"),
    (Family::Amqp, 502..=502, "amqp_syntax_error"),
    (Family::Amqp, 503..=503, "amqp_command_invalid"),
    (Family::Amqp, 504..=504, "amqp_channel_error"),
    (Family::Amqp, 505..=505, "amqp_unexpected_frame"),
    (Family::Amqp, 506..=506, "amqp_resource_error"),
    (Family::Amqp, 530..=530, "amqp_not_allowed"),
    (Family::Amqp, 540..=540, "amqp_not_implemented"),
    (Family::Amqp, 541..=541, "amqp_internal_error"),
    (Family::Amqp, 0..=u16::MAX, "amqp_other"),
];

impl Code {
    fn find(wanted: impl Fn(&(Family, RangeInclusive<u16>, &str)) -> bool) -> Option<Self> {
        CODES.iter().position(wanted).map(|row| Self(row as u8))
    }
}

impl From<Code> for &'static str {
    fn from(code: Code) -> Self {
        CODES[usize::from(code.0)].2
    }
}

impl TryFrom<String> for Code {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::find(|row| row.2 == name).ok_or_else(|| format!("unknown reason '{name}'"))
    }
}

impl Reason {
    /// The reason that a number of a protocol stands for.
    #[must_use]
    pub fn of(family: Family, number: u16) -> Self {
        let code = Code::find(|row| row.0 == family && row.1.contains(&number));
        Self::Code(code.expect("the last row of a family has all numbers"))
    }

    /// Returns `true` if the peer has ended an established connection, without a packet that says
    /// why.
    #[must_use]
    pub fn is_end_by_peer(self) -> bool {
        matches!(self, Self::ClosedByBroker | Self::ResetByBroker)
            || self == Self::of(Family::WebsocketClose, 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_a_name_and_each_name_a_reason() {
        let name = |family, number| serde_json::to_string(&Reason::of(family, number)).unwrap();
        for (number, expected) in [(302, "redirect"), (503, "unavailable"), (504, "server_error")] {
            assert_eq!(name(Family::Http, number), format!("\"http_{expected}\""));
        }
        assert_eq!(name(Family::Http, 418), "\"http_other\"");
        assert_eq!(name(Family::WebsocketClose, 4000), "\"websocket_other_code\"");
        assert_eq!(name(Family::Jetstream, 10_059), "\"jetstream_no_stream\"");
        assert_eq!(name(Family::Amqp, 406), "\"amqp_precondition_failed\"");
        let families = [Family::Http, Family::WebsocketClose, Family::Jetstream, Family::Amqp];
        for (family, number) in families
            .into_iter()
            .flat_map(|family| (0..=u16::MAX).map(move |number| (family, number)))
        {
            let reason = Reason::of(family, number);
            let stored = serde_json::to_string(&reason).unwrap();
            assert_eq!(serde_json::from_str::<Reason>(&stored).unwrap(), reason, "{stored}");
        }
        assert!(serde_json::from_str::<Reason>("\"http_nothing\"").is_err());
    }
}
