//! TlsSessions of TLS that clients keep between two connections: at most one for each client. A
//! session leaves its place when the client offers the session.

use openssl::error::ErrorStack;
use openssl::ssl::{ShutdownState, SslContext, SslRef, SslSession, SslStream};

/// The sessions of the clients of one context.
pub struct TlsSessions {
    context: SslContext,
    /// By index of the client; bounded by the number of clients.
    places: Vec<SessionPlace>,
}

#[derive(Default)]
struct SessionPlace {
    session: Option<SslSession>,
    /// The client's last connection has offered a session.
    has_offered: bool,
}

impl TlsSessions {
    /// Places for clients, all empty.
    #[must_use]
    pub fn new(context: SslContext, clients: usize) -> Self {
        Self { context, places: (0..clients).map(|_| SessionPlace::default()).collect() }
    }

    /// Lets a new connection of a client offer the client's session, if there is one and the client
    /// `wants` to. The session then leaves its place.
    ///
    /// # Errors
    /// OpenSSL cannot use the session.
    pub fn offer(
        &mut self,
        ssl: &mut SslRef,
        client: usize,
        wants: impl FnOnce() -> bool,
    ) -> Result<(), ErrorStack> {
        let place = &mut self.places[client];
        place.has_offered = false;
        if !is_of(&self.context, ssl) || place.session.is_none() || !wants() {
            return Ok(());
        }
        let Some(session) = place.session.take() else { return Ok(()) };
        set(ssl, &session)?;
        place.has_offered = true;
        Ok(())
    }

    /// Returns `true` if the last connection of a client has offered a session.
    #[must_use]
    pub fn has_offered(&self, client: usize) -> bool {
        self.places[client].has_offered
    }

    /// Keeps the session of a client's connection that ends, if the session can be resumed.
    /// OpenSSL forgets sessions whose connection ends without close_notify. The connection
    /// therefore counts as shut down from here on.
    pub fn keep<S: std::io::Read + std::io::Write>(
        &mut self,
        stream: &mut SslStream<S>,
        client: usize,
    ) {
        let ssl = stream.ssl();
        if !is_of(&self.context, ssl) || !ssl.is_init_finished() {
            return;
        }
        // Without an identifier and without a ticket, the broker resumes nothing.
        let session = ssl.session().filter(|session| !session.id().is_empty());
        self.places[client].session = session.map(ToOwned::to_owned);
        stream.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
    }

    /// Forgets the session of a client.
    pub fn forget(&mut self, client: usize) {
        self.places[client].session = None;
    }

    /// Forgets the sessions of all clients.
    pub fn forget_all(&mut self) {
        self.places.iter_mut().for_each(|place| place.session = None);
    }
}

/// Returns `true` if a connection is one of a context.
fn is_of(context: &SslContext, ssl: &SslRef) -> bool {
    std::ptr::eq::<openssl::ssl::SslContextRef>(&**context, ssl.ssl_context())
}

/// Sets the session that a connection offers.
#[expect(unsafe_code, reason = "the binding has no safe call")]
fn set(ssl: &mut SslRef, session: &SslSession) -> Result<(), ErrorStack> {
    // SAFETY: session and connection must have one context. `keep` takes sessions from connections
    // of the context of `TlsSessions` only, and `offer` refuses connections of others.
    unsafe { ssl.set_session(session) }
}
