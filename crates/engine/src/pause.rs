//! How long timers wait for each other. To wake for every message is exact and dear, to wake now
//! and then is cheap and late: under little load each timer has a wake-up of its own, and the more
//! fire, the longer they wait to be handled together. It knows neither timers nor clients.

/// Longest pause: the lateness that the engine itself adds at most. At 20 000 messages a second a
/// wake-up every 0.1 ms makes a message twice as dear as the raw send, every 0.5 ms 1.3 times.
const PAUSE_MAX_NS: u64 = 500_000;
/// Pause for each timer a second, in nanoseconds: the longest is reached at 20 000 a second.
const PAUSE_NS_PER_RATE: u64 = 25;
/// Time over which timers are counted, in nanoseconds.
const SPAN_NS: u64 = 10_000_000;

/// The pause after handling timers, by how many have fired lately.
#[derive(Default)]
pub struct Pause {
    since_ns: u64,
    fired: u64,
    pause_ns: u64,
}

impl Pause {
    /// So many timers have fired at `now_ns`; until when the next ones wait, in nanoseconds.
    pub fn after(&mut self, fired: usize, now_ns: u64) -> u64 {
        self.fired += fired as u64;
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        if elapsed_ns >= SPAN_NS {
            let rate_per_s = self.fired * plan::SECOND_NS / elapsed_ns;
            self.pause_ns = (rate_per_s * PAUSE_NS_PER_RATE).min(PAUSE_MAX_NS);
            self.since_ns = now_ns;
            self.fired = 0;
        }
        now_ns + self.pause_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause_ns_at(rate_per_s: u64) -> u64 {
        let mut pause = Pause::default();
        let gap_ns = plan::SECOND_NS / rate_per_s;
        (1..rate_per_s / 10).map(|k| pause.after(1, k * gap_ns) - k * gap_ns).last().unwrap()
    }

    #[test]
    fn timers_wait_longer_the_more_there_are() {
        assert!((23_000..27_000).contains(&pause_ns_at(1_000)), "{}", pause_ns_at(1_000));
        assert!((230_000..270_000).contains(&pause_ns_at(10_000)), "{}", pause_ns_at(10_000));
        assert_eq!(pause_ns_at(100_000), PAUSE_MAX_NS);
    }
}
