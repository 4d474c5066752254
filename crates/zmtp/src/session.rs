//! The connection of one simulated SUB socket: greeting, handshake, subscriptions, heartbeats and
//! messages. Nothing is stored of what passes: a message that is not all there stays with the
//! caller, who shows it again with more behind it.

mod handle;
mod keep_alive;
mod message;

#[cfg(test)]
mod tests;

use crate::{Mechanism, command, frame, greeting::Greeting};

pub use handle::{Event, Handled};
pub use keep_alive::KeepAlive;
pub use message::{FRAMES_MAX, MESSAGE_MAX, Message};

const _: () = assert!(size_of::<Session>() <= 16, "timer 8, state, version, pong, commands 5");

/// The first byte of a message that subscribes, as a peer of version 3.0 wants it.
const SUBSCRIBE_3_0: u8 = 1;

/// The state of one connection from a SUB socket to a publisher.
///
/// The mechanism is an argument of [`Session::connect`] and [`Session::handle`], which is to be the
/// same for a connection: what all clients have in common is not in each of them.
#[derive(Clone, Debug)]
pub struct Session {
    /// When something was last sent, or the PING that waits for its answer; ns on the caller's
    /// clock.
    timer_ns: u64,
    state: State,
    peer_is_3_1: bool,
    awaiting_pong: bool,
    /// Commands between the frames of the message in front that were dealt with.
    commands_handled: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Lost,
    AwaitingGreeting,
    AwaitingWelcome,
    AwaitingReady,
    Up,
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// A session that was never connected.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            timer_ns: 0,
            state: State::Lost,
            peer_is_3_1: false,
            awaiting_pong: false,
            commands_handled: 0,
        }
    }

    /// Appends the greeting; to be called once on every new network connection.
    pub fn connect(&mut self, mechanism: &Mechanism<'_>, out: &mut Vec<u8>) {
        *self = Self { state: State::AwaitingGreeting, ..Self::new() };
        Greeting::new(mechanism.name(), false).encode(out);
    }

    /// Whether the handshake is over and the connection not lost since.
    #[must_use]
    #[inline]
    pub const fn is_connected(&self) -> bool {
        matches!(self.state, State::Up)
    }

    /// The network connection is gone; the publisher forgets its subscriptions with it.
    pub const fn connection_lost(&mut self) {
        *self = Self::new();
    }

    /// Appends a subscription to all messages whose first frame begins with `prefix`; only while
    /// connected. Subscriptions add up, and nothing answers them
    /// [37/ZMTP, The Publish-Subscribe Pattern].
    pub fn subscribe(&self, prefix: &[u8], out: &mut Vec<u8>) {
        debug_assert!(self.is_connected(), "subscribe before READY");
        if self.peer_is_3_1 {
            command::write("SUBSCRIBE", &[prefix], out);
        } else {
            frame::encode_header(frame::Kind::Last, 1 + prefix.len(), out);
            out.push(SUBSCRIBE_3_0);
            out.extend_from_slice(prefix);
        }
    }

    /// Appends a PING without a time to live, which counts as sent at `now_ns`; its answer is
    /// [`Event::Pong`]. False if the peer is older than ZMTP 3.1 and knows no PING, or while not
    /// connected: nothing is then appended.
    ///
    /// libzmq answers a PING at once, and only then passes on to its socket what it has read
    /// together with it. So it is the answer to a second PING, sent after the first was answered,
    /// that says that subscriptions in front of the first are with the socket.
    pub fn ping(&mut self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        if !self.peer_is_3_1 || !self.is_connected() {
            return false;
        }
        command::write("PING", &[&[0; 2]], out);
        self.timer_ns = now_ns;
        self.awaiting_pong = true;
        true
    }
}
