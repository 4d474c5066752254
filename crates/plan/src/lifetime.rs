//! Session lifetimes: a pure function of the plan's seed, the population, the client's index and
//! the number of the session. The same plan gives the same lifetimes.

use crate::model::Lifetime;
use crate::random::Random;

/// Separates these draws from draws of publications, targets and topics.
const PURPOSE: u64 = 5 << 40;

impl Lifetime {
    /// Lifetime of session number `life` of client `client` (its index over all agents) of the
    /// population with index `population`, in nanoseconds.
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
    fn lifetimes_are_uniform_between_both_ends_and_drawn_for_each_session() {
        let lifetime = Lifetime { min_ns: 10, max_ns: 19, offline_ns: None };
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
    fn a_lifetime_with_equal_ends_is_constant() {
        for ns in [1, u64::MAX] {
            let lifetime = Lifetime { min_ns: ns, max_ns: ns, offline_ns: None };
            assert_eq!(lifetime.stay_ns(1, 2, 3, 4), ns);
        }
    }
}
