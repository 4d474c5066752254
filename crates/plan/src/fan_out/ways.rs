//! Shared groups (`$share/GROUP/FILTER`), and the subscriptions over which one client may receive
//! one message.
//!
//! A group receives each message once, through one of its members. The broker chooses the member.
//! The members may be clients of several populations: the first population with members at a target
//! expects the messages, less those that another population receives. A name with a variable, such
//! as `g{n%4}`, makes a group for each of its values.
//!
//! Some clients match a message by a filter of their own too, or as members of another group. Their
//! copies depend on the broker: one for each subscription (the embedded broker; mosquitto with
//! `allow_duplicate_messages`), or one in all (mosquitto 2.0.11). Both are allowed [MQTT-3.3.5-1],
//! so for such groups the ledger expects the deliveries that it has received.

use super::crossing::Targets;
use super::filter::Filter;
use super::numbers::Numbers;
use super::{FanOut, PopulationFilters};
use crate::model::names::Names;
use crate::model::{Attachment, Plan};
use crate::text::template::{Level, Variable};

/// Most names of one subscription for which each name is a group.
const GROUPS_OF_NAME_MAX: usize = 64;

/// A shared group: name and filter, which make one subscription (MQTT 5, 4.8.2). In NATS, the name
/// alone makes a group: its members may have different filters. In AMQP, the name is that of a
/// queue, and a message comes to a member by any binding of the queue.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Its name; a template whose names are too many to count.
    name: Level,
    filter: Filter,
    /// Populations with this subscription, in rising order, with the name as they write it: their
    /// members are the clients that render it as `name`.
    writers: Vec<(usize, Level)>,
    /// True if all clients that match a topic have one name, and no other group has the same name
    /// and the same filter for some clients at the same targets.
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

