//! The balance of a publish stage: adds the deliveries of all messages that were sent to those
//! expected. Each turn of the loop handles a bounded number of topics, so that sockets and timers
//! do not wait for the end of a stage.

use std::ops::Range;

use plan::Sent;
use rustc_hash::FxHashMap;

use crate::client::Client;
use crate::shared::Shared;
use agent::pipes;

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
    /// Messages that publishers of other programs have sent, by population and client.
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

impl Balance {
    /// Begins with the messages of all `clients` of this agent.
    pub fn begin(&mut self, clients: usize) {
        self.clients = 0..clients as u32;
    }

    /// Adds what publishers of other programs have sent since the last call. The first shard
    /// balances these messages for all agents.
    pub fn report(&mut self, shared: &Shared, sent: &[Sent]) {
        if shared.setup.shard.index() != 0 {
            return;
        }
        for &Sent { population, client, total } in sent {
            let plan = shared.setup.plan.populations.get(population);
            if plan.is_some_and(|plan| plan.is_told() && client < plan.clients) {
                let before = self.reported.insert((population, client), total).unwrap_or(0);
                let numbers = before..total;
                self.batches.push(Batch {
                    population,
                    client,
                    publication: 0,
                    numbers,
                    variant: 0,
                });
            } else {
                pipes::log(&format!(
                    "ignored a report of messages: client {client} of population {population} is \
                     no publisher of another program"
                ));
            }
        }
    }

    /// Returns `true` once all messages are balanced.
    pub fn is_done(&self) -> bool {
        self.batches.is_empty() && self.clients.is_empty()
    }

    /// Balances some topics.
    pub fn slice(&mut self, clients: &mut [Client], shared: &mut Shared) {
        if self.is_done() {
            return;
        }
        let until_ns = shared.host.now_ns() + SLICE_NS;
        for _ in 0..SLICE_TOPICS {
            while self.batches.is_empty() {
                let Some(client) = self.clients.next() else { return };
                clients[client as usize].take_sent(shared, &mut self.batches);
            }
            self.batches.pop_if(|batch| batch.balance_topic(shared));
            if shared.host.now_ns() >= until_ns {
                return;
            }
        }
    }

    /// Balances all that is left.
    pub fn finish(&mut self, clients: &mut [Client], shared: &mut Shared) {
        while !self.is_done() {
            self.slice(clients, shared);
        }
    }
}

impl Batch {
    /// Adds the deliveries of the messages on the next topic; returns whether it was the last.
    fn balance_topic(&mut self, shared: &mut Shared) -> bool {
        let Shared { setup, tally, judged, receivers, .. } = shared;
        let (population, client, numbers) = (self.population, self.client, &self.numbers);
        let plan = &setup.plan.populations[population];
        let variants = setup.populations[population].publications[self.publication].variants;
        if numbers.is_empty() || self.variant >= variants.count() {
            return true;
        }
        let below = |end: u64| variants.messages(client, self.variant, end);
        let count = (below(numbers.end) - below(numbers.start)).cast_signed();
        if count > 0 {
            let n = plan.first + u64::from(client);
            let topic = plan.publications[self.publication].topic.text(n, self.variant);
            let target = plan.at.target(setup.plan.seed, population, client);
            let deliveries = if plan.speaks_zmtp() {
                receivers.frame_deliveries(&topic, target)
            } else {
                receivers.deliveries(&topic, target, plan.bridge.then_some((population, client)))
            };
            for (receiver, &deliveries) in deliveries.iter().enumerate() {
                if judged[receiver] && deliveries > 0 {
                    let expected = count * deliveries.cast_signed();
                    tally.flow(population, receiver).counters.expected_total += expected;
                }
            }
        }
        self.variant += 1;
        self.variant >= variants.count()
    }
}
