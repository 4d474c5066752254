//! The connection of one simulated SUB socket: greeting, handshake, subscriptions, heartbeats and
//! messages. The session stores no bytes. The caller keeps the bytes of an incomplete message and
//! passes these bytes again, followed by more.

mod handle;
mod message;

#[cfg(test)]
mod tests;

use crate::{Mechanism, command, frame, greeting::Greeting};

pub use handle::{Handled, ZmtpEvent};
pub use message::ZmtpMessage;

const _: () = assert!(size_of::<ZmtpSession>() <= 6);

/// First byte of a message that subscribes at a peer of version 3.0.
const SUBSCRIBE_3_0: u8 = 1;

/// The state of one connection from a SUB socket to a publisher.
///
/// The mechanism is an argument of [`ZmtpSession::connect`] and [`ZmtpSession::handle`], so that a
/// session does not store the data that all clients share. Both calls must receive the same
/// mechanism.
#[derive(Clone, Debug)]
pub struct ZmtpSession {
    state: ZmtpState,
    peer_is_3_1: bool,
    /// True if the session answers the next PONG with a second PING, see [`ZmtpSession::ping`].
    pings_again: bool,
    /// Number of handled commands between the frames of the message in front.
    commands_handled: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZmtpState {
    Lost,
    AwaitingGreeting,
    AwaitingWelcome,
    AwaitingReady,
    Up,
}

impl Default for ZmtpSession {
    fn default() -> Self {
        Self::new()
    }
}

impl ZmtpSession {
    /// A session that was never connected.
    #[must_use]
    pub const fn new() -> Self {
        Self { state: ZmtpState::Lost, peer_is_3_1: false, pings_again: false, commands_handled: 0 }
    }

    /// Appends the greeting. Call this function once on every new network connection.
    pub fn connect(&mut self, mechanism: &Mechanism<'_>, out: &mut Vec<u8>) {
        *self = Self { state: ZmtpState::AwaitingGreeting, ..Self::new() };
        Greeting::new(mechanism.name(), false).encode(out);
    }

    /// Returns true from the end of the handshake until the connection is lost.
    #[must_use]
    #[inline]
    pub const fn is_connected(&self) -> bool {
        matches!(self.state, ZmtpState::Up)
    }

    /// Records the loss of the network connection, with which the publisher forgets its
    /// subscriptions.
    pub const fn connection_lost(&mut self) {
        *self = Self::new();
    }

    /// Appends a subscription to all messages whose first frame begins with `prefix`; only while
    /// connected. Subscriptions add up, and the publisher does not confirm a subscription [37/ZMTP,
    /// The Publish-Subscribe Pattern].
    pub fn subscribe(&self, prefix: &[u8], out: &mut Vec<u8>) {
        debug_assert!(self.is_connected(), "subscribe before READY");
        if self.peer_is_3_1 {
            command::write("SUBSCRIBE", &[prefix], out);
        } else {
            frame::encode_header(frame::FrameKind::Last, 1 + prefix.len(), out);
            out.push(SUBSCRIBE_3_0);
            out.extend_from_slice(prefix);
        }
    }

    /// Appends a PING, whose [`ZmtpEvent::Pong`] confirms that the publisher has processed all
    /// bytes sent before. Returns false and appends nothing without
    /// [`ZmtpSession::has_heartbeats`].
    ///
    /// The I/O thread of libzmq answers a PING at once. Only afterwards the thread passes the other
    /// bytes of the same read to its socket. So the session answers the first PONG with a second
    /// PING ([`ZmtpEvent::Replied`]). The second PONG proves that libzmq has passed on all bytes
    /// before the first PING.
    pub fn ping(&mut self, out: &mut Vec<u8>) -> bool {
        let pings = self.has_heartbeats();
        if pings {
            self.heartbeat(out);
            self.pings_again = true;
        }
        pings
    }

    /// Returns true while the publisher answers PINGs: connected, of ZMTP 3.1 or later.
    #[must_use]
    pub const fn has_heartbeats(&self) -> bool {
        self.peer_is_3_1 && self.is_connected()
    }

    /// Appends a PING without a time to live and without a context, which the publisher answers
    /// [37/ZMTP, Connection Heartbeating]. Only for a session that [`ZmtpSession::has_heartbeats`].
    pub fn heartbeat(&self, out: &mut Vec<u8>) {
        debug_assert!(self.has_heartbeats(), "PING to a peer that has none");
        command::write("PING", &[&[0; 2]], out);
    }
}
