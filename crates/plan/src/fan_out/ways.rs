//! Shared groups (`$share/GROUP/FILTER`), and the subscriptions over which one client may receive
//! one message.
//!
//! A group receives each message once, through one of its members. The broker chooses the member.
//! The members may be clients of several populations: the first population with members at a target
//! expects the messages, less those that another population receives.
//!
//! Some clients match a message by a filter of their own too, or as members of another group. Their
//! copies depend on the broker: one for each subscription (the embedded broker; mosquitto with
//! `allow_duplicate_messages`), or one in all (mosquitto 2.0.11). Both are allowed [MQTT-3.3.5-1],
//! so for such groups the ledger expects the deliveries that it has received.

use std::slice;

use super::crossing::Targets;
use super::filter::Filter;
use super::numbers::Numbers;
use super::{FanOut, PopulationFilters};
use crate::model::names::Names;
use crate::model::{Attachment, Plan};
use crate::text::template::Level;

/// A shared group: name and filter, which make one subscription (MQTT 5, 4.8.2). In NATS, the name
/// alone makes a group: its members may have different filters. In AMQP, the name is that of a
/// queue, and a message comes to a member by any binding of the queue.
#[derive(Clone, Debug)]
pub(super) struct Group {
    name: Level,
    filter: Filter,
    /// Populations with this subscription, in rising order.
    populations: Vec<usize>,
    /// True if all clients render one name for the group, and no other group has the same name and
    /// the same filter for some clients at the same targets.
    is_alone: bool,
    /// Every topic counts one delivery for the group, for estimates.
    pub always: bool,
}

/// Subscriptions over which a client may receive a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// True if the client receives every message of the stream.
    pub every: bool,
    /// Delivery that [`FanOut::deliveries`] counts.
    pub expected: Expected,
    /// Further deliveries, which are expected as received.
    pub more: u8,
}

/// Delivery that [`FanOut::deliveries`] counts for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// One to the client.
    Client,
    /// One to a member of a group.
    Group {
        /// Number of the group in the plan.
        group: u16,
        /// Population that expects the delivery.
        population: u16,
    },
    /// None.
    Nothing,
}

impl Ways {
    /// One delivery of every message.
    pub const ONE: Self = Self { every: true, expected: Expected::Client, more: 0 };
}

/// The groups of a plan. A name with a variable makes a group of its own in each population.
pub(super) fn groups(plan: &Plan, populations: &[PopulationFilters]) -> Vec<Group> {
    let mut groups = Vec::<Group>::new();
    for (p, population) in plan.populations.iter().enumerate() {
        let shared = population.subscriptions.iter().filter(|own| population.is_shared(own));
        for (name, filter) in shared.filter_map(|own| own.filter.group_and_filter()) {
            let names = population.capabilities().names;
            let Ok(filter) = Filter::of_parts(names, &filter) else { continue };
            let is_alone = matches!(name, Level::Exact(_));
            let mut same = groups.iter_mut().filter(|group| {
                let is_here = is_alone || group.populations == [p];
                is_here && group.name == name && group.filter == filter
            });
            match same.next() {
                Some(group) if group.populations.contains(&p) => {}
                Some(group) => group.populations.push(p),
                None => {
                    let populations = vec![p];
                    groups.push(Group { name, filter, populations, is_alone, always: false });
                }
            }
        }
    }
    for g in 0..groups.len() {
        let meets = |o: usize| o != g && groups[g].may_be(&groups[o], populations);
        groups[g].is_alone &= !(0..groups.len()).any(meets);
    }
    groups
}

impl FanOut {
    /// Returns `true` if some clients of a population are members of shared groups.
    #[must_use]
    pub fn has_groups(&self, population: usize) -> bool {
        self.populations[population].is_in_groups
    }

    /// Ways in which a client at `target` may receive a message on `topic`.
    #[must_use]
    pub fn ways(&self, population: usize, client: u32, topic: &str, target: usize) -> Ways {
        let filters = &self.populations[population];
        let number = filters.first + u64::from(client);
        let plain = filters.filters.iter().any(|filter| filter.matches(topic, number));
        let is_member = |(_, group): &(usize, &Group)| {
            group.populations.contains(&population) && group.filter.matches(topic, number)
        };
        let mut groups = self.groups.iter().enumerate().filter(is_member);
        let (first, more) = (groups.next(), groups.count() as u8);
        match first {
            None => Ways::ONE,
            Some(_) if plain => Ways { every: true, expected: Expected::Client, more: more + 1 },
            Some((g, group)) if more == 0 && self.is_apart(group, topic, target) => {
                let population = self.expecting(group, topic, target).unwrap_or(population) as u16;
                let expected = Expected::Group { group: g as u16, population };
                Ways { every: false, expected, more: 0 }
            }
            Some(_) => Ways { every: false, expected: Expected::Nothing, more: more + 1 },
        }
    }

