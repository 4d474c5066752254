//! Acceptance of a client: the steps of SCRAM between CONNECT and CONNACK, and what CONNACK says.

use plan::Reason;

use super::kept_session::KeptSession;
use super::{Client, ClientPhase};
use crate::context::Context;
use crate::expectations::Death;
use crate::seam::{Accepted, Login, Notice, Polled, Protocol, Request, nonce};
use crate::setup::Setup;

impl Client {
    /// User name, password and nonce of this attempt to connect; `None` without SCRAM.
    pub(super) fn login(&self, setup: &Setup) -> Option<Login> {
        if !setup.populations[self.population()].protocol.proves_password {
            return None;
        }
        let population = &setup.plan.populations[self.population()];
        let client = (self.population(), setup.shard.global(self.local));
        let n = population.first + u64::from(client.1);
        let text = |template: &Option<plan::Template>| Some(template.as_ref()?.text(n, 0));
        // An attempt has one deadline, and no two attempts of a client have the same.
        let nonce = nonce(setup.plan.seed, client, self.deadline_ns);
        Some(Login::new(&text(&population.username)?, &text(&population.password)?, nonce))
    }

    /// Answers a step of the broker.
    pub(super) fn challenged(&mut self, context: &mut Context, challenge: &[u8]) {
        let Some(login) = self.login(&context.setup) else {
            return self.lost(context, Reason::AuthenticationInvalid);
        };
        match context.exchanges.answer(self.index, &login, challenge, context.now_ns) {
            Ok(Some(step)) => self.send_step(context, &step),
            Ok(None) => {}
            Err(reason) => self.lost(context, reason),
        }
    }

    /// Answers the step of the broker, now that the password is salted.
    pub fn salted(&mut self, context: &mut Context) {
        let Some(login) = self.login(&context.setup) else { return };
        context.out.clear();
        match context.exchanges.answer_salted(self.index, &login) {
            Ok(step) => self.send_step(context, &step),
            Err(reason) => self.lost(context, reason),
        }
        self.flush(context);
    }

    fn send_step(&mut self, context: &mut Context, step: &str) {
        match self.poll(context, Request::Prove(step)) {
            Polled::Sent(asked) => {
                let counters = &mut context.tally.populations[self.population()].counters;
                counters.packets_sent_total += asked.packets;
            }
            Polled::Refused(reason) => self.lost(context, reason),
            Polled::Wait(_) | Polled::Nothing => {}
        }
    }

    /// Continues after the broker has accepted the client, if the broker has proved itself. In any
    /// case messages in flight are given up if the broker has not kept their session.
    pub(super) fn connected(&mut self, context: &mut Context, accepted: &Accepted<'_>) {
        let Accepted { resumed, kept_s, dropped, sets_keep_alive, proof } = *accepted;
        let has_lost = !resumed && self.kept_session.is_due(context.now_ns);
        let counters = &mut context.tally.populations[self.population()].counters;
        counters.server_keep_alives_total += u64::from(sets_keep_alive);
        counters.sessions_resumed_total += u64::from(resumed);
        counters.sessions_lost_total += u64::from(has_lost);
        self.abandon(context, dropped);
        if !resumed {
            // The new session has no filters until the client is ready.
            self.free_since_ns = 0;
        }
        self.kept_session = KeptSession::begin(kept_s);
        if context.setup.populations[self.population()].rival.is_some() {
            self.session.note(Notice::Shared);
            // The other client with the identifier may end the session.
            self.kept_session = KeptSession::NONE;
        }
        if self.login(&context.setup).is_some()
            && let Err(cause) = context.exchanges.verify(self.index, proof)
        {
            // The broker has accepted the client, and publishes its will.
            self.settle_will(context);
            self.expect_will(context, Death::Chosen);
            return self.lost(context, cause);
        }
        self.subscribe(context, resumed);
    }

    /// Counts the client as connected: the peer has accepted it, and `resumed` its session.
    pub(super) fn accepted(&mut self, context: &mut Context, resumed: bool) {
        let population = &context.setup.plan.populations[self.population()];
        context.tally.targets.accepted(self.target(context));
        context.tally.addresses.accepted(self.address(context));
        context.rounds.accepted(self.index);
        let tally = &mut context.tally.populations[usize::from(self.population)];
        tally.counters.connected_total += 1;
        tally.gauges.connected += 1;
        let since_ns = self.deadline_ns - population.connect_timeout_ns;
        let connect_time_ns = context.now_ns.cast_signed() - since_ns.cast_signed();
        self.end_accepting(context);
        let tally = &mut context.tally.populations[usize::from(self.population)];
        tally.connect_time.record(connect_time_ns);
        if resumed {
            tally.connect_time_resumed.record(connect_time_ns);
        }
        self.took(context, connect_time_ns);
        let (population, now_ns) = (usize::from(self.population), context.now_ns);
        context.returned.note_accepted(population, self.local, now_ns, resumed);
        self.phase = ClientPhase::Subscribing;
        self.settle_will(context);
    }
}
