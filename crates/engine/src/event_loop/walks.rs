//! Actions that are scheduled up to now, a slice at a time: changes, session lifetimes, flapping
//! subscriptions, answers with salted passwords, and the clients of a stage.

use agent::changes::{ChangeStep, Crowd};
use plan::Action;

use super::{EventLoop, RAMP_SLICE};
use crate::client::{Client, ClientPhase};
use crate::context::Context;

impl EventLoop {
    /// Applies some of the changes up to now.
    pub(super) fn walk_changes(&mut self) {
        let _ = (0..RAMP_SLICE).all(|_| self.walk_change());
    }

    /// Makes the next step of the changes up to now. Returns `false` if there is none.
    pub(super) fn walk_change(&mut self) -> bool {
        let step = self.changes.next(&mut crowd(&mut self.context));
        self.hold_back();
        step.map(|step| self.step(step)).is_some()
    }

    /// Holds back messages scheduled after the beginning of the next change, which decides about
    /// them.
    pub(super) fn hold_back(&mut self) {
        if let Some(publishing) = &mut self.context.publishing {
            publishing.horizon_ns = self.changes.next_ns().unwrap_or(u64::MAX);
        }
    }

    pub(super) fn step(&mut self, step: ChangeStep) {
        match step {
            ChangeStep::Join { population, local, at_ns } => {
                let client = self.context.setup.populations[population].first_client + local;
                let at_ns = at_ns.max(self.joins_from_ns);
                self.with_client(client, |client, context| client.join(context, at_ns));
            }
            ChangeStep::Leave { population, local, at_ns } => {
                let client = self.context.setup.populations[population].first_client + local;
                self.with_client(client, |client, context| client.leave(context, at_ns));
            }
            ChangeStep::Migrate { population, local } => {
                let client = self.context.setup.populations[population].first_client + local;
                self.with_client(client, Client::migrate);
            }
            ChangeStep::Rate { population, at_ns, factor } => {
                self.change_rate(population, at_ns, factor);
            }
        }
    }

    /// Ends session lifetimes, and lets clients return.
    pub(super) fn walk_lives(&mut self) {
        for _ in 0..RAMP_SLICE {
            let Some(turn) = self.context.lifetimes.next(self.context.now_ns) else { return };
            let index = self.context.setup.populations[turn.population].first_client + turn.local;
            let act = if turn.returns { Client::join } else { Client::go_offline };
            self.with_client(index, |client, context| act(client, context, turn.at_ns));
        }
    }

    /// Ends subscriptions, and begins them again.
    pub(super) fn walk_flaps(&mut self) {
        for _ in 0..RAMP_SLICE {
            let Some(turn) = self.context.flaps.next(self.context.now_ns) else { return };
            let index = self.context.setup.populations[turn.population].first_client + turn.local;
            self.with_client(index, |client, context| client.flap(context, turn.act));
        }
    }

    /// Lets clients answer whose passwords are salted.
    pub(super) fn walk_exchanges(&mut self) {
        for _ in 0..RAMP_SLICE {
            let Some(client) = self.context.exchanges.take_salted(self.context.now_ns) else {
                return;
            };
            self.with_client(client, Client::salted);
        }
    }

    fn change_rate(&mut self, population: usize, at_ns: u64, factor: f64) {
        if let Some(publishing) = &mut self.context.publishing {
            publishing.change_rate(population, at_ns, factor);
        }
        self.publish_due(population);
    }

    /// Publishes what the clients of a population have scheduled up to now, and sets their timers.
    pub(super) fn publish_due(&mut self, population: usize) {
        let own = &self.context.setup.populations[population];
        for index in own.first_client..own.first_client + own.share {
            self.with_client(index, Client::publish_due);
        }
    }

    /// Starts or stops the next clients of the stage.
    pub(super) fn walk_stage(&mut self) {
        for _ in 0..RAMP_SLICE {
            let Some(stage) = self.stage.as_mut().filter(|_| !self.stopping) else { return };
            let Some(index) = stage.next_client(&self.context) else { return };
            match stage.action(&self.context.setup) {
                Action::Connect { .. } => {
                    let phase = self.clients[index as usize].phase();
                    if matches!(
                        phase,
                        ClientPhase::Idle | ClientPhase::GaveUp | ClientPhase::Leaving(_)
                    ) {
                        self.with_client(index, Client::start);
                    }
                }
                Action::Disconnect { .. } => self.with_client(index, Client::end),
                Action::Publish { .. } | Action::Hold { .. } => return,
            }
        }
    }
}

/// The part of `context` that changes read and update.
pub(super) fn crowd(context: &mut Context) -> Crowd<'_, impl Fn(usize) -> bool> {
    let Context { setup, expectations, publishing, now_ns, .. } = context;
    let setup = &*setup;
    Crowd {
        plan: &setup.plan,
        shard: setup.shard,
        is_played: |population: usize| setup.populations[population].is_played,
        active: &mut expectations.active,
        complete_ns: publishing.as_mut().map(|publishing| &mut publishing.complete_ns[..]),
        now_ns: *now_ns,
    }
}
