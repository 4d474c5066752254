//! An evenly spaced, absolute schedule over the messages of all connections together, looked at
//! about once a millisecond.

use std::time::{Duration, Instant};

/// Messages due at equal distances from `start` on.
pub struct Schedule {
    start: Instant,
    rate_per_s: f64,
    messages: u64,
    taken: u64,
}

impl Schedule {
    /// `rate_per_s` messages a second over all connections, for `seconds`, beginning now.
    pub fn new(rate_per_s: f64, seconds: f64) -> Self {
        let messages = (rate_per_s * seconds).round() as u64;
        Self { start: Instant::now(), rate_per_s, messages, taken: 0 }
    }

    /// Takes all messages that are due; their numbers.
    pub fn take_due(&mut self) -> std::ops::Range<u64> {
        let due = (self.start.elapsed().as_secs_f64() * self.rate_per_s) as u64 + 1;
        let before = self.taken;
        self.taken = due.min(self.messages).max(before);
        before..self.taken
    }

    /// Whether every message has been taken.
    pub const fn is_over(&self) -> bool {
        self.taken == self.messages
    }

    /// Time until the next message is due, in whole milliseconds, at least 1.
    pub fn wait_ms(&self) -> u16 {
        let due = Duration::from_secs_f64(self.taken as f64 / self.rate_per_s);
        let wait_ms = due.saturating_sub(self.start.elapsed()).as_micros().div_ceil(1000);
        wait_ms.clamp(1, 1000) as u16
    }
}
