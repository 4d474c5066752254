//! The deliveries of each stream to each receiver: a window over the last 128 places, from which
//! every delivery is a first one, a duplicate, or one out of order. Places that were passed over
//! and that the window has left behind are listed apart. Bounded: deliveries that do not fit are
//! counted as unfollowed.

use std::collections::BTreeMap;

use plan::{Expected, INCARNATION_PLACES, StreamId, Ways};
use rustc_hash::FxHashMap;

/// The table of pairs is divided, so that no insertion moves more than this part of it.
const PARTS: usize = 1 << u8::BITS;
/// Pairs of stream and receiver in one part. A part grows by doubling and is filled to seven
/// eighths: all parts together fill 2^22 places of 49 bytes, 206 MB; one more pair in each would
/// double that.
const PART_PAIRS_MAX: usize = (1 << 22) / PARTS / 8 * 7;
const _: () = assert!(size_of::<(PairKey, Window)>() == 48, "and a byte of the table's own");
/// Pairs of one part below which it grows by itself: that takes some microseconds.
const ROOM_MIN: usize = 64 / 8 * 7;
/// Ranges of places that were passed over and not filled: some 30 bytes each, 16 MB.
const GAPS_MAX: usize = 1 << 19;
const WINDOW: u32 = u128::BITS;
/// Within an incarnation places are numbers modulo [`INCARNATION_PLACES`]: a longer stream begins
/// at its first place again.
const PLACE: u32 = INCARNATION_PLACES - 1;
/// Places behind the next one that count as earlier; the others are later ones.
const BEHIND: u32 = INCARNATION_PLACES / 2;

/// Receiver, stream, and number of the copy.
type PairKey = (u64, u32, u8);

/// Classes of deliveries.
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
        /// `true` if the place had been counted as passed over.
        filled: bool,
    },
    /// The message was delivered before.
    Duplicate,
    /// Too far behind its stream to distinguish it from a duplicate.
    Stale,
    /// The ledger is full; first or not is unknown.
    Unfollowed,
}

/// The deliveries of all pairs.
#[derive(Default)]
pub struct Ledger {
    windows: Windows,
    gaps: Gaps,
    /// Apart, because members that the ledger does not see leave gaps for good.
    group_gaps: Gaps,
}

/// The windows of all pairs. The parts fill evenly, so all would grow at once: they grow one after
/// another, ahead of time.
struct Windows {
    parts: Vec<FxHashMap<PairKey, Window>>,
    pairs: u64,
    /// Pairs that a part has room for before it grows.
    room: usize,
    /// The next part to grow.
    next: usize,
    /// Pairs in all parts at which that part grows.
    next_pairs: u64,
}

/// Places of one stream that one receiver has seen.
#[derive(Clone, Copy)]
pub struct Window {
    /// One bit for each of the last places before `next`, the latest lowest.
    seen: u128,
    next: u32,
    /// Places from the first delivery of the stream to `next`; `u32::MAX` stands for more too.
    length: u32,
    ways: Ways,
}

/// Ranges of places that were passed over and not filled since.
#[derive(Default)]
struct Gaps {
    /// The place behind a range, by stream, receiver, and its first place.
    ranges: BTreeMap<(u64, u32, u32), u32>,
    /// Some did not fit.
    overflowed: bool,
}

impl Default for Windows {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| FxHashMap::default()).collect();
        let mut windows = Self { parts, pairs: 0, room: ROOM_MIN, next: 0, next_pairs: 0 };
        windows.await_half();
        windows
    }
}

impl Ledger {
    /// Notes the delivery of place `sequence` of a stream to a receiver.
    #[inline]
    pub fn note(&mut self, receiver: u32, stream: StreamId, sequence: u32) -> Delivery {
        self.note_ways(receiver, stream, sequence, || Ways::ONE).0
    }

    /// Notes the delivery of place `sequence` of a stream to a receiver that may get it in several
    /// `ways`. Returns also which delivery is expected: the message is expected as received if none
    /// is.
    #[inline]
    pub fn note_ways(
        &mut self,
        receiver: u32,
        stream: StreamId,
        sequence: u32,
        ways: impl FnOnce() -> Ways,
    ) -> (Delivery, Expected) {
        let key = (stream.key(), receiver, 0);
        let Some(window) = self.windows.entry(key, sequence, ways) else {
            return (Delivery::Unfollowed, Expected::Client);
        };
        let (noted, ways) = (window.note(sequence), window.ways);
        if noted == (Delivery::First { passed_over: 0 }) {
            return (noted, ways.expected);
        }
        let known = window.covers(sequence);
        let noted = self.gaps.settle((key.0, receiver), sequence, noted, known && ways.every);
        if ways.more > 0 && matches!(noted, Delivery::Duplicate | Delivery::Stale) {
            return self.note_copy(key, sequence, ways).unwrap_or((noted, ways.expected));
        }
        (if ways.every { noted } else { noted.without_gaps() }, ways.expected)
    }

