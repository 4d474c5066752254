//! Round trips of MQTT 5: a client answers requests that it receives, and measures the answers to
//! its own requests.

use agent::deliveries::is_received;
use agent::ledger::Delivery;
use plan::{Responds, Stamp, StreamId};

use super::unsent::UNSENT_MAX;
use super::{Client, Phase};
use crate::context::Context;
use crate::protocol::{Answer, Buffers, Message, Published, Response, Token};

impl Client {
    /// Answers a message, if it asks for an answer and the population answers.
    #[inline]
    pub(super) fn respond(&mut self, context: &mut Context, message: &Message<'_>) {
        if let Some(responds) = context.setup.plan.populations[self.population()].responds
            && let Some(response) = message.response()
        {
            self.answer(context, responds, response);
        }
    }

    fn answer(&mut self, context: &mut Context, responds: Responds, response: Response<'_>) {
        let unsent = self.unsent.as_ref().map_or(0, |unsent| unsent.rest().len());
        if unsent + context.out.len() > UNSENT_MAX {
            return self.drop_answers(context, 1);
        }
        let stamp = response.correlation.and_then(|bytes| context.setup.request_of(bytes));
        let stamp = stamp.map(|stamp| Stamp { stream: stamp.stream.of_answers(), ..stamp });
        let answer = Answer { responds, response, stamp };
        if responds.qos > 0 {
            if !context.outboxes.push(self.index, &answer, context.now_ns) {
                return self.drop_answers(context, 1);
            }
            // Messages of a kept session are sent again first.
            if self.phase == Phase::Ready {
                self.send_answers(context);
            }
            return;
        }
        let Context { out, text, properties, now_ns, .. } = context;
        let to = Buffers { out, text, properties };
        let published = self.session.answer(&answer, Token::of_answer(0, *now_ns), to);
        self.count_answer(context, published, 0);
    }

    /// Sends answers of QoS 1 and 2 that wait, as far as the broker takes them.
    pub(super) fn send_answers(&mut self, context: &mut Context) {
        let population = &context.setup.plan.populations[self.population()];
        let Some(responds) = population.responds.filter(|responds| responds.qos > 0) else {
            return;
        };
        loop {
            let Context { outboxes, out, text, properties, .. } = context;
            let Some((answer, token)) = outboxes.waiting(self.index, responds) else { return };
            let to = Buffers { out, text, properties };
            let published = self.session.answer(&answer, token, to);
            if matches!(published, Published::Waits | Published::Held) {
                return;
            }
            outboxes.take(self.index, published == Published::Sent);
            self.count_answer(context, published, responds.qos);
        }
    }

    fn count_answer(&self, context: &mut Context, published: Published, qos: u8) {
        let tally = &mut context.tally.populations[self.population()];
        if let Published::Refused(reason) = published {
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

    /// Counts an answer to the request with this stamp, which population `from` has sent.
    pub(super) fn receive_answer(&mut self, context: &mut Context, stamp: &Stamp, from: usize) {
        let to = self.population();
        let client = self.global(context);
        let Context { setup, tally, ledger, expectations, publishing, now_ns, .. } = context;
        if (from, stamp.stream.client) != (to, client) {
            tally.populations[to].counters.answers_of_others_total += 1;
            return;
        }
        let (responding, epoch) = expectations.answers_to(to);
        let counts_loss = expectations.counts_answers(to);
        let stream = StreamId { client: epoch, ..stamp.stream.of_answers() };
        let ways = || expectations.ways_of_answers(setup, to, &stamp.stream);
        let (delivery, _) = ledger.note_ways(self.index, stream, stamp.sequence, ways);
        tally.unfollowed_total += u64::from(delivery == Delivery::Unfollowed);
        let counters = &mut tally.flow(responding, to).counters;
        let received = is_received(counters, delivery, counts_loss);
        counters.received_total += i64::from(received);
        counters.expected_total += i64::from(received && !counts_loss);
        let answers = &mut tally.populations[to].answers;
        if !received {
            answers.answers_duplicate_total += i64::from(delivery == Delivery::Duplicate);
            return;
        }
        let is_late = publishing.as_ref().is_none_or(|stage| stamp.intended_ns < stage.start_ns);
        answers.answered_total += 1;
        answers.answers_expected_total += i64::from(!counts_loss);
        answers.answers_late_total += i64::from(is_late);
        let round_trip_ns = now_ns.cast_signed() - stamp.intended_ns.cast_signed();
        tally.populations[to].round_trip.record(round_trip_ns);
    }
}
