//! Retained messages. Distinguishes messages that the broker forwards with the RETAIN flag of their
//! publisher from messages that the broker has kept and sends after a SUBSCRIBE: the former were
//! sent after the SUBSCRIBE of the receiver, by their stamp. Checks the Message Expiry Interval
//! that the broker has left to kept messages `[MQTT5-3.3.2-6]`.

use std::ops::Range;

use plan::{Population, Publication, Reason, SECOND_NS, Stamp};

use crate::setup::Setup;

/// Brokers count expiries in whole seconds, and a second passes at most until a message has reached
/// its broker.
const TOLERANCE_NS: u64 = 2 * SECOND_NS;

/// Instants of the last SUBSCRIBE of clients that receive RETAIN flags as published, or retained
/// messages with an expiry.
pub struct RetainedMessages {
    /// Instants of the clients of each population in this agent, in nanoseconds; `u64::MAX` before
    /// the first SUBSCRIBE. Empty for other populations.
    subscribed_ns: Vec<Box<[u64]>>,
    /// `true` for populations that receive RETAIN flags as published.
    as_published: Vec<bool>,
    /// Expiry of each publication with RETAIN and an expiry, over all populations, in nanoseconds;
    /// empty if the plan has none.
    expiries_ns: Vec<Option<u64>>,
}

impl RetainedMessages {
    /// State before the first connection.
    pub fn new(setup: &Setup) -> Self {
        let publications = setup.plan.populations.iter().flat_map(|p| &p.publications);
        let expiry_ns = |own: &Publication| own.expiry_ns().filter(|_| own.retain);
        let mut expiries_ns: Vec<_> = publications.map(expiry_ns).collect();
        if expiries_ns.iter().all(Option::is_none) {
            expiries_ns.clear();
        }
        let has_instants = |population: &Population| {
            let sees_expiries = population.capabilities().has_properties && !expiries_ns.is_empty();
            let is_subscriber = !population.subscriptions.is_empty();
            population.retains_as_published() || sees_expiries && is_subscriber
        };
        let populations = setup.plan.populations.iter().zip(&setup.populations);
        let instants = populations.map(|(population, own)| {
            let clients = if has_instants(population) { own.share } else { 0 };
            vec![u64::MAX; clients as usize].into()
        });
        Self {
            subscribed_ns: instants.collect(),
            as_published: setup
                .plan
                .populations
                .iter()
                .map(Population::retains_as_published)
                .collect(),
            expiries_ns,
        }
    }

    /// Notes that a client sends its subscriptions.
    pub fn note_subscribe(&mut self, population: usize, local: u32, now_ns: u64) {
        if let Some(instant) = self.subscribed_ns[population].get_mut(local as usize) {
            *instant = now_ns;
        }
    }

    /// Returns `true` if a message with RETAIN that was sent at `sent_ns` is no kept one.
    pub fn is_forwarded(&self, population: usize, local: u32, sent_ns: u64) -> bool {
        let instant = self.subscribed_ns[population].get(local as usize);
        self.as_published[population]
            && instant.is_some_and(|&subscribed_ns| subscribed_ns <= sent_ns)
    }

    /// Checks the expiry of a kept message that a client receives at `now_ns` with `left_s` seconds
    /// left. Returns the rule that the broker has broken; `None` if nothing can be checked.
    pub fn check_expiry(
        &self,
        (population, local): (usize, u32),
        stamp: &Stamp,
        left_s: impl FnOnce() -> Option<u32>,
        now_ns: u64,
    ) -> Option<Result<(), Reason>> {
        let expiry_ns = (*self.expiries_ns.get(usize::from(stamp.stream.publication))?)?;
        let subscribed_ns = *self.subscribed_ns[population].get(local as usize)?;
        let since = |instant_ns: u64| instant_ns.saturating_sub(stamp.actual_ns());
        // The broker sends the message after the SUBSCRIBE.
        check_left(expiry_ns, left_s(), since(subscribed_ns.min(now_ns))..since(now_ns))
    }
}

/// Compares what is left of an expiry with the time that a message has `waited`, from at least to
/// at most. Returns `None` if the wait is too short to be seen.
fn check_left(
    expiry_ns: u64,
    left_s: Option<u32>,
    waited: Range<u64>,
) -> Option<Result<(), Reason>> {
    let Some(left_s) = left_s else { return Some(Err(Reason::ExpiryMissing)) };
    let left_ns = u64::from(left_s) * SECOND_NS;
    if waited.start > expiry_ns.saturating_add(TOLERANCE_NS) {
        return Some(Err(Reason::ExpiryPassed));
    }
    let is_too_long = left_ns.saturating_add(waited.start) > expiry_ns.saturating_add(TOLERANCE_NS);
    let is_too_short = left_ns.saturating_add(waited.end).saturating_add(TOLERANCE_NS) < expiry_ns;
    if is_too_long || is_too_short {
        return Some(Err(Reason::ExpiryWrong));
    }
    (waited.start > TOLERANCE_NS).then_some(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECOND_NS;

    #[test]
    fn an_expiry_is_checked_against_the_wait_of_its_message() {
        let wrong = Some(Err(Reason::ExpiryWrong));
        for (expiry_s, left_s, waited, expected) in [
            // Lowered by the wait, with the rounding of brokers to whole seconds.
            (60, Some(50), 10 * S..10 * S, Some(Ok(()))),
            (60, Some(51), 10 * S..10 * S, Some(Ok(()))),
            (60, Some(49), 10 * S..10 * S, Some(Ok(()))),
            // A receiver that reads late: the broker sent the message somewhere between.
            (60, Some(51), 10 * S..30 * S, Some(Ok(()))),
            (60, Some(30), 10 * S..30 * S, Some(Ok(()))),
            (60, Some(20), 10 * S..30 * S, wrong),
            // Not lowered, and lowered by too much.
            (60, Some(60), 10 * S..10 * S, wrong),
            (60, Some(60), 2 * S + 1..3 * S, wrong),
            (60, Some(10), 10 * S..10 * S, wrong),
            // The wait is too short to be seen.
            (60, Some(60), 2 * S..3 * S, None),
            (60, Some(60), 0..0, None),
            (60, Some(70), 0..0, wrong),
            // Without the property, and after the end.
            (60, None, 0..0, Some(Err(Reason::ExpiryMissing))),
            (1, Some(0), 3 * S..3 * S, Some(Ok(()))),
            (1, Some(0), 3 * S + 1..4 * S, Some(Err(Reason::ExpiryPassed))),
            (1, Some(1), 60 * S..60 * S, Some(Err(Reason::ExpiryPassed))),
            (
                u64::from(u32::MAX),
                Some(u32::MAX),
                u64::MAX..u64::MAX,
                Some(Err(Reason::ExpiryPassed)),
            ),
        ] {
            let found = check_left(expiry_s * S, left_s, waited.clone());
            assert_eq!(found, expected, "{expiry_s} s, {left_s:?} s left after {waited:?} ns");
        }
    }
}
