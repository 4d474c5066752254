//! Answers that are expected: each request expects one from every responding client that receives
//! the request, and at least one. Without a responding client in the plan another program answers.

use agent::tally::Tally;
use plan::{Expected, FanOut, MessageOrigin, Plan, StreamId, Ways};

use super::Expectations;
use super::receivers::Receivers;
use crate::setup::Setup;

/// Mark of stages in which the number of answers is not known.
const CHANGING: u32 = 1 << 31;

/// Populations that answer, and those that request.
pub struct Answers {
    /// Populations that answer, in rising order.
    responding: Vec<usize>,
    /// For each population that requests, the population to which its answers count: the first one
    /// that answers any of its topics, or itself.
    responding_to: Vec<Option<usize>>,
    /// Clients of all populations that answer, in this stage: the ledger begins anew if their
    /// number changes, since so does the number of answers.
    clients: u32,
    /// `true` if a population that answers is excluded from loss.
    is_changing: bool,
}

impl Answers {
    pub fn new(plan: &Plan, fan_out: &FanOut) -> Self {
        let answers = |&p: &usize| plan.populations[p].responds.is_some();
        let responding: Vec<usize> = (0..plan.populations.len()).filter(answers).collect();
        let responding_to = (0..plan.populations.len())
            .map(|p| plan.populations[p].requests().then(|| first(plan, fan_out, p, &responding)))
            .collect();
        Self { responding, responding_to, clients: 0, is_changing: false }
    }

    pub fn begin_stage(&mut self, receivers: &Receivers) {
        let clients = self.responding.iter().map(|&population| receivers.clients(population));
        self.clients = clients.sum::<u32>() & !CHANGING;
        self.is_changing = false;
    }

    /// Expects the answers that were received, because a population is excluded from loss. From
    /// the first such population on, no further answers are expected in the stage.
    pub fn exclude_from_loss(&mut self, population: usize, tally: &mut Tally) {
        if self.is_changing || self.responding.binary_search(&population).is_err() {
            return;
        }
        self.is_changing = true;
        for (to, from) in self.responding_to.iter().enumerate() {
            if let Some(from) = *from {
                tally.exclude_answers_from_loss((from, to));
            }
        }
    }

    /// Adds the answers to `count` requests of a population. One request has these `deliveries`.
    pub fn expect(&self, population: usize, count: i64, deliveries: &[u64], tally: &mut Tally) {
        if let Some(from) = self.responding_to[population] {
            let answers = count * self.to_a_request(deliveries).cast_signed();
            tally.expect_answers((from, population), answers);
        }
    }

    /// Answers to a request with these deliveries.
    fn to_a_request(&self, deliveries: &[u64]) -> u64 {
        self.responding.iter().map(|&population| deliveries[population]).sum::<u64>().max(1)
    }
}

impl Expectations {
    /// Returns `true` if missing answers to a population are lost.
    pub fn counts_answers(&self, population: usize) -> bool {
        self.counts_loss[population] && !self.answers.is_changing
    }

    /// The population to which the answers to a population count, and a number that changes with
    /// the number of answers to a request.
    pub fn answers_to(&self, population: usize) -> (usize, u32) {
        let changing = if self.answers.is_changing { CHANGING } else { 0 };
        let from = self.answers.responding_to[population].unwrap_or(population);
        (from, self.answers.clients | changing)
    }

    /// The answers to a request of a population in a stream of requests, as ways of a delivery.
    pub fn ways_of_answers(&mut self, setup: &Setup, population: usize, of: &StreamId) -> Ways {
        if self.answers.is_changing {
            return Ways { every: false, expected: Expected::Client, more: u8::MAX - 1 };
        }
        let plan = &setup.plan.populations[population];
        let first = setup.populations[population].publications.first().map_or(0, |p| p.index);
        let publication = &plan.publications[usize::from(of.publication - first)];
        if u32::from(of.variant) >= publication.topic.variants() {
            return Ways::ONE; // No request of this run: a peer has changed the stamp.
        }
        let topic = publication.topic.text(plan.first + u64::from(of.client), of.variant.into());
        let publisher = setup.plan.publisher(population, of.client);
        let deliveries = self.receivers.deliveries(&topic, publisher);
        match self.answers.to_a_request(deliveries) {
            1 => Ways::ONE,
            answers => {
                let more = u8::try_from(answers - 1).unwrap_or(u8::MAX).min(u8::MAX - 1);
                Ways { every: false, expected: Expected::Client, more }
            }
        }
    }
}

/// The first population that answers a topic of a population's first client; itself if there is
/// none.
fn first(plan: &Plan, fan_out: &FanOut, population: usize, responding: &[usize]) -> usize {
    let requesting = &plan.populations[population];
    let publisher = MessageOrigin { excluded: None, ..plan.publisher(population, 0) };
    let mut deliveries = Vec::new();
    let topics = requesting.publications.iter().filter(|publication| publication.request);
    for topic in topics.map(|publication| publication.topic.text(requesting.first, 0)) {
        fan_out.deliveries(&topic, publisher, &mut deliveries);
        if let Some(&answers) = responding.iter().find(|&&answers| deliveries[answers] > 0) {
            return answers;
        }
    }
    responding.first().copied().unwrap_or(population)
}
