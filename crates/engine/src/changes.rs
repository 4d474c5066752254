//! What changes in a publish stage and when: one queue over all populations, and for each change
//! that is under way the walk through its clients. Which clients are there is always a prefix of
//! their population, over all agents together, so every agent comes to the same without a word.
//! It decides; the loop acts.

use std::cmp::Reverse;

use plan::{Action, ChangeAction, Shard};

use crate::shared::Shared;

/// The changes of a stage that are not done yet.
#[derive(Default)]
pub struct Changes {
    /// Not begun; the next one last.
    waiting: Vec<Waiting>,
    /// Begun.
    walks: Vec<Walk>,
}

/// A change and its instant.
#[derive(Clone, Copy)]
pub struct Waiting {
    /// In nanoseconds.
    pub at_ns: u64,
    /// Index of the population.
    pub population: usize,
    /// What changes.
    pub action: ChangeAction,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A client joins.
    Join {
        /// Its index in this agent.
        client: u32,
        /// When its turn was, in nanoseconds.
        at_ns: u64,
    },
    /// A client leaves.
    Leave {
        /// Its index in this agent.
        client: u32,
        /// When its turn was, in nanoseconds.
        at_ns: u64,
    },
    /// A population publishes at another rate.
    Rate {
        /// Its index.
        population: usize,
        /// Since when, in nanoseconds.
        at_ns: u64,
        /// Times the planned rate.
        factor: f64,
    },
}

/// Walks through the clients that join or leave, each with its instant on the schedule of all
/// agents together.
#[derive(Clone, Copy)]
struct Walk {
    population: usize,
    joins: bool,
    /// First client that joins or leaves, over all agents.
    first: u32,
    clients: u32,
    /// How many turns, over all agents, come before this agent's next.
    position: u32,
    at_ns: u64,
    over_ns: u64,
}

impl Changes {
    /// The changes of a stage that begins at `start_ns`.
    pub fn of(action: &Action, start_ns: u64) -> Self {
        let mut changes = Self::default();
        if let Action::Publish { changes: planned, .. } = action {
            for change in planned {
                let (population, action) = (change.population, change.action);
                let at_ns = start_ns + change.after_ns;
                changes.push(Waiting { at_ns, population, action });
            }
        }
        changes
    }

    /// Begins everything whose time has come before anybody joins or leaves, so that who has left
    /// by now does not come first; returns the rates.
    pub fn begin_due(&mut self, shared: &mut Shared) -> Vec<Step> {
        let mut rates = Vec::new();
        while self.waiting.last().is_some_and(|waiting| waiting.at_ns <= shared.now_ns) {
            rates.extend(self.begin(shared));
        }
        rates
    }

    /// Adds a change; of those at one instant, the one that came first is first.
    pub fn push(&mut self, change: Waiting) {
        self.waiting.insert(0, change);
        self.waiting.sort_by_key(|waiting| Reverse(waiting.at_ns));
    }

    /// Whether all is done.
    pub const fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.walks.is_empty()
    }

    /// When something is to be done next, in nanoseconds; `None`: never.
    pub fn next_ns(&self) -> Option<u64> {
        let waiting = self.waiting.last().map(|waiting| waiting.at_ns);
        let walks = self.walks.iter().map(Walk::turn_ns).min();
        waiting.into_iter().chain(walks).min()
    }

    /// The next thing to do whose time has come. A turn that a later change has made void, such as
    /// that of a client which is to leave before it has joined, is passed over.
    pub fn next(&mut self, shared: &mut Shared) -> Option<Step> {
        loop {
            let now_ns = shared.now_ns;
            self.next_ns().filter(|&next_ns| next_ns <= now_ns)?;
            let turn = (0..self.walks.len()).min_by_key(|&walk| self.walks[walk].turn_ns());
            let waiting_ns = self.waiting.last().map_or(u64::MAX, |waiting| waiting.at_ns);
            let step = match turn.filter(|&walk| self.walks[walk].turn_ns() <= waiting_ns) {
                Some(walk) => self.turn(walk, shared),
                None => self.begin(shared),
            };
            if step.is_some() {
                return step;
            }
        }
    }

    /// Begins the next change.
    fn begin(&mut self, shared: &mut Shared) -> Option<Step> {
        let Waiting { at_ns, population, action } = self.waiting.pop()?;
        let (joins, clients, over_ns) = match action {
            ChangeAction::Rate { factor } => return Some(Step::Rate { population, at_ns, factor }),
            ChangeAction::Add { clients, over_ns } => (true, clients, over_ns),
            ChangeAction::Remove { clients, over_ns } => (false, clients, over_ns),
        };
        let all = shared.setup.plan.populations[population].clients;
        let present = &mut shared.present[population];
        let (first, clients) = if joins {
            (*present, clients.min(all - *present))
        } else {
            (present.saturating_sub(1), clients.min(*present))
        };
        *present = if joins { first + clients } else { *present - clients };
        if let Some(publishing) = &mut shared.publishing {
            publishing.complete_ns[population] = at_ns.saturating_add(over_ns);
        }
        let walk = Walk { population, joins, first, clients, position: 0, at_ns, over_ns };
        if shared.setup.plan.populations[population].is_engines() {
            self.walks.extend(walk.of_shard(shared.setup.shard));
        }
        None
    }

    /// Takes the next turn of a walk.
    fn turn(&mut self, index: usize, shared: &Shared) -> Option<Step> {
        let (walk, shard) = (self.walks[index], shared.setup.shard);
        match walk.after(shard) {
            Some(next) => self.walks[index] = next,
            None => drop(self.walks.swap_remove(index)),
        }
        let (global, at_ns) = (walk.client(), walk.turn_ns());
        if walk.joins != (global < shared.present[walk.population]) {
            return None;
        }
        let first_client = shared.setup.populations[walk.population].first_client;
        let client = first_client + global / shard.count();
        Some(if walk.joins { Step::Join { client, at_ns } } else { Step::Leave { client, at_ns } })
    }
}

