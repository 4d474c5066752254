//! Distinguishes messages that the broker forwards with the RETAIN flag of their publisher from
//! messages that the broker has kept and sends after a SUBSCRIBE: the former were sent after the
//! SUBSCRIBE of the receiver, by their stamp.

use crate::setup::Setup;

/// Instants of the last SUBSCRIBE of clients that receive RETAIN flags as published.
pub struct Forwarded {
    /// Instants of the clients of each population in this agent, in nanoseconds; `u64::MAX` before
    /// the first SUBSCRIBE. Empty for populations without the option.
    subscribed_ns: Vec<Box<[u64]>>,
}

impl Forwarded {
    /// State before the first connection.
    pub fn new(setup: &Setup) -> Self {
        let populations = setup.plan.populations.iter().zip(&setup.populations);
        let instants = populations.map(|(population, own)| {
            let clients = if population.retains_as_published() { own.share } else { 0 };
            vec![u64::MAX; clients as usize].into()
        });
        Self { subscribed_ns: instants.collect() }
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
        instant.is_some_and(|&subscribed_ns| subscribed_ns <= sent_ns)
    }
}
