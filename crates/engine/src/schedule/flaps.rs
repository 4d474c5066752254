//! Flapping subscriptions: holds the next instant at which each client of a flapping population
//! unsubscribes, subscribes again, or gives up an answer. The plan draws the times. This module
//! decides; the event loop acts.

use plan::{Flapping, Population, Reason, Shard};

use super::agenda::{Agenda, Due};
use crate::setup::{PopulationSetup, Setup};

/// The flapping clients of this agent.
pub struct Flaps {
    /// Flapping clients of each population; `None` if its clients stay subscribed.
    populations: Vec<Option<Flock>>,
    /// Next action of each client.
    agenda: Agenda,
    seed: u64,
    shard: Shard,
}

/// The clients of a flapping population.
struct Flock {
    flapping: Flapping,
    /// Longest wait for an answer, in nanoseconds.
    timeout_ns: u64,
    clients: Vec<Flap>,
}

#[derive(Clone, Copy, Default)]
struct Flap {
    /// Instant of the last SUBSCRIBE or UNSUBSCRIBE, in nanoseconds.
    asked_ns: u64,
    /// Times drawn in the run.
    drawn: u32,
    state: FlapState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FlapState {
    /// The client is not ready.
    #[default]
    None,
    Subscribed,
    Unsubscribing,
    Unsubscribed,
    Subscribing,
}

/// Action of a client at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Sends UNSUBSCRIBE.
    Unsubscribe,
    /// Sends SUBSCRIBE.
    Subscribe,
    /// Gives up the answer of the peer.
    GiveUp(Reason),
}

/// The next action of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlapAction {
    /// Index of the population.
    pub population: usize,
    /// Local index of the client in the population.
    pub local: u32,
    /// Its action.
    pub act: Act,
}

impl Flaps {
    /// Clients before the first connection.
    pub fn new(setup: &Setup) -> Self {
        let flock = |(population, own): (&Population, &PopulationSetup)| {
            let flapping = population.flapping?;
            let clients = vec![Flap::default(); own.share as usize];
            Some(Flock { flapping, timeout_ns: population.connect_timeout_ns, clients })
        };
        let populations = setup.plan.populations.iter().zip(&setup.populations).map(flock);
        Self::of(populations.collect(), setup.plan.seed, setup.shard)
    }

    fn of(populations: Vec<Option<Flock>>, seed: u64, shard: Shard) -> Self {
        let clients = |flock: &Option<Flock>| flock.as_ref().map_or(0, |flock| flock.clients.len());
        let agenda = Agenda::new(populations.iter().map(clients));
        Self { populations, agenda, seed, shard }
    }

    /// Begins with a client that is ready, and thereby subscribed.
    pub fn arrive(&mut self, population: usize, local: u32, now_ns: u64) {
        self.stay(population, local, now_ns, now_ns);
    }

    /// Notes that a client has sent the request of its turn: it waits for the answer.
    pub fn ask(&mut self, population: usize, local: u32, now_ns: u64) {
        let Some(flock) = &mut self.populations[population] else { return };
        let flap = &mut flock.clients[local as usize];
        flap.asked_ns = now_ns;
        flap.state = match flap.state {
            FlapState::Subscribed => FlapState::Unsubscribing,
            FlapState::Unsubscribed => FlapState::Subscribing,
            state => state,
        };
        self.wait(population, local, now_ns);
    }

    /// Waits for an answer as long as for the first time.
    pub fn wait(&mut self, population: usize, local: u32, now_ns: u64) {
        let Some(flock) = &self.populations[population] else { return };
        let until_ns = now_ns.saturating_add(flock.timeout_ns);
        self.agenda.set(population, local, until_ns);
    }

    /// Notes the last answer to the request of a client. Returns the instant of the request, in
    /// nanoseconds; `None` if the client waits for no answer.
    pub fn answered(&mut self, population: usize, local: u32, now_ns: u64) -> Option<u64> {
        let flock = self.populations[population].as_mut()?;
        let flap = &mut flock.clients[local as usize];
        let asked_ns = flap.asked_ns;
        match flap.state {
            FlapState::Unsubscribing => {
                flap.state = FlapState::Unsubscribed;
                let until_ns = asked_ns.saturating_add(flock.flapping.unsubscribed_ns);
                self.agenda.set(population, local, until_ns.max(now_ns));
            }
            FlapState::Subscribing => self.stay(population, local, asked_ns, now_ns),
            FlapState::None | FlapState::Subscribed | FlapState::Unsubscribed => return None,
        }
        Some(asked_ns)
    }

    /// Cancels the instants of a client that is not ready any more.
    pub fn forget(&mut self, population: usize, local: u32) {
        let Some(flock) = &mut self.populations[population] else { return };
        let flap = &mut flock.clients[local as usize];
        *flap = Flap { drawn: flap.drawn, ..Flap::default() };
        self.agenda.cancel(population, local);
    }

    /// Returns `true` if a client may receive nothing, because it has unsubscribed.
    pub fn is_unsubscribed(&self, population: usize, local: u32) -> bool {
        let flock = self.populations[population].as_ref();
        flock.is_some_and(|flock| {
            let state = flock.clients[local as usize].state;
            !matches!(state, FlapState::None | FlapState::Subscribed)
        })
    }

    /// Earliest instant that may have an action, in nanoseconds; `None` if there is none.
    pub fn next_ns(&self) -> Option<u64> {
        self.agenda.next_ns()
    }

    /// The next action up to now.
    pub fn next(&mut self, now_ns: u64) -> Option<FlapAction> {
        loop {
            let Due { population, local, .. } = self.agenda.next(now_ns)?;
            let act = match self.populations[population].as_ref()?.clients[local as usize].state {
                FlapState::None => continue,
                FlapState::Subscribed => Act::Unsubscribe,
                FlapState::Unsubscribed => Act::Subscribe,
                FlapState::Unsubscribing => Act::GiveUp(Reason::UnsubscribeTimeout),
                FlapState::Subscribing => Act::GiveUp(Reason::SubscribeTimeout),
            };
            return Some(FlapAction { population, local, act });
        }
    }

    /// The client is subscribed since `since_ns`: it unsubscribes after a time that is drawn.
    fn stay(&mut self, population: usize, local: u32, since_ns: u64, now_ns: u64) {
        let client = self.shard.global(local);
        let Some(flock) = &mut self.populations[population] else { return };
        let flap = &mut flock.clients[local as usize];
        let stay_ns = flock.flapping.stay_ns(self.seed, population, client, flap.drawn);
        flap.drawn += 1;
        flap.state = FlapState::Subscribed;
        self.agenda.set(population, local, since_ns.saturating_add(stay_ns).max(now_ns));
    }
}

#[cfg(test)]
mod tests;
