//! Changes of open connections to another port of this host [9000, 9]: the hub has several sockets
//! for each source address, and a connection takes the next one.

use quinn_proto::ConnectionHandle;

use super::{Held, Hub, StreamState};
use crate::transport::quic::sockets::{SOCKETS_PER_SOURCE, SocketIndex};

/// The last change of a connection to another port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Migration {
    /// None, or the client has taken the news that the peer has followed.
    Settled,
    /// The peer has sent nothing to the new port.
    Open,
    /// The peer has sent something to the new port, and the client does not have this news.
    Followed,
}

impl Hub {
    /// Changes an open connection to the next port of its source, and lets the peer find the new
    /// one [9000, 9.2]. Returns `true` if the connection has changed: before the handshake is
    /// confirmed it must not.
    pub fn migrate(&mut self, handle: ConnectionHandle) -> bool {
        let Some(held) = self.connections.get_mut(handle.0).and_then(Option::as_deref_mut) else {
            return false;
        };
        let is_confirmed = held.connection.stats().frame_rx.handshake_done > 0;
        if !is_confirmed || held.end.is_some() || held.life != StreamState::Used {
            return false;
        }
        let (source, turn) = (held.place.0, (held.place.1 + 1) % SOCKETS_PER_SOURCE);
        let target = held.connection.remote_address();
        let Ok(socket) = self.sockets.socket(source, target, turn) else { return false };
        (held.socket, held.place, held.migration) = (socket, (source, turn), Migration::Open);
        held.connection.local_address_changed();
        self.drive(handle);
        true
    }

    /// Returns `true` if a connection has another port, to which the peer has sent nothing.
    pub fn is_migrating(&self, handle: ConnectionHandle) -> bool {
        self.held(handle).is_some_and(|held| held.migration == Migration::Open)
    }

    /// Returns `true` once after the peer has sent something to the port of a migration.
    pub fn takes_followed(&mut self, handle: ConnectionHandle) -> bool {
        let Some(held) = self.held_mut(handle) else { return false };
        let followed = held.migration == Migration::Followed;
        if followed {
            held.migration = Migration::Settled;
        }
        followed
    }
}

impl Held {
    /// Notes that a datagram of the peer has arrived at a socket, and was handled. A stateless
    /// reset, which ends the connection at once, comes from a peer that has forgotten it.
    pub(super) fn note_arrival(&mut self, socket: SocketIndex) {
        let is_at_new = self.migration == Migration::Open && self.socket == socket;
        if is_at_new && !self.connection.is_drained() {
            (self.migration, self.readable) = (Migration::Followed, true);
        }
    }
}
