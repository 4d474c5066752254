//! In which order a client goes through the topics of a publication: a pure function from message
//! number to topic, and back. Any shard, and a second run, finds the same; nothing is stored.

use crate::model::{Order, Publication};
use crate::random::Random;

/// Tells these draws from those of publications' schedules and sizes, whose purposes are small.
const PURPOSE: u64 = 2 << 40;
/// Each of them exchanges half of all pairs of a random pairing, so that what is left of the first
/// order is halved: 2^-16.
const EXCHANGES: u64 = 16;

/// The variants of a publication's topic. Every round of as many messages visits each one once, so
/// message `k` is number `k / count` of its variant in any order.
#[derive(Clone, Copy, Debug)]
pub struct Variants {
    count: u32,
    /// Chance, where the order is drawn.
    random: Option<Random>,
}

impl Variants {
    /// Those of a publication; `index` is its own over all populations of the plan.
    #[must_use]
    pub fn new(publication: &Publication, seed: u64, index: usize) -> Self {
        let count = publication.topic.variants();
        let shuffled = publication.order == Order::Shuffled && count > 1;
        Self { count, random: shuffled.then(|| Random::new(seed, PURPOSE + index as u64)) }
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The variant of message `number` of `client` (its index over all agents).
    #[must_use]
    pub fn of(&self, client: u32, number: u32) -> u32 {
        let place = number % self.count;
        match self.random {
            None => place,
            Some(random) => {
                let round = round(random, client, number / self.count);
                (0..EXCHANGES).fold(place, |at, step| exchanged(round.of(step), self.count, at))
            }
        }
    }

    /// Which of its variant's messages the message `number` is.
    #[must_use]
    pub const fn sequence(&self, number: u32) -> u32 {
        number / self.count
    }

    /// How many of the first `messages` of `client` fall to `variant`.
    #[must_use]
    pub fn messages(&self, client: u32, variant: u32, messages: u32) -> u32 {
        let (rounds, rest) = (messages / self.count, messages % self.count);
        rounds + u32::from(rest > 0 && self.place(client, variant, rounds) < rest)
    }

    /// Where in a round a variant has its turn: each exchange undoes itself.
    fn place(&self, client: u32, variant: u32, rounds: u32) -> u32 {
        let Some(random) = self.random else { return variant };
        let round = round(random, client, rounds);
        (0..EXCHANGES).rev().fold(variant, |at, step| exchanged(round.of(step), self.count, at))
    }
}

fn round(random: Random, client: u32, round: u32) -> Random {
    random.of(u64::from(client) << 32 | u64::from(round))
}

/// One step of the swap-or-not shuffle (Hoang, Morris, Rogaway: "An enciphering scheme based on a
/// card shuffle", 2012): `at` and `key - at` change places or not, as chance has it for the pair.
fn exchanged(step: Random, count: u32, at: u32) -> u32 {
    let key = step.below(u64::from(count)) as u32;
    let partner = if key >= at { key - at } else { key + (count - at) };
    if step.of(u64::from(at.max(partner))).bits() & 1 == 1 { partner } else { at }
}
