//! Session lifetimes: holds the next instant at which each client of a population with a lifetime
//! disconnects or returns. The plan draws the lifetimes, or a recording has the sessions, which
//! clients play in publish stages. This module decides; the event loop acts.

use std::sync::Arc;

use plan::{Lifetime, Population, RecordedSessions, Shard};

use super::agenda::{Agenda, Due};
use super::publishing::Publishing;
use crate::setup::{PopulationSetup, Setup};

/// The lives of all clients of this agent.
pub struct Lifetimes {
    /// Lifetimes of each population; `None` if clients stay until a stage or a change ends them.
    populations: Vec<Option<Lives>>,
    /// Next event of each client.
    agenda: Agenda,
    seed: u64,
    shard: Shard,
}

/// The lives of a population's clients.
struct Lives {
    /// `None`: a client stays until another one takes its connection over.
    lifetime: Option<Lifetime>,
    /// Sessions that the clients play instead of lifetimes that they draw.
    recorded: Option<Arc<RecordedSessions>>,
    /// Start of the publish stage in which they play them, in nanoseconds; `None`: no such stage.
    since_ns: Option<u64>,
    clients: Vec<Life>,
    /// Clients with a session lifetime, connected or offline.
    arrived: u32,
}

impl Lives {
    fn of(lifetime: &Option<Lifetime>, clients: Vec<Life>) -> Self {
        let recording = lifetime.as_ref().and_then(|lifetime| lifetime.recorded.as_ref());
        let recorded = recording.and_then(|recording| recording.sessions.get()).cloned();
        Self { lifetime: lifetime.clone(), recorded, since_ns: None, clients, arrived: 0 }
    }
}

#[derive(Clone, Copy, Default)]
struct Life {
    /// Session lifetimes begun in the run.
    begun: u32,
    state: LifetimeState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LifetimeState {
    /// The client has not been ready since it was started.
    #[default]
    None,
    /// The client is connected, or reconnects.
    On,
    /// The client is offline, and may return.
    Offline,
}

/// End of a session lifetime, or of the time offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifetimeEnd {
    /// Index of the population.
    pub population: usize,
    /// Local index of the client in the population.
    pub local: u32,
    /// Scheduled instant, in nanoseconds.
    pub at_ns: u64,
    /// `true` if the client returns, `false` if it leaves.
    pub returns: bool,
}

impl Lifetimes {
    /// Lifetimes before the first connection.
    pub fn new(setup: &Setup) -> Self {
        let lives = |(population, own): (&Population, &PopulationSetup)| {
            let clients = || vec![Life::default(); own.share as usize];
            let lifetime = &population.lifetime;
            (lifetime.is_some() || own.rival.is_some()).then(|| Lives::of(lifetime, clients()))
        };
        let populations = setup.plan.populations.iter().zip(&setup.populations).map(lives);
        Self::of(populations.collect(), setup.plan.seed, setup.shard)
    }

    fn of(populations: Vec<Option<Lives>>, seed: u64, shard: Shard) -> Self {
        let clients = |lives: &Option<Lives>| lives.as_ref().map_or(0, |lives| lives.clients.len());
        let agenda = Agenda::new(populations.iter().map(clients));
        Self { populations, agenda, seed, shard }
    }

    /// Begins the lifetime of a ready client, or continues it after a reconnect.
    pub fn arrive(&mut self, population: usize, local: u32, now_ns: u64) {
        let Some(lives) = &mut self.populations[population] else { return };
        let life = &mut lives.clients[local as usize];
        if life.state == LifetimeState::On {
            return;
        }
        lives.arrived += u32::from(life.state == LifetimeState::None);
        life.state = LifetimeState::On;
        let Some(lifetime) = &lives.lifetime else { return };
        if lives.recorded.is_some() {
            return self.plan_next(population, local, now_ns);
        }
        let client = self.shard.global(local);
        let stay_ns = lifetime.stay_ns(self.seed, population, client, life.begun);
        life.begun += 1;
        self.agenda.set(population, local, now_ns.saturating_add(stay_ns));
    }

