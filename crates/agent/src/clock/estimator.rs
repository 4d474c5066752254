//! Estimates the reference clock from exchanges. Each exchange confines the difference between the
//! two clocks to an interval, however long question and answer travelled. Several exchanges confine
//! the rate at which the difference changes. All bounds are hard while both clocks run at steady
//! rates. If exchanges contradict steady rates, the estimator forgets the older exchanges. A change
//! of rate can be too small for a contradiction. Such a change makes the bounds wrong by less than
//! the round trip of the last exchange.

use std::collections::VecDeque;

/// Two clocks never run further apart than this: NTP corrects each by at most half of it.
pub const RATE_MAX: f64 = 1e-3;
/// Bursts whose best exchange is kept.
const KEPT_MAX: usize = 32;

/// A question to the reference clock and its answer, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Instant of the question, by the host's clock.
    pub asked_ns: i64,
    /// Arrival of the question, by the reference clock.
    pub came_ns: i64,
    /// Departure of the answer, by the reference clock.
    pub left_ns: i64,
    /// Arrival of the answer, by the host's clock.
    pub answered_ns: i64,
}

/// Bounds of the reference clock: at `t` of the host's clock, from `at_ns` on, its lead over the
/// host's clock is between `least_ns + (t - at_ns) * slowest` and `most_ns + (t - at_ns) *
/// fastest`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Arrival of the last answer, by the host's clock in nanoseconds.
    pub at_ns: i64,
    /// The least lead at that instant, in nanoseconds.
    pub least_ns: i64,
    /// The most.
    pub most_ns: i64,
    /// The least rate at which the lead grows.
    pub slowest: f64,
    /// The largest.
    pub fastest: f64,
    /// Shortest round trip of the exchanges behind it, in nanoseconds.
    pub round_trip_ns: u64,
    /// Exchanges that were answered, all in all.
    pub exchanges_total: u64,
}

/// The best exchanges of the last bursts.
#[derive(Debug, Default)]
pub struct Estimator {
    kept: VecDeque<Lead>,
    exchanges_total: u64,
}

/// Bounds of the lead by one exchange.
#[derive(Clone, Copy, Debug)]
struct Lead {
    at_ns: i64,
    least_ns: i64,
    most_ns: i64,
    round_trip_ns: u64,
}

impl Estimator {
    /// Takes the exchanges of a burst, of which the narrowest is kept.
    pub fn add(&mut self, burst: &[Exchange]) {
        let leads: Vec<Lead> = burst.iter().filter_map(Exchange::lead).collect();
        self.exchanges_total += leads.len() as u64;
        let Some(&narrowest) = leads.iter().min_by_key(|lead| lead.width_ns()) else { return };
        // A clock that has gone back contradicts everything before.
        if self.kept.back().is_some_and(|last| last.at_ns >= narrowest.at_ns) {
            self.kept.clear();
        }
        self.kept.push_back(narrowest);
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
        while self.rates().is_none() {
            self.kept.pop_front();
        }
    }

    /// Current estimate; `None` before the first answer.
    pub fn estimate(&self) -> Option<Estimate> {
        let at_ns = self.kept.back()?.at_ns;
        let (slowest, fastest) = self.rates()?;
        let least = |lead: &Lead| lead.least_ns + gained_ns(slowest, at_ns - lead.at_ns);
        let most = |lead: &Lead| lead.most_ns + 1 + gained_ns(fastest, at_ns - lead.at_ns);
        Some(Estimate {
            at_ns,
            least_ns: self.kept.iter().map(least).max()?,
            most_ns: self.kept.iter().map(most).min()?,
            slowest,
            fastest,
            round_trip_ns: self.kept.iter().map(|lead| lead.round_trip_ns).min()?,
            exchanges_total: self.exchanges_total,
        })
    }

    /// The least and the largest rate that all pairs allow; `None`: they contradict each other.
    fn rates(&self) -> Option<(f64, f64)> {
        let (mut slowest, mut fastest) = (-RATE_MAX, RATE_MAX);
        for (index, later) in self.kept.iter().enumerate() {
            for earlier in self.kept.iter().take(index) {
                let elapsed_ns = (later.at_ns - earlier.at_ns) as f64;
                slowest =
                    slowest.max(later.least_ns.saturating_sub(earlier.most_ns) as f64 / elapsed_ns);
                fastest =
                    fastest.min(later.most_ns.saturating_sub(earlier.least_ns) as f64 / elapsed_ns);
            }
        }
        (slowest <= fastest).then_some((slowest, fastest))
    }
}

impl Exchange {
    /// Bounds of the lead at the arrival of the answer; `None` if they contradict each other.
    fn lead(&self) -> Option<Lead> {
        let waited_ns = self.answered_ns.checked_sub(self.asked_ns)?;
        let took_ns = self.left_ns.checked_sub(self.came_ns)?;
        if waited_ns < 0 || took_ns < 0 {
            return None;
        }
        // The lead may have grown since the question came. That it has shrunk since the answer left
        // is no matter: by much less than the answer was under way.
        let grown_ns = gained_ns(RATE_MAX, waited_ns) + 1;
        let lead = Lead {
            at_ns: self.answered_ns,
            least_ns: self.left_ns.checked_sub(self.answered_ns)?,
            most_ns: self.came_ns.checked_sub(self.asked_ns)?.checked_add(grown_ns)?,
            round_trip_ns: (waited_ns - took_ns).max(0).unsigned_abs(),
        };
        (lead.least_ns <= lead.most_ns).then_some(lead)
    }
}

impl Lead {
    fn width_ns(&self) -> i64 {
        self.most_ns.saturating_sub(self.least_ns)
    }
}

impl Estimate {
    /// The least and the most lead at an instant of the host's clock, in nanoseconds.
    pub fn range_ns(&self, at_ns: i64) -> (i64, i64) {
        let elapsed_ns = at_ns.saturating_sub(self.at_ns);
        let (slowest, fastest) = match elapsed_ns {
            0.. => (self.slowest, self.fastest),
            _ => (self.fastest, self.slowest),
        };
        let least_ns = self.least_ns.saturating_add(gained_ns(slowest, elapsed_ns));
        let most_ns = self.most_ns.saturating_add(gained_ns(fastest, elapsed_ns) + 1);
        (least_ns, most_ns)
    }

    /// The rate in the middle.
    pub fn rate(&self) -> f64 {
        f64::midpoint(self.slowest, self.fastest)
    }
}

/// Product of a rate and a duration in nanoseconds, rounded down.
pub(super) fn gained_ns(rate: f64, elapsed_ns: i64) -> i64 {
    (rate * elapsed_ns as f64).floor() as i64
}

#[cfg(test)]
#[path = "estimator/tests.rs"]
mod tests;
