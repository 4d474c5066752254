//! Order of a publication's topics, or of its records, for a client: a pure function from message
//! number to topic, and back. Every agent, and a second run, computes the same order. Nothing is
//! stored but the round of topics with weights.

use std::sync::Arc;

use crate::model::flows::{Order, Payload, Publication};
use crate::schedule::random::Random;
use crate::schedule::recorded::Recorded;

/// Separates these draws from draws of schedules and sizes, whose purposes are small.
const PURPOSE: u64 = 2 << 40;
/// The same for rounds of weighted topics, and for orders of records.
const ROUNDS: u64 = 8 << 40;
const RECORDS: u64 = 9 << 40;
/// Most messages in a round of topics with weights: 6 MB.
pub const ROUND_MAX: u32 = 1 << 20;
/// Number of exchanges. Each exchange swaps half of all pairs of a random pairing, so that the
/// remainder of the first order is halved: 2^-16.
const EXCHANGES: u64 = 16;

/// Variants of a publication's topic. Every round of `count` messages visits each variant once. So
/// message `k` is number `k / count` of its variant in any order. Variants with weights have a
/// round of their own. Variants of recorded messages are the topics of each client, in the order of
/// its messages.
#[derive(Clone, Debug)]
pub struct Variants {
    count: u32,
    /// Source of chance if the order is drawn.
    random: Option<Random>,
    /// Round of variants with weights; `None` without weights.
    round: Option<Arc<Round>>,
    /// Recorded messages; `None` for other payloads.
    recorded: Option<Arc<Recorded>>,
}

/// A round of messages in which each variant has as many messages as its weight. All clients repeat
/// the same round, and each begins at a place of its own, so that all of them together follow the
/// weights from the first message on.
#[derive(Debug)]
struct Round {
    /// Variant at each place.
    variants: Vec<u16>,
    /// Places of the variants: those of the first in rising order, then those of the second.
    places: Vec<u32>,
    /// Index in `places` at which the places of each variant end.
    ends: Vec<u32>,
    /// Source of chance for the first place of each client.
    starts: Random,
}

impl Variants {
    /// Variants of a publication; `index` is the publication's index over all populations of the
    /// plan.
    #[must_use]
    pub fn new(publication: &Publication, seed: u64, index: usize) -> Self {
        let count = publication.topic.variants();
        let random = Random::new(seed, ROUNDS + index as u64);
        let round = || Arc::new(Round::new(publication.weight_ends(), random));
        let round = (!publication.weights.is_empty()).then(round);
        let recorded = publication.payload.recorded().cloned();
        let ordered = Self::ordered(count, publication.order, (seed, PURPOSE + index as u64));
        Self { round, recorded, ..ordered }
    }

    /// The same for the records of a publication's payload; one variant without records.
    #[must_use]
    pub fn of_records(publication: &Publication, seed: u64, index: usize) -> Self {
        let (count, order) = match &publication.payload {
            Payload::Records { records, order, .. } => (records.count() as u32, *order),
            _ => (1, Order::Turn),
        };
        Self::ordered(count, order, (seed, RECORDS + index as u64))
    }

    fn ordered(count: u32, order: Order, (seed, purpose): (u64, u64)) -> Self {
        let shuffled = order == Order::Shuffled && count > 1;
        let random = shuffled.then(|| Random::new(seed, purpose));
        Self { count, random, round: None, recorded: None }
    }

    /// Number of variants of `client` (its index over all agents).
    #[must_use]
    pub fn count(&self, client: u32) -> u32 {
        self.recorded.as_ref().map_or(self.count, |recorded| recorded.variants(client))
    }

    /// Variant of message `number` of `client` (its index over all agents).
    #[must_use]
    #[inline]
    pub fn of(&self, client: u32, number: u64) -> u32 {
        match (&self.recorded, &self.round, self.random) {
            (Some(recorded), ..) => recorded.variant(client, number),
            (None, Some(round), _) => round.of(client, number),
            (None, None, None) => (number % u64::from(self.count)) as u32,
            (None, None, Some(random)) => self.drawn(random, client, number),
        }
    }

    /// Sequence number of message `number` of `client` among its messages of the same variant.
    #[must_use]
    #[inline]
    pub fn sequence(&self, client: u32, number: u64) -> u64 {
        match (&self.recorded, &self.round) {
            (Some(recorded), _) => recorded.sequence(client, number),
            (None, Some(round)) => round.messages(client, round.of(client, number), number),
            (None, None) => self.rounds(number),
        }
    }

