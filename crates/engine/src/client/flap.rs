//! Flapping subscriptions: a ready client unsubscribes from its filters, and subscribes again on
//! the same connection.

use plan::Reason;

use super::Client;
use crate::context::Context;
use crate::schedule::flaps::Act;
use crate::seam::{Polled, Refusals, Request};

impl Client {
    /// Unsubscribes, subscribes again, or gives up an answer of the peer.
    pub fn flap(&mut self, context: &mut Context, act: Act) {
        match act {
            Act::Unsubscribe => self.unsubscribe(context),
            Act::Subscribe => self.subscribe_again(context),
            // The client itself does not read.
            Act::GiveUp(_) if self.paused => {
                context.flaps.wait(self.population(), self.local, context.now_ns);
            }
            Act::GiveUp(reason) => self.lost(context, reason),
        }
    }

    fn unsubscribe(&mut self, context: &mut Context) {
        context.out.clear();
        // A filter that no UNSUBSCRIBE can hold was in no SUBSCRIBE either.
        let asked = match self.poll(context, Request::Unsubscribe) {
            Polled::Sent(asked) if asked.awaits_answer => asked,
            Polled::Refused(reason) => return self.lost(context, reason),
            _ => return self.lost(context, Reason::FiltersTooLarge),
        };
        let tally = &mut context.tally.populations[usize::from(self.population)];
        tally.counters.packets_sent_total += asked.packets;
        tally.gauges.stalled -= u64::from(context.stalls.forget(self.index));
        context.flaps.ask(self.population(), self.local, context.now_ns);
        self.flush(context);
    }

    fn subscribe_again(&mut self, context: &mut Context) {
        context.out.clear();
        match self.ask_filters(context) {
            Ok(true) => {
                context.flaps.ask(self.population(), self.local, context.now_ns);
                self.flush(context);
            }
            // A flapping population has filters: no packet has one.
            Ok(false) => self.lost(context, Reason::FiltersTooLarge),
            Err(reason) => self.lost(context, reason),
        }
    }

    /// The peer has answered the last of the SUBSCRIBEs of a ready client.
    pub(super) fn subscribed_again(&self, context: &mut Context) {
        let population = self.population();
        let asked_ns = context.flaps.answered(population, self.local, context.now_ns);
        if let Some(asked_ns) = asked_ns {
            let took_ns = context.now_ns.cast_signed() - asked_ns.cast_signed();
            context.tally.populations[population].subscribe_time.record(took_ns);
            context.stalls.begin(self.index, context.now_ns);
        }
    }

    /// The peer has answered UNSUBSCRIBE.
    pub(super) fn unsubscribed(
        &self,
        context: &mut Context,
        removed: u64,
        refused: Refusals<'_>,
        is_last: bool,
    ) {
        let population = self.population();
        let tally = &mut context.tally.populations[population];
        tally.counters.unsubscribed_total += removed;
        for cause in refused.iter() {
            tally.counters.unsubscribe_failed_total += 1;
            cause.count(tally);
        }
        if !is_last {
            return;
        }
        let asked_ns = context.flaps.answered(population, self.local, context.now_ns);
        if let Some(asked_ns) = asked_ns {
            let took_ns = context.now_ns.cast_signed() - asked_ns.cast_signed();
            tally.unsubscribe_time.record(took_ns);
        }
    }

    /// Returns `true` if a session that the peer has kept may have lost its filters.
    pub(super) fn may_have_unsubscribed(&self, context: &Context) -> bool {
        let own = self.population();
        let rival = context.setup.populations[own].rival;
        let flaps = |population: usize| context.setup.plan.populations[population].flapping;
        [Some(own), rival].into_iter().flatten().any(|population| flaps(population).is_some())
    }
}
