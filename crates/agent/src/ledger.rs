//! What each receiver has had of each stream: a window over the last 128 places, from which every
//! delivery is a first one, a duplicate, or one out of order. Bounded; what does not fit is said
//! to be unfollowed. It knows neither how many were sent nor to whom: that is the fan-out's.

use plan::{INCARNATION_PLACES, StreamId};
use rustc_hash::FxHashMap;

/// Pairs of stream and receiver that are followed at most. The table grows by doubling and is
/// filled to seven eighths: these fill 2^22 places of 49 bytes, 206 MB; one more would double that.
const PAIRS_MAX: usize = (1 << 22) / 8 * 7;
const _: () = assert!(size_of::<((u32, u64), Window)>() == 48, "and a byte of the table's own");
const WINDOW: u32 = u128::BITS;

/// What a delivery was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The first of its message, after this many places that were passed over.
    First {
        /// Places between the last delivery and this one; none where a later incarnation of the
        /// publisher has begun the stream anew.
        passed_over: u32,
    },
    /// The first of its message, after a later one of the stream.
    Reordered {
        /// Whether its place had been counted as passed over.
        filled: bool,
    },
    /// The message was delivered before.
    Duplicate,
    /// Too far behind its stream to be told from a duplicate.
    Stale,
    /// The ledger is full; first or not is unknown.
    Unfollowed,
}

/// The windows of all pairs.
#[derive(Default)]
pub struct Ledger {
    windows: FxHashMap<(u32, u64), Window>,
}

/// What a receiver has had of a stream.
pub struct Window {
    /// One bit for each of the last places before `next`, the latest lowest.
    seen: u128,
    next: u32,
    first: u32,
}

impl Ledger {
    /// Notes the delivery of place `sequence` of a stream to a receiver.
    #[inline]
    pub fn note(&mut self, receiver: u32, stream: StreamId, sequence: u32) -> Delivery {
        let window = self.follow(receiver, stream, sequence);
        window.map_or(Delivery::Unfollowed, |window| window.note(sequence))
    }

    /// The window of a stream at a receiver, to note several deliveries in it, of which the first
    /// is that of place `sequence`; `None`: the ledger is full.
    #[inline]
    pub fn follow(
        &mut self,
        receiver: u32,
        stream: StreamId,
        sequence: u32,
    ) -> Option<&mut Window> {
        let key = (receiver, stream.key());
        if self.windows.len() >= PAIRS_MAX {
            return self.windows.get_mut(&key);
        }
        Some(self.windows.entry(key).or_insert(Window { seen: 0, next: sequence, first: sequence }))
    }

    /// Pairs followed.
    pub fn pairs(&self) -> u64 {
        self.windows.len() as u64
    }
}

impl Window {
    /// Notes the delivery of place `sequence`.
    #[inline]
    pub fn note(&mut self, sequence: u32) -> Delivery {
        let ahead = sequence.wrapping_sub(self.next);
        if ahead == 0 {
            self.seen = self.seen << 1 | 1;
            self.next = sequence.wrapping_add(1);
            return Delivery::First { passed_over: 0 };
        }
        if ahead < u32::MAX / 2 {
            if sequence / INCARNATION_PLACES != self.next / INCARNATION_PLACES {
                *self = Self { seen: 1, next: sequence.wrapping_add(1), first: sequence };
                return Delivery::First { passed_over: 0 };
            }
            self.seen = if ahead + 1 < WINDOW { self.seen << (ahead + 1) } else { 0 } | 1;
            self.next = sequence.wrapping_add(1);
            return Delivery::First { passed_over: ahead };
        }
        let age = self.next.wrapping_sub(sequence).wrapping_sub(1);
        if age >= WINDOW {
            return Delivery::Stale;
        }
        let bit = 1u128 << age;
        if self.seen & bit != 0 {
            return Delivery::Duplicate;
        }
        self.seen |= bit;
        Delivery::Reordered { filled: sequence.wrapping_sub(self.first) < u32::MAX / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::Delivery::{Duplicate, First, Reordered, Stale};
    use super::*;

    const STREAM: StreamId = StreamId { publication: 1, variant: 2, client: 3 };

    fn notes(sequences: &[u32]) -> Vec<Delivery> {
        let mut ledger = Ledger::default();
        sequences.iter().map(|&s| ledger.note(9, STREAM, s)).collect()
    }

    #[test]
    fn each_kind_of_delivery_is_told_apart() {
        let next = First { passed_over: 0 };
        let (filled, early) = (Reordered { filled: true }, Reordered { filled: false });
        assert_eq!(notes(&[0, 1, 2]), [next, next, next]);
        assert_eq!(notes(&[0, 0, 1, 0]), [next, Duplicate, next, Duplicate]);
        assert_eq!(notes(&[0, 3, 1, 1]), [next, First { passed_over: 2 }, filled, Duplicate]);
        assert_eq!(notes(&[500, 499]), [next, early]);
        assert_eq!(
            notes(&[0, 128, 0, 129, 1]),
            [next, First { passed_over: 127 }, Stale, next, Stale]
        );
        assert_eq!(notes(&[0, 127, 0]), [next, First { passed_over: 126 }, Duplicate]);
        assert_eq!(notes(&[0, 5000, 4999]), [next, First { passed_over: 4999 }, filled]);
        assert_eq!(notes(&[u32::MAX, 0, u32::MAX]), [next, next, Duplicate]);
    }

    #[test]
    fn a_later_incarnation_begins_its_streams_anew() {
        const PLACES: u32 = INCARNATION_PLACES;
        let (next, early) = (First { passed_over: 0 }, Reordered { filled: false });
        assert_eq!(
            notes(&[0, 1, 9, PLACES, PLACES + 1, PLACES + 1, PLACES + 4]),
            [next, next, First { passed_over: 7 }, next, next, Duplicate, First { passed_over: 2 }]
        );
        assert_eq!(
            notes(&[7, PLACES + 3, PLACES + 2, 8, PLACES + 4]),
            [next, next, early, Stale, next]
        );
        let last = (plan::INCARNATIONS - 1) * PLACES;
        assert_eq!(notes(&[0, last, 0, last + 1, PLACES]), [next, next, Stale, next, Stale]);
        // One that sends more goes on as before.
        assert_eq!(notes(&[PLACES - 1, PLACES, PLACES - 1]), [next, next, Duplicate]);
    }

    #[test]
    fn receivers_and_streams_are_kept_apart() {
        let mut ledger = Ledger::default();
        let other = StreamId { variant: 3, ..STREAM };
        for (receiver, stream) in [(1, STREAM), (2, STREAM), (1, other)] {
            assert_eq!(ledger.note(receiver, stream, 7), First { passed_over: 0 });
        }
        assert_eq!(ledger.note(1, other, 7), Duplicate);
        assert_eq!(ledger.pairs(), 3);
    }
}