    const fn rounds(&self, number: u64) -> u64 {
        number / self.count as u64
    }

    /// Number of messages with `variant` among the first `messages` of `client`.
    #[must_use]
    pub fn messages(&self, client: u32, variant: u32, messages: u64) -> u64 {
        if let Some(recorded) = &self.recorded {
            return recorded.messages_on(client, variant, messages);
        }
        if let Some(round) = &self.round {
            return round.messages(client, variant, messages);
        }
        let (rounds, rest) = (messages / u64::from(self.count), messages % u64::from(self.count));
        let in_rest = || u64::from(self.place(client, variant, rounds as u32)) < rest;
        rounds + u64::from(rest > 0 && in_rest())
    }

    fn drawn(&self, random: Random, client: u32, number: u64) -> u32 {
        let round = round(random, client, self.rounds(number) as u32);
        let place = (number % u64::from(self.count)) as u32;
        (0..EXCHANGES).fold(place, |at, step| exchanged(round.of(step), self.count, at))
    }

    /// Place of a variant in a round; each exchange undoes itself.
    fn place(&self, client: u32, variant: u32, rounds: u32) -> u32 {
        let Some(random) = self.random else { return variant };
        let round = round(random, client, rounds);
        (0..EXCHANGES).rev().fold(variant, |at, step| exchanged(round.of(step), self.count, at))
    }
}

impl Round {
    /// A round of variants whose parts of it end at `ends`.
    fn new(ends: Vec<u32>, random: Random) -> Self {
        let length = ends.last().copied().unwrap_or(0);
        let mut variants = Vec::with_capacity(length as usize);
        for (variant, &end) in ends.iter().enumerate() {
            variants.resize(end as usize, variant as u16);
        }
        let order = random.of(0);
        // Fisher and Yates.
        for at in (1..variants.len()).rev() {
            variants.swap(at, order.of(at as u64).below(at as u64 + 1) as usize);
        }
        let mut places: Vec<u32> = (0..length).collect();
        places.sort_by_key(|&place| variants[place as usize]);
        Self { variants, places, ends, starts: random.of(1) }
    }

    fn start(&self, client: u32) -> u64 {
        self.starts.of(u64::from(client)).below(self.variants.len() as u64)
    }

    fn of(&self, client: u32, number: u64) -> u32 {
        let length = self.variants.len() as u64;
        let place = (self.start(client) + number % length) % length;
        u32::from(self.variants[place as usize])
    }

    /// Number of messages with `variant` among the first `messages` of `client`.
    fn messages(&self, client: u32, variant: u32, messages: u64) -> u64 {
        let variant = variant as usize;
        let from = if variant == 0 { 0 } else { self.ends[variant - 1] };
        let places = &self.places[from as usize..self.ends[variant] as usize];
        let (length, start) = (self.variants.len() as u64, self.start(client));
        let before = |place: u64| places.partition_point(|&own| u64::from(own) < place) as u64;
        let end = start + messages % length;
        let wrapped = if end > length { before(end - length) } else { 0 };
        messages / length * places.len() as u64 + before(end) + wrapped - before(start)
    }
}

fn round(random: Random, client: u32, round: u32) -> Random {
    random.of(u64::from(client) << 32 | u64::from(round))
}

