//! The way from the host's clock to the reference clock: a lead over the host's clock that grows at
//! a steady rate. A newer estimate never makes it leap: within about a second it bends towards the
//! estimate. It never runs backwards, and says how far it may be off. Pure arithmetic.

use plan::ClockState;

use super::estimator::Estimate;

/// A correction takes this long, in nanoseconds.
const SLEW_NS: f64 = 1e9;
/// No correction is faster than this: a large one takes longer.
const SLEW_MAX: f64 = 0.05;

/// Steered time of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Steering {
    estimate: Estimate,
    /// Beginning of the line, by the host's clock in nanoseconds.
    since_ns: i64,
    /// The lead there, in nanoseconds.
    lead_ns: i64,
    /// The rate at which the lead grows.
    rate: f64,
    /// The rate of the correction beside it.
    slew: f64,
    /// End of the correction.
    slewed_ns: i64,
    /// Up to where the largest bound is known.
    noted_ns: i64,
    /// The largest bound since the state was taken.
    bound_ns: u64,
}

impl Steering {
    /// The time of the estimate from the first, at an instant of the host's clock.
    pub fn new(estimate: Estimate, host_ns: i64) -> Self {
        let (least_ns, most_ns) = estimate.range_ns(host_ns);
        Self {
            estimate,
            since_ns: host_ns,
            lead_ns: middle_ns(least_ns, most_ns),
            rate: estimate.rate(),
            slew: 0.0,
            slewed_ns: host_ns,
            noted_ns: host_ns,
            bound_ns: 0,
        }
    }

    /// Steers towards a newer estimate, from an instant of the host's clock on.
    #[must_use]
    pub fn towards(mut self, estimate: Estimate, host_ns: i64) -> Self {
        self.note(host_ns);
        let (least_ns, most_ns) = estimate.range_ns(host_ns);
        let lead_ns = self.lead_at(host_ns);
        let error_ns = (middle_ns(least_ns, most_ns) - lead_ns) as f64;
        let slew = (error_ns / SLEW_NS).clamp(-SLEW_MAX, SLEW_MAX);
        let slew_ns = if slew == 0.0 { 0.0 } else { error_ns / slew };
        let slewed_ns = host_ns.saturating_add(slew_ns as i64);
        let rate = estimate.rate();
        let since_ns = host_ns;
        Self { estimate, since_ns, lead_ns, rate, slew, slewed_ns, ..self }
    }

    /// The reference clock at an instant of the host's clock.
    pub fn apply(&self, host_ns: i64) -> i64 {
        host_ns.saturating_add(self.lead_at(host_ns))
    }

    /// An instant of the host's clock at which the reference clock has reached `reference_ns`: not
    /// before that, and at most some nanoseconds later.
    pub fn invert(&self, reference_ns: i64) -> i64 {
        let mut host_ns = reference_ns.saturating_sub(self.lead_ns);
        // Each turn leaves at most a tenth of the rest, since the clocks' rates differ by less.
        loop {
            let missing_ns = reference_ns.saturating_sub(self.apply(host_ns));
            if missing_ns == 0 || host_ns == i64::MAX {
                return host_ns;
            }
            if (-4..0).contains(&missing_ns) {
                return host_ns;
            }
            host_ns = host_ns.saturating_add(missing_ns);
        }
    }

    /// Returns the state at an instant of the host's clock; the bound is the largest since the last
    /// call.
    pub fn take_state(&mut self, host_ns: i64) -> ClockState {
        self.note(host_ns);
        let ahead_ns = self.bound_at(host_ns);
        let bound_ns = std::mem::replace(&mut self.bound_ns, ahead_ns);
        ClockState {
            offset_ns: self.lead_at(host_ns),
            drift_ppb: (self.rate * 1e9).round() as i64,
            bound_ns,
            round_trip_ns: self.estimate.round_trip_ns,
            exchanges_total: self.estimate.exchanges_total,
        }
    }

    fn lead_at(&self, host_ns: i64) -> i64 {
        let elapsed_ns = host_ns.saturating_sub(self.since_ns);
        let slewed_ns = elapsed_ns.min(self.slewed_ns - self.since_ns);
        let gained = self.rate * elapsed_ns as f64 + self.slew * slewed_ns as f64;
        self.lead_ns.saturating_add(gained.floor() as i64)
    }

    /// Largest error of the time at an instant of the host's clock.
    fn bound_at(&self, host_ns: i64) -> u64 {
        let (least_ns, most_ns) = self.estimate.range_ns(host_ns);
        let lead_ns = self.lead_at(host_ns);
        let bound_ns = (most_ns.saturating_sub(lead_ns)).max(lead_ns.saturating_sub(least_ns));
        bound_ns.max(0).unsigned_abs()
    }

    /// Takes the bound up to an instant into the largest. On a straight part of the line it is
    /// largest at an end, since both sides of the estimate are straight too.
    fn note(&mut self, host_ns: i64) {
        let bend_ns = self.slewed_ns.clamp(self.noted_ns, host_ns.max(self.noted_ns));
        for at_ns in [self.noted_ns.max(self.since_ns), bend_ns, host_ns] {
            self.bound_ns = self.bound_ns.max(self.bound_at(at_ns));
        }
        self.noted_ns = host_ns;
    }
}

fn middle_ns(least_ns: i64, most_ns: i64) -> i64 {
    least_ns + most_ns.saturating_sub(least_ns) / 2
}

#[cfg(test)]
#[path = "steering/tests.rs"]
mod tests;
