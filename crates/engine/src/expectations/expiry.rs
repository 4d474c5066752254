//! Messages that may expire while their receiver is offline. The broker deletes a message of MQTT 5
//! whose expiry is over before it can deliver the message. Pubstorm cannot distinguish such a
//! message from a lost one. So a message with an expiry is expected of clients that are active in
//! its stage, and not of clients that are offline and whose session the broker keeps. What these
//! clients receive of it later is expected as received.

use plan::{Action, PlannedStage, Population, SECOND_NS, Stamp};

use crate::setup::Setup;

/// Brokers count expiries in whole seconds.
const ROUNDING_NS: u64 = SECOND_NS;

/// Expiries of all publications, and the clients that are active in each publish stage.
pub struct Expiry {
    /// Message expiry by publication and receiving population, in nanoseconds; 0 if the receivers
    /// expect each message. Empty for publications whose messages do not expire, and if no message
    /// may expire.
    expiries_ns: Vec<Box<[u64]>>,
    stages: Vec<Activity>,
    /// Clients of each population that were active in all of them.
    always_active: Vec<u32>,
    /// Index of the one that is played.
    played: Option<usize>,
}

/// Active clients in a publish stage.
struct Activity {
    start_ns: u64,
    /// End of the schedule, or the start of the next stage if that comes first.
    end_ns: u64,
    /// Clients of each population over all agents: those with the lowest indices.
    active: Vec<u32>,
    /// Start of the first stage behind it in which clients of each population connect, in
    /// nanoseconds; 0: none yet.
    returned_ns: Vec<u64>,
}

/// The receiver of a message was offline in a publish stage, and may have missed messages that
/// have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The receiver was offline in the stage of this message, which is not expected.
    Now {
        /// `true` if the expiry of the message was over before its receiver returned.
        is_expired: bool,
        /// Message expiry as published, in seconds.
        expiry_s: u32,
    },
    /// The receiver was offline in some other stage. This message is expected, and a gap in front
    /// of it is no loss.
    Earlier,
}

impl Expiry {
    /// Expiries of a plan.
    pub fn new(setup: &Setup) -> Self {
        let plan = &setup.plan;
        let mut expiries_ns = Vec::new();
        for (population, own) in plan.populations.iter().zip(&setup.populations) {
            for (publication, ready) in population.publications.iter().zip(&own.publications) {
                let expiry_ns = publication.expiry_ns().filter(|_| !publication.request);
                let of_receiver = |(receiver, expiry_ns): (&Population, u64)| {
                    let is_beside = receiver.capabilities().has_properties
                        && population.stamps_property(publication);
                    let is_stamped = ready.stamped || is_beside;
                    if is_stamped && may_miss(receiver) { expiry_ns } else { 0 }
                };
                let receivers = plan.populations.iter();
                let expiring = receivers.filter_map(|receiver| Some((receiver, expiry_ns?)));
                expiries_ns.push(expiring.map(of_receiver).collect::<Box<[u64]>>());
            }
        }
        if expiries_ns.iter().flatten().all(|&expiry_ns| expiry_ns == 0) {
            expiries_ns.clear();
        }
        // A replacement of a lost agent does not know earlier stages.
        let always = if setup.incarnation == 0 { u32::MAX } else { 0 };
        let always_active = vec![always; plan.populations.len()];
        let stages = Vec::new();
        Self { expiries_ns, stages, always_active, played: None }
    }

