//! Timer coalescing: how long timers wait to be handled together. To wake for every message is
//! exact and dear, to wake now and then is cheap and late. The more timers fire in the whole
//! fleet, the longer they wait, up to the bound of the plan.

/// Time over which timers are counted, in nanoseconds.
const SPAN_NS: u64 = 10_000_000;
/// Pause for each timer a second of the whole fleet, in nanoseconds: 1 ms at 4000 a second. Below
/// that a pause is shorter than the time between two timers, and makes few of them late.
const PAUSE_NS_PER_RATE: u64 = 250;

/// The pause after handling timers, by how many have fired lately.
pub struct Pause {
    max_ns: u64,
    shards: u64,
    since_ns: u64,
    fired: u64,
    pause_ns: u64,
}

impl Pause {
    /// Pauses of at most `max_ns`, for one of so many agents that play equal shares: the fleet pays
    /// for the wake-ups of each.
    pub fn new(max_ns: u64, shards: u32) -> Self {
        Self { max_ns, shards: u64::from(shards), since_ns: 0, fired: 0, pause_ns: 0 }
    }

    /// So many timers have fired at `now_ns`; until when the next ones wait, in nanoseconds.
    pub fn after(&mut self, fired: usize, now_ns: u64) -> u64 {
        self.fired += fired as u64;
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        if elapsed_ns >= SPAN_NS {
            let rate_per_s =
                (self.fired * self.shards).saturating_mul(plan::SECOND_NS) / elapsed_ns;
            self.pause_ns = rate_per_s.saturating_mul(PAUSE_NS_PER_RATE).min(self.max_ns);
            self.since_ns = now_ns;
            self.fired = 0;
        }
        now_ns + self.pause_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_NS: u64 = 1_000_000;

    fn pause_ns_at(rate_per_s: u64, mut pause: Pause) -> u64 {
        let gap_ns = plan::SECOND_NS / rate_per_s;
        (1..rate_per_s / 10).map(|k| pause.after(1, k * gap_ns) - k * gap_ns).last().unwrap()
    }

    #[test]
    fn timers_wait_longer_the_more_there_are() {
        let at = |rate_per_s| pause_ns_at(rate_per_s, Pause::new(MAX_NS, 1));
        assert!((23_000..27_000).contains(&at(100)), "{}", at(100));
        assert!((230_000..270_000).contains(&at(1000)), "{}", at(1000));
        assert_eq!(at(100_000), MAX_NS);
    }

    #[test]
    fn an_agent_waits_by_the_rate_of_the_whole_fleet() {
        let shares: Vec<u64> =
            [1, 2, 4].map(|n| pause_ns_at(2000 / n, Pause::new(MAX_NS, n as u32))).to_vec();
        assert!(shares.iter().all(|pause| (450_000..550_000).contains(pause)), "{shares:?}");
    }

    #[test]
    fn no_timer_waits_longer_than_the_plan_allows() {
        assert_eq!(pause_ns_at(100_000, Pause::new(100_000, 8)), 100_000);
        assert_eq!(pause_ns_at(100_000, Pause::new(0, 8)), 0);
    }
}
