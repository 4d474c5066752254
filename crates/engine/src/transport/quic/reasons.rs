//! Reasons for the ends of connections of QUIC [9000, 20].

use plan::Reason;
use quinn_proto::{ConnectionError, TransportErrorCode};

/// Codes of QUIC for alerts of TLS [9001, 4.8].
const ALERTS: std::ops::RangeInclusive<u64> = 0x100..=0x1ff;
// Alerts of TLS [8446, 6.2] with which rustls ends a handshake by itself.
const BAD_CERTIFICATE: u64 = 42;
const CERTIFICATE_ALERTS: std::ops::RangeInclusive<u64> = 42..=48;
const CERTIFICATE_EXPIRED: u64 = 45;
/// A signature of the certificate, or by its key, is wrong.
const DECRYPT_ERROR: u64 = 51;
const NO_APPLICATION_PROTOCOL: u64 = 120;

/// The reason for the end of a connection, before (`connecting`) or after the broker accepted the
/// client.
pub fn reason(error: &ConnectionError, connecting: bool) -> Reason {
    let closed = if connecting { Reason::ConnectClosed } else { Reason::ClosedByBroker };
    match error {
        ConnectionError::VersionMismatch => Reason::QuicVersion,
        ConnectionError::TransportError(error) => own(error.code, connecting),
        ConnectionError::ConnectionClosed(close) => match alert(close.error_code) {
            Some(NO_APPLICATION_PROTOCOL) => Reason::AlpnRefused,
            Some(_) if connecting => Reason::TlsRefused,
            None if close.error_code == TransportErrorCode::NO_ERROR => closed,
            None if connecting => Reason::QuicRefused,
            _ => Reason::QuicBroken,
        },
        ConnectionError::ApplicationClosed(close) if close.error_code.into_inner() == 0 => closed,
        ConnectionError::ApplicationClosed(_) => Reason::QuicClosedWithCode,
        ConnectionError::Reset if connecting => Reason::ConnectReset,
        ConnectionError::Reset => Reason::ResetByBroker,
        ConnectionError::TimedOut if connecting => Reason::ConnectTimeout,
        ConnectionError::TimedOut => Reason::QuicIdleTimeout,
        ConnectionError::LocallyClosed => closed,
        ConnectionError::CidsExhausted => Reason::QuicFailed,
    }
}

/// The reason for an error that the engine's side has found.
fn own(code: TransportErrorCode, connecting: bool) -> Reason {
    match alert(code) {
        _ if !connecting => Reason::QuicBroken,
        Some(NO_APPLICATION_PROTOCOL) => Reason::AlpnRefused,
        Some(CERTIFICATE_EXPIRED) => Reason::CertificateExpired,
        Some(BAD_CERTIFICATE) => Reason::CertificateName,
        Some(DECRYPT_ERROR) => Reason::CertificateUntrusted,
        Some(alert) if CERTIFICATE_ALERTS.contains(&alert) => Reason::CertificateUntrusted,
        Some(_) => Reason::TlsFailed,
        None => Reason::QuicFailed,
    }
}

fn alert(code: TransportErrorCode) -> Option<u64> {
    let code = u64::from(code);
    ALERTS.contains(&code).then(|| code - ALERTS.start())
}

/// Code and text of a close by the peer.
pub fn words(error: &ConnectionError) -> Option<String> {
    let (code, reason) = match error {
        ConnectionError::ApplicationClosed(close) => (close.error_code.into_inner(), &close.reason),
        ConnectionError::ConnectionClosed(close) => (close.error_code.into(), &close.reason),
        _ => return None,
    };
    let text = String::from_utf8_lossy(reason);
    Some(if text.is_empty() { format!("code {code}") } else { format!("code {code}: {text}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn_proto::{ApplicationClose, ConnectionClose, TransportError};

    fn by_peer(code: TransportErrorCode) -> ConnectionError {
        let close = ConnectionClose { error_code: code, frame_type: None, reason: "no".into() };
        ConnectionError::ConnectionClosed(close)
    }

    fn by_broker(code: u32) -> ConnectionError {
        let close = ApplicationClose { error_code: code.into(), reason: "no".into() };
        ConnectionError::ApplicationClosed(close)
    }

    fn by_engine(code: TransportErrorCode) -> ConnectionError {
        TransportError::from(code).into()
    }

    #[test]
    fn each_end_has_a_reason_before_and_after_connack() {
        let crypto = TransportErrorCode::crypto;
        let refused = TransportErrorCode::CONNECTION_REFUSED;
        for (error, before, after) in [
            (ConnectionError::VersionMismatch, Reason::QuicVersion, Reason::QuicVersion),
            (ConnectionError::Reset, Reason::ConnectReset, Reason::ResetByBroker),
            (ConnectionError::TimedOut, Reason::ConnectTimeout, Reason::QuicIdleTimeout),
            (by_broker(0), Reason::ConnectClosed, Reason::ClosedByBroker),
            (by_broker(7), Reason::QuicClosedWithCode, Reason::QuicClosedWithCode),
            (by_peer(TransportErrorCode::NO_ERROR), Reason::ConnectClosed, Reason::ClosedByBroker),
            (by_peer(refused), Reason::QuicRefused, Reason::QuicBroken),
            (by_peer(crypto(120)), Reason::AlpnRefused, Reason::AlpnRefused),
            (by_peer(crypto(116)), Reason::TlsRefused, Reason::QuicBroken),
            (by_engine(crypto(120)), Reason::AlpnRefused, Reason::QuicBroken),
            (by_engine(crypto(45)), Reason::CertificateExpired, Reason::QuicBroken),
            (by_engine(crypto(42)), Reason::CertificateName, Reason::QuicBroken),
            (by_engine(crypto(48)), Reason::CertificateUntrusted, Reason::QuicBroken),
            (by_engine(crypto(51)), Reason::CertificateUntrusted, Reason::QuicBroken),
            (by_engine(crypto(40)), Reason::TlsFailed, Reason::QuicBroken),
            (
                by_engine(TransportErrorCode::PROTOCOL_VIOLATION),
                Reason::QuicFailed,
                Reason::QuicBroken,
            ),
        ] {
            assert_eq!(reason(&error, true), before, "{error}");
            assert_eq!(reason(&error, false), after, "{error}");
        }
    }

    #[test]
    fn the_words_of_a_close_are_its_code_and_its_text() {
        assert_eq!(words(&by_broker(7)).as_deref(), Some("code 7: no"));
        assert_eq!(words(&ConnectionError::Reset), None);
    }
}
