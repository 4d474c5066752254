//! Schedule of the messages of an open-loop publication, and the sizes of the payloads. The
//! schedule is a pure function of client and place on absolute time. So a stall shifts no message,
//! and every agent computes the same instants.
//!
//! A message has a place in the schedule of its client. With even arrivals the places are the
//! numbers from 0 on. With Poisson arrivals some numbers are no places: [`Pacer::first_from`] and
//! [`Pacer::after`] give the next one.

mod poisson;

use std::sync::Arc;

use crate::model::flows::{Pace, Payload, Phase, Process};
use crate::schedule::random::Random;
use crate::schedule::recorded::Recorded;

/// Schedule of one publication for all clients of a population.
#[derive(Clone, Debug)]
pub struct Pacer {
    period_ns: f64,
    spread: f64,
    jitter: f64,
    phase: Phase,
    burst: u64,
    is_poisson: bool,
    random: Random,
    /// Messages whose instants are recorded.
    recorded: Option<Arc<Recorded>>,
}

impl Pacer {
    /// Schedule of an open-loop pace; `None` for a closed loop. `purpose` distinguishes the
    /// publications of a plan.
    #[must_use]
    pub fn new(pace: &Pace, seed: u64, purpose: u64) -> Option<Self> {
        match *pace {
            Pace::Open { period_ns, spread, jitter, phase, burst, arrivals, .. } => Some(Self {
                period_ns: period_ns as f64,
                spread,
                jitter,
                phase,
                burst: u64::from(burst.max(1)),
                is_poisson: arrivals == Process::Poisson,
                random: Random::new(seed, purpose),
                recorded: None,
            }),
            Pace::Closed => None,
        }
    }

    /// The schedule of recorded messages, if there are some.
    #[must_use]
    pub fn of_recorded(self, recorded: Option<&Arc<Recorded>>) -> Self {
        Self { recorded: recorded.cloned(), ..self }
    }

    /// Shortest period of any client, in nanoseconds.
    #[must_use]
    pub const fn shortest_ns(&self) -> f64 {
        self.period_ns * (1.0 - self.spread)
    }

    /// Period of `client` (its index over all agents), in nanoseconds.
    #[must_use]
    pub fn period_ns(&self, client: u32) -> f64 {
        if self.spread == 0.0 {
            return self.period_ns;
        }
        let unit = self.random.of(u64::from(client)).of(1).unit();
        self.period_ns * (1.0 + self.spread * (2.0 * unit - 1.0))
    }

    /// Scheduled time of the message of `client` at `place`, in nanoseconds after publishing began.
    /// Never decreases with the place.
    #[must_use]
    #[inline]
    pub fn due_ns(&self, client: u32, place: u64) -> u64 {
        if let Some(recorded) = &self.recorded {
            return recorded.due_ns(client, place);
        }
        if self.is_poisson {
            return poisson::Train::new(self, client).due_ns(place);
        }
        // All messages of a burst are scheduled with its first message.
        let first = place - place % self.burst;
        let mut position = self.phase(client) + first as f64;
        if self.jitter > 0.0 {
            let unit = self.random.of(u64::from(client)).of(2 + first).unit();
            position += self.jitter * (unit - 0.5);
        }
        (position * self.period_ns(client)).max(0.0) as u64
    }

    /// Place of the message of `client` that follows the message at `place`.
    #[must_use]
    #[inline]
    pub fn after(&self, client: u32, place: u64) -> u64 {
        if self.is_poisson { poisson::Train::new(self, client).after(place) } else { place + 1 }
    }

    /// Place of the first message of `client` scheduled at `elapsed_ns` or later.
    #[must_use]
    pub fn first_from(&self, client: u32, elapsed_ns: u64) -> u64 {
        if let Some(recorded) = &self.recorded {
            return recorded.first_from(client, elapsed_ns);
        }
        if self.is_poisson {
            return poisson::Train::new(self, client).first_from(elapsed_ns);
        }
        let periods = elapsed_ns as f64 / self.period_ns(client) - self.phase(client);
        let mut k = (periods - 1.0).max(0.0) as u64;
        k -= k % self.burst;
        while self.due_ns(client, k) < elapsed_ns {
            k += self.burst;
        }
        k
    }

    /// Number of messages of `client` from `place` on that are scheduled before `elapsed_ns`.
    #[must_use]
    pub fn count_before(&self, client: u32, place: u64, elapsed_ns: u64) -> u64 {
        if self.is_poisson {
            return poisson::Train::new(self, client).count_before(place, elapsed_ns);
        }
        self.first_from(client, elapsed_ns).saturating_sub(place)
    }

    /// Number of messages of `client` scheduled before `elapsed_ns`.
    #[must_use]
    pub fn due_before(&self, client: u32, elapsed_ns: u64) -> u64 {
        self.count_before(client, self.first_from(client, 0), elapsed_ns)
    }

