//! What changes in a publish stage and when: one queue over all populations, and for each change
//! that is under way the walk through its clients. Which clients are there is always a prefix of
//! their population, over all agents together, so every agent comes to the same without a word.
//! It decides; the loop acts.

use std::cmp::Reverse;

use plan::{Action, ChangeAction, Shard};

use crate::setup::Setup;
use crate::shared::{Publishing, Shared};

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

/// The part of the loop's state that changes read and move.
pub struct Crowd<'a> {
    setup: &'a Setup,
    present: &'a mut [u32],
    publishing: Option<&'a mut Publishing>,
    now_ns: u64,
}

/// Walks through the clients that join or leave, each with its instant on the schedule of all
/// agents together.
#[derive(Clone, Copy)]
struct Walk {
    population: usize,
    joins: bool,
    /// Only clients below this index join, and only the others leave: a later change has made the
    /// other turns void.
    limit: u32,
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
    pub fn begin_due(&mut self, crowd: &mut Crowd<'_>) -> Vec<Step> {
        let mut rates = Vec::new();
        while self.waiting.last().is_some_and(|waiting| waiting.at_ns <= crowd.now_ns) {
            rates.extend(self.begin(crowd));
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
    ///
    /// A client that was to leave and is kept by a later change has a turn to join too: the client
    /// itself ignores the turn of what it is already.
    pub fn next(&mut self, crowd: &mut Crowd<'_>) -> Option<Step> {
        loop {
            self.next_ns().filter(|&next_ns| next_ns <= crowd.now_ns)?;
            let turn = (0..self.walks.len()).min_by_key(|&walk| self.walks[walk].turn_ns());
            let waiting_ns = self.waiting.last().map_or(u64::MAX, |waiting| waiting.at_ns);
            let step = match turn.filter(|&walk| self.walks[walk].turn_ns() <= waiting_ns) {
                Some(walk) => self.turn(walk, crowd.setup),
                None => self.begin(crowd),
            };
            if step.is_some() {
                return step;
            }
        }
    }

    /// Begins the next change.
    fn begin(&mut self, crowd: &mut Crowd<'_>) -> Option<Step> {
        let Waiting { at_ns, population, action } = self.waiting.pop()?;
        let (joins, clients, over_ns) = match action {
            ChangeAction::Rate { factor } => return Some(Step::Rate { population, at_ns, factor }),
            ChangeAction::Add { clients, over_ns } => (true, clients, over_ns),
            ChangeAction::Remove { clients, over_ns } => (false, clients, over_ns),
        };
        let (plan, shard) = (&crowd.setup.plan.populations[population], crowd.setup.shard);
        let (all, present) = (plan.clients, &mut crowd.present[population]);
        let (first, clients) = if joins {
            (*present, clients.min(all - *present))
        } else {
            (present.saturating_sub(1), clients.min(*present))
        };
        *present = if joins { first + clients } else { *present - clients };
        let limit = *present;
        if let Some(publishing) = &mut crowd.publishing {
            publishing.complete_ns[population] = at_ns.saturating_add(over_ns);
        }
        let earlier = self.walks.iter_mut().filter(|walk| walk.population == population);
        earlier.for_each(|walk| walk.narrow(limit));
        let walk = Walk { population, joins, limit, first, clients, position: 0, at_ns, over_ns };
        if plan.is_engines() {
            self.walks.extend(walk.of_shard(shard));
        }
        None
    }

    /// Takes the next turn of a walk.
    fn turn(&mut self, index: usize, setup: &Setup) -> Option<Step> {
        let (walk, shard) = (self.walks[index], setup.shard);
        match walk.after(shard) {
            Some(next) => self.walks[index] = next,
            None => drop(self.walks.swap_remove(index)),
        }
        let (global, at_ns) = (walk.client(), walk.turn_ns());
        if walk.joins != (global < walk.limit) {
            return None;
        }
        let client = setup.populations[walk.population].first_client + global / shard.count();
        Some(if walk.joins { Step::Join { client, at_ns } } else { Step::Leave { client, at_ns } })
    }
}

impl<'a> Crowd<'a> {
    /// The part of `shared` that changes read and move.
    pub fn of(shared: &'a mut Shared) -> Self {
        let Shared { setup, present, publishing, now_ns, .. } = shared;
        Self { setup, present, publishing: publishing.as_mut(), now_ns: *now_ns }
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

    /// A later change leaves only the first `present` clients: turns against it are void from here
    /// on, also where a change after that one wants the same again, at its own instants.
    fn narrow(&mut self, present: u32) {
        let (joins, limit) = (self.joins, self.limit);
        self.limit = if joins { limit.min(present) } else { limit.max(present) };
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
mod tests;