/// The groups of a plan: one for each name that the clients render. A name with more than
/// [`GROUPS_OF_NAME_MAX`] values makes one group. Its deliveries are counted if the topic implies
/// the name.
pub(super) fn groups(plan: &Plan, populations: &[PopulationFilters]) -> Vec<Group> {
    let mut groups = Vec::<Group>::new();
    for (p, population) in plan.populations.iter().enumerate() {
        let shared = population.subscriptions.iter().filter(|own| population.is_shared(own));
        for (written, filter) in shared.filter_map(|own| own.filter.group_and_filter()) {
            let names = population.capabilities().names;
            let Ok(filter) = Filter::of_parts(names, &filter) else { continue };
            for name in populations[p].names_of_groups(&written) {
                let is_known = matches!(name, Level::Exact(_)) || filter.implies(&written);
                let same = groups.iter_mut().find(|group| {
                    let is_here = is_known || group.writers[0].0 == p;
                    is_here && group.name == name && group.filter == filter
                });
                let writer = (p, written.clone());
                match same {
                    Some(group) if group.writers.contains(&writer) => {}
                    Some(group) => group.writers.push(writer),
                    None => groups.push(Group {
                        name,
                        filter: filter.clone(),
                        writers: vec![writer],
                        is_alone: is_known,
                        always: false,
                    }),
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
            group.has(population, number) && group.filter.matches(topic, number)
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
        let names_of = |group: &Group| self.populations[group.writers[0].0].names;
        for group in self.groups.iter().filter(|group| names_of(group) == names) {
            let (from, to) = self.span(group);
            let here = from.max(targets.from)..=to.min(targets.to);
            for target in here.filter(|&target| targets.except != Some(target)) {
                let has_member = |p: usize| {
                    self.members(group, (p, self.populations[p].clients), topic, target) > 0
                };
                if group.populations().any(has_member) && self.is_apart(group, topic, target) {
                    let population = self.expecting(group, topic, target);
                    counts[population.unwrap_or(group.writers[0].0)] += 1;
                }
                if self.populations[group.writers[0].0].at.is_none() {
                    break;
                }
            }
        }
    }

    /// Takes the deliveries to those groups back of which this client is the only member at its
    /// target. A client that skips its own messages gets none of them for a group either.
    pub(super) fn subtract_lone_groups(
        &self,
        topic: &str,
        target: usize,
        (population, client): (usize, u32),
        counts: &mut [u64],
    ) {
        let own = &self.populations[population];
        let number = own.first + u64::from(client);
        let is_member = |group: &&Group| {
            u64::from(client) < own.clients
                && group.has(population, number)
                && group.filter.matches(topic, number)
        };
        for group in self.groups.iter().filter(is_member) {
            let clients = |p: usize| (p, self.populations[p].clients);
            let members =
                group.populations().map(|p| self.members(group, clients(p), topic, target));
            if members.sum::<u64>() == 1 && self.is_apart(group, topic, target) {
                counts[self.expecting(group, topic, target).unwrap_or(population)] -= 1;
            }
        }
    }

    /// The population that expects the deliveries to a group at a target: the first one with
    /// members there. Active or not, since members come and go.
    fn expecting(&self, group: &Group, topic: &str, target: usize) -> Option<usize> {
        let all = |p: usize| self.populations[p].all;
        group.populations().find(|&p| self.members(group, (p, all(p)), topic, target) > 0)
    }

    /// First and last target of a group's members.
    fn span(&self, group: &Group) -> (usize, usize) {
        let all = group.populations().map(|p| self.populations[p].at);
        let span = |(from, to): (usize, usize), at: Option<Attachment>| match at {
            Some(at) => (from.min(at.first), to.max(at.first + at.count - 1)),
            None => (0, usize::MAX),
        };
        all.fold((usize::MAX, 0), span)
    }

    /// Returns `true` if exactly one client receives each message on `topic` for a group, because
    /// no member has another matching subscription.
    fn is_apart(&self, group: &Group, topic: &str, target: usize) -> bool {
        let is_here = |p: &usize| self.populations[*p].at.is_none_or(|at| at.has(target));
        let mut here = group.populations().filter(is_here);
        group.always || group.is_alone && here.all(|p| self.has_one_way(p, group, topic))
    }

    /// Returns `true` if no client of a population has another subscription for the messages that
    /// it may receive for a group.
    fn has_one_way(&self, population: usize, group: &Group, topic: &str) -> bool {
        let filters = &self.populations[population];
        let members = group.members(topic, (population, filters.first, filters.all));
        let mut others = Vec::new();
        for filter in &filters.filters {
            filter.matching(topic, (filters.first, filters.all), &mut others);
        }
        let may_have_some =
            |other: &&Group| !std::ptr::eq(*other, group) && !other.is_apart_in(population, group);
        for other in self.groups.iter().filter(may_have_some) {
            others.extend(other.members(topic, (population, filters.first, filters.all)));
        }
        !members.iter().any(|members| others.iter().any(|other| other.meets(members)))
    }

    /// Number of the first `clients` of a population that are at a target and members of a group
    /// for messages on `topic`.
    fn members(
        &self,
        group: &Group,
        (population, clients): (usize, u64),
        topic: &str,
        target: usize,
    ) -> u64 {
        let filters = &self.populations[population];
        if !filters.at.is_none_or(|at| at.has(target)) {
            return 0;
        }
        let members = group.members(topic, (population, filters.first, clients));
        filters.count(members, clients, Some(target))
    }
}

impl Group {
    /// Populations with members, in rising order.
    fn populations(&self) -> impl Iterator<Item = usize> {
        self.writers.chunk_by(|one, other| one.0 == other.0).map(|own| own[0].0)
    }

    /// Ways in which a population writes the name.
    fn written_in(&self, population: usize) -> impl Iterator<Item = &Level> {
        self.writers.iter().filter(move |(p, _)| *p == population).map(|(_, written)| written)
    }

    /// Returns `true` if the client with this number has the name of the group.
    fn has(&self, population: usize, number: u64) -> bool {
        self.written_in(population).any(|written| {
            let Level::Exact(name) = &self.name else { return true };
            let mut client = Numbers::range(number, 1);
            client.narrow(written, name).is_some() && client.contains(number)
        })
    }

    /// Numbers of the members among `clients` of a population from `first` on, for messages on
    /// `topic`.
    fn members(&self, topic: &str, of: (usize, u64, u64)) -> Vec<Numbers> {
        let ((population, first, clients), mut found) = (of, Vec::new());
        let mut written = self.written_in(population).peekable();
        if written.peek().is_some() {
            self.filter.matching(topic, (first, clients), &mut found);
        }
        let Level::Exact(name) = &self.name else { return found };
        let narrowed = |written: &Level| {
            let sets = found.iter().cloned();
            let some = sets.filter_map(|mut set| set.narrow(written, name).map(|()| set));
            some.filter(|set| set.from <= set.to && set.count() > 0).collect::<Vec<_>>()
        };
        written.flat_map(narrowed).collect()
    }

    /// Returns `true` if no client of a population is a member of both groups, since the name of a
    /// client is that of one of them.
    fn is_apart_in(&self, population: usize, other: &Self) -> bool {
        let are_known = [self, other].iter().all(|group| matches!(group.name, Level::Exact(_)));
        let mut written = self.written_in(population).chain(other.written_in(population));
        let first = written.next();
        are_known && self.name != other.name && written.all(|each| Some(each) == first)
    }

    /// Returns `true` if members of both groups may have the same subscription at one target.
    fn may_be(&self, other: &Self, populations: &[PopulationFilters]) -> bool {
        let has_name = |group: &Self, name: &Level| {
            let Level::Exact(name) = name else { return true };
            group.populations().any(|p| populations[p].makes(&group.name, name))
        };
        let are_near = self
            .populations()
            .any(|p| other.populations().any(|q| populations[p].is_near(&populations[q])));
        let names = self.populations().next().map(|p| populations[p].names);
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

    /// Names of the groups that clients join with a name written so; the name itself if there are
    /// too many, or if each client joins several.
    fn names_of_groups(&self, written: &Level) -> Vec<Level> {
        let unknown = || vec![written.clone()];
        let Level::Variable { prefix, variable, suffix } = written else { return unknown() };
        // One client in `step` has each value, and values repeat after `period` of them.
        let (step, period) = match variable {
            Variable::Number => (1, u64::MAX),
            Variable::Quotient(k) => (*k, u64::MAX),
            Variable::Remainder(k) => (1, *k),
            Variable::Row(row) => match row.column.get() {
                Some(column) => (1, column.rows() as u64),
                None => return unknown(),
            },
            _ => return unknown(),
        };
        let mut names = Vec::new();
        let end = self.first + self.all;
        let first_ones = (self.first..end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        let first_ones = first_ones.take(usize::try_from(period).unwrap_or(usize::MAX));
        let last = (self.all > 0).then(|| end - 1);
        for number in first_ones.chain(last) {
            let name = Level::Exact(format!("{prefix}{}{suffix}", variable.text(number)).into());
            if !names.contains(&name) {
                names.push(name);
            }
            if names.len() > GROUPS_OF_NAME_MAX {
                return unknown();
            }
        }
        names
    }
}
