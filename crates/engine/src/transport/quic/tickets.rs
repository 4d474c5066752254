//! The session that a client keeps between two connections over QUIC. The keeper of the ticket is
//! the client's verifier of certificates as well: a handshake that did not ask it was a resumed
//! one, and rustls offers tickets only to the verifier of their own connection.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, NamedGroup, SignatureScheme};

use crate::transport::tls::HandshakeEnd;

/// The ticket of a client, and the handshake of its last connection.
pub struct ClientTicket {
    verifier: Arc<dyn ServerCertVerifier>,
    state: Mutex<TicketState>,
}

#[derive(Default)]
struct TicketState {
    /// The last ticket of the broker, and the name under which the client got it.
    ticket: Option<(ServerName<'static>, Tls13ClientSessionValue)>,
    /// The connection that begins may offer the ticket.
    may_offer: bool,
    /// The last connection has offered a ticket.
    has_offered: bool,
    /// The broker has shown its certificate to the last connection.
    is_full: bool,
}

impl ClientTicket {
    /// A keeper without a ticket. `verifier` looks at certificates.
    pub fn new(verifier: Arc<dyn ServerCertVerifier>) -> Self {
        Self { verifier, state: Mutex::default() }
    }

    /// Begins a new connection of the client, which offers the ticket if there is one and the
    /// client `wants` to.
    pub fn begin(&self, wants: bool) {
        let mut state = self.state();
        (state.may_offer, state.has_offered, state.is_full) = (wants, false, false);
    }

    /// End of the handshake of the last connection, which has ended well.
    pub fn end(&self) -> HandshakeEnd {
        let state = self.state();
        match (state.is_full, state.has_offered) {
            (false, _) => HandshakeEnd::Resumed,
            (true, true) => HandshakeEnd::Refused,
            (true, false) => HandshakeEnd::Full,
        }
    }

    fn state(&self) -> MutexGuard<'_, TicketState> {
        // Each change is one assignment, so a panic leaves no half of one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tickets are secret.
impl fmt::Debug for ClientTicket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ClientTicket").finish_non_exhaustive()
    }
}

/// Keeps one ticket, the last one, and returns it once. QUIC has TLS 1.3 only.
impl ClientSessionStore for ClientTicket {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, name: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.state().ticket = Some((name, ticket));
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut state = self.state();
        if !state.may_offer {
            return None;
        }
        // A client that has moved to another broker has no use for the ticket of the last one.
        let (_, ticket) = state.ticket.take().filter(|(own, _)| own == name)?;
        state.has_offered = true;
        Some(ticket)
    }
}

impl ServerCertVerifier for ClientTicket {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        {
            // A ticket of an earlier connection is not that of the last one.
            let mut state = self.state();
            (state.is_full, state.ticket) = (true, None);
        }
        self.verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
