//! Heartbeats [37/ZMTP, Connection Heartbeating]: PING after a silence of the client, and a peer
//! from which nothing comes afterwards. The caller owns the clock and the timers; one timestamp is
//! kept per session.

use super::Session;

const NS_PER_S: u64 = 1_000_000_000;

/// What [`Session::handle_keep_alive`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// It is not yet time, or there is no keep-alive: ask for the deadline again.
    NotDue,
    /// PING was appended.
    Pinged,
    /// Nothing came within the keep-alive interval after a PING: the connection is to be closed.
    Dead,
}

impl Session {
    /// Something was sent at `now_ns`, which puts off the next PING. Any clock will do that does
    /// not run backwards.
    #[inline]
    pub const fn note_sent(&mut self, now_ns: u64) {
        // While a PING waits, its own time is kept: traffic must not put off `Dead`.
        if !self.awaiting_pong {
            self.timer_ns = now_ns;
        }
    }

    /// When to call [`Session::handle_keep_alive`], in ns on the caller's clock. `None` while not
    /// connected, with `keep_alive_s` 0, or with a peer that knows no PING. It may move later, so a
    /// timer may find nothing due.
    #[must_use]
    #[inline]
    pub fn keep_alive_deadline(&self, keep_alive_s: u16) -> Option<u64> {
        if keep_alive_s == 0 || !self.is_connected() || !self.peer_is_3_1 {
            return None;
        }
        Some(self.timer_ns.saturating_add(u64::from(keep_alive_s) * NS_PER_S))
    }

    /// Appends PING if the client was silent for `keep_alive_s` seconds; reports a peer from which
    /// nothing came for as long after the last one: any traffic is a sign of life, since a PONG may
    /// wait behind it. The PING counts as sent at `now_ns`.
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
        if self.awaiting_pong {
            return KeepAlive::Dead;
        }
        self.write_ping(out);
        self.timer_ns = now_ns;
        KeepAlive::Pinged
    }
}
