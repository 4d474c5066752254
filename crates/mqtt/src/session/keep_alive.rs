//! Keep-alive (3.1.2.10): PINGREQ after a silence of the client, and a server that does not answer
//! it. The caller owns the clock and the timers; one timestamp is kept per session.

use super::{Connection, Session};
use crate::codec::{self, PacketType, Version};

const NS_PER_S: u64 = 1_000_000_000;

/// What [`Session::handle_keep_alive`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// It is not yet time, or there is no keep-alive: ask for the deadline again.
    NotDue,
    /// PINGREQ was appended.
    Pinged,
    /// Neither PINGRESP nor anything else within the keep-alive interval after PINGREQ: the
    /// connection is to be closed.
    Dead,
}

impl<T: Copy> Session<T> {
    /// Packets were sent at `now_ns`, which puts off the next PINGREQ `[MQTT-3.1.2-23]`. Any clock
    /// will do that does not run backwards.
    #[inline]
    pub const fn note_sent(&mut self, now_ns: u64) {
        // While a PINGREQ waits, its own time is kept: traffic must not put off `Dead`.
        if !self.awaiting_pong {
            self.timer_ns = now_ns;
        }
    }

    /// The server has given a sign of life, or has sent something that was not read yet: its
    /// PINGRESP may stand behind that.
    #[inline]
    pub const fn note_heard(&mut self) {
        self.heard = true;
    }

    /// When to call [`Session::handle_keep_alive`], in ns on the caller's clock. `None` while not
    /// connected or with `keep_alive_s` 0. It may move later, so a timer may find nothing due.
    #[must_use]
    #[inline]
    pub fn keep_alive_deadline(&self, keep_alive_s: u16) -> Option<u64> {
        if keep_alive_s == 0 || self.connection != Connection::Up {
            return None;
        }
        Some(self.timer_ns.saturating_add(u64::from(keep_alive_s) * NS_PER_S))
    }

    /// Appends PINGREQ if the client was silent for `keep_alive_s` seconds; reports a server that
    /// left the last one unanswered for as long and gave no other sign of life. A server that sends
    /// something else gets another PINGREQ, since it may close a silent client. The PINGREQ counts
    /// as sent at `now_ns`.
    pub fn handle_keep_alive(
        &mut self,
        now_ns: u64,
        keep_alive_s: u16,
        version: Version,
        out: &mut Vec<u8>,
    ) -> KeepAlive {
        match self.keep_alive_deadline(keep_alive_s) {
            Some(deadline_ns) if deadline_ns <= now_ns => {}
            _ => return KeepAlive::NotDue,
        }
        let heard = std::mem::replace(&mut self.heard, false);
        if self.awaiting_pong && !heard {
            return KeepAlive::Dead;
        }
        codec::encode_empty(version, PacketType::PingReq, out);
        self.timer_ns = now_ns;
        self.awaiting_pong = true;
        KeepAlive::Pinged
    }
}
