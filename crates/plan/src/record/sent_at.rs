//! Actual send time of a message as one word, with the wait of its client that delayed the message.
//! The word of a message that nothing but the agent delayed is the instant itself.

/// Bits of the word for the instant.
const INSTANT_BITS: u32 = 56;
const INSTANT: u64 = (1 << INSTANT_BITS) - 1;
/// Bits of the word for the share of the lateness in which the client waited.
const SHARE_BITS: u32 = 6;
const SHARES: u64 = 1 << SHARE_BITS;
/// Longest lateness of which the word can hold a share, in nanoseconds.
const LATENESS_MAX: u64 = INSTANT / 2;
/// Place of the wait in the word.
const WAIT_SHIFT: u32 = INSTANT_BITS + SHARE_BITS;

/// Cause for which a client sends a message late although its agent is on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WaitCause {
    /// The window is full, the peer accepts no further message, or no packet identifier is free.
    Window = 1,
    /// Earlier bytes wait for room in the socket.
    Socket = 2,
    /// The client is not connected, or not ready.
    Connection = 3,
}

/// Actual send time of a message, and the wait before that time. The bits are, from the lowest: 56
/// of the instant in nanoseconds, 6 of the wait in 64ths of the lateness less one, 2 of its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentAt(u64);

impl SentAt {
    /// A message that is sent at `actual_ns`, delayed by its agent at most.
    #[inline]
    #[must_use]
    pub const fn plain(actual_ns: u64) -> Self {
        Self(actual_ns & INSTANT)
    }

    /// A message that is sent at `actual_ns`, and that waited from `intended_ns` to `until_ns` if
    /// that is later.
    #[inline]
    #[must_use]
    pub const fn after(wait: WaitCause, actual_ns: u64, intended_ns: u64, until_ns: u64) -> Self {
        let lateness_ns = actual_ns.saturating_sub(intended_ns);
        if until_ns <= intended_ns || lateness_ns == 0 || lateness_ns > LATENESS_MAX {
            return Self::plain(actual_ns);
        }
        let waited_ns = until_ns - intended_ns;
        let waited_ns = if waited_ns > lateness_ns { lateness_ns } else { waited_ns };
        let share = (waited_ns * SHARES + lateness_ns / 2) / lateness_ns;
        if share == 0 {
            return Self::plain(actual_ns);
        }
        let marks = (wait as u64) << WAIT_SHIFT | (share - 1) << INSTANT_BITS;
        Self(actual_ns & INSTANT | marks)
    }

    /// The time as its word.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The time with this word.
    #[inline]
    #[must_use]
    pub const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// Actual send time in nanoseconds, of a message that was scheduled at `intended_ns`. The upper
    /// bits follow from the scheduled time, which is at most 416 days away.
    #[inline]
    #[must_use]
    pub const fn actual_ns(self, intended_ns: u64) -> u64 {
        intended_ns.wrapping_add(self.lateness_ns(intended_ns).cast_unsigned())
    }

    /// Time from the scheduled to the actual send, in nanoseconds.
    #[inline]
    #[must_use]
    pub const fn lateness_ns(self, intended_ns: u64) -> i64 {
        let unused = u64::BITS - INSTANT_BITS;
        (self.0.wrapping_sub(intended_ns) << unused).cast_signed() >> unused
    }

    /// The wait and its length in nanoseconds; `None` if nothing but the agent delayed the message.
    #[inline]
    #[must_use]
    pub const fn waited(self, intended_ns: u64) -> Option<(WaitCause, u64)> {
        let wait = match self.0 >> WAIT_SHIFT {
            0 => return None,
            1 => WaitCause::Window,
            2 => WaitCause::Socket,
            _ => WaitCause::Connection,
        };
        let share = (self.0 >> INSTANT_BITS) % SHARES + 1;
        let lateness_ns = self.lateness_ns(intended_ns);
        let lateness_ns = if lateness_ns < 0 { 0 } else { lateness_ns.cast_unsigned() };
        Some((wait, (lateness_ns * share) >> SHARE_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wait() -> impl Strategy<Value = WaitCause> {
        prop_oneof![Just(WaitCause::Window), Just(WaitCause::Socket), Just(WaitCause::Connection)]
    }

    proptest! {
        #[test]
        fn the_time_and_the_wait_are_read_back(
            wait in wait(),
            intended_ns in prop_oneof![0..1u64 << 57, u64::MAX - (1 << 57)..u64::MAX - (1 << 56)],
            lateness_ns in prop_oneof![0u64..200, 0..1u64 << 44],
            share in 0.0..=1.0,
        ) {
            let actual_ns = intended_ns + lateness_ns;
            let waited_ns = (lateness_ns as f64 * share) as u64;
            let sent = SentAt::after(wait, actual_ns, intended_ns, intended_ns + waited_ns);
            let sent = SentAt::of_word(sent.word());
            prop_assert_eq!(sent.actual_ns(intended_ns), actual_ns);
            let read = sent.waited(intended_ns);
            prop_assert!(read.is_none_or(|(read, _)| read == wait));
            let read_ns = read.map_or(0, |(_, read_ns)| read_ns);
            prop_assert!(read_ns <= lateness_ns);
            prop_assert!(read_ns.abs_diff(waited_ns) <= lateness_ns / 128 + 1);
        }

        #[test]
        fn a_message_without_a_wait_has_its_instant_as_its_word(
            intended_ns in 0..1u64 << 50,
            late_ns in -5i64..1 << 44,
        ) {
            let actual_ns = intended_ns.saturating_add_signed(late_ns);
            let sent = SentAt::plain(actual_ns);
            prop_assert_eq!(sent.word(), actual_ns);
            prop_assert_eq!(sent.actual_ns(intended_ns), actual_ns);
            prop_assert_eq!(sent.waited(intended_ns), None);
        }
    }
}