/// One step of the swap-or-not shuffle (Hoang, Morris, Rogaway: "An enciphering scheme based on a
/// card shuffle", 2012). `at` and `key - at` swap places or not, as drawn for the pair.
fn exchanged(step: Random, count: u32, at: u32) -> u32 {
    let key = step.below(u64::from(count)) as u32;
    let partner = if key >= at { key - at } else { key + (count - at) };
    if step.of(u64::from(at.max(partner))).bits() & 1 == 1 { partner } else { at }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shuffled(count: u32, seed: u64) -> Variants {
        Variants { count, random: Some(Random::new(seed, 0)), round: None, recorded: None }
    }

    fn weighted(weights: &[u32], seed: u64) -> Variants {
        let sum = |sum: &mut u32, weight: &u32| {
            *sum += weight;
            Some(*sum)
        };
        let ends = weights.iter().scan(0, sum).collect();
        let round = Some(Arc::new(Round::new(ends, Random::new(seed, ROUNDS))));
        Variants { count: weights.len() as u32, random: None, round, recorded: None }
    }

    proptest! {
        #[test]
        fn each_round_has_every_variant_once_at_its_computed_place(
            count in 1u32..300,
            seed: u64,
            client: u32,
            round in 0u32..10_000,
        ) {
            let variants = shuffled(count, seed);
            let mut seen = vec![false; count as usize];
            for place in 0..count {
                let variant = variants.of(client, u64::from(round * count + place));
                prop_assert!(!std::mem::replace(&mut seen[variant as usize], true));
                prop_assert_eq!(variants.place(client, variant, round), place);
            }
        }

        #[test]
        fn the_next_message_is_one_more_of_its_variant_in_a_run_of_any_length(
            count in 1u32..20,
            client: u32,
            exponent in 0u32..40,
            below in 0u64..50,
            is_shuffled: bool,
            weights in prop::option::of(prop::collection::vec(1u32..9, 1..20)),
        ) {
            let random = is_shuffled.then(|| Random::new(3, 0));
            let plain = || Variants { count, random, round: None, recorded: None };
            let variants = weights.map_or_else(plain, |weights| weighted(&weights, 5));
            let count = variants.count(client);
            let number = (1u64 << exponent).saturating_sub(25) + below;
            let next = variants.of(client, number);
            for variant in 0..count {
                let more = variants.messages(client, variant, number + 1)
                    - variants.messages(client, variant, number);
                prop_assert_eq!(more, u64::from(variant == next), "message {}", number);
            }
            let earlier = variants.messages(client, next, number);
            prop_assert_eq!(variants.sequence(client, number), earlier);
        }

        #[test]
        fn messages_are_counted_as_they_are_drawn(
            count in 1u32..20,
            client: u32,
            messages in 0u64..100,
            is_shuffled: bool,
        ) {
            let random = is_shuffled.then(|| Random::new(3, 0));
            let variants = Variants { count, random, round: None, recorded: None };
            for variant in 0..count {
                let drawn = (0..messages).filter(|&k| variants.of(client, k) == variant).count();
                prop_assert_eq!(variants.messages(client, variant, messages), drawn as u64);
            }
        }
    }

    proptest! {
        #[test]
        fn a_round_has_each_variant_as_often_as_its_weight(
            weights in prop::collection::vec(1u32..50, 1..30),
            client: u32,
            seed: u64,
        ) {
            let variants = weighted(&weights, seed);
            let length: u32 = weights.iter().sum();
            let mut drawn = vec![0; weights.len()];
            let first = u64::from(client);
            (first..first + u64::from(length))
                .for_each(|number| drawn[variants.of(client, number) as usize] += 1);
            prop_assert_eq!(drawn, weights);
        }
    }

    #[test]
    fn first_messages_of_many_clients_follow_the_weights() {
        // Exceeded once in a million by chi-square with 3 degrees of freedom.
        let variants = weighted(&[10, 10, 10, 10], 2);
        assert!(chi_square((0..4000).map(|client| variants.of(client, 0) as usize), 4) < 31.0);
    }

    #[test]
    fn orders_are_drawn_evenly() {
        // All 24 orders of four, and all pairs of neighbours among seven. The limits are exceeded
        // once in a million by chi-square with 23 and 41 degrees of freedom.
        let variants = shuffled(4, 1);
        let order = |client| (0..4).fold(0, |o, k| o * 4 + variants.of(client, k) as usize);
        assert!(chi_square((0..24_000).map(order), 24) < 73.0);
        let variants = shuffled(7, 1);
        let pair = |round: u64| {
            let of = |k| variants.of(9, round * 7 + k) as usize;
            of(2) * 7 + of(3)
        };
        assert!(chi_square((0..42_000).map(pair), 42) < 102.0);
    }

    fn chi_square(values: impl Iterator<Item = usize>, kinds: usize) -> f64 {
        let mut counts = vec![0.0; 256];
        values.for_each(|value| counts[value] += 1.0);
        let expected = counts.iter().sum::<f64>() / kinds as f64;
        assert_eq!(counts.iter().filter(|&&count| count > 0.0).count(), kinds);
        let of = |&count: &f64| (count - expected).powi(2) / expected;
        counts.iter().filter(|&&count| count > 0.0).map(of).sum()
    }
}
