//! Target of a client: a pure function of the plan's seed, the population and the client's index.
//! All agents and the fan-out compute the same target.

use crate::model::{Attachment, Choice, Plan};
use crate::schedule::random::Random;

/// Separates these draws from draws of publications, whose purposes are small.
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

    /// Remainder of the client indices at target `target`, modulo `count`, for targets taken in
    /// turn.
    pub(crate) fn remainder(&self, target: usize) -> usize {
        (target - self.first + self.count - self.shift % self.count) % self.count
    }

    /// Returns true if clients connect to this target.
    #[must_use]
    pub fn has(&self, target: usize) -> bool {
        (self.first..self.first + self.count).contains(&target)
    }
}

/// Clients of a population by target, for targets drawn at random: four bytes a client, since no
/// arithmetic finds these clients.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    first: usize,
    /// Clients by target, in rising order at each target.
    clients: Vec<u32>,
    /// Index in `clients` at which the clients of each target end.
    ends: Vec<u32>,
}

impl Drawn {
    /// Table of a population; `None` if the targets follow by arithmetic.
    pub(crate) fn new(plan: &Plan, population: usize) -> Option<Self> {
        let Attachment { first, count, choice, .. } = plan.populations[population].at;
        let drawing = &plan.populations[population];
        let joined = plan.targets_joined && drawing.capabilities().joins_targets;
        if choice == Choice::Turn || count == 1 || joined {
            return None;
        }
        let (all, at) = (drawing.clients, drawing.at);
        let place = |client: u32| at.target(plan.seed, population, client) - first;
        // Counting sort by target in two passes: count, sum up, then fill from the back.
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

    /// Clients at a target, in rising order.
    pub(crate) fn at(&self, target: usize) -> &[u32] {
        let place = target - self.first;
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.clients[start as usize..self.ends[place] as usize]
    }
}
