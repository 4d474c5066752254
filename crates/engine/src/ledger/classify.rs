//! Classification of a delivery with a stamp of this run: its effects on the counters follow from
//! its place in the ledger and from the expectations. Pure: a client looks up before and counts
//! after.

use agent::ledger::Delivery;
use plan::{Expected, FlowCounters};

use crate::expectations::Absence;

/// A delivery as the ledger has noted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Its class in its stream.
    pub delivery: Delivery,
    /// The delivery that the fan-out counts.
    pub expected: Expected,
    /// `true` if its copy, by subscription identifier, is the first of the message; `None` for
    /// receivers whose copies are not distinguished.
    pub copy_is_new: Option<bool>,
    /// Its class among the deliveries to all members of its shared group; `None` outside of groups.
    pub in_group: Option<Delivery>,
}

/// A delivery as the expectations see it.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Index of the receiving population.
    pub to: usize,
    /// `true` if the receiving population is not excluded from loss.
    pub counts_loss: bool,
    /// `true` if the population that expects the deliveries of the group is not excluded from loss.
    pub group_counts_loss: bool,
    /// Absence of the receiver when the message was sent.
    pub absence: Option<Absence>,
    /// Time for which the message has left to be delivered, in seconds.
    pub expiry_left_s: Option<u32>,
}

/// Effects of a delivery on the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The message counts as received, with its latencies.
    pub received: bool,
    /// A repeated delivery.
    pub duplicate: bool,
    /// A copy for a further subscription.
    pub copy: bool,
    /// Too far behind its stream.
    pub stale: bool,
    /// After a later message of its stream.
    pub reordered: bool,
    /// The ledger does not follow its stream.
    pub unfollowed: bool,
    /// The delivery was not expected: one more is.
    pub expected: bool,
    /// The message waited for its receiver, which was offline.
    pub was_queued: bool,
    /// The message counted as expired, because its receiver was offline.
    pub arrived_in_time: bool,
    /// Its expiry was over before its receiver returned.
    pub after_expiry: bool,
    /// The broker has reduced its expiry.
    pub expiry_reduced: bool,
    /// Change of the number of missing places.
    pub missing: i64,
    /// Population that expects one delivery less: its group received this one elsewhere.
    pub less: Option<usize>,
}

impl Noted {
    /// The next message of a stream, without a gap, that the client expects. A client that was
    /// never absent receives the message, which is expected as received if the population is
    /// excluded from loss. Nearly all deliveries are plain.
    pub const PLAIN: Self = Self {
        delivery: Delivery::First { passed_over: 0 },
        expected: Expected::Client,
        copy_is_new: None,
        in_group: None,
    };

    /// The class of a delivery to a member of a group: the group knows if another member has
    /// received the message, however late, and the member its own order.
    fn of_member(&self) -> Delivery {
        match (self.delivery, self.in_group) {
            (_, Some(Delivery::Duplicate)) => Delivery::Duplicate,
            (Delivery::Stale, Some(Delivery::First { .. } | Delivery::Reordered { .. })) => {
                Delivery::Reordered { filled: false }
            }
            (delivery, _) => delivery,
        }
    }
}

impl Effects {
    /// Adds the effects to the counters of the flow, but for `received_total`.
    pub fn add_to(&self, counters: &mut FlowCounters) {
        counters.expected_total += i64::from(self.expected);
        counters.duplicate_total += i64::from(self.duplicate);
        counters.copies_total += i64::from(self.copy);
        counters.reordered_total += i64::from(self.reordered);
        counters.stale_total += i64::from(self.stale);
        counters.missing_total += self.missing;
        counters.queued_received_total += i64::from(self.was_queued);
        counters.queued_lost_total -= i64::from(self.was_queued);
        counters.expired_total -= i64::from(self.arrived_in_time);
        counters.expired_received_total += i64::from(self.after_expiry);
    }
}

/// Classifies a delivery.
pub fn classify(noted: &Noted, facts: &Facts) -> Effects {
    let is_again = noted.delivery == Delivery::Duplicate;
    if is_again && noted.copy_is_new == Some(true) {
        return Effects { copy: true, ..Effects::default() };
    }
    match noted.expected {
        Expected::Group { population, .. } => {
            let expecting = usize::from(population);
            let delivery = noted.of_member();
            let is_own = expecting == facts.to;
            let effects = in_stream(delivery, is_own && facts.counts_loss);
            let less = effects.received && !is_own && facts.group_counts_loss;
            Effects { less: less.then_some(expecting), ..effects }
        }
        Expected::Client | Expected::Nothing => {
            let is_absent = matches!(facts.absence, Some(Absence::Now { .. }));
            let is_expected = noted.expected == Expected::Client && !is_absent;
            // A queued message is expected since its own stage.
            let counts_loss = facts.counts_loss || facts.absence == Some(Absence::Queued);
            let effects = in_stream(noted.delivery, is_expected && counts_loss);
            match facts.absence {
                Some(absence) if effects.received => after_absence(effects, absence, facts),
                _ => effects,
            }
        }
    }
}

/// Effects of a delivery by its place in its stream. `counts_loss` is `false` if the delivery is
/// expected because it was received.
fn in_stream(delivery: Delivery, counts_loss: bool) -> Effects {
    let received = Effects { received: true, expected: !counts_loss, ..Effects::default() };
    match delivery {
        Delivery::Duplicate => Effects { duplicate: true, ..Effects::default() },
        Delivery::Stale => Effects { stale: true, ..Effects::default() },
        Delivery::Unfollowed => Effects { unfollowed: true, ..received },
        // Gaps do not count for receivers that may have been offline.
        Delivery::First { passed_over } => {
            Effects { missing: i64::from(passed_over) * i64::from(counts_loss), ..received }
        }
        Delivery::Reordered { filled } => {
            Effects { reordered: true, missing: -i64::from(filled && counts_loss), ..received }
        }
    }
}

fn after_absence(effects: Effects, absence: Absence, facts: &Facts) -> Effects {
    match absence {
        Absence::Queued => Effects { was_queued: true, ..effects },
        Absence::Now { is_expired, expiry_s } => Effects {
            arrived_in_time: true,
            after_expiry: is_expired,
            expiry_reduced: facts.expiry_left_s.is_some_and(|left_s| left_s < expiry_s),
            ..effects
        },
        // The receiver may have missed the messages of a gap in front, but not of one behind.
        Absence::Earlier => Effects { missing: effects.missing.min(0), ..effects },
    }
}

#[cfg(test)]
mod tests;
