//! A publish stage: its span, the populations that publish, and the progress of their schedules.

use plan::Tempo;

use super::quotas::Quotas;

/// A publish stage.
pub struct Publishing {
    /// Instant at which the stage began, in nanoseconds.
    pub start_ns: u64,
    /// Messages are scheduled before this instant, in nanoseconds.
    pub end_ns: u64,
    /// Messages scheduled at or after this instant wait for a change that has not begun, in
    /// nanoseconds; `u64::MAX` if there is none.
    pub horizon_ns: u64,
    /// `true` for each population that publishes.
    pub populations: Vec<bool>,
    /// Progress of the schedule of each population.
    pub tempos: Vec<Tempo>,
    /// Instant from which all active clients of each population are connected, in nanoseconds.
    pub complete_ns: Vec<u64>,
    /// `true` if messages are externally published too. The controller then closes the stage.
    pub waits: bool,
    /// Numbers of messages; `None`: as many as are scheduled.
    pub quotas: Option<Quotas>,
}

impl Publishing {
    /// Returns `true` if the stage has numbers of messages, and the clients of this agent have sent
    /// theirs.
    #[inline]
    pub fn has_sent_all(&self) -> bool {
        self.quotas.as_ref().is_some_and(Quotas::are_met)
    }

    /// Publishes at `factor` times the planned rate from `at_ns` on.
    pub fn change_rate(&mut self, population: usize, at_ns: u64, factor: f64) {
        self.tempos[population].change(at_ns.saturating_sub(self.start_ns), factor);
    }

    /// Publishes nothing from `at_ns` on, or continues.
    pub fn hold(&mut self, at_ns: u64, is_held: bool) {
        let after_ns = at_ns.saturating_sub(self.start_ns);
        self.tempos.iter_mut().for_each(|tempo| tempo.hold(after_ns, is_held));
    }

    /// The instants of a population's schedule before this one lie before `until_ns`.
    pub fn schedule_before(&self, population: usize, until_ns: u64) -> u64 {
        self.tempos[population].schedule_before(until_ns.saturating_sub(self.start_ns))
    }

    /// Scheduled instant of a message that is `schedule_ns` after the start of its population's
    /// schedule. In a closed loop, which has no schedule, the message is due now, or never while
    /// the population's rate is 0.
    #[inline]
    pub fn due_ns(&self, population: usize, schedule_ns: Option<u64>, now_ns: u64) -> Option<u64> {
        let tempo = &self.tempos[population];
        match schedule_ns {
            Some(after_ns) => Some(self.start_ns.saturating_add(tempo.real_ns(after_ns))),
            None if tempo.factor_at(now_ns.saturating_sub(self.start_ns)) == 0.0 => None,
            None => Some(now_ns.max(self.start_ns)),
        }
    }

    /// Lateness of a message in the time of its population's schedule, in nanoseconds.
    pub fn schedule_late_ns(&self, population: usize, due_ns: u64, late_ns: u64) -> f64 {
        let after_ns = due_ns.saturating_sub(self.start_ns);
        late_ns as f64 * self.tempos[population].factor_at(after_ns)
    }

    /// Progress of the schedule of a population from one instant to another, while its clients
    /// were connected; all in nanoseconds.
    pub fn passed_ns(&self, population: usize, since_ns: u64, until_ns: u64) -> u64 {
        if !self.populations[population] {
            return 0;
        }
        let since_ns = since_ns.max(self.complete_ns[population]);
        let after = |ns: u64| ns.min(self.end_ns).saturating_sub(self.start_ns);
        let passed = |ns| self.tempos[population].schedule_ns(after(ns));
        passed(until_ns).saturating_sub(passed(since_ns))
    }
}
