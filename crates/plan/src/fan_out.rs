//! Expected receivers of a message, exact and by arithmetic: the clients of each population with a
//! matching filter, at the target of the publisher and at all targets that the message reaches.
//! Only populations whose names follow the rule of the publisher receive the message.
//!
//! Arithmetic needs no table of a million filters, and counts losses at the end of a stream too.

mod carried;
mod crossing;
mod filter;
pub(crate) mod numbers;
mod ways;

use crate::model::capabilities::Capabilities;
use crate::model::flows::Subscription;
use crate::model::names::Names;
use crate::model::{Attachment, Plan, Population};
use crate::schedule::attachment::Drawn;
use carried::{FlowMessage, FlowRoutes};
use crossing::{Crossings, Targets};
use filter::Filter;
use numbers::{Numbers, count_union};
use ways::Group;

pub use ways::{Expected, Ways};

/// Receivers of every topic in each population.
#[derive(Clone, Debug)]
pub struct FanOut {
    populations: Vec<PopulationFilters>,
    groups: Vec<Group>,
    /// Bridges of the plan; `None` without bridges.
    crossings: Option<Crossings>,
    /// True if populations have names that are twins.
    has_twins: bool,
    /// Programs that carry messages on.
    flow_routes: FlowRoutes,
}

#[derive(Clone, Debug)]
struct PopulationFilters {
    first: u64,
    /// Clients that receive.
    clients: u64,
    /// Clients of the population.
    all: u64,
    /// Targets of the clients; `None` if all targets are joined and the target does not matter.
    at: Option<Attachment>,
    /// Clients by target, for targets drawn at random.
    drawn: Option<Drawn>,
    /// Rule of the filters; messages with names of another rule do not count.
    names: Names,
    /// Filters outside of shared groups.
    filters: Vec<Filter>,
    /// Their subscription identifiers.
    identifiers: Vec<Option<u32>>,
    /// True if it has subscriptions to shared groups.
    is_in_groups: bool,
}

/// Origin of a message, as far as its deliveries depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageOrigin {
    /// Rule of the message's name.
    pub names: Names,
    /// Index of the target at which the message is published.
    pub target: usize,
    /// Population and client, if the client does not receive its own messages.
    pub excluded: Option<(usize, u32)>,
    /// The message of a flow, if a program carries the message on; `None` for other messages.
    pub carried: Option<FlowMessage>,
}

impl Plan {
    /// Publisher of the messages of a client, which has this index over all agents.
    #[must_use]
    pub fn publisher(&self, population: usize, client: u32) -> MessageOrigin {
        let publisher = &self.populations[population];
        MessageOrigin {
            names: publisher.capabilities().names,
            target: publisher.at.target(self.seed, population, client),
            excluded: publisher.skips_own_messages().then_some((population, client)),
            carried: None,
        }
    }

    /// The same for a message of a publication, with this value of its topic.
    #[must_use]
    pub fn origin(
        &self,
        (population, client): (usize, u32),
        publication: usize,
        variant: u32,
    ) -> MessageOrigin {
        let carried = FlowMessage::new(self, (population, client), publication, variant);
        MessageOrigin { carried, ..self.publisher(population, client) }
    }
}