    /// Notes the delivery of place `sequence` of a stream to any member of a group. Members are
    /// behind each other, so many places come late.
    pub fn note_group(&mut self, group: u32, stream: StreamId, sequence: u32) -> Delivery {
        let Some(window) = self.follow(group, stream, sequence) else {
            return Delivery::Unfollowed;
        };
        let noted = window.note(sequence);
        let known = window.covers(sequence);
        self.group_gaps.settle((stream.key(), group), sequence, noted, known)
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
        self.follow_copy(receiver, stream, sequence, 0)
    }

    /// The same for the copies with one number, from 1 on: a stream of their own.
    #[inline]
    pub fn follow_copy(
        &mut self,
        receiver: u32,
        stream: StreamId,
        sequence: u32,
        copy: u8,
    ) -> Option<&mut Window> {
        self.windows.entry((stream.key(), receiver, copy), sequence, || Ways::ONE)
    }

    /// The window of a stream at a receiver, to note its next deliveries outside of the ledger.
    /// `None` if there is no window, or some of its deliveries are not expected of the receiver.
    pub fn lift(&self, receiver: u32, stream: StreamId) -> Option<Window> {
        let key = (stream.key(), receiver, 0);
        let window = self.windows.parts[part_of(&key)].get(&key).copied();
        window.filter(|window| window.ways.expected == Expected::Client)
    }

    /// Puts a lifted window back. In between, the ledger must note no delivery of its stream to
    /// its receiver.
    pub fn put_back(&mut self, receiver: u32, stream: StreamId, window: Window) {
        let key = (stream.key(), receiver, 0);
        self.windows.parts[part_of(&key)].insert(key, window);
    }

    /// Pairs followed.
    pub const fn pairs(&self) -> u64 {
        self.windows.pairs
    }

    /// Notes the delivery of a message that came before as one more copy of it; `None`: as many as
    /// there are ways have come.
    #[cold]
    fn note_copy(
        &mut self,
        key: PairKey,
        sequence: u32,
        ways: Ways,
    ) -> Option<(Delivery, Expected)> {
        let copies = u8::from(ways.expected != Expected::Nothing) + ways.more;
        for copy in 1..copies {
            let key = (key.0, key.1, copy);
            let Some(window) = self.windows.entry(key, sequence, || ways) else {
                return Some((Delivery::Unfollowed, Expected::Nothing));
            };
            let noted = window.note(sequence);
            if !matches!(noted, Delivery::Duplicate | Delivery::Stale) {
                return Some((noted.without_gaps(), Expected::Nothing));
            }
        }
        None
    }
}

impl Windows {
    /// The window of a key, made with `sequence` as its next place if there is none; `None`: there
    /// is none and its part is full.
    #[inline]
    fn entry(
        &mut self,
        key: PairKey,
        sequence: u32,
        ways: impl FnOnce() -> Ways,
    ) -> Option<&mut Window> {
        if self.pairs >= self.next_pairs {
            self.grow_next();
        }
        let part = &mut self.parts[part_of(&key)];
        if part.len() >= PART_PAIRS_MAX {
            return part.get_mut(&key);
        }
        Some(part.entry(key).or_insert_with(|| {
            self.pairs += 1;
            Window { seen: 0, next: sequence, length: 0, ways: ways() }
        }))
    }

    /// Doubles the room of one part. While parts go from half full to three quarters, each has its
    /// turn.
    #[cold]
    fn grow_next(&mut self) {
        let part = &mut self.parts[self.next];
        part.reserve((2 * self.room).saturating_sub(part.len()));
        self.next += 1;
        self.next_pairs += self.room as u64 / 4;
        if self.next == PARTS {
            (self.next, self.room) = (0, 2 * self.room);
            self.await_half();
        }
    }

    /// Parts grow once they are half full, up to their bound.
    const fn await_half(&mut self) {
        let half = (PARTS * self.room / 2) as u64;
        self.next_pairs = if self.room < PART_PAIRS_MAX { half } else { u64::MAX };
    }
}

/// Clients and receivers are numbered in a row, often both: the multiplication mixes.
#[inline]
const fn part_of(key: &PairKey) -> usize {
    ((key.0 as u32 ^ key.1.rotate_left(16)).wrapping_mul(0x9e37_79b9) >> 24) as usize
}

impl Delivery {
    /// The same for a receiver that gets some messages of a stream only.
    const fn without_gaps(self) -> Self {
        match self {
            Self::First { .. } => Self::First { passed_over: 0 },
            Self::Reordered { .. } => Self::Reordered { filled: false },
            other => other,
        }
    }
}

