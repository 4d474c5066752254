//! Changes of a publish or hold stage: one queue over all populations, and for each change that has
//! begun the walk through its clients. The active clients are always a prefix of their population
//! over all agents, so that all agents agree without messages.

use std::cmp::Reverse;

use plan::{Action, ChangeAction, Plan, Shard};

use crate::stages::ScheduledChange;

/// Changes of a stage that are not complete.
#[derive(Default)]
pub struct Changes {
    /// Changes that have not begun; the next one is last.
    waiting: Vec<ScheduledChange>,
    /// Changes that have begun.
    walks: Vec<Walk>,
}

/// Next action of the loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChangeStep {
    /// A client joins.
    Join {
        /// Index of the population.
        population: usize,
        /// Index of the client among those of the population in this agent.
        local: u32,
        /// Scheduled instant, in nanoseconds.
        at_ns: u64,
    },
    /// A client leaves.
    Leave {
        /// Index of the population.
        population: usize,
        /// Index of the client among those of the population in this agent.
        local: u32,
        /// Scheduled instant, in nanoseconds.
        at_ns: u64,
    },
    /// A client's connection of QUIC changes to another port.
    Migrate {
        /// Index of the population.
        population: usize,
        /// Index of the client among those of the population in this agent.
        local: u32,
    },
    /// A population publishes at another rate.
    Rate {
        /// Index of the population.
        population: usize,
        /// Instant of the change, in nanoseconds.
        at_ns: u64,
        /// Factor of the planned rate.
        factor: f64,
    },
}

/// The part of an agent's state that changes read and update.
pub struct Crowd<'a, F: Fn(usize) -> bool> {
    /// The plan.
    pub plan: &'a Plan,
    /// Share of the clients that this agent plays.
    pub shard: Shard,
    /// Returns `true` if this agent plays clients of a population.
    pub is_played: F,
    /// Active clients of each population over all agents.
    pub active: &'a mut [u32],
    /// Instant from which all active clients of each population are connected, in nanoseconds;
    /// `None` if no client publishes.
    pub complete_ns: Option<&'a mut [u64]>,
    /// The present instant, in nanoseconds.
    pub now_ns: u64,
}

/// Walk through the clients of a change, each with its instant on the schedule of all agents
/// together.
#[derive(Clone, Copy)]
struct Walk {
    population: usize,
    kind: WalkKind,
    /// Only clients below this index join or migrate, and only the others leave: a later change has
    /// cancelled the other slots.
    limit: u32,
    /// First client of the walk, over all agents.
    first: u32,
    clients: u32,
    /// Number of slots over all agents before this agent's next slot.
    position: u32,
    at_ns: u64,
    over_ns: u64,
}

/// Effect of a change on a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WalkKind {
    Join,
    Leave,
    Migrate,
}

impl Changes {
    /// The changes of a stage that begins at `start_ns`.
    #[must_use]
    pub fn of(action: &Action, start_ns: u64) -> Self {
        let mut changes = Self::default();
        for change in action.changes() {
            let (population, action) = (change.population, change.action);
            let at_ns = start_ns + change.after_ns;
            changes.push(ScheduledChange { at_ns, population, action });
        }
        changes
    }

    /// Begins all changes up to now before any client joins or leaves, so that a client that has
    /// left by now does not connect first. Returns the changes of rates.
    pub fn begin_due<F: Fn(usize) -> bool>(&mut self, crowd: &mut Crowd<'_, F>) -> Vec<ChangeStep> {
        let mut rates = Vec::new();
        while self.waiting.last().is_some_and(|waiting| waiting.at_ns <= crowd.now_ns) {
            rates.extend(self.begin(crowd));
        }
        rates
    }

    /// Adds a change, behind other changes at the same instant.
    pub fn push(&mut self, change: ScheduledChange) {
        self.waiting.insert(0, change);
        self.waiting.sort_by_key(|waiting| Reverse(waiting.at_ns));
    }

