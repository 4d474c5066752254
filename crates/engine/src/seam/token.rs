//! Tokens of messages in flight.

use agent::publication;
use plan::SentAt;

/// A message in flight: 24 bytes from which the protocol makes the same packet again.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    intended_ns: u64,
    sent: SentAt,
    /// Index of the publication in its population, above [`NUMBER_BITS`] of the number.
    place: u64,
}

/// Bits for the number of a message among those of its client and publication: 89 years at 100,000
/// messages a second.
const NUMBER_BITS: u32 = 48;

const _: () = assert!(size_of::<Token>() == 24);

impl Token {
    /// Stands for a publication in tokens of answers: the highest index of all.
    const ANSWERS: usize = u16::MAX as usize;

    /// Stands for a publication in the token of a message of the client's own.
    const OWN: usize = Self::ANSWERS - 1;

    /// Token of a message that belongs to no publication and is no answer.
    pub const fn own(now_ns: u64) -> Self {
        Self::new(Self::OWN, 0, now_ns, SentAt::plain(now_ns))
    }

    /// Returns `true` for a message that belongs to no publication and is no answer.
    #[inline]
    pub const fn is_own(&self) -> bool {
        self.publication() == Self::OWN
    }

    /// Token of a message: number among those of its client and publication, scheduled instant in
    /// nanoseconds, and actual instant.
    #[inline]
    pub const fn new(publication: usize, number: u64, intended_ns: u64, sent: SentAt) -> Self {
        Self { intended_ns, sent, place: (publication as u64) << NUMBER_BITS | number }
    }

    /// Token of an answer: its number among those of its client, and the instant of the request, in
    /// nanoseconds.
    pub const fn of_answer(number: u64, received_ns: u64) -> Self {
        Self::new(Self::ANSWERS, number, received_ns, SentAt::plain(received_ns))
    }

    /// Number of the answer among those of its client; `None` for messages of publications.
    #[inline]
    pub const fn answer(&self) -> Option<u64> {
        if self.publication() == Self::ANSWERS { Some(self.moment().number) } else { None }
    }

    /// Number and instants of the message.
    #[inline]
    pub const fn moment(&self) -> publication::Moment {
        let Self { intended_ns, sent, .. } = *self;
        let number = self.place & ((1 << NUMBER_BITS) - 1);
        publication::Moment { number, intended_ns, sent }
    }

    /// Index of the publication in its population.
    #[inline]
    pub const fn publication(&self) -> usize {
        (self.place >> NUMBER_BITS) as usize
    }
}
