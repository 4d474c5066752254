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

/// A client: its population, and its index in the population over all agents.
type Client = (usize, u32);

/// Wills of this agent's clients.
#[derive(Default)]
pub struct Wills {
    /// Instants at which wills of a known death are due, in nanoseconds, by topic.
    known_ns: FxHashMap<String, u64>,
    /// Instants at which wills are due that are not expected yet, in nanoseconds.
    pending: FxHashMap<Client, u64>,
    /// The same in the order of time; an entry is void unless `pending` has its instant.
    queue: BinaryHeap<Reverse<(u64, Client)>>,
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

    /// Takes a will that is due.
    fn take_due(&mut self, now_ns: u64) -> Option<Client> {
        while let Some(&Reverse((due_ns, client))) = self.queue.peek() {
            if due_ns > now_ns {
                return None;
            }
            self.queue.pop();
            if self.pending.get(&client) == Some(&due_ns) {
                self.pending.remove(&client);
                return Some(client);
            }
        }
        None
    }
}

impl Expectations {
    /// Expects the deliveries of a will, if the client has one, after its connection ended at
    /// `now_ns`: at once, or when the will is due.
    pub fn expect_will(
        &mut self,
        setup: &Setup,
        tally: &mut Tally,
        client: Client,
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
        if due_ns != u64::MAX {
            self.wills.queue.push(Reverse((due_ns, client)));
        }
    }

    /// Settles the pending will of a client whose identifier the broker has accepted again. With a
    /// will delay, a client that continues the session (`resumed`) cancels the will
    /// [MQTT5-3.1.3-9]. Otherwise the broker publishes the will now (3.1.4 of MQTT 5).
    pub fn settle_will(&mut self, setup: &Setup, tally: &mut Tally, client: Client, resumed: bool) {
        if self.wills.pending.is_empty() || self.wills.pending.remove(&client).is_none() {
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
        while let Some(client) = self.wills.take_due(now_ns) {
            self.add_will(setup, tally, client);
        }
    }

    /// Instant at which the next will is due, in nanoseconds.
    pub fn next_will_ns(&self) -> Option<u64> {
        self.wills.queue.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    /// Returns `true` if wills of some of these populations are pending and will be due.
    pub fn awaits_wills(&self, populations: &[usize]) -> bool {
        let is_awaited = |(client, &due_ns): (&Client, &u64)| {
            due_ns != u64::MAX && populations.contains(&client.0)
        };
        self.wills.pending.iter().any(is_awaited)
    }

    fn add_will(&mut self, setup: &Setup, tally: &mut Tally, (population, client): Client) {
        let plan = &setup.plan.populations[population];
        let Some(will) = plan.will() else { return };
        let topic = will.topic.text(plan.first + u64::from(client), 0);
        let target = setup.target(population, client);
        // A receiver knows the topic alone.
        let owner = setup.owner_of_will(population, &topic).unwrap_or(population);
        let deliveries = self.receivers.deliveries(&topic, target, (population, plan), client);
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