impl Walk {
    /// The same walk at the first turn of this agent; `None` where it has none.
    fn of_shard(self, shard: Shard) -> Option<Self> {
        let (count, index) = (shard.count(), shard.index());
        let first = self.first % count;
        let ahead = if self.joins { count + index - first } else { count + first - index };
        Some(Self { position: ahead % count, ..self }).filter(Self::goes_on)
    }

    /// The same walk at this agent's turn after this one.
    fn after(self, shard: Shard) -> Option<Self> {
        let position = self.position.saturating_add(shard.count());
        Some(Self { position, ..self }).filter(Self::goes_on)
    }

    const fn goes_on(&self) -> bool {
        self.position < self.clients
    }

    /// Whose turn it is, over all agents.
    const fn client(&self) -> u32 {
        if self.joins { self.first + self.position } else { self.first - self.position }
    }

    fn turn_ns(&self) -> u64 {
        let after_ns =
            u128::from(self.over_ns) * u128::from(self.position) / u128::from(self.clients);
        self.at_ns + after_ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn turns(walk: Walk, shard: Shard) -> Vec<(u64, u32)> {
        let walks = std::iter::successors(walk.of_shard(shard), |walk| walk.after(shard));
        walks.map(|walk| (walk.turn_ns(), walk.client())).collect()
    }

    proptest! {
        #[test]
        fn shards_walk_together_through_exactly_the_whole(
            joins: bool, from in 0u32..500, clients in 0u32..300, over_ns in 0u64..1_000_000,
            count in 1u32..9,
        ) {
            let first = if joins { from } else { from + clients };
            let at_ns = 7;
            let walk = Walk { population: 0, joins, first, clients, position: 0, at_ns, over_ns };
            let whole = turns(walk, Shard::WHOLE);
            prop_assert_eq!(whole.len(), clients as usize);
            let shards = (0..count).map(|index| Shard::new(index, count).unwrap());
            let mut parts: Vec<_> = shards.clone().flat_map(|shard| turns(walk, shard)).collect();
            for shard in shards {
                let own = |&(_, client): &(u64, u32)| client % count == shard.index();
                prop_assert!(turns(walk, shard).iter().all(own));
            }
            parts.sort_by_key(|&(at_ns, client)| (at_ns, if joins { client } else { !client }));
            prop_assert_eq!(parts, whole);
        }
    }

    #[test]
    fn starts_are_spread_over_the_time_and_those_that_leave_come_from_the_end() {
        let walk = Walk {
            population: 0,
            joins: false,
            first: 9,
            clients: 4,
            position: 0,
            at_ns: 100,
            over_ns: 40,
        };
        assert_eq!(turns(walk, Shard::WHOLE), [(100, 9), (110, 8), (120, 7), (130, 6)]);
        let walk = Walk { joins: true, over_ns: 0, ..walk };
        assert_eq!(turns(walk, Shard::WHOLE), [(100, 9), (100, 10), (100, 11), (100, 12)]);
    }

    #[test]
    fn changes_come_in_the_order_of_time_and_then_of_saying() {
        let mut changes = Changes::default();
        for (at_ns, clients) in [(5, 1), (3, 2), (5, 3), (4, 4)] {
            let action = ChangeAction::Add { clients, over_ns: 0 };
            changes.push(Waiting { at_ns, population: 0, action });
        }
        assert_eq!(changes.next_ns(), Some(3));
        let order = std::iter::from_fn(|| changes.waiting.pop().map(|waiting| waiting.action));
        let clients = order.map(|action| match action {
            ChangeAction::Add { clients, .. } => clients,
            _ => 0,
        });
        assert_eq!(clients.collect::<Vec<_>>(), [2, 4, 1, 3]);
    }
}
