//! Wills: deliveries that are expected when a connection ends without DISCONNECT, or with a
//! DISCONNECT that keeps the will, and their latency from that end and the will delay
//! [MQTT-3.1.2-8].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use agent::tally::Tally;
use rustc_hash::FxHashMap;

use super::Expectations;
use crate::setup::Setup;

/// End of a connection after which the broker publishes the will.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// This agent ended the connection.
    Chosen,
    /// This agent found the connection closed, some time after its end.
    Noticed,
    /// Another client took the connection over, and continues the session if `resumed`.
    TakenOver {
        /// `true` if the session continues.
        resumed: bool,
    },
    /// The client fell silent: the broker ends the connection at this instant, in nanoseconds.
    /// `u64::MAX`: never.
    Silent {
        /// End of the broker's patience, in nanoseconds.
        until_ns: u64,
    },
}

/// Void entries of the queue that are kept at least.
const VOID_MAX: usize = 1024;

/// A client: its population, and its index in the population over all agents.
type WillOwner = (usize, u32);

/// Wills that are not expected yet.
#[derive(Default)]
struct Pending {
    /// Instants at which they are due, in nanoseconds; `u64::MAX`: never.
    due_ns: FxHashMap<WillOwner, u64>,
    /// The same in the order of time; an entry is void unless `due_ns` has its instant.
    queue: BinaryHeap<Reverse<(u64, WillOwner)>>,
    /// Number of wills that will be due, by population.
    awaited: FxHashMap<usize, u64>,
}

impl Pending {
    fn insert(&mut self, client: WillOwner, due_ns: u64) {
        self.remove(client);
        self.due_ns.insert(client, due_ns);
        if due_ns == u64::MAX {
            return;
        }
        *self.awaited.entry(client.0).or_default() += 1;
        self.queue.push(Reverse((due_ns, client)));
        if self.queue.len() > 2 * self.due_ns.len() + VOID_MAX {
            let all = &self.due_ns;
            self.queue.retain(|Reverse((due_ns, client))| all.get(client) == Some(due_ns));
        }
    }

    /// Returns the instant at which the will was due; `None` if the client has none.
    fn remove(&mut self, client: WillOwner) -> Option<u64> {
        let due_ns = self.due_ns.remove(&client)?;
        if due_ns != u64::MAX
            && let Some(awaited) = self.awaited.get_mut(&client.0)
        {
            *awaited -= 1;
        }
        Some(due_ns)
    }

    /// Takes a will that is due.
    fn take_due(&mut self, now_ns: u64) -> Option<WillOwner> {
        while let Some(&Reverse((due_ns, client))) = self.queue.peek() {
            if due_ns > now_ns {
                return None;
            }
            self.queue.pop();
            if self.due_ns.get(&client) == Some(&due_ns) {
                self.remove(client);
                return Some(client);
            }
        }
        None
    }

    fn are_awaited(&self, population: usize) -> bool {
        self.awaited.get(&population).is_some_and(|&awaited| awaited > 0)
    }
}

/// Wills of this agent's clients.
#[derive(Default)]
pub struct Wills {
    /// Instants at which wills of a known death are due, in nanoseconds, by topic.
    known_ns: FxHashMap<String, u64>,
    pending: Pending,
    /// Populations that leave in the current stage.
    leaving: Vec<usize>,
}

impl Wills {
    /// Begins a stage in which these populations leave.
    pub fn begin_stage(&mut self, leaving: &[usize]) {
        self.leaving = leaving.to_vec();
    }

    /// Returns `true` if a population is expected to receive every will. A population that leaves
    /// receives some.
    pub fn are_expected_by(&self, population: usize) -> bool {
        !self.leaving.contains(&population)
    }

    /// The instant at which the will on this topic was due. `None` if another agent played the
    /// client, or the broker ended the connection.
    pub fn known_ns(&self, topic: &str) -> Option<u64> {
        self.known_ns.get(topic).copied()
    }
}

