//! Who ought to receive a message: for a concrete topic, how many clients of each population hold
//! a filter that matches it, where the message is published and wherever bridges take it. Exact and
//! by arithmetic, so that loss at the end of a stream is seen too and no table of a million filters
//! is needed. It knows nothing of what was received.

mod crossing;
pub(crate) mod numbers;

use crate::attachment::Drawn;
use crate::model::{Attachment, Plan};
use crate::template::Level;
use crossing::{Crossings, Targets};
use numbers::{Numbers, count_union};

/// The receivers of a population for every topic.
#[derive(Clone, Debug)]
pub struct FanOut {
    populations: Vec<PopulationFilters>,
    /// `None` where there is no bridge.
    crossings: Option<Crossings>,
}

#[derive(Clone, Debug)]
struct PopulationFilters {
    first: u64,
    clients: u64,
    /// Where they are; `None` where it does not matter, since all targets are joined.
    at: Option<Attachment>,
    /// Who is where, if that is drawn.
    drawn: Option<Drawn>,
    filters: Vec<Vec<Level>>,
    /// Filters of each shared group, one delivery a group [MQTT-4.8.2-4, version 5].
    shared: Vec<(String, Vec<Vec<Level>>)>,
}

impl FanOut {
    /// Compiles the filters of a plan that [`Plan::from_json`] has checked.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let populations = 0..plan.populations.len();
        Self {
            populations: populations.map(|p| PopulationFilters::new(plan, p)).collect(),
            crossings: (!plan.bridges.is_empty()).then(|| Crossings::new(plan)),
        }
    }

    /// Number of populations.
    #[must_use]
    pub fn populations(&self) -> usize {
        self.populations.len()
    }

    /// From here on only the first `clients` of a population receive.
    pub fn set_receivers(&mut self, population: usize, clients: u32) {
        self.populations[population].clients = u64::from(clients);
    }

    /// Puts into `counts` the deliveries to each population of one message on `topic`, published at
    /// target `target`. Its publisher is named, by population and index, only if it sets the bridge
    /// bit: then its broker sends it nothing of its own.
    pub fn deliveries(
        &self,
        topic: &str,
        target: usize,
        bridge: Option<(usize, u32)>,
        counts: &mut Vec<u64>,
    ) {
        counts.clear();
        counts.resize(self.populations.len(), 0);
        let mut add = |topic: &str, targets: &Targets| {
            for (count, population) in counts.iter_mut().zip(&self.populations) {
                *count += population.deliveries(topic, targets);
            }
        };
        match &self.crossings {
            None => add(topic, &Targets::one(target)),
            Some(crossings) => {
                crossings.reached(target, topic).iter().for_each(|p| add(&p.topic, &p.targets));
            }
        }
        if let Some((population, client)) = bridge {
            counts[population] -= u64::from(self.populations[population].has(client, topic));
        }
    }
}

impl PopulationFilters {
    fn new(plan: &Plan, index: usize) -> Self {
        let population = &plan.populations[index];
        let mut filters = Vec::new();
        let mut shared: Vec<(String, Vec<Vec<Level>>)> = Vec::new();
        for subscription in &population.subscriptions {
            let mut levels = subscription.filter.levels().unwrap_or_default();
            if levels.first() != Some(&Level::Exact("$share".into())) || levels.len() < 3 {
                filters.push(levels);
                continue;
            }
            let group = format!("{:?}", levels[1]);
            let levels = levels.split_off(2);
            match shared.iter_mut().find(|(name, _)| *name == group) {
                Some((_, filters)) => filters.push(levels),
                None => shared.push((group, vec![levels])),
            }
        }
        let (first, clients) = (population.first, u64::from(population.clients));
        let at = (!plan.targets_joined).then_some(population.at);
        Self { first, clients, at, drawn: Drawn::new(plan, index), filters, shared }
    }

    /// Deliveries of a message that arrives at these targets.
    fn deliveries(&self, topic: &str, targets: &Targets) -> u64 {
        let Some(at) = self.at else { return self.at_target(topic, None) };
        let (from, to) = (targets.from.max(at.first), targets.to.min(at.first + at.count - 1));
        if self.shared.is_empty() && to + 1 == from + at.count {
            let except = targets.except.filter(|&target| at.has(target));
            let without = except.map_or(0, |target| self.at_target(topic, Some(target)));
            return self.at_target(topic, None) - without;
        }
        let targets = (from..=to).filter(|&target| targets.except != Some(target));
        targets.map(|target| self.at_target(topic, Some(target))).sum()
    }

    /// Deliveries to the clients at one target; `None`: to all of them, as if they were at one.
    fn at_target(&self, topic: &str, target: Option<usize>) -> u64 {
        let own = self.union(&self.filters, topic, target);
        let shared = self.shared.iter().filter(|(_, group)| self.union(group, topic, target) > 0);
        own + shared.count() as u64
    }

    /// Clients with at least one matching filter. Brokers may send one copy for each matching
    /// filter of a client [MQTT-3.3.5-1]; one is expected, more are duplicates.
    fn union(&self, filters: &[Vec<Level>], topic: &str, target: Option<usize>) -> u64 {
        let mut sets: Vec<Numbers> = Vec::new();
        for filter in filters {
            let matching = Numbers::matching(filter, topic, self.first, self.clients);
            let Some(set) = matching else { continue };
            if set.is_range(self.first, self.clients) {
                sets = vec![set];
                break;
            }
            if !sets.contains(&set) {
                sets.push(set);
            }
        }
        if let (Some(target), Some(at)) = (target, self.at) {
            if let Some(drawn) = &self.drawn {
                return self.count_drawn(drawn.at(target), &sets);
            }
            let (k, of_index) = (at.count as u64, at.remainder(target) as u64);
            sets.iter_mut().for_each(|set| set.keep_remainder(k, (of_index + self.first % k) % k));
        }
        count_union(&sets)
    }

    /// How many of these clients, in rising order, are in at least one of the sets.
    fn count_drawn(&self, clients: &[u32], sets: &[Numbers]) -> u64 {
        let number = |client: u32| self.first + u64::from(client);
        let from = sets.iter().map(|set| set.from).min().unwrap_or(u64::MAX);
        let to = sets.iter().map(|set| set.to).max().unwrap_or(0);
        let start = clients.partition_point(|&client| number(client) < from);
        let end = clients.partition_point(|&client| number(client) <= to).max(start);
        let in_one = |&&client: &&u32| sets.iter().any(|set| set.contains(number(client)));
        match sets {
            [set] if set.is_range(self.first, self.clients) => (end - start) as u64,
            _ => clients[start..end].iter().filter(in_one).count() as u64,
        }
    }

    /// Whether this client holds a filter that matches, outside of shared groups.
    fn has(&self, client: u32, topic: &str) -> bool {
        let number = self.first + u64::from(client);
        let matches = |filter: &Vec<Level>| Numbers::has_match(filter, topic, number);
        u64::from(client) < self.clients && self.filters.iter().any(matches)
    }
}

#[cfg(test)]
mod bridge_tests;
#[cfg(test)]
mod row_tests;
#[cfg(test)]
pub(crate) mod tests;
