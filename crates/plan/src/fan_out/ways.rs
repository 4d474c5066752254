//! Shared groups (`$share/GROUP/FILTER`), and the ways in which one client may get one message.
//!
//! A group gets each message once, through one of its members. A broker chooses the member, and
//! what happens to a client that has the message already by a filter of its own, or as a member
//! of another group, depends on the broker: one copy for each subscription (the embedded broker;
//! mosquitto with `allow_duplicate_messages`), or one copy in all (mosquitto 2.0.11). Both are
//! allowed [MQTT-3.3.5-1], so deliveries of such groups are expected as received.

use std::slice;

use super::numbers::Numbers;
use super::{FanOut, Filter, PopulationFilters};
use crate::template::Level;

/// A shared group: its name and its filter, which make one subscription (MQTT 5, 4.8.2).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub name: Level,
    pub filter: Vec<Level>,
    /// The group has one name for all its clients, and no client of another population at the same
    /// targets is a member of a group with that name.
    pub alone: bool,
}

/// Ends the arithmetic for groups that have members in other populations too.
pub(super) fn mark_groups(populations: &mut [PopulationFilters]) {
    for p in 0..populations.len() {
        for g in 0..populations[p].groups.len() {
            let Level::Exact(name) = &populations[p].groups[g].name else { continue };
            let shares = |other: &PopulationFilters| {
                other.is_near(&populations[p]) && other.has_members_of(name)
            };
            let shared = populations.iter().enumerate().any(|(q, other)| q != p && shares(other));
            populations[p].groups[g].alone &= !shared;
        }
    }
}

/// In how many ways a client may get one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// The client gets every message of the stream.
    pub every: bool,
    /// [`FanOut::deliveries`] counts one delivery, if this client gets one.
    pub expected: bool,
    /// Deliveries beyond that which are expected as received.
    pub more: u8,
}

impl Ways {
    /// One delivery of every message.
    pub const ONE: Self = Self { every: true, expected: true, more: 0 };
}

impl FanOut {
    /// Returns `true` if some clients of a population are members of shared groups.
    #[must_use]
    pub fn has_groups(&self, population: usize) -> bool {
        !self.populations[population].groups.is_empty()
    }

    /// The ways in which a client may get a message on `topic`.
    #[must_use]
    pub fn ways(&self, population: usize, client: u32, topic: &str) -> Ways {
        let filters = &self.populations[population];
        let number = filters.first + u64::from(client);
        let plain = filters.filters.iter().any(|filter| filter.matches(topic, number));
        let is_member = |group: &&Group| Numbers::has_match(&group.filter, topic, number);
        let mut groups = filters.groups.iter().filter(is_member);
        let (first, more) = (groups.next(), groups.count() as u8);
        match first {
            None => Ways::ONE,
            Some(_) if plain => Ways { every: true, expected: true, more: more + 1 },
            Some(group) if more == 0 && filters.is_apart(group, topic) => {
                Ways { every: false, expected: true, more: 0 }
            }
            Some(_) => Ways { every: false, expected: false, more: more + 1 },
        }
    }
}

impl PopulationFilters {
    /// Returns `true` if a target may hold clients of both populations.
    fn is_near(&self, other: &Self) -> bool {
        let (Some(one), Some(other)) = (self.at, other.at) else { return true };
        one.first < other.first + other.count && other.first < one.first + one.count
    }

    /// Returns `true` if a client is a member of a group with this name.
    fn has_members_of(&self, name: &str) -> bool {
        let makes = |group: &Group| {
            let clients =
                Numbers::matching(slice::from_ref(&group.name), name, self.first, self.all);
            clients.is_some_and(|clients| clients.count() > 0)
        };
        self.groups.iter().any(makes)
    }

    /// Returns `true` if exactly one client gets each message on `topic` for a group: no member has
    /// another way to get it.
    pub(super) fn is_apart(&self, group: &Group, topic: &str) -> bool {
        let matching = |filter: &[Level]| Numbers::matching(filter, topic, self.first, self.all);
        let Some(members) = matching(&group.filter) else { return true };
        let mut plain = Vec::new();
        self.filters.iter().for_each(|f| f.matching(topic, (self.first, self.all), &mut plain));
        let others = self.groups.iter().filter(|other| *other != group);
        plain.extend(others.filter_map(|other| matching(&other.filter)));
        group.alone && !plain.iter().any(|other| other.meets(&members))
    }
}

impl Filter {
    fn matches(&self, topic: &str, number: u64) -> bool {
        let mut sets = Vec::new();
        self.matching(topic, (number, 1), &mut sets);
        sets.iter().any(|set| set.contains(number))
    }
}
