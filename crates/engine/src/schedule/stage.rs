//! The current stage: the schedule on which clients start or stop, and the test for settled.

use std::ops::Range;

use plan::{Action, SECOND_NS, Tempo};

use crate::context::Context;
use crate::schedule::publishing::Publishing;
use crate::schedule::quotas::Quotas;
use crate::schedule::unfinished::Unfinished;
use crate::setup::Setup;

/// The current stage.
pub struct Stage {
    /// Index in the plan.
    pub index: usize,
    /// Start, in nanoseconds.
    start_ns: u64,
    /// `true` once a publish stage sends no more.
    pub closed: bool,
    /// Clients to start or stop.
    ramp: Ramp,
    /// Populations whose clients are not all connected.
    unready: Unfinished,
}

/// Walk through the clients of a stage in this agent, each with its instant on the schedule of all
/// agents together.
struct Ramp {
    spans: Vec<RampSpan>,
    /// Index into `spans`.
    at: usize,
    /// Next client of the span.
    local: u32,
    /// Slots over all agents before this span.
    before: u64,
    rate_per_s: Option<f64>,
    /// Connections under way at once in this agent.
    parallelism: u32,
}

/// The clients of a population, over all agents, that a ramp walks through.
struct RampSpan {
    population: usize,
    /// Clients with a slot on the schedule. The others have no slot, since they are in the wanted
    /// state already, or have given up.
    turns: Range<u32>,
    /// The first that is not walked through.
    end: u32,
}

impl Stage {
    /// Enters stage `index` of the plan at `start_ns`.
    pub fn new(index: usize, start_ns: u64, context: &mut Context) -> Self {
        let plan = &context.setup.plan;
        let stage = &plan.stages[index];
        let takes_part = |p: usize| stage.populations.contains(&p);
        let (mut rate_per_s, mut parallelism, mut spans) = (None, u32::MAX, Vec::new());
        match &stage.action {
            Action::Connect { rate_per_s: rate, parallelism: limit, clients, .. } => {
                rate_per_s = *rate;
                let share = |limit: u32| context.setup.agent.share(limit).max(1);
                parallelism = limit.map_or(u32::MAX, share);
                for (place, &p) in stage.populations.iter().enumerate() {
                    let all = plan.populations[p].clients;
                    let wanted = clients.as_ref().map_or(all, |clients| clients[place]);
                    let before = context.expectations.active[p];
                    let end = before.max(wanted);
                    context.expectations.active[p] = end;
                    spans.push(RampSpan { population: p, turns: before..end, end });
                }
            }
            Action::Disconnect { rate_per_s: rate } => {
                rate_per_s = *rate;
                for &p in &stage.populations {
                    let (before, end) =
                        (context.expectations.active[p], plan.populations[p].clients);
                    context.expectations.active[p] = 0;
                    context.lifetimes.end(p);
                    spans.push(RampSpan { population: p, turns: 0..before, end });
                }
            }
            Action::Publish { duration_ns, rate_profile, messages, .. } => {
                let active = &context.expectations.active;
                let quotas = messages.as_ref().map(|messages| {
                    Quotas::new(&context.setup, &stage.populations, messages, active)
                });
                context.publishing = Some(Publishing {
                    start_ns,
                    end_ns: start_ns + duration_ns,
                    horizon_ns: u64::MAX,
                    populations: (0..plan.populations.len()).map(takes_part).collect(),
                    tempos: vec![Tempo::new(rate_profile); plan.populations.len()],
                    complete_ns: vec![start_ns; plan.populations.len()],
                    waits: stage
                        .populations
                        .iter()
                        .any(|&p| plan.populations[p].is_externally_published()),
                    quotas,
                });
            }
            Action::Hold { .. } => {}
        }
        let is_held = context.tally.held_since_ns.is_some();
        if let Some(publishing) = context.publishing.as_mut().filter(|_| is_held) {
            publishing.hold(start_ns, true);
        }
        let ramp = Ramp { spans, at: 0, local: 0, before: 0, rate_per_s, parallelism };
        let changing: Vec<usize> = changing(&stage.action).collect();
        let leaves = matches!(stage.action, Action::Disconnect { .. });
        let leaving = if leaves { stage.populations.clone() } else { Vec::new() };
        context.begin_stage(index, &leaving);
        changing.into_iter().for_each(|population| context.exclude_from_loss(population));
        Self { index, start_ns, closed: false, ramp, unready: Unfinished::default() }
    }

    /// Action of the stage.
    pub fn action<'a>(&self, setup: &'a Setup) -> &'a Action {
        &setup.plan.stages[self.index].action
    }

    /// The next client up to now, by its index in this agent.
    pub fn next_client(&mut self, context: &Context) -> Option<u32> {
        if context.underway >= self.ramp.parallelism {
            return None;
        }
        self.next_turn_ns(&context.setup).filter(|&turn_ns| turn_ns <= context.now_ns)?;
        let population = self.ramp.spans[self.ramp.at].population;
        let client = context.setup.populations[population].first_client + self.ramp.local;
        self.ramp.local += 1;
        Some(client)
    }

    /// Instant of the next action, in nanoseconds; `None` if no instant is known.
    pub fn next_ns(&mut self, context: &Context) -> Option<u64> {
        let end_ns = match self.action(&context.setup) {
            Action::Publish { duration_ns, .. } | Action::Hold { duration_ns, .. } => {
                self.start_ns + duration_ns
            }
            // At the limit the next client starts at the end of an attempt.
            _ if context.underway >= self.ramp.parallelism => return None,
            _ => return self.next_turn_ns(&context.setup),
        };
        (end_ns > context.now_ns).then_some(end_ns)
    }

    /// Returns `true` once the duration is over.
    pub fn is_over(&self, context: &Context) -> bool {
        match self.action(&context.setup) {
            Action::Publish { duration_ns, .. } | Action::Hold { duration_ns, .. } => {
                self.start_ns + duration_ns <= context.now_ns
            }
            Action::Connect { .. } | Action::Disconnect { .. } => true,
        }
    }

    /// Returns `true` once this agent has done everything that it can do in the stage.
    pub fn is_settled(&mut self, context: &Context) -> bool {
        let setup = &context.setup;
        let populations = &setup.plan.stages[self.index].populations;
        match self.action(setup) {
            Action::Publish { .. } => self.closed,
            Action::Hold { .. } => self.is_over(context),
            Action::Disconnect { .. } => {
                self.next_turn_ns(setup).is_none()
                    && context.leaving == 0
                    && !context.expectations.awaits_wills(populations)
            }
            Action::Connect { .. } => !self.unready.is_any(populations, |&p| {
                // A client with a session lifetime, or one whose connection was taken over, was
                // ready once; it may be offline now.
                let ready = context.tally.populations[p].gauges.ready;
                let arrived = context.lifetimes.arrived(p).map_or(ready, u64::from);
                let gave_up = u64::from(context.gave_up[p]);
                arrived + gave_up < u64::from(setup.share(p, context.expectations.active[p]))
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
    let moving = action.changes().iter().filter(|change| change.action.moves_clients());
    moving.map(|change| change.population)
}
