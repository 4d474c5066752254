//! The session that the broker of a client has to keep while the client is away.

use plan::{Reason, SECOND_NS};

use super::Client;
use crate::context::Context;

/// Mark of a session that ends by itself: the rest is the instant of its end.
const ENDING: u32 = 1 << 31;
/// A session expiry that has no end, in seconds.
const WITHOUT_END: u32 = ENDING - 1;
/// Brokers count expiries in whole seconds.
const ROUNDING_S: u64 = 1;

/// A session at the broker: none, or its expiry in seconds while the client is connected; after the
/// connection the second up to which the broker has to keep the session. Four bytes, since each
/// client has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptSession(u32);

impl KeptSession {
    /// No session that outlasts its connection.
    pub const NONE: Self = Self(0);

    /// The session of a client that the broker has accepted: it outlasts the connection by
    /// `expiry_s` seconds. `u32::MAX`, and all of 68 years or more: it has no end.
    pub fn begin(expiry_s: u32) -> Self {
        Self(expiry_s.min(WITHOUT_END))
    }

    /// Notes the end of the connection at an instant in nanoseconds. Later ends are those of
    /// attempts to connect, and change nothing.
    pub fn leave(&mut self, at_ns: u64) {
        if (1..WITHOUT_END).contains(&self.0) {
            let until_s = at_ns / SECOND_NS + u64::from(self.0);
            let until_s = until_s.saturating_sub(ROUNDING_S).min(u64::from(WITHOUT_END));
            self.0 = ENDING | until_s as u32;
        }
    }

    /// Returns `true` if the broker has to have the session at an instant in nanoseconds.
    pub fn is_due(self, now_ns: u64) -> bool {
        match self.0 & ENDING {
            0 => self.0 > 0,
            _ => now_ns / SECOND_NS < u64::from(self.0 & !ENDING),
        }
    }
}

impl Client {
    /// Notes the end of a connection whose peer has fallen silent. A broker may end the connection
    /// when the last bytes have passed, which is at most two keep-alives earlier.
    pub(super) fn note_silence(&mut self, context: &Context, reason: Reason) {
        if reason == Reason::KeepAliveTimeout {
            let population = &context.setup.plan.populations[self.population()];
            let silent_ns = 2 * u64::from(population.keep_alive_s) * SECOND_NS;
            self.kept_session.leave(context.now_ns.saturating_sub(silent_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECOND_NS;

    #[test]
    fn a_session_without_end_is_due_at_every_return() {
        for expiry_s in [WITHOUT_END, u32::MAX] {
            let mut session = KeptSession::begin(expiry_s);
            session.leave(10 * S);
            assert!(session.is_due(10 * S) && session.is_due(u64::MAX));
        }
    }

    #[test]
    fn a_session_that_ends_with_its_connection_is_never_due() {
        for mut session in [KeptSession::NONE, KeptSession::begin(0)] {
            session.leave(10 * S);
            assert!(!session.is_due(10 * S));
        }
    }

    #[test]
    fn an_expiry_begins_with_the_end_of_the_connection_and_not_with_those_of_attempts() {
        let mut session = KeptSession::begin(60);
        session.leave(100 * S);
        session.leave(130 * S);
        assert!(session.is_due(159 * S - 1));
        // The broker may have rounded down.
        assert!(!session.is_due(159 * S));
        let mut brief = KeptSession::begin(1);
        brief.leave(0);
        assert!(!brief.is_due(0));
    }
}