    /// Ends the lifetime of a client at `at_ns`.
    pub fn go(&mut self, population: usize, local: u32, at_ns: u64) {
        let Some(lives) = &mut self.populations[population] else { return };
        let life = &mut lives.clients[local as usize];
        lives.arrived += u32::from(life.state == LifetimeState::None);
        life.state = LifetimeState::Offline;
        if lives.recorded.is_some() {
            return self.plan_next(population, local, at_ns);
        }
        if let Some(offline_ns) = lives.lifetime.as_ref().and_then(|lifetime| lifetime.offline_ns) {
            self.agenda.set(population, local, at_ns.saturating_add(offline_ns));
        }
    }

    /// Returns `true` if a client that a stage connects waits for its first recorded session.
    pub fn waits(&self, population: usize, local: u32) -> bool {
        let recorded = self.populations[population].as_ref().and_then(|of| of.recorded.as_ref());
        recorded.is_some_and(|recorded| recorded.begins_offline(self.shard.global(local)))
    }

    /// Begins a stage. Clients that publish in it play their recorded sessions from its start on,
    /// those before `from_ns` at once. Others play none.
    pub fn begin_stage(&mut self, publishing: Option<&Publishing>, from_ns: u64) {
        for p in 0..self.populations.len() {
            let Some(lives) = &mut self.populations[p] else { continue };
            if lives.recorded.is_none() {
                continue;
            }
            lives.since_ns = publishing.filter(|own| own.populations[p]).map(|own| own.start_ns);
            let (count, at_ns) = (lives.clients.len() as u32, lives.since_ns.max(Some(from_ns)));
            self.agenda.cancel_all(p);
            (0..count).for_each(|local| self.plan_next(p, local, at_ns.unwrap_or(0)));
        }
    }

    /// Sets the instant of the next change of a client that plays recorded sessions: `at_ns`, or
    /// the first one after it.
    fn plan_next(&mut self, population: usize, local: u32, at_ns: u64) {
        let Some(lives) = &self.populations[population] else { return };
        let (Some(recorded), Some(since_ns)) = (&lives.recorded, lives.since_ns) else { return };
        let elapsed_ns = at_ns.saturating_sub(since_ns);
        let session = recorded.session(self.shard.global(local), elapsed_ns);
        let after_ns = match (lives.clients[local as usize].state, session) {
            (LifetimeState::On, Some((from_ns, until_ns))) if from_ns <= elapsed_ns => until_ns,
            (LifetimeState::On, _) => Some(elapsed_ns),
            (LifetimeState::Offline, session) => {
                session.map(|(from_ns, _)| from_ns.max(elapsed_ns))
            }
            (LifetimeState::None, _) => None,
        };
        if let Some(after_ns) = after_ns {
            self.agenda.set(population, local, since_ns.saturating_add(after_ns));
        }
    }

    /// Cancels the lifetime of a client that was stopped or has given up.
    pub fn forget(&mut self, population: usize, local: u32) {
        let Some(lives) = &mut self.populations[population] else { return };
        let life = &mut lives.clients[local as usize];
        lives.arrived -= u32::from(life.state != LifetimeState::None);
        life.state = LifetimeState::None;
        self.agenda.cancel(population, local);
    }

    /// Cancels all instants of a population whose clients are stopped one after the other.
    pub fn end(&mut self, population: usize) {
        self.agenda.cancel_all(population);
    }

    /// Clients of a population that have a lifetime; `None` if the population has none.
    pub fn arrived(&self, population: usize) -> Option<u32> {
        self.populations[population].as_ref().map(|lives| lives.arrived)
    }

    /// Earliest instant that may have an event, in nanoseconds; `None` if there is none.
    pub fn next_ns(&self) -> Option<u64> {
        self.agenda.next_ns()
    }