impl Expectations {
    /// Expects the deliveries of a will, if the client has one, after its connection ended at
    /// `now_ns`: at once, or when the will is due.
    pub fn expect_will(
        &mut self,
        setup: &Setup,
        tally: &mut Tally,
        client: WillOwner,
        (death, now_ns): (Death, u64),
    ) {
        let plan = &setup.plan.populations[client.0];
        let Some(will) = plan.will() else { return };
        let delay_ns = plan.will_delay_ns();
        let due_ns = match death {
            Death::Chosen | Death::Noticed => now_ns.saturating_add(delay_ns),
            Death::TakenOver { resumed: true } if delay_ns > 0 => return,
            Death::TakenOver { .. } => now_ns,
            Death::Silent { until_ns } => until_ns.saturating_add(delay_ns),
        };
        let is_chosen = matches!(death, Death::Chosen | Death::Silent { .. });
        let is_known = is_chosen && due_ns != u64::MAX;
        // A topic that several clients share does not identify the client.
        let topic = will.topic.text(plan.first + u64::from(client.1), 0);
        if is_known && will.topic.has_number() {
            self.wills.known_ns.insert(topic, due_ns);
        } else {
            self.wills.known_ns.remove(&topic);
        }
        if due_ns <= now_ns {
            return self.add_will(setup, tally, client);
        }
        self.wills.pending.insert(client, due_ns);
    }

    /// Settles the pending will of a client whose identifier the broker has accepted again. With a
    /// will delay, a client that continues the session (`resumed`) cancels the will
    /// [MQTT5-3.1.3-9]. Otherwise the broker publishes the will now (3.1.4 of MQTT 5).
    pub fn settle_will(
        &mut self,
        setup: &Setup,
        tally: &mut Tally,
        client: WillOwner,
        resumed: bool,
    ) {
        if self.wills.pending.remove(client).is_none() {
            return;
        }
        let plan = &setup.plan.populations[client.0];
        if let Some(will) = plan.will() {
            self.wills.known_ns.remove(&will.topic.text(plan.first + u64::from(client.1), 0));
        }
        if plan.will_delay_ns() == 0 || !resumed {
            self.add_will(setup, tally, client);
        }
    }

    /// Expects the deliveries of all wills that are due.
    pub fn expect_due_wills(&mut self, setup: &Setup, tally: &mut Tally, now_ns: u64) {
        while let Some(client) = self.wills.pending.take_due(now_ns) {
            self.add_will(setup, tally, client);
        }
    }

    /// Instant at which the next will is due, in nanoseconds.
    pub fn next_will_ns(&self) -> Option<u64> {
        self.wills.pending.queue.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    /// Returns `true` if wills of some of these populations are pending and will be due.
    pub fn awaits_wills(&self, populations: &[usize]) -> bool {
        populations.iter().any(|&population| self.wills.pending.are_awaited(population))
    }

    fn add_will(&mut self, setup: &Setup, tally: &mut Tally, (population, client): WillOwner) {
        let plan = &setup.plan.populations[population];
        let Some(will) = plan.will() else { return };
        let topic = will.topic.text(plan.first + u64::from(client), 0);
        // A receiver knows the topic alone.
        let owner = setup.owner_of_will(population, &topic).unwrap_or(population);
        let publisher = setup.plan.publisher(population, client);
        let deliveries = self.receivers.deliveries(&topic, publisher);
        for (receiver, &deliveries) in deliveries.iter().enumerate() {
            let is_expected = self.counts_loss[receiver] && self.wills.are_expected_by(receiver);
            if is_expected && deliveries > 0 {
                let counters = &mut tally.flow(owner, receiver).counters;
                counters.expected_total += deliveries.cast_signed();
                counters.wills_expected_total += deliveries.cast_signed();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_wills_are_counted_by_population() {
        let mut pending = Pending::default();
        for (client, due_ns) in
            [((0, 1), 5), ((0, 1), 7), ((0, 2), u64::MAX), ((1, 1), u64::MAX), ((0, 3), u64::MAX)]
        {
            pending.insert(client, due_ns);
        }
        pending.insert((0, 3), 9);
        let awaited = |pending: &Pending| [0, 1, 2].map(|p| pending.are_awaited(p));
        assert_eq!(awaited(&pending), [true, false, false]);
        assert_eq!(pending.remove((0, 1)), Some(7));
        assert_eq!(pending.remove((0, 1)), None);
        assert_eq!(pending.remove((0, 2)), Some(u64::MAX));
        assert_eq!(awaited(&pending), [true, false, false]);
        pending.insert((0, 3), u64::MAX);
        assert_eq!(awaited(&pending), [false; 3]);
        assert_eq!(pending.remove((1, 1)), Some(u64::MAX));
    }

    #[test]
    fn clients_that_return_before_their_wills_are_due_leave_little_behind() {
        let mut pending = Pending::default();
        for death in 0..100_000 {
            pending.insert((0, death % 7), u64::from(1_000_000 + death));
        }
        assert!(pending.queue.len() <= VOID_MAX + 2 * 7);
        let due: Vec<WillOwner> = std::iter::from_fn(|| pending.take_due(u64::MAX)).collect();
        assert_eq!(due.len(), 7);
        assert!(!pending.are_awaited(0));
    }
}
