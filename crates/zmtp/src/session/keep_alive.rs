//! Heartbeats [37/ZMTP, Connection Heartbeating]: PING after a silence of the client, and detection
//! of a silent peer. The caller owns the clock and the timers; a session stores one timestamp.

use super::Session;

const NS_PER_S: u64 = 1_000_000_000;

/// Outcome of [`Session::handle_keep_alive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// The deadline is in the future or keep-alive is off: request the deadline again.
    NotDue,
    /// The session has appended PING.
    Pinged,
    /// The peer sent nothing within the keep-alive interval after PING. The caller must close the
    /// connection.
    Dead,
}

impl Session {
    /// Records that bytes were sent at `now_ns`, which postpones the next PING. Any clock works
    /// that never runs backwards.
    #[inline]
    pub const fn note_sent(&mut self, now_ns: u64) {
        // While a PING is unanswered, its time is kept: traffic must not postpone `Dead`.
        if !self.awaiting_pong {
            self.timer_ns = now_ns;
        }
    }

    /// Time to call [`Session::handle_keep_alive`], in ns on the caller's clock. `None` while not
    /// connected, with `keep_alive_s` 0, or with a peer that has no PING. The deadline may move
    /// later, so a timer may fire too early.
    #[must_use]
    #[inline]
    pub fn keep_alive_deadline(&self, keep_alive_s: u16) -> Option<u64> {
        if keep_alive_s == 0 || !self.is_connected() || !self.peer_is_3_1 {
            return None;
        }
        Some(self.timer_ns.saturating_add(u64::from(keep_alive_s) * NS_PER_S))
    }

    /// Appends PING if the client was silent for `keep_alive_s` seconds. The PING counts as sent at
    /// `now_ns`. Reports a peer that has sent nothing for `keep_alive_s` seconds after the last
    /// PING. Any bytes keep the connection, because a PONG may wait behind other traffic.
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
