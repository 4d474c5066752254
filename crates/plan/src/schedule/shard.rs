//! Clients of an agent: agent `index` of `count` plays every client `c` with `c % count == index`.
//! Any prefix of the clients is spread evenly, so a ramp loads all agents alike. The schedules of
//! the shards add up to exactly the schedule of the whole.

use std::fmt;
use std::str::FromStr;

/// Agent `index` of `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: u32,
}

impl Shard {
    /// The only shard of one agent.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Agent `index` of `count`; `None` unless `index < count`.
    #[must_use]
    pub const fn new(index: u32, count: u32) -> Option<Self> {
        if index < count { Some(Self { index, count }) } else { None }
    }

    /// Index of this agent.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Number of agents.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Number of clients of this agent among `total`.
    #[must_use]
    pub const fn share(self, total: u32) -> u32 {
        if total > self.index { (total - self.index - 1) / self.count + 1 } else { 0 }
    }

    /// Index over all agents of the agent's `local`-th client. The check of a plan bounds it: the
    /// hot path needs no check of its own.
    #[must_use]
    #[inline]
    pub const fn global(self, local: u32) -> u32 {
        local.wrapping_mul(self.count).wrapping_add(self.index)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split_once('/')
            .and_then(|(index, count)| Self::new(index.parse().ok()?, count.parse().ok()?))
            .ok_or_else(|| format!("found '{text}', allowed is INDEX/COUNT with INDEX < COUNT"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shards_partition_the_clients(total in 0u32..5000, count in 1u32..60) {
            let mut seen = vec![false; total as usize];
            for index in 0..count {
                let shard = Shard::new(index, count).unwrap();
                for local in 0..shard.share(total) {
                    let global = shard.global(local) as usize;
                    prop_assert!(!std::mem::replace(&mut seen[global], true));
                }
            }
            prop_assert!(seen.into_iter().all(|s| s));
        }
    }

    #[test]
    fn the_largest_population_has_exact_shares() {
        let sum: u64 = (0..7).map(|i| u64::from(Shard::new(i, 7).unwrap().share(u32::MAX))).sum();
        assert_eq!(sum, u64::from(u32::MAX));
    }

    #[test]
    fn a_shard_is_written_and_read_as_index_of_count() {
        assert_eq!("3/4".parse(), Ok(Shard::new(3, 4).unwrap()));
        assert_eq!(Shard::new(3, 4).unwrap().to_string(), "3/4");
        for wrong in ["4/4", "1", "/", "-1/2", "1/0", "a/b"] {
            assert!(wrong.parse::<Shard>().unwrap_err().contains(wrong));
        }
    }
}