    /// Phase of `client` in its period, 0 to below 1. The multiples of the golden ratio leave no
    /// gap and no cluster in any prefix of the clients (Knuth, TAOCP 3, 6.4).
    fn phase(&self, client: u32) -> f64 {
        const GOLDEN_RATIO: u32 = 2_654_435_769;
        match self.phase {
            Phase::Aligned => 0.0,
            Phase::Spread => f64::from(client.wrapping_mul(GOLDEN_RATIO)) / 4_294_967_296.0,
            Phase::Random => self.random.of(u64::from(client)).of(0).unit(),
        }
    }
}

/// Size of the payload of message `sequence` of a client, in bytes; `None` for texts, records and
/// data of Sparkplug, which have a size of their own, and for recorded messages. `random` is the
/// stream of the client's publication.
#[must_use]
pub fn payload_bytes(payload: &Payload, random: Random, sequence: u64) -> Option<usize> {
    match *payload {
        Payload::Fixed { bytes } => Some(bytes as usize),
        Payload::Gaussian { mean_bytes, sd_bytes } => {
            let deviation = random.of(sequence).normal() * f64::from(sd_bytes);
            Some((f64::from(mean_bytes) + deviation).round().max(0.0) as usize)
        }
        Payload::Histogram { ref bins } => {
            let drawn = random.of(sequence).below(bins.last()?.end);
            let place = bins.partition_point(|bin| bin.end <= drawn);
            Some(bins[place].bytes as usize)
        }
        Payload::Records { .. }
        | Payload::Text { .. }
        | Payload::Sparkplug { .. }
        | Payload::Recorded(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::flows::Late;
    use proptest::prelude::*;

    fn pacer(period_ns: u64, spread: f64, jitter: f64, phase: Phase) -> Pacer {
        bursts(1, period_ns, spread, jitter, phase)
    }

    fn bursts(burst: u32, period_ns: u64, spread: f64, jitter: f64, phase: Phase) -> Pacer {
        let (late, arrivals) = (Late::Send, Process::Even);
        let pace = Pace::Open { period_ns, spread, jitter, phase, late, burst, arrivals };
        Pacer::new(&pace, 42, 0).unwrap()
    }

    proptest! {
        #[test]
        fn the_schedule_never_decreases_and_counts_itself(
            period_ns in 1_000u64..10_000_000_000,
            spread in 0.0..0.99,
            jitter in 0.0..=1.0,
            client in 0u32..1_000_000,
            k in 0u64..1000,
        ) {
            let pacer = pacer(period_ns, spread, jitter, Phase::Spread);
            let due = pacer.due_ns(client, k);
            prop_assert!(pacer.due_ns(client, k + 1) >= due);
            prop_assert!(pacer.due_before(client, due) <= k);
            prop_assert!(pacer.due_before(client, due + 1) > k);
        }

        #[test]
        fn bursts_are_scheduled_whole_and_offer_the_same_load(
            burst in 1u32..500,
            period_ns in 1_000u64..1_000_000,
            jitter in 0.0..=1.0,
            k in 0u64..5000,
        ) {
            let pacer = bursts(burst, period_ns, 0.0, jitter, Phase::Spread);
            let (due, whole) = (pacer.due_ns(7, k), u64::from(burst));
            let first = k / whole * whole;
            prop_assert_eq!(due, pacer.due_ns(7, first));
            prop_assert!(pacer.due_before(7, due) <= first);
            prop_assert_eq!(pacer.due_before(7, due + 1) % whole, 0);
            prop_assert!(pacer.due_before(7, due + 1) > k);
        }
    }

    #[test]
    fn spread_phases_fill_the_period_evenly() {
        let pacer = pacer(1_000_000, 0.0, 0.0, Phase::Spread);
        let mut phases: Vec<u64> = (0..1000).map(|c| pacer.due_ns(c, 0)).collect();
        phases.sort_unstable();
        let widest = phases.windows(2).map(|w| w[1] - w[0]).max().unwrap();
        assert!(widest < 3 * 1000, "widest gap {widest} ns, even would be 1000");
    }

    #[test]
    fn aligned_clients_send_at_the_same_instants() {
        let pacer = pacer(500, 0.0, 0.0, Phase::Aligned);
        assert!((0..10).all(|c| pacer.due_ns(c, 3) == 1500));
    }

    #[test]
    fn the_offered_load_is_rate_times_clients_times_time() {
        let pacer = pacer(50_000_000, 0.0, 0.3, Phase::Spread);
        let total: u64 = (0..1000).map(|c| pacer.due_before(c, 10_000_000_000)).sum();
        assert!((199_500..=200_500).contains(&total), "{total}");
    }

    #[test]
    fn gaussian_sizes_have_their_mean_and_deviation() {
        let payload = Payload::Gaussian { mean_bytes: 500, sd_bytes: 25 };
        let random = Random::new(1, 1);
        let sizes: Vec<f64> =
            (0..10_000).map(|i| payload_bytes(&payload, random, i).unwrap() as f64).collect();
        let mean = sizes.iter().sum::<f64>() / 10_000.0;
        let deviation = (sizes.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / 10_000.0).sqrt();
        assert!((mean - 500.0).abs() < 1.5, "{mean}");
        assert!((deviation - 25.0).abs() < 1.0, "{deviation}");
    }
}
