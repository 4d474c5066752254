//! Which target a client connects to: a pure function of the plan's seed, its population and its
//! index, the same in every agent and in the fan-out.

use crate::model::{Attachment, Choice, Plan};
use crate::random::Random;

/// Tells these draws from those of publications, whose purposes are small.
const PURPOSE: u64 = 1 << 40;

impl Attachment {
    /// Index of the target of client `client` (its index over all agents) of the population with
    /// index `population`.
    #[must_use]
    pub fn target(&self, seed: u64, population: usize, client: u32) -> usize {
        let place = match self.choice {
            Choice::Turn => (client as usize + self.shift) % self.count,
            Choice::Random => {
                let random = Random::new(seed, PURPOSE + population as u64);
                random.of(u64::from(client)).below(self.count as u64) as usize
            }
        };
        self.first + place
    }

    /// The clients at target `target` of those that go there in turn: their index modulo `count`.
    pub(crate) fn remainder(&self, target: usize) -> usize {
        (target - self.first + self.count - self.shift % self.count) % self.count
    }

    /// Whether clients connect to this target.
    pub(crate) fn has(&self, target: usize) -> bool {
        (self.first..self.first + self.count).contains(&target)
    }
}

/// The clients of a population at each of its targets, where these are drawn at random: four bytes
/// a client, since no arithmetic finds them.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    first: usize,
    /// Clients by target, in rising order at each.
    clients: Vec<u32>,
    /// Where in `clients` those of each target end.
    ends: Vec<u32>,
}

impl Drawn {
    /// The table of a population; `None` where arithmetic does.
    pub(crate) fn new(plan: &Plan, population: usize) -> Option<Self> {
        let Attachment { first, count, choice, .. } = plan.populations[population].at;
        let joined = plan.targets_joined && !plan.populations[population].speaks_zmtp();
        if choice == Choice::Turn || count == 1 || joined {
            return None;
        }
        let all = plan.populations[population].clients;
        let at = plan.populations[population].at;
        let place = |client: u32| at.target(plan.seed, population, client) - first;
        // Counted, summed up, then filled from the back: a sort by target in two passes.
        let mut ends = vec![0u32; count];
        (0..all).for_each(|client| ends[place(client)] += 1);
        let mut end = 0;
        for of_target in &mut ends {
            end += *of_target;
            *of_target = end;
        }
        let mut clients = vec![0; all as usize];
        let mut next = ends.clone();
        for client in (0..all).rev() {
            let at = &mut next[place(client)];
            *at -= 1;
            clients[*at as usize] = client;
        }
        Some(Self { first, clients, ends })
    }

    /// The clients at a target, in rising order.
    pub(crate) fn at(&self, target: usize) -> &[u32] {
        let place = target - self.first;
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.clients[start as usize..self.ends[place] as usize]
    }
}
