//! Messages for receivers that are offline and whose session the broker keeps. Such a message is
//! expected, and counts as queued, then as received from the queue or as lost. But the broker
//! deletes a message of MQTT 5 whose expiry is over before it can deliver the message. Pubstorm
//! cannot distinguish such a message from a lost one. So a message with an expiry is expected of
//! clients that are active in its stage, and not of offline clients. What these clients receive of
//! it later is expected as received.

use agent::publication::PublicationSetup;
use plan::{Action, PlannedStage, Population, Publication, SECOND_NS, Stamp};

use crate::setup::Setup;

/// Brokers count expiries in whole seconds.
const ROUNDING_NS: u64 = SECOND_NS;

/// Messages that wait for offline clients, and the clients that are active in each publish stage.
pub struct Offline {
    /// Waiting messages by publication; empty if no receiver has a session that outlasts its
    /// connection.
    waiting: Vec<OfflineMessage>,
    /// By population.
    receivers: Vec<Absentee>,
    stages: Vec<Activity>,
    /// Clients of each population that were active in all of them.
    always_active: Vec<u32>,
    /// Index of the one that is played.
    played: Option<usize>,
}

/// Messages of a publication while their receivers are offline.
#[derive(Clone, Copy)]
struct OfflineMessage {
    wait: OfflineWait,
    /// Place of the stamp by which a receiver recognises them; `None`: they have none.
    stamp: Option<StampPlace>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StampPlace {
    Payload,
    Property,
}

/// Time for which a broker keeps a message for an offline client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfflineWait {
    /// Until the client returns.
    Queued,
    /// Until the client returns, for at most this time in nanoseconds.
    Expires(u64),
}

/// Clients of a population while they are offline.
#[derive(Clone, Copy)]
struct Absentee {
    /// The broker keeps messages for each of them. The members of a shared group may receive the
    /// messages of each other.
    keeps_messages: bool,
    reads_properties: bool,
}

/// Active clients in a publish stage.
struct Activity {
    start_ns: u64,
    /// End of the schedule, or the start of the next stage if that comes first.
    end_ns: u64,
    /// Clients of each population over all agents: those with the lowest indices.
    active: Vec<u32>,
    /// Start of the first later stage in which clients of each population connect, in
    /// nanoseconds; 0: none yet.
    returned_ns: Vec<u64>,
}

/// The receiver of a message was offline in a publish stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The receiver was offline in the stage of this message, which is expected.
    Queued,
    /// The receiver was offline in the stage of this message, which may expire and is not expected.
    Now {
        /// `true` if the expiry of the message was over before its receiver returned.
        is_expired: bool,
        /// Message expiry as published, in seconds.
        expiry_s: u32,
    },
    /// The receiver was offline in some other stage. This message may expire and is expected, and a
    /// gap in front of it is no loss.
    Earlier,
}

impl Offline {
    /// Messages and receivers of a plan.
    pub fn new(setup: &Setup) -> Self {
        let plan = &setup.plan;
        let absentee = |population: &Population| {
            let mut subscriptions = population.subscriptions.iter();
            Absentee {
                keeps_messages: population.keeps_session()
                    && subscriptions.all(|subscription| !population.is_shared(subscription)),
                reads_properties: population.capabilities().has_properties,
            }
        };
        let receivers: Vec<_> = plan.populations.iter().map(absentee).collect();
        let mut waiting = Vec::new();
        if receivers.iter().any(|receiver| receiver.keeps_messages) {
            for (population, own) in plan.populations.iter().zip(&setup.populations) {
                let of_publication = |(publication, ready): (&Publication, &PublicationSetup)| {
                    let expiry_ns = publication.expiry_ns().filter(|_| !publication.request);
                    let is_beside = population.stamps_property(publication);
                    let beside = is_beside.then_some(StampPlace::Property);
                    let in_payload = ready.stamped.then_some(StampPlace::Payload);
                    OfflineMessage {
                        wait: expiry_ns.map_or(OfflineWait::Queued, OfflineWait::Expires),
                        stamp: in_payload.or(beside),
                    }
                };
                let publications = population.publications.iter().zip(&own.publications);
                waiting.extend(publications.map(of_publication));
            }
        }
        // A replacement of a lost agent does not know earlier stages.
        let always = if setup.incarnation == 0 { u32::MAX } else { 0 };
        let always_active = vec![always; plan.populations.len()];
        let stages = Vec::new();
        Self { waiting, receivers, stages, always_active, played: None }
    }

    /// Takes the stage that comes next, with the active clients. Messages of that stage may be read
    /// before it is entered here: it begins while the agent reads, or has no processor.
    pub fn announce(&mut self, stage: &PlannedStage, start_ns: u64, active: &[u32]) {
        if self.waiting.is_empty() {
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

    /// The wait of messages of a publication, which has this index over all populations, for
    /// offline clients of population `to`. `None` if the broker keeps none, or if the clients
    /// cannot recognise them later.
    #[inline]
    pub fn wait(&self, publication: u16, to: usize) -> Option<OfflineWait> {
        let waiting = self.waiting.get(usize::from(publication))?;
        let receiver = self.receivers[to];
        let is_read = match waiting.stamp? {
            StampPlace::Payload => true,
            StampPlace::Property => receiver.reads_properties,
        };
        (receiver.keeps_messages && is_read).then_some(waiting.wait)
    }

    /// Returns `true` if the broker keeps messages for offline clients of population `to`.
    pub fn keeps_messages_for(&self, to: usize) -> bool {
        self.receivers[to].keeps_messages
    }

    /// Returns `true` if some messages may expire for offline clients of population `to`.
    pub fn may_expire_for(&self, to: usize) -> bool {
        let receiver = self.receivers[to];
        let expires = |waiting: &OfflineMessage| match waiting.stamp {
            _ if waiting.wait == OfflineWait::Queued => false,
            Some(StampPlace::Payload) => true,
            Some(StampPlace::Property) => receiver.reads_properties,
            None => false,
        };
        receiver.keeps_messages && self.waiting.iter().any(expires)
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
        let wait = self.wait(stamp.stream.publication, to)?;
        if client < self.always_active[to] {
            return None;
        }
        self.absence_at((to, client), active, stamp, wait)
    }

    fn absence_at(
        &self,
        (to, client): (usize, u32),
        active: u32,
        stamp: &Stamp,
        wait: OfflineWait,
    ) -> Option<Absence> {
        let begun = self.stages.partition_point(|stage| stage.start_ns <= stamp.intended_ns);
        let stage = begun.checked_sub(1).map(|index| &self.stages[index]);
        // A message from after the last stage is of a stage whose command this agent has not taken.
        // The agent has settled all stages between, so that nothing has changed since.
        let is_over = |stage: &Activity| stage.end_ns <= stamp.intended_ns;
        let active_then = match stage {
            Some(stage) if begun == self.stages.len() && is_over(stage) => active,
            Some(stage) => stage.active[to],
            None => 0,
        };
        let is_active = client < active_then;
        match wait {
            OfflineWait::Queued => (!is_active).then_some(Absence::Queued),
            OfflineWait::Expires(_) if is_active => Some(Absence::Earlier),
            OfflineWait::Expires(expiry_ns) => {
                let over_ns = stamp.actual_ns().saturating_add(expiry_ns + ROUNDING_NS);
                let is_expired = stage.is_some_and(|stage| over_ns < stage.returned_ns[to]);
                Some(Absence::Now { is_expired, expiry_s: (expiry_ns / SECOND_NS) as u32 })
            }
        }
    }
}

#[cfg(test)]
mod tests;
