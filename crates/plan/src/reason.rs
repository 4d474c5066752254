//! Reasons of problems, each counted on its own. The names are the contract
//! (`contract/snapshot.schema.json`).

use serde::{Deserialize, Serialize};

use crate::answer::Answer;

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
    /// HTTP 3xx.
    HttpRedirect,
    /// HTTP 400.
    HttpBadRequest,
    /// HTTP 401.
    HttpUnauthorized,
    /// HTTP 403.
    HttpForbidden,
    /// HTTP 404.
    HttpNotFound,
    /// HTTP 426.
    HttpUpgradeRequired,
    /// HTTP 429.
    HttpTooManyRequests,
    /// Another HTTP 5xx.
    HttpServerError,
    /// HTTP 502.
    HttpBadGateway,
    /// HTTP 503.
    HttpUnavailable,
    /// Another HTTP status.
    HttpOther,
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
    /// The server of NATS gave up a client that reads too slowly.
    SlowConsumer,
    /// Bytes of an established connection that TLS cannot read, or a fatal alert of the broker.
    TlsBroken,
    /// WebSocket close code 1000, or a close without a code.
    WebsocketClosed,
    /// WebSocket close code 1001.
    WebsocketGoingAway,
    /// WebSocket close code 1002.
    WebsocketProtocolError,
    /// WebSocket close code 1003.
    WebsocketUnsupportedData,
    /// WebSocket close code 1007.
    WebsocketInvalidData,
    /// WebSocket close code 1008.
    WebsocketPolicyViolation,
    /// WebSocket close code 1009.
    WebsocketTooBig,
    /// WebSocket close code 1011.
    WebsocketServerError,
    /// WebSocket close code 1012.
    WebsocketServiceRestart,
    /// WebSocket close code 1013.
    WebsocketTryAgainLater,
    /// Another WebSocket close code.
    WebsocketOtherCode,
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
    /// PUBCOMP with an error.
    PubcompError,
    /// AUTH or CONNACK with another authentication method than that of the client, or with none.
    OtherAuthenticationMethod,
    /// SUBACK grants a kind of subscription that CONNACK said is not available.
    UnavailableGranted,
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
    Answer(Answer),
}

impl Reason {
    /// Returns `true` if the peer has ended an established connection, without a packet that says
    /// why.
    #[must_use]
    pub const fn is_end_by_peer(self) -> bool {
        matches!(self, Self::ClosedByBroker | Self::ResetByBroker | Self::WebsocketClosed)
    }
}
