//! MQTT over QUIC: one connection and one bidirectional stream for each client. All connections of
//! an agent share a hub with a few UDP sockets.

pub mod hub;
pub mod reasons;
pub mod security;
pub mod sockets;
mod tickets;

use std::cell::RefCell;
use std::rc::Rc;

use quinn_proto::ConnectionHandle;

use self::hub::Hub;
use super::Halt;

/// Memory of a client's connection outside the hub. (As in `client.rs`.)
#[cfg(not(any(debug_assertions, test)))]
const _: () = assert!(size_of::<QuicConnection>() <= 16);

/// The hub of an agent, which all its connections share.
pub type SharedHub = Rc<RefCell<Hub>>;

/// A client's connection and its stream. A drop closes the connection.
pub struct QuicConnection {
    hub: SharedHub,
    handle: ConnectionHandle,
}

impl QuicConnection {
    /// The connection of the hub with this handle.
    pub const fn new(hub: SharedHub, handle: ConnectionHandle) -> Self {
        Self { hub, handle }
    }

    /// Lets the events of the connection have another index, and sends nothing more.
    pub fn silence(&self, index: usize) {
        self.hub.borrow_mut().silence(self.handle, index);
    }

    /// Succeeds once the stream is open.
    pub fn handshake(&self) -> Result<(), Halt> {
        self.hub.borrow().handshake(self.handle)
    }

    /// Returns `true` once the handshake has ended well. The stream may be open before, for data in
    /// 0-RTT.
    pub fn is_secure(&self) -> bool {
        self.hub.borrow().is_secure(self.handle)
    }

    /// Returns `true` if the peer has accepted data in 0-RTT, `false` if the peer has rejected
    /// them; `None` if there were none, or the handshake is under way.
    pub fn early_accepted(&self) -> Option<bool> {
        self.hub.borrow().early_accepted(self.handle)
    }

    /// Reads bytes of the stream that have arrived.
    pub fn read(&self, buffer: &mut [u8], connecting: bool) -> Result<usize, Halt> {
        self.hub.borrow_mut().read(self.handle, buffer, connecting)
    }

    /// Writes as many bytes as the windows of the stream allow, and sends them.
    pub fn write(&self, bytes: &[u8], connecting: bool) -> Result<usize, Halt> {
        self.hub.borrow_mut().write(self.handle, bytes, connecting)
    }

    /// Changes to another port of this host. Returns `true` if the connection has changed.
    pub fn migrate(&self) -> bool {
        self.hub.borrow_mut().migrate(self.handle)
    }

    /// Returns `true` if the connection has another port, to which the peer has sent nothing.
    pub fn is_migrating(&self) -> bool {
        self.hub.borrow().is_migrating(self.handle)
    }

    /// Returns `true` once after the peer has sent something to the port of a migration.
    pub fn takes_followed(&self) -> bool {
        self.hub.borrow_mut().takes_followed(self.handle)
    }

    /// Ends the stream: a later drop closes the connection once the peer has all bytes.
    pub fn finish(&self) {
        self.hub.borrow_mut().finish(self.handle);
    }

    /// Makes a drop discard what is not sent.
    pub fn abort(&self) {
        self.hub.borrow_mut().abort(self.handle);
    }

    /// Code and text with which the peer has closed the connection, if the peer did.
    pub fn last_words(&self) -> Option<String> {
        self.hub.borrow().last_words(self.handle)
    }
}

impl Drop for QuicConnection {
    fn drop(&mut self) {
        self.hub.borrow_mut().release(self.handle);
    }
}
