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

const _: () = assert!(size_of::<Session>() <= 16, "timer 8, the rest 6");

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
    /// The next PONG is answered with a second PING, see [`Session::ping`].
    pings_again: bool,
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
            pings_again: false,
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

    /// Asks whether the publisher has taken in all that was sent before: appends a PING, which
    /// counts as sent at `now_ns`, and [`Event::Pong`] is the answer. False if the peer is older
    /// than ZMTP 3.1 and knows no PING, or while not connected: nothing is then appended.
    ///
    /// The I/O thread of libzmq answers a PING at once, and only then passes on to its socket what
    /// it has read together with it. So the first PONG is answered with a second PING
    /// ([`Event::Replied`]): when that is answered, all before the first was passed on.
    pub fn ping(&mut self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        let pings = self.peer_is_3_1 && self.is_connected();
        if pings {
            self.write_ping(out);
            self.timer_ns = now_ns;
            self.pings_again = true;
        }
        pings
    }

    /// A PING without a time to live and context.
    fn write_ping(&mut self, out: &mut Vec<u8>) {
        command::write("PING", &[&[0; 2]], out);
        self.awaiting_pong = true;
    }
}
