//! Keep-alive (3.1.2.10): PINGREQ after a silence of the client, and detection of a server that
//! does not answer. The caller owns the clock and the timers; a session stores one timestamp.

use super::{Connection, Session};
use crate::codec::{self, PacketType};

const NS_PER_S: u64 = 1_000_000_000;

/// Outcome of [`Session::handle_keep_alive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// The deadline is in the future or keep-alive is off: request the deadline again.
    NotDue,
    /// The session has appended PINGREQ.
    Pinged,
    /// The server sent nothing within the keep-alive interval after PINGREQ. The caller must close
    /// the connection.
    Dead,
}

impl<T: Copy> Session<T> {
    /// Records that packets were sent at `now_ns`, which postpones the next PINGREQ
    /// `[MQTT-3.1.2-23]`. Any clock works that never runs backwards.
    #[inline]
    pub const fn note_sent(&mut self, now_ns: u64) {
        // While a PINGREQ is unanswered, its time is kept: traffic must not postpone `Dead`.
        if !self.awaiting_pong {
            self.timer_ns = now_ns;
        }
    }

    /// Records that the server has sent bytes, read or unread: PINGRESP may follow other packets.
    #[inline]
    pub const fn note_receipt(&mut self) {
        self.received = true;
    }

    /// Keep-alive of the connection in seconds: the server of MQTT 5 may replace `keep_alive_s` of
    /// CONNECT `[MQTT5-3.2.2-21]`.
    #[must_use]
    #[inline]
    pub fn keep_alive_s(&self, keep_alive_s: u16) -> u16 {
        let server = self.server.as_ref().and_then(|server| server.keep_alive_s());
        server.unwrap_or(keep_alive_s)
    }

    /// Time to call [`Session::handle_keep_alive`], in ns on the caller's clock. `None` while not
    /// connected or with `keep_alive_s` 0. The deadline may move later, so a timer may fire too
    /// early.
    #[must_use]
    #[inline]
    pub fn keep_alive_deadline(&self, keep_alive_s: u16) -> Option<u64> {
        let keep_alive_s = self.keep_alive_s(keep_alive_s);
        if keep_alive_s == 0 || self.connection != Connection::Up {
            return None;
        }
        Some(self.timer_ns.saturating_add(u64::from(keep_alive_s) * NS_PER_S))
    }

    /// Time at which the server closes the connection of a client that sends nothing more: one and
    /// a half times the keep-alive after the last packet `[MQTT-3.1.2-24]`. `None` without
    /// keep-alive.
    #[must_use]
    pub fn silence_deadline(&self, keep_alive_s: u16) -> Option<u64> {
        let keep_alive_s = self.keep_alive_s(keep_alive_s);
        let silence_ns = u64::from(keep_alive_s) * NS_PER_S / 2 * 3;
        (keep_alive_s > 0).then(|| self.timer_ns.saturating_add(silence_ns))
    }

    /// Appends PINGREQ if the client was silent for `keep_alive_s` seconds. The PINGREQ counts as
    /// sent at `now_ns`. Reports a server that has sent nothing for `keep_alive_s` seconds after
    /// the last PINGREQ. A server that sends other packets receives another PINGREQ, because that
    /// server may close a silent client.
    pub fn handle_keep_alive(
        &mut self,
        now_ns: u64,
        keep_alive_s: u16,
        out: &mut Vec<u8>,
    ) -> KeepAlive {
        match self.keep_alive_deadline(keep_alive_s) {
            Some(deadline_ns) if deadline_ns <= now_ns => {}
            _ => return KeepAlive::NotDue,
        }
        let received = std::mem::replace(&mut self.received, false);
        if self.awaiting_pong && !received {
            return KeepAlive::Dead;
        }
        codec::encode_empty(PacketType::PingReq, out);
        self.timer_ns = now_ns;
        self.awaiting_pong = true;
        KeepAlive::Pinged
    }
}