impl FanOut {
    /// Compiles the filters of a plan that [`Plan::from_json`] has checked.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let of = |p| PopulationFilters::new(plan, p);
        let populations: Vec<_> = (0..plan.populations.len()).map(of).collect();
        let groups = ways::groups(plan, &populations);
        let crossings = (!plan.bridges.is_empty()).then(|| Crossings::new(plan));
        let is_used = |names| populations.iter().any(|own: &PopulationFilters| own.names == names);
        let has_twin = |names: Names| names.twins().iter().copied().any(is_used);
        let has_twins = populations.iter().any(|own| has_twin(own.names));
        Self { populations, groups, crossings, has_twins, flow_routes: FlowRoutes::new(plan) }
    }

    /// The same for estimates: one delivery for each shared group, also where
    /// [`FanOut::deliveries`] would leave the group out.
    #[must_use]
    pub(crate) fn with_all_groups(plan: &Plan) -> Self {
        let mut fan_out = Self::new(plan);
        fan_out.groups.iter_mut().for_each(|group| group.always = true);
        fan_out
    }

    /// Number of populations.
    #[must_use]
    pub fn populations(&self) -> usize {
        self.populations.len()
    }

    /// Counts only the first `clients` of a population as receivers from now on.
    pub fn set_receivers(&mut self, population: usize, clients: u32) {
        self.populations[population].clients = u64::from(clients);
    }

    /// Sets `counts` to the deliveries to each population of one message on `topic`. A subscriber
    /// receives one copy for any number of matching filters.
    ///
    /// The delivery to a shared group counts for the first population with members at the target.
    /// Groups whose deliveries depend on the broker are excluded, see [`FanOut::ways`].
    pub fn deliveries(&self, topic: &str, publisher: MessageOrigin, counts: &mut Vec<u64>) {
        let MessageOrigin { names, target, excluded, carried } = publisher;
        counts.clear();
        counts.resize(self.populations.len(), 0);
        let mut add_names = |topic: &str, (names, targets): (Names, &Targets)| {
            let same = counts.iter_mut().zip(&self.populations).filter(|(_, p)| p.names == names);
            same.for_each(|(count, population)| *count += population.deliveries(topic, targets));
            self.add_groups(topic, (names, targets), counts);
        };
        let mut add = |topic: &str, names: Names, targets: &Targets| {
            add_names(topic, (names, targets));
            if self.has_twins {
                names.twins_of(topic).for_each(|(twin, topic)| add_names(&topic, (twin, targets)));
            }
        };
        // Routes of bridges are topic filters.
        let mut arrive = |topic: &str, names: Names, target| match &self.crossings {
            Some(crossings) if names == Names::Topics => {
                let places = crossings.reached(target, topic);
                places.iter().for_each(|p| add(&p.topic, names, &p.targets));
            }
            _ => add(topic, names, &Targets::one(target)),
        };
        arrive(topic, names, target);
        for (topic, names, target) in self.flow_routes.arrivals(carried) {
            arrive(&topic, names, target);
        }
        if let Some((population, client)) = excluded {
            counts[population] -= u64::from(self.populations[population].has(client, topic));
            // MQTT has no group of a client that refuses its own messages [MQTT-3.8.3-4].
            if names == Names::Subjects {
                self.subtract_lone_groups(topic, target, (population, client), counts);
            }
        }
    }

    /// Number of filters of a client, outside of shared groups, that match `topic`; of those with
    /// one of the subscription identifiers that `is_meant` accepts. An equal filter makes no
    /// further subscription of MQTT, and one of NATS. In AMQP each subscription has a queue.
    #[must_use]
    pub fn filters_of(
        &self,
        population: usize,
        client: u32,
        topic: &str,
        is_meant: impl Fn(Option<u32>) -> bool,
    ) -> usize {
        let filters = &self.populations[population];
        let number = filters.first + u64::from(client);
        let own = filters.filters.iter().zip(&filters.identifiers).enumerate();
        let is_first = |at: usize, filter: &Filter| {
            let are_apart = matches!(filters.names, Names::Subjects | Names::Keys);
            are_apart || !filters.filters[..at].contains(filter)
        };
        own.filter(|(at, (filter, identifier))| {
            is_meant(**identifier) && filter.matches(topic, number) && is_first(*at, filter)
        })
        .count()
    }
}

impl Population {
    /// Returns `true` if some of its clients have a will on this topic. Where the topic has
    /// variables that no arithmetic follows, any number counts.
    #[must_use]
    pub fn has_will_on(&self, topic: &str) -> bool {
        let Some(will) = self.will().filter(|will| will.topic.renders(topic)) else { return false };
        let clients = u64::from(self.clients);
        let levels = self.capabilities().names.grammar().map(|grammar| will.topic.levels(grammar));
        levels.and_then(Result::ok).is_none_or(|levels| {
            let numbers = Numbers::matching(&levels, topic, self.first, clients);
            numbers.is_some_and(|numbers| numbers.count() > 0)
        })
    }
}