impl Window {
    /// A window of no stream.
    pub const UNUSED: Self = Self { seen: 0, next: 0, length: 0, ways: Ways::ONE };

    /// Notes the delivery of place `sequence`.
    #[inline]
    pub fn note(&mut self, sequence: u32) -> Delivery {
        if self.note_next(sequence) {
            return Delivery::First { passed_over: 0 };
        }
        let (incarnation, current) = (sequence & !PLACE, self.next & !PLACE);
        if incarnation < current {
            return Delivery::Stale;
        }
        if incarnation > current {
            (self.seen, self.next, self.length) = (1, following(sequence), 1);
            return Delivery::First { passed_over: 0 };
        }
        let age = self.age(sequence);
        if age >= BEHIND {
            let ahead = PLACE - age;
            self.seen = if ahead + 1 < WINDOW { self.seen << (ahead + 1) } else { 0 } | 1;
            self.next = following(sequence);
            self.length = self.length.saturating_add(ahead + 1);
            return Delivery::First { passed_over: ahead };
        }
        if age >= WINDOW {
            return Delivery::Stale;
        }
        let bit = 1u128 << age;
        if self.seen & bit != 0 {
            return Delivery::Duplicate;
        }
        self.seen |= bit;
        Delivery::Reordered { filled: age < self.length }
    }

    /// Notes the delivery of place `sequence` if this is the next place. Returns `false` and notes
    /// nothing otherwise.
    #[inline]
    pub fn note_next(&mut self, sequence: u32) -> bool {
        let is_next = sequence == self.next;
        if is_next {
            self.seen = self.seen << 1 | 1;
            self.next = following(sequence);
            self.length = self.length.saturating_add(1);
        }
        is_next
    }

    /// Returns `true` if a place lies behind the first delivery of the stream and before the next.
    fn covers(&self, sequence: u32) -> bool {
        let age = self.age(sequence);
        (sequence ^ self.next) & !PLACE == 0 && age < BEHIND && age < self.length
    }

    /// Places between this one and the last.
    const fn age(&self, sequence: u32) -> u32 {
        self.next.wrapping_sub(sequence).wrapping_sub(1) & PLACE
    }
}

/// The place after this one in the same incarnation.
const fn following(sequence: u32) -> u32 {
    sequence & !PLACE | (sequence.wrapping_add(1) & PLACE)
}

impl Gaps {
    /// Notes what was passed over and what is filled, and looks up what the window has forgotten.
    /// `known` says that the stream has covered this place.
    #[cold]
    fn settle(
        &mut self,
        pair: (u64, u32),
        sequence: u32,
        noted: Delivery,
        known: bool,
    ) -> Delivery {
        match noted {
            Delivery::First { passed_over } if known && passed_over > 0 => {
                self.open(pair, sequence, passed_over);
            }
            Delivery::Reordered { filled: true } => {
                self.fill(pair, sequence);
            }
            Delivery::Stale if self.fill(pair, sequence) => {
                return Delivery::Reordered { filled: true };
            }
            Delivery::Stale if known && !self.overflowed => return Delivery::Duplicate,
            _ => {}
        }
        noted
    }

    /// Adds the `count` places before `sequence`.
    fn open(&mut self, (stream, receiver): (u64, u32), sequence: u32, count: u32) {
        let place = sequence & PLACE;
        let start = sequence & !PLACE;
        // A stream that has begun at its first place again may have passed over the end of it.
        let wrapped = count.saturating_sub(place);
        for (from, to) in [
            (start + (place - (count - wrapped)), sequence),
            (
                start.wrapping_add(INCARNATION_PLACES - wrapped),
                start.wrapping_add(INCARNATION_PLACES),
            ),
        ] {
            if from < to {
                self.insert((stream, receiver, from), to);
            }
        }
    }

    fn insert(&mut self, key: (u64, u32, u32), to: u32) {
        if self.ranges.len() < GAPS_MAX {
            self.ranges.insert(key, to);
        } else {
            self.overflowed = true;
        }
    }

    /// Takes a place out; `false`: it is in no range.
    fn fill(&mut self, (stream, receiver): (u64, u32), place: u32) -> bool {
        let mut before = self.ranges.range((stream, receiver, 0)..=(stream, receiver, place));
        let Some((&key, &to)) = before.next_back() else { return false };
        if place >= to {
            return false;
        }
        self.ranges.remove(&key);
        if key.2 < place {
            self.insert(key, place);
        }
        if place + 1 < to {
            self.insert((stream, receiver, place + 1), to);
        }
        true
    }
}

#[cfg(test)]
mod tests;
