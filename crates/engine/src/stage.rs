//! The stage that is on: which clients are to be started or stopped when, and whether all that can
//! be done has been done. It decides; the loop acts.

use std::ops::Range;

use plan::{Action, ChangeAction, SECOND_NS, Tempo};

use crate::setup::Setup;
use crate::shared::{Publishing, Shared};

/// The current stage.
pub struct Stage {
    /// Its index in the plan.
    pub index: usize,
    /// When it began, in nanoseconds.
    start_ns: u64,
    /// Whether the ledger of a publish stage is balanced.
    pub closed: bool,
    /// Its clients, to be started or stopped in turn.
    ramp: Ramp,
}

/// Walks through the stage's own clients, each with the instant at which its turn comes on the
/// schedule of all agents together.
struct Ramp {
    spans: Vec<Span>,
    /// Which of `spans`.
    at: usize,
    /// Next client of it.
    local: u32,
    /// Turns over all agents that come before this span.
    before: u64,
    rate_per_s: Option<f64>,
    /// Connections under way at once in this agent.
    parallelism: u32,
}

/// The clients of a population, over all agents, that a ramp walks through.
struct Span {
    population: usize,
    /// Those that have a turn on the schedule; the others are passed at once, since they are what
    /// the stage wants them to be, or have given up.
    turns: Range<u32>,
    /// The first that is not walked through.
    end: u32,
}

impl Stage {
    /// Enters stage `index` of the plan at `start_ns`.
    pub fn new(index: usize, start_ns: u64, shared: &mut Shared) -> Self {
        let plan = &shared.setup.plan;
        let stage = &plan.stages[index];
        let takes_part = |p: usize| stage.populations.contains(&p);
        let (mut rate_per_s, mut parallelism, mut spans) = (None, u32::MAX, Vec::new());
        match &stage.action {
            Action::Connect { rate_per_s: rate, parallelism: limit, clients, .. } => {
                rate_per_s = *rate;
                let share = |limit: u32| shared.setup.shard.share(limit).max(1);
                parallelism = limit.map_or(u32::MAX, share);
                for (place, &p) in stage.populations.iter().enumerate() {
                    let all = plan.populations[p].clients;
                    let wanted = clients.as_ref().map_or(all, |clients| clients[place]);
                    let before = shared.present[p];
                    let end = before.max(wanted);
                    shared.present[p] = end;
                    spans.push(Span { population: p, turns: before..end, end });
                }
            }
            Action::Disconnect { rate_per_s: rate } => {
                rate_per_s = *rate;
                for &p in &stage.populations {
                    let (before, end) = (shared.present[p], plan.populations[p].clients);
                    shared.present[p] = 0;
                    shared.lifetimes.end(p);
                    spans.push(Span { population: p, turns: 0..before, end });
                }
            }
            Action::Publish { duration_ns, .. } => {
                shared.publishing = Some(Publishing {
                    start_ns,
                    end_ns: start_ns + duration_ns,
                    horizon_ns: u64::MAX,
                    populations: (0..plan.populations.len()).map(takes_part).collect(),
                    tempos: vec![Tempo::default(); plan.populations.len()],
                    complete_ns: vec![start_ns; plan.populations.len()],
                    waits: stage.populations.iter().any(|&p| plan.populations[p].is_told()),
                });
            }
            Action::Hold { .. } => {}
        }
        let ramp = Ramp { spans, at: 0, local: 0, before: 0, rate_per_s, parallelism };
        let changing: Vec<usize> = changing(&stage.action).collect();
        let leaves = matches!(stage.action, Action::Disconnect { .. });
        shared.wills.begin_stage(if leaves { &stage.populations } else { &[] });
        shared.begin_receiving();
        changing.into_iter().for_each(|population| shared.stop_judging(population));
        Self { index, start_ns, closed: false, ramp }
    }

    /// What it does.
    pub fn action<'a>(&self, setup: &'a Setup) -> &'a Action {
        &setup.plan.stages[self.index].action
    }

    /// The next client whose turn has come, by its index in this agent.
    pub fn next_client(&mut self, shared: &Shared) -> Option<u32> {
        if shared.underway >= self.ramp.parallelism {
            return None;
        }
        self.next_turn_ns(&shared.setup).filter(|&turn_ns| turn_ns <= shared.now_ns)?;
        let population = self.ramp.spans[self.ramp.at].population;
        let client = shared.setup.populations[population].first_client + self.ramp.local;
        self.ramp.local += 1;
        Some(client)
    }

    /// When something is to be done next, in nanoseconds; `None`: nothing by the clock.
    pub fn next_ns(&mut self, shared: &Shared) -> Option<u64> {
        let end_ns = match self.action(&shared.setup) {
            Action::Publish { duration_ns, .. } | Action::Hold { duration_ns } => {
                self.start_ns + duration_ns
            }
            // At the limit the next turn comes with the end of an attempt.
            _ if shared.underway >= self.ramp.parallelism => return None,
            _ => return self.next_turn_ns(&shared.setup),
        };
        (end_ns > shared.now_ns).then_some(end_ns)
    }

    /// Whether its time is over.
    pub fn is_over(&self, shared: &Shared) -> bool {
        match self.action(&shared.setup) {
            Action::Publish { duration_ns, .. } | Action::Hold { duration_ns } => {
                self.start_ns + duration_ns <= shared.now_ns
            }
            Action::Connect { .. } | Action::Disconnect { .. } => true,
        }
    }

    /// Whether all that this agent can do in it has been done.
    pub fn is_settled(&mut self, shared: &Shared) -> bool {
        let setup = &shared.setup;
        let populations = &setup.plan.stages[self.index].populations;
        match self.action(setup) {
            Action::Publish { .. } => self.closed,
            Action::Hold { .. } => self.is_over(shared),
            Action::Disconnect { .. } => self.next_turn_ns(setup).is_none() && shared.leaving == 0,
            Action::Connect { .. } => populations.iter().all(|&p| {
                // Who has a life has been ready; it may be away, or on its way back.
                let ready = shared.tally.populations[p].gauges.ready;
                let arrived = shared.lifetimes.arrived(p).map_or(ready, u64::from);
                let gave_up = u64::from(shared.gave_up[p]);
                arrived + gave_up >= u64::from(setup.share(p, shared.present[p]))
            }),
        }
    }

    fn next_turn_ns(&mut self, setup: &Setup) -> Option<u64> {
        let ramp = &mut self.ramp;
        loop {
            let span = ramp.spans.get(ramp.at)?;
            if ramp.local < setup.share(span.population, span.end) {
                let client = setup.shard.global(ramp.local);
                let turn = client.clamp(span.turns.start, span.turns.end) - span.turns.start;
                let position = ramp.before + u64::from(turn);
                let after = |rate: f64| (position as f64 * SECOND_NS as f64 / rate) as u64;
                return Some(self.start_ns.saturating_add(ramp.rate_per_s.map_or(0, after)));
            }
            ramp.before += span.turns.len() as u64;
            ramp.at += 1;
            ramp.local = 0;
        }
    }
}

/// Populations whose clients join or leave in a stage.
fn changing(action: &Action) -> impl Iterator<Item = usize> {
    let changes = match action {
        Action::Publish { changes, .. } => changes.as_slice(),
        _ => &[],
    };
    let joins_or_leaves =
        |change: &&plan::Change| !matches!(change.action, ChangeAction::Rate { .. });
    changes.iter().filter(joins_or_leaves).map(|change| change.population)
}
