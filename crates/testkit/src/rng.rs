//! Chance from a seed, so that every failure can be repeated.

use std::ops::Range;

/// A seeded generator: splitmix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The generator of `seed`; the same seed gives the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be 0. The bias does not matter to tests.
    pub const fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// True in `per_cent` of 100 cases.
    pub const fn chance(&mut self, per_cent: usize) -> bool {
        self.below(100) < per_cent
    }

    /// One of `choices`, which must not be empty.
    pub const fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Runs `test` once per seed; prints the seed of a run that panics.
pub fn for_each_seed(seeds: Range<u64>, mut test: impl FnMut(u64)) {
    for seed in seeds {
        let name_seed = NameSeed(seed);
        test(seed);
        drop(name_seed);
    }
}

struct NameSeed(u64);

impl Drop for NameSeed {
    #[expect(clippy::print_stderr, reason = "a failed simulation prints its seed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("simulation failed with seed {}", self.0);
        }
    }
}
