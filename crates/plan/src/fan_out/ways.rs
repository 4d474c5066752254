//! Shared groups (`$share/GROUP/FILTER`), and the subscriptions over which one client may receive
//! one message.
//!
//! A group receives each message once, through one of its members. The broker chooses the member.
//! Some clients match a message by a filter of their own too, or as members of another group. Their
//! copies depend on the broker: one for each subscription (the embedded broker; mosquitto with
//! `allow_duplicate_messages`), or one in all (mosquitto 2.0.11). Both are allowed [MQTT-3.3.5-1],
//! so for such groups the ledger expects the deliveries that it has received.

use std::slice;

use super::numbers::Numbers;
use super::{FanOut, Filter, PopulationFilters};
use crate::template::Level;

/// A shared group: name and filter, which make one subscription (MQTT 5, 4.8.2).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub name: Level,
    pub filter: Vec<Level>,
    /// True if all clients render one name for the group, and the name has no members in other
    /// populations at the same targets.
    pub alone: bool,
    /// Every topic counts one delivery for the group, for estimates.
    pub always: bool,
}

/// Marks groups that have members in other populations too, whose deliveries are not computable.
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

/// Subscriptions over which a client may receive a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// True if the client receives every message of the stream.
    pub every: bool,
    /// True if [`FanOut::deliveries`] counts one delivery for this client.
    pub expected: bool,
    /// Further deliveries, which are expected as received.
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

    /// Ways in which a client may receive a message on `topic`.
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

    /// Returns `true` if exactly one client receives each message on `topic` for a group, because
    /// no member has another matching subscription.
    pub(super) fn is_apart(&self, group: &Group, topic: &str) -> bool {
        if group.always {
            return true;
        }
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
