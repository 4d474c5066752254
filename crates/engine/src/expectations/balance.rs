//! The balance of a publish stage: adds the deliveries of all messages that were sent to those
//! expected. Each turn of the loop handles a bounded number of topics, so that sockets and timers
//! do not wait for the end of a stage.

use std::ops::Range;

use agent::pipes;
use agent::tally::Tally;
use plan::Sent;
use rustc_hash::FxHashMap;

use super::Expectations;
use super::offline::OfflineWait;
use crate::setup::Setup;

/// Topics of one slice at most.
const SLICE_TOPICS: usize = 256;
/// A slice begins no further topic after this time, in nanoseconds.
const SLICE_NS: u64 = 500_000;

/// Messages that are still to be balanced.
#[derive(Default)]
pub struct Balance {
    /// Clients of this agent whose messages have not been taken.
    clients: Range<u32>,
    /// Messages that were taken and are not balanced.
    batches: Vec<Batch>,
    /// Externally published messages, by population and client.
    reported: FxHashMap<(usize, u32), u64>,
}

/// Messages that one client has sent for one publication.
pub struct Batch {
    /// Index of its population.
    pub population: usize,
    /// Index of the client over all agents.
    pub client: u32,
    /// Index of the publication in its population.
    pub publication: usize,
    /// Numbers of the messages.
    pub numbers: Range<u64>,
    /// Variants of the topic that are balanced.
    pub variant: u32,
}

impl Expectations {
    /// Begins with the messages of all `clients` of this agent.
    pub fn begin_balance(&mut self, clients: usize) {
        self.balance.clients = 0..clients as u32;
    }

    /// Adds what was externally published since the last call. The first agent balances these
    /// messages for all agents.
    pub fn report(&mut self, setup: &Setup, sent: &[Sent]) {
        if setup.agent.index() != 0 {
            return;
        }
        let balance = &mut self.balance;
        for &Sent { population, client, total } in sent {
            let plan = setup.plan.populations.get(population);
            if plan.is_some_and(|plan| plan.is_externally_published() && client < plan.clients) {
                let before = balance.reported.insert((population, client), total).unwrap_or(0);
                let numbers = before..total;
                let batch = Batch { population, client, publication: 0, numbers, variant: 0 };
                balance.batches.push(batch);
            } else {
                pipes::log(&format!(
                    "ignored a report of messages: client {client} of population {population} is \
                     no publisher of another program"
                ));
            }
        }
    }

    /// Returns `true` once all messages are balanced.
    pub fn is_balanced(&self) -> bool {
        self.balance.batches.is_empty() && self.balance.clients.is_empty()
    }

    /// Balances some topics. `take_sent` appends the messages that a client of this agent has sent
    /// since its last balance.
    pub fn balance_slice(
        &mut self,
        setup: &Setup,
        tally: &mut Tally,
        now_ns: impl Fn() -> u64,
        mut take_sent: impl FnMut(u32, &mut Vec<Batch>),
    ) {
        if self.is_balanced() {
            return;
        }
        let until_ns = now_ns() + SLICE_NS;
        for _ in 0..SLICE_TOPICS {
            while self.balance.batches.is_empty() {
                let Some(client) = self.balance.clients.next() else { return };
                take_sent(client, &mut self.balance.batches);
            }
            let Some(mut batch) = self.balance.batches.pop() else { return };
            if !self.balance_topic(setup, tally, &mut batch) {
                self.balance.batches.push(batch);
            }
            if now_ns() >= until_ns {
                return;
            }
        }
    }

    /// Adds the deliveries of the messages on the next topic of a batch. Returns `true` if it was
    /// the last topic.
    fn balance_topic(&mut self, setup: &Setup, tally: &mut Tally, batch: &mut Batch) -> bool {
        let (population, client, numbers) = (batch.population, batch.client, &batch.numbers);
        let plan = &setup.plan.populations[population];
        let published = &setup.populations[population].publications[batch.publication];
        let variants = &published.variants;
        if numbers.is_empty() || batch.variant >= variants.count(client) {
            return true;
        }
        let below = |end: u64| variants.messages(client, batch.variant, end);
        let count = (below(numbers.end) - below(numbers.start)).cast_signed();
        if count > 0 {
            let n = plan.first + u64::from(client);
            let topic = plan.publications[batch.publication].topic.text(n, batch.variant);
            let publication = (population, client, batch.publication);
            self.expect(setup, tally, publication, (&topic, count));
        }
        batch.variant += 1;
        batch.variant >= variants.count(client)
    }
    /// Adds the deliveries of a number of messages of a publication: indices of population, client
    /// over all agents, and publication. A number below 0 takes deliveries back.
    pub fn expect(
        &mut self,
        setup: &Setup,
        tally: &mut Tally,
        (population, client, publication): (usize, u32, usize),
        (topic, count): (&str, i64),
    ) {
        let counts_answers = self.counts_answers(population);
        let plan = &setup.plan.populations[population];
        let publisher = setup.plan.publisher(population, client);
        let index = setup.populations[population].publications[publication].index;
        let (deliveries, offline) = self.receivers.with_offline(topic, publisher);
        for (receiver, &deliveries) in deliveries.iter().enumerate() {
            if self.counts_loss[receiver] && deliveries > 0 {
                let offline = offline.get(receiver).copied().unwrap_or(0);
                let (all, offline) = (deliveries.cast_signed(), offline.cast_signed());
                let counters = &mut tally.flow(population, receiver).counters;
                counters.expected_total += count * all;
                match self.offline.wait(index, receiver) {
                    Some(OfflineWait::Queued) => {
                        counters.queued_total += count * offline;
                        counters.queued_lost_total += count * offline;
                    }
                    Some(OfflineWait::Expires(_)) => {
                        counters.expected_total -= count * offline;
                        counters.expired_total += count * offline;
                    }
                    None => {}
                }
            }
        }
        if plan.publications[publication].request && counts_answers {
            self.answers.expect(population, count, deliveries, tally);
        }
    }
}
