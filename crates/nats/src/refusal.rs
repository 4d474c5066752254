//! Errors that a server sends as -ERR: a text of the protocol each, and a number of this crate.

use std::borrow::Cow;

use crate::jetstream::JetStreamError;

/// Error of a server. The number is stable: results store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum ServerError {
    /// An error with a text that is not in this list.
    Other = 0,
    /// Wrong credentials, or none.
    AuthorizationViolation = 1,
    /// The client was too slow to log in.
    AuthenticationTimeout = 2,
    /// The credentials are no longer valid.
    AuthenticationExpired = 3,
    /// The server has revoked the credentials.
    AuthenticationRevoked = 4,
    /// The server has as many clients as it accepts.
    MaximumConnections = 5,
    /// A message above `max_payload`.
    MaximumPayload = 6,
    /// A control line above the server's limit.
    MaximumControlLine = 7,
    /// The client has as many subscriptions as the server accepts.
    MaximumSubscriptions = 8,
    /// The client may not publish to the subject.
    PublishPermission = 9,
    /// The client may not subscribe to the subject.
    SubscribePermission = 10,
    /// The client reads too slowly.
    SlowConsumer = 11,
    /// The client has not answered PINGs.
    StaleConnection = 12,
    /// The server requires TLS.
    TlsRequired = 13,
    /// The server does not understand the client.
    ParserError = 14,
    /// A subject that the grammar forbids.
    InvalidSubject = 15,
    /// An operation that the server does not know.
    UnknownOperation = 16,
    /// The server ends, or an operator has closed the connection.
    ConnectionClosed = 17,
}

impl ServerError {
    /// Errors and the fronts of their texts, in small letters.
    const TEXTS: [(Self, &'static str); 23] = [
        (Self::AuthorizationViolation, "authorization violation"),
        (Self::AuthenticationTimeout, "authentication timeout"),
        (Self::AuthenticationTimeout, "authorization timeout"),
        (Self::AuthenticationExpired, "user authentication expired"),
        (Self::AuthenticationExpired, "account authentication expired"),
        (Self::AuthenticationExpired, "authentication expired"),
        (Self::AuthenticationRevoked, "user authentication revoked"),
        (Self::AuthenticationRevoked, "authentication revoked"),
        (Self::MaximumConnections, "maximum connections exceeded"),
        (Self::MaximumConnections, "maximum account active connections exceeded"),
        (Self::MaximumPayload, "maximum payload"),
        (Self::MaximumControlLine, "maximum control line exceeded"),
        (Self::MaximumSubscriptions, "maximum subscriptions exceeded"),
        (Self::PublishPermission, "permissions violation for publish"),
        (Self::SubscribePermission, "permissions violation for subscription"),
        (Self::SlowConsumer, "slow consumer"),
        (Self::StaleConnection, "stale connection"),
        (Self::TlsRequired, "secure connection - tls required"),
        (Self::ParserError, "parser error"),
        (Self::InvalidSubject, "invalid subject"),
        (Self::InvalidSubject, "invalid publish subject"),
        (Self::UnknownOperation, "unknown protocol operation"),
        (Self::ConnectionClosed, "server shutdown"),
    ];

    /// The error with this text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let found = Self::TEXTS.iter().find(|(_, front)| text.starts_with(front));
        found.map_or(Self::Other, |(error, _)| *error)
    }

    /// Number of the error.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Returns true if the server does not add a subscription.
    #[must_use]
    pub const fn refuses_subscription(self) -> bool {
        matches!(self, Self::SubscribePermission)
    }

    /// Returns true if the server closes the connection with the error.
    #[must_use]
    pub const fn ends_connection(self) -> bool {
        let concerns_one = matches!(
            self,
            Self::PublishPermission | Self::SubscribePermission | Self::InvalidSubject
        );
        !concerns_one
    }
}

/// The refusal of a publication or request that no server of JetStream receives.
pub(crate) const fn no_responders<'a>() -> JetStreamError<'a> {
    let text = "no stream has the subject";
    JetStreamError { code: 503, err_code: 0, description: Cow::Borrowed(text), text }
}
