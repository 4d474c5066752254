//! Ends of handshakes as counters, and the sessions that clients keep between two connections.

use openssl::ssl::SslRef;
use plan::{Counters, Histogram, PopulationSnapshot};

use super::{Certificates, Identity, Resumption, Tls, Who};
use crate::transport::{Channel, Secured, Stream};

impl Tls {
    /// Counts the handshake of a client's connection, once, when it has ended well.
    pub fn count(&self, stream: &mut Stream, local: u32, counters: &mut Counters) {
        let Some(ssl) = stream.secured_mut().and_then(Secured::takes_handshake) else { return };
        if self.is_resumed(ssl) {
            counters.tls_resumed_total += 1;
        } else {
            let sessions = self.resumption.as_ref().map(|resumption| resumption.sessions.borrow());
            let has_offered = sessions.is_some_and(|sessions| sessions.has_offered(local as usize));
            counters.tls_full_total += 1;
            counters.tls_resume_refused_total += u64::from(has_offered);
        }
        let is_ignored = self.offers_protocols && ssl.selected_alpn_protocol().is_none();
        counters.tls_alpn_ignored_total += u64::from(is_ignored);
    }

    /// Connect times of connections with a handshake like this one.
    pub fn connect_time<'a>(
        &self,
        ssl: &SslRef,
        tally: &'a mut PopulationSnapshot,
    ) -> &'a mut Histogram {
        if self.is_resumed(ssl) {
            &mut tally.connect_time_tls_resumed
        } else {
            &mut tally.connect_time_tls_full
        }
    }

    /// Returns `true` if the broker has resumed a session. OpenSSL says so of a pre-shared key of
    /// TLS 1.3, too.
    fn is_resumed(&self, ssl: &SslRef) -> bool {
        ssl.session_reused() && !matches!(self.identity, Identity::Psk(_))
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

    /// Returns `true` once TCP is established, over its link if there is one; never with QUIC.
    pub fn is_open(&self) -> bool {
        self.channel().wire().is_open()
    }

    /// Returns `true` once the handshake of TLS or QUIC has ended; never without.
    pub fn is_secure(&self) -> bool {
        match self.channel() {
            Channel::Plain(_) => false,
            Channel::Tls(tls) => tls.stream.ssl().is_init_finished(),
            Channel::Quic(quic) => quic.handshake().is_ok(),
            Channel::Simulated(connection) => connection.is_secure(),
        }
    }

    fn secured_mut(&mut self) -> Option<&mut Secured> {
        self.channel_mut().secured_mut()
    }
}
