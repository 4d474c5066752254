//! Answers of MQTT 5: a client answers requests that it receives.

use plan::Stamp;

use super::unsent::UNSENT_MAX;
use super::{Client, ClientPhase, at};
use crate::context::Context;
use crate::seam::{Answer, Buffers, Polled, Protocol, Request, Response, Token};

impl Client {
    /// Answers a message, if the population answers.
    pub(super) fn respond(&mut self, context: &mut Context, response: Response<'_>) {
        let population = &context.setup.plan.populations[self.population()];
        let Some(responds) = population.responds else { return };
        let unsent = self.unsent.as_ref().map_or(0, |unsent| unsent.rest().len());
        if unsent + context.out.len() > UNSENT_MAX {
            return self.drop_answers(context, 1);
        }
        let stamp = response.correlation.and_then(|bytes| context.setup.origins.request_of(bytes));
        let stamp = stamp.map(|stamp| Stamp { stream: stamp.stream.of_answers(), ..stamp });
        let answer = Answer { responds, response, stamp };
        if responds.qos > 0 {
            if !context.outboxes.push(self.index, &answer, context.now_ns) {
                return self.drop_answers(context, 1);
            }
            // Messages of a kept session are sent again first.
            if self.phase == ClientPhase::Ready {
                self.send_answers(context);
            }
            return;
        }
        let Context { setup, out, scratch, now_ns, .. } = context;
        let at = at(self, setup, *now_ns);
        let request = Request::Answer(&answer, Token::of_answer(0, *now_ns));
        let polled = self.session.poll(&at, request, Buffers { out, scratch });
        self.count_answer(context, polled, 0);
    }

    /// Sends answers of QoS 1 and 2 that wait, as far as the broker takes them.
    pub(super) fn send_answers(&mut self, context: &mut Context) {
        let population = &context.setup.plan.populations[self.population()];
        let Some(responds) = population.responds.filter(|responds| responds.qos > 0) else {
            return;
        };
        loop {
            let Context { setup, outboxes, out, scratch, now_ns, .. } = context;
            let Some((answer, token)) = outboxes.waiting(self.index, responds) else { return };
            let (at, request) = (at(self, setup, *now_ns), Request::Answer(&answer, token));
            let polled = self.session.poll(&at, request, Buffers { out, scratch });
            if matches!(polled, Polled::Wait(_) | Polled::Nothing) {
                return;
            }
            outboxes.take(self.index, matches!(polled, Polled::Sent(_)));
            self.count_answer(context, polled, responds.qos);
        }
    }

    fn count_answer(&self, context: &mut Context, polled: Polled, qos: u8) {
        let tally = &mut context.tally.populations[self.population()];
        if let Polled::Refused(reason) = polled {
            tally.outcome(reason);
            return self.drop_answers(context, 1);
        }
        tally.counters.sent_total += 1;
        tally.counters.answers_total += 1;
        tally.counters.packets_sent_total += 1;
        tally.gauges.in_flight += u64::from(qos > 0);
    }

    /// Counts answers that are not sent.
    pub(super) fn drop_answers(&self, context: &mut Context, count: u64) {
        context.tally.populations[self.population()].counters.answers_dropped_total += count;
    }
}
