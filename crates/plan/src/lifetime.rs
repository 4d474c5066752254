//! How long a client stays: a pure function of the plan's seed, its population, its index and the
//! number of its life, so that the same plan has the same lives. It knows no connection.

use crate::model::Lifetime;
use crate::random::Random;

/// Tells these draws from those of publications, targets and topics.
const PURPOSE: u64 = 5 << 40;

impl Lifetime {
    /// How long life number `life` of client `client` (its index over all agents) of the population
    /// with index `population` is, in nanoseconds.
    #[must_use]
    pub const fn stay_ns(&self, seed: u64, population: usize, client: u32, life: u32) -> u64 {
        let random = Random::new(seed, PURPOSE + population as u64);
        let drawn = random.of(client as u64).of(life as u64);
        self.min_ns + drawn.below((self.max_ns - self.min_ns).saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_drawn_evenly_between_both_ends_and_each_anew() {
        let lifetime = Lifetime { min_ns: 10, max_ns: 19, again_ns: None };
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
    fn a_lifetime_without_a_choice_is_that_time() {
        for ns in [1, u64::MAX] {
            let lifetime = Lifetime { min_ns: ns, max_ns: ns, again_ns: None };
            assert_eq!(lifetime.stay_ns(1, 2, 3, 4), ns);
        }
    }
}
