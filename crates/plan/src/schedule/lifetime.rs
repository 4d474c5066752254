//! Session lifetimes, and times for which flapping clients are subscribed: pure functions of the
//! plan's seed, the population, the client's index and the number of the session or subscription.
//! The same plan gives the same times.

use crate::model::{Flapping, Lifetime};
use crate::schedule::random::Random;

/// Separates these draws from draws of publications, targets and topics.
const PURPOSE: u64 = 5 << 40;
/// Separates draws of flapping clients from all others.
const FLAPPING: u64 = 6 << 40;

impl Lifetime {
    /// Lifetime of session number `life` of client `client` (its index over all agents) of the
    /// population with index `population`, in nanoseconds.
    #[must_use]
    pub const fn stay_ns(&self, seed: u64, population: usize, client: u32, life: u32) -> u64 {
        let random = Random::new(seed, PURPOSE + population as u64);
        drawn_ns(&random, (client, life), (self.min_ns, self.max_ns))
    }
}

impl Flapping {
    /// Time for which client `client` (its index over all agents) of the population with index
    /// `population` is subscribed before its UNSUBSCRIBE number `flap`, in nanoseconds.
    #[must_use]
    pub const fn stay_ns(&self, seed: u64, population: usize, client: u32, flap: u32) -> u64 {
        let random = Random::new(seed, FLAPPING + population as u64);
        drawn_ns(&random, (client, flap), (self.min_ns, self.max_ns))
    }
}

/// A time between both ends, evenly drawn for a client and a number, in nanoseconds.
const fn drawn_ns(
    random: &Random,
    (client, number): (u32, u32),
    (min_ns, max_ns): (u64, u64),
) -> u64 {
    let drawn = random.of(client as u64).of(number as u64);
    min_ns + drawn.below((max_ns - min_ns).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn between(min_ns: u64, max_ns: u64) -> Lifetime {
        Lifetime { min_ns, max_ns, offline_ns: None, recorded: None }
    }

    #[test]
    fn lifetimes_are_uniform_between_both_ends_and_drawn_for_each_session() {
        let lifetime = between(10, 19);
        let mut counts = [0u32; 10];
        for client in 0..100 {
            for life in 0..100 {
                counts[(lifetime.stay_ns(1, 0, client, life) - 10) as usize] += 1;
            }
        }
        // Five standard deviations of a count of 10 000 / 10.
        assert!(counts.iter().all(|&count| count.abs_diff(1000) < 150), "{counts:?}");
        let stays = |seed, population| {
            (0..40).map(|c| lifetime.stay_ns(seed, population, c, 0)).collect::<Vec<_>>()
        };
        assert_eq!(stays(1, 0), stays(1, 0));
        assert!(stays(1, 0) != stays(2, 0) && stays(1, 0) != stays(1, 1));
    }

    #[test]
    fn times_of_subscriptions_are_drawn_apart_from_lifetimes() {
        let lifetime = between(1, u64::MAX);
        let flapping = Flapping { min_ns: 1, max_ns: u64::MAX, unsubscribed_ns: 0 };
        let mut seen = std::collections::BTreeSet::new();
        for (seed, population, client, number) in
            [(1, 0, 0, 0), (2, 0, 0, 0), (1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 1)]
        {
            seen.insert(lifetime.stay_ns(seed, population, client, number));
            seen.insert(flapping.stay_ns(seed, population, client, number));
        }
        assert_eq!(seen.len(), 10);
        let brief = Flapping { min_ns: 7, max_ns: 9, unsubscribed_ns: 0 };
        let all = (0..100).map(|flap| brief.stay_ns(1, 0, 0, flap));
        assert_eq!(all.collect::<std::collections::BTreeSet<_>>(), (7..=9).collect());
    }

    #[test]
    fn a_lifetime_with_equal_ends_is_constant() {
        for ns in [1, u64::MAX] {
            let lifetime = between(ns, ns);
            assert_eq!(lifetime.stay_ns(1, 2, 3, 4), ns);
        }
    }
}