    /// Adds to `counts` the deliveries to groups of a message that arrives at these targets.
    pub(super) fn add_groups(
        &self,
        topic: &str,
        (names, targets): (Names, &Targets),
        counts: &mut [u64],
    ) {
        let names_of = |group: &Group| self.populations[group.populations[0]].names;
        for group in self.groups.iter().filter(|group| names_of(group) == names) {
            let (from, to) = self.span(group);
            let here = from.max(targets.from)..=to.min(targets.to);
            for target in here.filter(|&target| targets.except != Some(target)) {
                let mut members = group.populations.iter().map(|&p| &self.populations[p]);
                let has_members = members.any(|p| p.has_member(group, p.clients, topic, target));
                if has_members && self.is_apart(group, topic, target) {
                    let population = self.expecting(group, topic, target);
                    counts[population.unwrap_or(group.populations[0])] += 1;
                }
                if self.populations[group.populations[0]].at.is_none() {
                    break;
                }
            }
        }
    }

    /// The population that expects the deliveries to a group at a target: the first one with
    /// members there. Active or not, since members come and go.
    fn expecting(&self, group: &Group, topic: &str, target: usize) -> Option<usize> {
        let mut populations = group.populations.iter().copied();
        populations.find(|&p| {
            let filters = &self.populations[p];
            filters.has_member(group, filters.all, topic, target)
        })
    }

    /// First and last target of a group's members.
    fn span(&self, group: &Group) -> (usize, usize) {
        let at = |&p: &usize| self.populations[p].at;
        let all = group.populations.iter().map(at);
        let span = |(from, to): (usize, usize), at: Option<Attachment>| match at {
            Some(at) => (from.min(at.first), to.max(at.first + at.count - 1)),
            None => (0, usize::MAX),
        };
        all.fold((usize::MAX, 0), span)
    }

    /// Returns `true` if exactly one client receives each message on `topic` for a group, because
    /// no member has another matching subscription.
    fn is_apart(&self, group: &Group, topic: &str, target: usize) -> bool {
        let is_here = |&p: &usize| self.populations[p].at.is_none_or(|at| at.has(target));
        let mut here = group.populations.iter().copied().filter(is_here);
        group.always || group.is_alone && here.all(|p| self.has_one_way(p, group, topic))
    }

    /// Returns `true` if no client of a population has another subscription for the messages that
    /// it may receive for a group.
    fn has_one_way(&self, population: usize, group: &Group, topic: &str) -> bool {
        let filters = &self.populations[population];
        let (mut members, mut others) = (Vec::new(), Vec::new());
        let range = (filters.first, filters.all);
        group.filter.matching(topic, range, &mut members);
        let of_others = self.groups.iter().filter(|other| {
            !std::ptr::eq(*other, group) && other.populations.contains(&population)
        });
        let of_others = of_others.map(|other| &other.filter);
        filters.filters.iter().chain(of_others).for_each(|f| f.matching(topic, range, &mut others));
        !members.iter().any(|members| others.iter().any(|other| other.meets(members)))
    }
}

impl Group {
    /// Returns `true` if members of both groups may have the same subscription at one target.
    fn may_be(&self, other: &Self, populations: &[PopulationFilters]) -> bool {
        let has_name = |group: &Self, name: &Level| {
            let Level::Exact(name) = name else { return true };
            group.populations.iter().any(|&p| populations[p].makes(&group.name, name))
        };
        let are_near = self
            .populations
            .iter()
            .any(|&p| other.populations.iter().any(|&q| populations[p].is_near(&populations[q])));
        let names = self.populations.first().map(|&p| populations[p].names);
        let may_be_one = match names {
            Some(Names::Subjects) => self.filter.may_meet(&other.filter),
            Some(Names::Keys) => self.filter.may_begin_alike(&other.filter),
            _ => self.filter.may_be(&other.filter),
        };
        may_be_one && has_name(self, &other.name) && has_name(other, &self.name) && are_near
    }
}

impl PopulationFilters {
    /// Returns `true` if a target may hold clients of both populations.
    fn is_near(&self, other: &Self) -> bool {
        let (Some(one), Some(other)) = (self.at, other.at) else { return true };
        one.first < other.first + other.count && other.first < one.first + one.count
    }

    /// Returns `true` if a client renders this name.
    fn makes(&self, template: &Level, name: &str) -> bool {
        let mut clients = Numbers::range(self.first, self.all.max(1));
        self.all > 0 && clients.narrow(template, name).is_some() && clients.count() > 0
    }

    /// Returns `true` if one of the first `clients` is at a target and a member of a group for
    /// messages on `topic`.
    fn has_member(&self, group: &Group, clients: u64, topic: &str, target: usize) -> bool {
        let is_here = self.at.is_none_or(|at| at.has(target));
        is_here && self.union(slice::from_ref(&group.filter), clients, topic, Some(target)) > 0
    }
}
