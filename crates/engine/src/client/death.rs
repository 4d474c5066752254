//! Ends of connections after which the broker publishes the client's will.

use plan::Reason;

use super::leave::Then;
use super::{Client, ClientPhase, at};
use crate::context::Context;
use crate::expectations::Death;
use crate::seam::{Protocol, Side};

impl Client {
    /// Falls silent: the client neither sends nor reads any more. Its connection stays open until
    /// the broker closes it.
    pub(super) fn vanish(&mut self, context: &mut Context, then: Then) {
        let at = at(self, &context.setup, context.now_ns);
        let until_ns = self.session.deadline(&at, Side::Peer);
        if self.phase.is_accepted() {
            self.expect_will(context, Death::Silent { until_ns });
        }
        self.keep_session(context);
        // A connection that does not stand yet has no peer that could miss the client.
        let stream = self.stream.take().filter(|_| self.phase != ClientPhase::Connecting);
        if let Some(mut stream) = stream {
            // Bytes that the client has sent arrive.
            stream.flush_link();
            context.silent.keep(stream, &context.host);
        }
        self.leave_phase(context, then.phase());
        self.close(context);
    }

    /// Expects the deliveries of the client's will, if the client has one.
    pub(super) fn expect_will(&self, context: &mut Context, death: Death) {
        let client = (self.population(), self.global(context));
        let Context { setup, tally, expectations, now_ns, .. } = context;
        expectations.expect_will(setup, tally, client, (death, *now_ns));
    }

    /// The broker has accepted the client: a will of an earlier connection with its identifier that
    /// was not due yet is published now, or never.
    pub(super) fn settle_will(&self, context: &mut Context) {
        let (population, client) = (self.population(), self.global(context));
        let Context { setup, tally, expectations, .. } = context;
        let resumed = setup.plan.populations[population].keeps_session();
        for own in [Some(population), setup.populations[population].rival].into_iter().flatten() {
            expectations.settle_will(setup, tally, (own, client), resumed);
        }
    }

    /// Kind of a death that this agent found with a reason.
    pub(super) fn death_by(&self, context: &Context, reason: Reason) -> Death {
        let rival = context.setup.populations[self.population()].rival;
        // Some brokers send no DISCONNECT of MQTT 5.
        let is_takeover = match reason {
            Reason::Answer(answer) => answer.is_takeover(),
            reason => matches!(reason, Reason::ClosedByBroker | Reason::ResetByBroker),
        };
        match rival.filter(|_| is_takeover) {
            Some(rival) => {
                let resumed = context.setup.plan.populations[rival].keeps_session();
                Death::TakenOver { resumed }
            }
            None => Death::Noticed,
        }
    }
}