    /// The next event up to now.
    pub fn next(&mut self, now_ns: u64) -> Option<LifetimeEnd> {
        let Due { population, local, at_ns } = self.agenda.next(now_ns)?;
        let lives = self.populations[population].as_mut()?;
        let life = &mut lives.clients[local as usize];
        let returns = life.state == LifetimeState::Offline;
        if returns && lives.recorded.is_some() {
            // The session ends at its instant, also if the client needs longer to connect.
            life.state = LifetimeState::On;
            self.plan_next(population, local, at_ns);
        }
        Some(LifetimeEnd { population, local, at_ns, returns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OFFLINE_NS: u64 = 7;

    const fn drawn() -> Lifetime {
        Lifetime { min_ns: 100, max_ns: 900, offline_ns: Some(OFFLINE_NS), recorded: None }
    }

    /// A step of the property below; instants move by the number.
    #[derive(Clone, Copy, Debug)]
    enum Act {
        Arrive(u32),
        Forget(u32),
        Go(u32),
        End,
        Wait(u64),
    }

    /// A life in the naive model: state, next instant, lives begun.
    type Model = (LifetimeState, Option<u64>, u32);

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            3 => (0u32..4).prop_map(Act::Arrive),
            2 => (0u32..4).prop_map(Act::Forget),
            1 => (0u32..4).prop_map(Act::Go),
            1 => Just(Act::End),
            3 => (0u64..400).prop_map(Act::Wait),
        ]
    }

    /// The earliest instant of the model that has come, with its client.
    fn earliest(model: &[Model], now_ns: u64) -> Option<(u64, u32)> {
        let turns = (0u32..).zip(model).filter_map(|(local, life)| Some((life.1?, local)));
        turns.min().filter(|&(at_ns, _)| at_ns <= now_ns)
    }

    proptest! {
        /// Each client has at most one instant to come: the last that was set and not taken back.
        #[test]
        fn lives_are_those_of_a_list_of_instants(acts in prop::collection::vec(act(), 1..200)) {
            let mut lifetimes = lifetimes(Shard::WHOLE, 4);
            let lifetime = drawn();
            let mut model: [Model; 4] = Default::default();
            let mut now_ns = 1;
            for act in acts {
                match act {
                    Act::Arrive(local) => {
                        lifetimes.arrive(1, local, now_ns);
                        let (state, at_ns, begun) = &mut model[local as usize];
                        if *state != LifetimeState::On {
                            let stay_ns = lifetime.stay_ns(5, 1, local, *begun);
                            (*state, *at_ns) = (LifetimeState::On, Some(now_ns + stay_ns));
                            *begun += 1;
                        }
                    }
                    Act::Forget(local) => {
                        lifetimes.forget(1, local);
                        let (state, at_ns, _) = &mut model[local as usize];
                        (*state, *at_ns) = (LifetimeState::None, None);
                    }
                    Act::Go(local) => {
                        lifetimes.go(1, local, now_ns);
                        let (state, at_ns, _) = &mut model[local as usize];
                        (*state, *at_ns) = (LifetimeState::Offline, Some(now_ns + OFFLINE_NS));
                    }
                    Act::End => {
                        lifetimes.end(1);
                        model.iter_mut().for_each(|life| life.1 = None);
                    }
                    Act::Wait(ns) => now_ns += ns,
                }
                while let Some((at_ns, local)) = earliest(&model, now_ns) {
                    let life = &mut model[local as usize];
                    let returns = life.0 == LifetimeState::Offline;
                    life.1 = None;
                    let turn = LifetimeEnd { population: 1, local, at_ns, returns };
                    prop_assert_eq!(lifetimes.next(now_ns), Some(turn));
                }
                prop_assert_eq!(lifetimes.next(now_ns), None);
                let arrived = model.iter().filter(|life| life.0 != LifetimeState::None).count();
                prop_assert_eq!(lifetimes.arrived(1), Some(arrived as u32));
                if let Some((at_ns, _)) = earliest(&model, u64::MAX) {
                    prop_assert!(lifetimes.next_ns().is_some_and(|next_ns| next_ns <= at_ns));
                }
            }
        }
    }

    fn lifetimes(shard: Shard, clients: u32) -> Lifetimes {
        let clients = vec![Life::default(); shard.share(clients) as usize];
        Lifetimes::of(vec![None, Some(Lives::of(&Some(drawn()), clients))], 5, shard)
    }

    /// Plays clients that all connect at instant 0, and at once at each return. Returns instant and
    /// global number of each client that disconnects (`false`) or returns (`true`).
    fn played(shard: Shard, clients: u32, until_ns: u64) -> Vec<(u64, u32, bool)> {
        let mut lifetimes = lifetimes(shard, clients);
        (0..shard.share(clients)).for_each(|local| lifetimes.arrive(1, local, 0));
        let mut seen = Vec::new();
        while let Some(LifetimeEnd { local, at_ns, returns, .. }) = lifetimes.next(until_ns) {
            seen.push((at_ns, shard.global(local), returns));
            if returns {
                lifetimes.arrive(1, local, at_ns);
            } else {
                lifetimes.go(1, local, at_ns);
            }
        }
        assert_eq!(lifetimes.arrived(1), Some(shard.share(clients)));
        seen
    }

    #[test]
    fn shards_play_together_exactly_the_lives_of_the_whole() {
        let whole = played(Shard::WHOLE, 50, 10_000);
        assert!(whole.len() > 50 * 2 * 10 && whole.is_sorted_by_key(|turn| turn.0));
        for count in 2..5 {
            let shards = (0..count).map(|index| Shard::new(index, count).unwrap());
            let mut all: Vec<_> = shards.flat_map(|shard| played(shard, 50, 10_000)).collect();
            all.sort_unstable();
            let mut expected = whole.clone();
            expected.sort_unstable();
            assert_eq!(all, expected, "{count} shards");
        }
    }

    #[test]
    fn each_session_lasts_as_drawn_and_each_offline_time_as_configured() {
        let mut came = [0; 50];
        for (at_ns, client, returns) in played(Shard::WHOLE, 50, 10_000) {
            let since_ns = std::mem::replace(&mut came[client as usize], at_ns);
            let stay_ns = at_ns - since_ns;
            assert!(if returns { stay_ns == OFFLINE_NS } else { (100..=900).contains(&stay_ns) });
        }
    }

    #[test]
    fn turns_of_clients_that_a_command_removed_are_void() {
        let mut lifetimes = lifetimes(Shard::WHOLE, 4);
        (0..4).for_each(|local| lifetimes.arrive(1, local, 0));
        lifetimes.arrive(1, 3, 50);
        lifetimes.forget(1, 0);
        lifetimes.forget(1, 0);
        lifetimes.go(1, 1, 0);
        assert_eq!(lifetimes.arrived(1), Some(3));
        let back = LifetimeEnd { population: 1, local: 1, at_ns: OFFLINE_NS, returns: true };
        assert_eq!(lifetimes.next(10), Some(back));
        assert_eq!(lifetimes.next(10), None);
        lifetimes.end(1);
        assert_eq!((lifetimes.next(u64::MAX), lifetimes.arrived(1)), (None, Some(3)));
        (0..4).for_each(|local| lifetimes.forget(1, local));
        assert_eq!(lifetimes.arrived(1), Some(0));
    }

    #[test]
    fn populations_without_a_lifetime_have_no_lives() {
        let mut lifetimes = lifetimes(Shard::WHOLE, 1);
        lifetimes.arrive(0, 0, 0);
        lifetimes.forget(0, 0);
        assert_eq!((lifetimes.arrived(0), lifetimes.next_ns()), (None, None));
    }
}