    /// Returns `true` if all changes are complete.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.walks.is_empty()
    }

    /// Instant of the next action, in nanoseconds; `None` if there is none.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        let waiting = self.waiting.last().map(|waiting| waiting.at_ns);
        let walks = self.walks.iter().map(Walk::turn_ns).min();
        waiting.into_iter().chain(walks).min()
    }

    /// The next action up to now. Skips slots that a later change has cancelled, such as the slot
    /// of a client that must leave before it has joined.
    ///
    /// A client that had to leave and is kept by a later change has a slot to join too. A connected
    /// client ignores that slot.
    pub fn next<F: Fn(usize) -> bool>(&mut self, crowd: &mut Crowd<'_, F>) -> Option<ChangeStep> {
        loop {
            self.next_ns().filter(|&next_ns| next_ns <= crowd.now_ns)?;
            let turn = (0..self.walks.len()).min_by_key(|&walk| self.walks[walk].turn_ns());
            let waiting_ns = self.waiting.last().map_or(u64::MAX, |waiting| waiting.at_ns);
            let step = match turn.filter(|&walk| self.walks[walk].turn_ns() <= waiting_ns) {
                Some(walk) => self.turn(walk, crowd.shard),
                None => self.begin(crowd),
            };
            if step.is_some() {
                return step;
            }
        }
    }

    /// Begins the next change.
    fn begin<F: Fn(usize) -> bool>(&mut self, crowd: &mut Crowd<'_, F>) -> Option<ChangeStep> {
        let ScheduledChange { at_ns, population, action } = self.waiting.pop()?;
        let (kind, clients, over_ns) = match action {
            ChangeAction::Rate { factor } => {
                return Some(ChangeStep::Rate { population, at_ns, factor });
            }
            ChangeAction::Add { clients, over_ns } => (WalkKind::Join, clients, over_ns),
            ChangeAction::Remove { clients, over_ns } => (WalkKind::Leave, clients, over_ns),
            ChangeAction::Migrate { clients, over_ns } => (WalkKind::Migrate, clients, over_ns),
        };
        let all = crowd.plan.populations[population].clients;
        let active = &mut crowd.active[population];
        let (first, clients, left) = match kind {
            WalkKind::Join => {
                let joining = clients.min(all - *active);
                (*active, joining, *active + joining)
            }
            WalkKind::Leave => {
                let leaving = clients.min(*active);
                (active.saturating_sub(1), leaving, *active - leaving)
            }
            WalkKind::Migrate => (0, clients.min(*active), *active),
        };
        let limit = left;
        if kind != WalkKind::Migrate {
            *active = left;
            if let Some(complete_ns) = &mut crowd.complete_ns {
                complete_ns[population] = at_ns.saturating_add(over_ns);
            }
            let earlier = self.walks.iter_mut().filter(|walk| walk.population == population);
            earlier.for_each(|walk| walk.narrow(limit));
        }
        let walk = Walk { population, kind, limit, first, clients, position: 0, at_ns, over_ns };
        if (crowd.is_played)(population) {
            self.walks.extend(walk.of_shard(crowd.shard));
        }
        None
    }

    /// Takes the next slot of a walk.
    fn turn(&mut self, index: usize, shard: Shard) -> Option<ChangeStep> {
        let walk = self.walks[index];
        match walk.after(shard) {
            Some(next) => self.walks[index] = next,
            None => drop(self.walks.swap_remove(index)),
        }
        let (global, at_ns) = (walk.client(), walk.turn_ns());
        if walk.counts_up() != (global < walk.limit) {
            return None;
        }
        let (population, local) = (walk.population, global / shard.count());
        Some(match walk.kind {
            WalkKind::Join => ChangeStep::Join { population, local, at_ns },
            WalkKind::Leave => ChangeStep::Leave { population, local, at_ns },
            WalkKind::Migrate => ChangeStep::Migrate { population, local },
        })
    }
}

impl Walk {
    /// The same walk at the first slot of this agent; `None` if it has none.
    fn of_shard(self, shard: Shard) -> Option<Self> {
        let (count, index) = (shard.count(), shard.index());
        let first = self.first % count;
        let ahead = if self.counts_up() { count + index - first } else { count + first - index };
        Some(Self { position: ahead % count, ..self }).filter(Self::goes_on)
    }

    /// The same walk at this agent's next slot.
    fn after(self, shard: Shard) -> Option<Self> {
        let position = self.position.saturating_add(shard.count());
        Some(Self { position, ..self }).filter(Self::goes_on)
    }

    /// Applies a later change that keeps only the first `active` clients: slots against it are
    /// cancelled, even if a further change restores these clients at its own instants.
    fn narrow(&mut self, active: u32) {
        let limit = self.limit;
        self.limit = if self.counts_up() { limit.min(active) } else { limit.max(active) };
    }

    /// Returns `true` if the walk goes to higher indices.
    fn counts_up(&self) -> bool {
        self.kind != WalkKind::Leave
    }

    const fn goes_on(&self) -> bool {
        self.position < self.clients
    }

    /// Client of the next slot, over all agents.
    const fn client(&self) -> u32 {
        match self.kind {
            WalkKind::Join | WalkKind::Migrate => self.first + self.position,
            WalkKind::Leave => self.first - self.position,
        }
    }

    fn turn_ns(&self) -> u64 {
        let after_ns =
            u128::from(self.over_ns) * u128::from(self.position) / u128::from(self.clients);
        self.at_ns + after_ns as u64
    }
}

#[cfg(test)]
mod tests;