impl PopulationFilters {
    fn new(plan: &Plan, index: usize) -> Self {
        let population = &plan.populations[index];
        let Capabilities { names, joins_targets, .. } = *population.capabilities();
        let is_in_groups = population.subscriptions.iter().any(|own| population.is_shared(own));
        let plain = || population.subscriptions.iter().filter(|own| !population.is_shared(own));
        // A plan with a filter that is none is refused.
        let compiled = |own: &Subscription| Filter::new(names, &own.filter).ok();
        let filters = plain().filter_map(compiled).collect();
        let identifiers = plain().map(|subscription| subscription.identifier).collect();
        let (first, all) = (population.first, u64::from(population.clients));
        let at = (!joins_targets || !plan.targets_joined).then_some(population.at);
        let drawn = Drawn::new(plan, index);
        Self { first, clients: all, all, at, drawn, names, filters, identifiers, is_in_groups }
    }

    /// Deliveries of a message that arrives at these targets.
    fn deliveries(&self, topic: &str, targets: &Targets) -> u64 {
        let Some(at) = self.at else { return self.at_target(topic, None) };
        let (from, to) = (targets.from.max(at.first), targets.to.min(at.first + at.count - 1));
        if to + 1 == from + at.count {
            let except = targets.except.filter(|&target| at.has(target));
            let without = except.map_or(0, |target| self.at_target(topic, Some(target)));
            return self.at_target(topic, None) - without;
        }
        let targets = (from..=to).filter(|&target| targets.except != Some(target));
        targets.map(|target| self.at_target(topic, Some(target))).sum()
    }

    /// Deliveries to the clients at one target; `None` counts all clients as if at one target.
    fn at_target(&self, topic: &str, target: Option<usize>) -> u64 {
        self.union(&self.filters, self.clients, topic, target)
    }

    /// Number of the first `clients` with at least one matching filter. Brokers may send one copy
    /// for each matching filter of a client [MQTT-3.3.5-1]. One copy is expected, see
    /// [`FanOut::filters_of`] for the others.
    fn union(&self, filters: &[Filter], clients: u64, topic: &str, target: Option<usize>) -> u64 {
        let (mut sets, mut found): (Vec<Numbers>, _) = (Vec::new(), Vec::new());
        for filter in filters {
            filter.matching(topic, (self.first, clients), &mut found);
            let all = found.iter().any(|set| set.is_range(self.first, clients));
            if all {
                sets = vec![Numbers::range(self.first, clients)];
                break;
            }
            for set in found.drain(..) {
                if !sets.contains(&set) {
                    sets.push(set);
                }
            }
        }
        self.count(sets, clients, target)
    }

    /// Number of the first `clients` at a target that are in at least one of the sets.
    fn count(&self, mut sets: Vec<Numbers>, clients: u64, target: Option<usize>) -> u64 {
        if let (Some(target), Some(at)) = (target, self.at) {
            if let Some(drawn) = &self.drawn {
                return self.count_drawn(drawn.at(target), clients, &sets);
            }
            let (k, of_index) = (at.count as u64, at.remainder(target) as u64);
            sets.iter_mut().for_each(|set| set.keep_remainder(k, (of_index + self.first % k) % k));
        }
        count_union(&sets)
    }

    /// Number of the `drawn` clients, in rising order, that are in at least one of the sets.
    fn count_drawn(&self, drawn: &[u32], clients: u64, sets: &[Numbers]) -> u64 {
        let number = |client: u32| self.first + u64::from(client);
        let from = sets.iter().map(|set| set.from).min().unwrap_or(u64::MAX);
        let to = sets.iter().map(|set| set.to).max().unwrap_or(0);
        let start = drawn.partition_point(|&client| number(client) < from);
        let end = drawn.partition_point(|&client| number(client) <= to).max(start);
        let in_one = |&&client: &&u32| sets.iter().any(|set| set.contains(number(client)));
        match sets {
            [set] if set.is_range(self.first, clients) => (end - start) as u64,
            _ => drawn[start..end].iter().filter(in_one).count() as u64,
        }
    }

    /// Returns true if this client has a matching filter outside of shared groups.
    fn has(&self, client: u32, topic: &str) -> bool {
        let number = self.first + u64::from(client);
        let mut sets = Vec::new();
        self.filters.iter().for_each(|filter| filter.matching(topic, (number, 1), &mut sets));
        u64::from(client) < self.clients && sets.iter().any(|set| set.contains(number))
    }
}

#[cfg(test)]
mod bridge_tests;
#[cfg(test)]
mod row_tests;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod ways_tests;