    /// Takes the stage that comes next, with the active clients. Messages of that stage may be read
    /// before it is entered here: it begins while the agent reads, or has no processor.
    pub fn announce(&mut self, stage: &PlannedStage, start_ns: u64, active: &[u32]) {
        if self.expiries_ns.is_empty() {
            return;
        }
        if let Some(before) = self.stages.last_mut() {
            before.end_ns = start_ns.min(before.end_ns);
        }
        match &stage.action {
            Action::Publish { duration_ns, .. } => {
                let always = self.always_active.iter_mut().zip(active);
                always.for_each(|(always, &active)| *always = active.min(*always));
                let (active, returned_ns) = (active.into(), vec![0; active.len()]);
                let end_ns = start_ns.saturating_add(*duration_ns);
                self.stages.push(Activity { start_ns, end_ns, active, returned_ns });
            }
            Action::Connect { .. } => {
                for &population in &stage.populations {
                    let returned = self.stages.iter_mut().map(|s| &mut s.returned_ns[population]);
                    returned.filter(|instant| **instant == 0).for_each(|i| *i = start_ns);
                }
            }
            Action::Disconnect { .. } | Action::Hold { .. } => {}
        }
    }

    /// Begins the stage that was announced.
    pub fn begin_stage(&mut self, stage: &PlannedStage) {
        let is_publishing = matches!(stage.action, Action::Publish { .. });
        self.played = if is_publishing { self.stages.len().checked_sub(1) } else { None };
    }

    /// Expects all messages of this stage as received, for a population that is excluded from loss.
    pub fn exclude_from_loss(&mut self, population: usize) {
        if let Some(played) = self.played {
            self.stages[played].active[population] = u32::MAX;
        }
    }

    /// Returns `true` if messages of a publication, which has this index over all populations, may
    /// expire for offline clients of population `to`.
    #[inline]
    pub fn is_for(&self, publication: u16, to: usize) -> bool {
        self.expiry_ns(publication, to).is_some()
    }

    /// Returns `true` if some messages may expire for offline clients of population `to`.
    pub fn concerns(&self, to: usize) -> bool {
        self.expiries_ns.iter().filter_map(|row| row.get(to)).any(|&expiry_ns| expiry_ns > 0)
    }

    /// The absence of a client that has received a message; `None` if the client missed nothing.
    /// `active` are the clients of its population that are active now.
    #[inline]
    pub fn absence(
        &self,
        (to, client): (usize, u32),
        active: u32,
        stamp: &Stamp,
    ) -> Option<Absence> {
        let expiry_ns = self.expiry_ns(stamp.stream.publication, to)?;
        (client >= self.always_active[to])
            .then(|| self.absence_at((to, client), active, stamp, expiry_ns))
    }

    #[inline]
    fn expiry_ns(&self, publication: u16, to: usize) -> Option<u64> {
        let found = self.expiries_ns.get(usize::from(publication))?.get(to);
        found.copied().filter(|&expiry_ns| expiry_ns > 0)
    }

    fn absence_at(
        &self,
        (to, client): (usize, u32),
        active: u32,
        stamp: &Stamp,
        expiry_ns: u64,
    ) -> Absence {
        let behind = self.stages.partition_point(|stage| stage.start_ns <= stamp.intended_ns);
        let stage = behind.checked_sub(1).map(|index| &self.stages[index]);
        // A message from after the last stage is of a stage whose command this agent has not taken.
        // The agent has settled all stages between, so that nothing has changed since.
        let is_over = |stage: &Activity| stage.end_ns <= stamp.intended_ns;
        let active_then = match stage {
            Some(stage) if behind == self.stages.len() && is_over(stage) => active,
            Some(stage) => stage.active[to],
            None => 0,
        };
        if client < active_then {
            return Absence::Earlier;
        }
        let over_ns = stamp.actual_ns().saturating_add(expiry_ns + ROUNDING_NS);
        let is_expired = stage.is_some_and(|stage| over_ns < stage.returned_ns[to]);
        Absence::Now { is_expired, expiry_s: (expiry_ns / SECOND_NS) as u32 }
    }
}

/// Returns `true` if clients of a population may be offline while the broker keeps messages for
/// them. The members of a shared group may receive the messages of each other.
fn may_miss(receiver: &Population) -> bool {
    let is_shared = |filter: &str| filter.starts_with("$share/");
    receiver.keeps_session()
        && receiver.subscriptions.iter().all(|own| !is_shared(own.filter.source()))
}

#[cfg(test)]
mod tests;
