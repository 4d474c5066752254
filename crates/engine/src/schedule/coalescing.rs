//! Timer coalescing: the higher the timer rate of the whole fleet, the longer expired timers wait
//! to be handled in one batch, up to the bound of the plan (1 ms at most by default).

use plan::Shard;

/// Time over which timers are counted, in nanoseconds.
const SPAN_NS: u64 = 10_000_000;
/// Wait for each timer a second of the whole fleet, in nanoseconds: 1 ms at 4000 a second. Below
/// that rate a wait is shorter than the time between two timers, and makes few of them late.
const WAIT_NS_PER_RATE: u64 = 250;

/// Longest distance between two instants at which timers that may be late fire, in nanoseconds.
const TOGETHER_NS: u64 = 100_000_000;
/// A timer that may be late is late by this part of its span at most.
const TOGETHER_PART: u64 = 16;

/// Instant at which a timer fires that may be late: a keep-alive, a timeout or a back-off of
/// `span_ns` that ends at `at_ns`. Timers of one agent fire together, those of different agents do
/// not.
pub fn together(at_ns: u64, span_ns: u64, shard: Shard) -> u64 {
    let grid_ns = (span_ns / TOGETHER_PART).min(TOGETHER_NS);
    let shift_ns = grid_ns * u64::from(shard.index()) / u64::from(shard.count());
    let shifted_ns = at_ns.saturating_add(shift_ns);
    shifted_ns.checked_next_multiple_of(grid_ns).map_or(at_ns, |next_ns| next_ns - shift_ns)
}

/// Wait after a batch of timers, by the number of timers that have fired lately.
pub struct Coalescing {
    max_ns: u64,
    shards: u64,
    since_ns: u64,
    fired: u64,
    wait_ns: u64,
}

impl Coalescing {
    /// Waits of at most `max_ns`, for one of `shards` agents with equal shares: the fleet pays for
    /// the wake-ups of each agent.
    pub fn new(max_ns: u64, shards: u32) -> Self {
        Self { max_ns, shards: u64::from(shards), since_ns: 0, fired: 0, wait_ns: 0 }
    }

    /// Counts timers that fired at `now_ns`. Returns the instant up to which the next timers wait,
    /// in nanoseconds.
    pub fn after(&mut self, fired: usize, now_ns: u64) -> u64 {
        self.fired += fired as u64;
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        if elapsed_ns >= SPAN_NS {
            let rate_per_s =
                (self.fired * self.shards).saturating_mul(plan::SECOND_NS) / elapsed_ns;
            self.wait_ns = rate_per_s.saturating_mul(WAIT_NS_PER_RATE).min(self.max_ns);
            self.since_ns = now_ns;
            self.fired = 0;
        }
        now_ns + self.wait_ns
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const MAX_NS: u64 = 1_000_000;

    fn wait_ns_at(rate_per_s: u64, mut coalescing: Coalescing) -> u64 {
        let gap_ns = plan::SECOND_NS / rate_per_s;
        (1..rate_per_s / 10).map(|k| coalescing.after(1, k * gap_ns) - k * gap_ns).last().unwrap()
    }

    #[test]
    fn timers_wait_longer_the_more_there_are() {
        let at = |rate_per_s| wait_ns_at(rate_per_s, Coalescing::new(MAX_NS, 1));
        assert!((23_000..27_000).contains(&at(100)), "{}", at(100));
        assert!((230_000..270_000).contains(&at(1000)), "{}", at(1000));
        assert_eq!(at(100_000), MAX_NS);
    }

    #[test]
    fn an_agent_waits_by_the_rate_of_the_whole_fleet() {
        let shares: Vec<u64> =
            [1, 2, 4].map(|n| wait_ns_at(2000 / n, Coalescing::new(MAX_NS, n as u32))).to_vec();
        assert!(shares.iter().all(|wait| (450_000..550_000).contains(wait)), "{shares:?}");
    }

    #[test]
    fn timers_that_may_be_late_fire_together() {
        const MINUTE_NS: u64 = 60 * plan::SECOND_NS;
        let shards = [Shard::WHOLE, Shard::new(1, 2).unwrap()];
        let instants = shards.map(|shard| {
            let due = (0..1000).map(|k| MINUTE_NS + k * 1_000_000);
            let fired = due.clone().map(|at_ns| together(at_ns, MINUTE_NS, shard));
            assert!(fired.clone().zip(due).all(|(fired, due)| fired - due < TOGETHER_NS));
            fired.collect::<BTreeSet<u64>>()
        });
        assert!(instants.iter().all(|each| (10..=11).contains(&each.len())), "{instants:?}");
        assert!(instants[0].is_disjoint(&instants[1]), "each agent has instants of its own");
    }

    #[test]
    fn a_short_span_is_late_by_a_small_part_of_it() {
        let fired = |span_ns| together(123_456_789, span_ns, Shard::WHOLE) - 123_456_789;
        assert!(fired(1_000_000) < 1_000_000 / TOGETHER_PART);
        assert_eq!((fired(0), fired(15)), (0, 0));
        assert_eq!(together(u64::MAX, plan::SECOND_NS, Shard::new(1, 2).unwrap()), u64::MAX);
    }

    #[test]
    fn no_timer_waits_longer_than_the_plan_allows() {
        assert_eq!(wait_ns_at(100_000, Coalescing::new(100_000, 8)), 100_000);
        assert_eq!(wait_ns_at(100_000, Coalescing::new(0, 8)), 0);
    }
}
