//! Ends of handshakes as counters, and the sessions that clients keep between two connections.

use openssl::ssl::SslRef;
use plan::{Counters, Histogram, PopulationSnapshot};

use super::{Certificates, Identity, Resumption, Tls, Who};
use crate::transport::{Channel, Secured, Stream};

/// End of a handshake that has ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeEnd {
    /// The client had offered no session.
    Full,
    /// The handshake was full, though the client had offered a session.
    Refused,
    /// The broker has resumed a session.
    Resumed,
    /// The broker has resumed a session, and accepted data in 0-RTT.
    Early,
}

impl HandshakeEnd {
    /// Counts the handshake.
    pub const fn count(self, counters: &mut Counters) {
        match self {
            Self::Full | Self::Refused => counters.tls_full_total += 1,
            Self::Resumed | Self::Early => counters.tls_resumed_total += 1,
        }
        counters.tls_resume_refused_total += matches!(self, Self::Refused) as u64;
        counters.tls_early_accepted_total += matches!(self, Self::Early) as u64;
    }

    /// Connect times of connections with a handshake like this one.
    pub const fn connect_time(self, tally: &mut PopulationSnapshot) -> &mut Histogram {
        match self {
            Self::Full | Self::Refused => &mut tally.connect_time_tls_full,
            Self::Resumed => &mut tally.connect_time_tls_resumed,
            Self::Early => &mut tally.connect_time_tls_early,
        }
    }
}

impl Tls {
    /// Counts the handshake of a client's connection, once, when it has ended well.
    pub fn count(&self, stream: &mut Stream, local: u32, counters: &mut Counters) {
        let Some(ssl) = stream.secured_mut().and_then(Secured::takes_handshake) else { return };
        self.handshake_end(ssl, local).count(counters);
        let is_ignored = self.offers_protocols && ssl.selected_alpn_protocol().is_none();
        counters.tls_alpn_ignored_total += u64::from(is_ignored);
    }

    /// End of the handshake of a client's last connection, which has ended well. OpenSSL says of a
    /// pre-shared key of TLS 1.3 too that a session is resumed.
    pub fn handshake_end(&self, ssl: &SslRef, local: u32) -> HandshakeEnd {
        if ssl.session_reused() && !matches!(self.identity, Identity::Psk(_)) {
            return HandshakeEnd::Resumed;
        }
        let sessions = self.resumption.as_ref().map(|resumption| resumption.sessions.borrow());
        match sessions {
            Some(sessions) if sessions.has_offered(local as usize) => HandshakeEnd::Refused,
            _ => HandshakeEnd::Full,
        }
    }

    /// Keeps the session of a client's connection that ends.
    pub fn keep(&self, stream: &mut Stream, local: u32) {
        if let Some(resumption) = &self.resumption
            && let Some(secured) = stream.secured_mut().filter(|secured| !secured.is_broken)
        {
            resumption.sessions.borrow_mut().keep(&mut secured.stream, local as usize);
        }
    }

    /// Forgets the sessions that stand for the old certificate of a client.
    pub(super) fn forget(&self, certificates: &Certificates, who: Who) {
        let Some(Resumption { sessions, .. }) = &self.resumption else { return };
        if certificates.are_shared() {
            sessions.borrow_mut().forget_all();
        } else {
            sessions.borrow_mut().forget(who.local as usize);
        }
    }
}

impl Secured {
    /// Returns the connection once, when its handshake has ended well.
    fn takes_handshake(&mut self) -> Option<&SslRef> {
        let ssl = self.stream.ssl();
        if self.is_counted || !ssl.is_init_finished() {
            return None;
        }
        self.is_counted = true;
        Some(ssl)
    }
}

impl Stream {
    /// The state of OpenSSL; `None` without TLS.
    pub fn ssl(&self) -> Option<&SslRef> {
        self.channel().secured().map(|secured| secured.stream.ssl())
    }

    /// Returns `true` for a stream of QUIC.
    pub fn is_quic(&self) -> bool {
        self.channel().quic().is_some()
    }

    /// Returns `true` once TCP is established, over its link if there is one; never with QUIC.
    pub fn is_open(&self) -> bool {
        self.channel().wire().is_open()
    }

    /// Returns `true` once the handshake of TLS or QUIC has ended; never without.
    pub fn is_secure(&self) -> bool {
        match self.channel() {
            Channel::Plain(_) => false,
            Channel::Tls(tls) => tls.stream.ssl().is_init_finished(),
            Channel::Quic(quic) => quic.is_secure(),
            Channel::Simulated(connection) => connection.is_secure(),
        }
    }

    fn secured_mut(&mut self) -> Option<&mut Secured> {
        self.channel_mut().secured_mut()
    }
}
