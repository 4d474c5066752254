//! Messages of a client: all scheduled messages in one write, and retransmission after a reconnect.

use agent::publication::{Moment, PublicationSetup, Sender};
use plan::{
    Counters, INCARNATION_PLACES, Pacer, PopulationSnapshot, Publication, SentAt, WaitCause,
};

use super::{Client, ClientPhase, Then, at};
use crate::context::Context;
use crate::expectations::Batch;
use crate::seam::{
    Buffers, Cause, Hold, Outgoing, Polled, Protocol, Request, Resend, Resent, Session, Token,
};
use crate::setup::Setup;

/// Bytes that a client writes in one time slice at most.
const SLICE_BYTES: usize = 64 * 1024;

/// Progress of a client with one publication.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    /// Place in the stage's schedule of the first message that is neither sent nor skipped.
    place: u64,
    /// Messages sent in the whole run, which is the number of the next message.
    sent: u64,
    /// Messages sent up to the last balance.
    balanced: u64,
    in_flight: u16,
    /// The window is full, the peer accepts no further message, or no packet identifier is free.
    waits: bool,
    /// Instant since which the next message waits for the Receive Maximum of the broker, in
    /// nanoseconds; 0 if the message does not.
    held_since_ns: u64,
}

impl Progress {
    /// Messages sent in the whole run.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Messages sent since the last balance.
    const fn unbalanced(&self) -> u64 {
        self.sent - self.balanced
    }

    /// Gives up the messages in flight.
    pub const fn forget_in_flight(&mut self) {
        self.in_flight = 0;
        self.waits = false;
    }

    /// Notes the result of an attempt to publish.
    #[inline]
    fn note(&mut self, polled: Polled, now_ns: u64, tally: &mut PopulationSnapshot) {
        self.waits = matches!(polled, Polled::Wait(_) | Polled::Nothing);
        if matches!(polled, Polled::Wait(Hold::Limit)) && self.held_since_ns == 0 {
            self.held_since_ns = now_ns;
            tally.counters.receive_maximum_waits_total += 1;
        } else if self.held_since_ns > 0 && !self.waits {
            self.end_hold(now_ns, tally);
        }
    }

    /// Records the wait for the Receive Maximum of the broker, if the next message has waited.
    pub fn end_hold(&mut self, now_ns: u64, tally: &mut PopulationSnapshot) {
        let since_ns = std::mem::take(&mut self.held_since_ns);
        if since_ns > 0 {
            let waited_ns = now_ns.cast_signed() - since_ns.cast_signed();
            tally.receive_maximum_wait.record(waited_ns);
        }
    }
}

impl Client {
    /// Starts the schedule of a publish stage.
    pub fn begin_publishing(&mut self, context: &mut Context) {
        self.enter_schedule(context, 0);
        self.publish_due(context);
    }

    /// Returns `true` if a broker of MQTT has not acknowledged some messages.
    pub(super) fn awaits_acks(&self) -> bool {
        let has_unanswered = self.publications.iter().any(|progress| progress.in_flight > 0);
        has_unanswered && matches!(self.session, Session::Mqtt(_))
    }

    /// Sets the next message of each publication: the first one scheduled at `elapsed_ns` or later.
    fn enter_schedule(&mut self, context: &Context, elapsed_ns: u64) {
        let client = self.global(context);
        let ready = &context.setup.populations[self.population()].publications;
        for (progress, ready) in self.publications.iter_mut().zip(ready) {
            let first = ready.pacer.as_ref().map(|pacer| pacer.first_from(client, elapsed_ns));
            progress.place = first.unwrap_or(0);
        }
    }

    /// Connects the client in the middle of a publish stage, with the schedule from `at_ns` on.
    /// Does nothing for a client that is connected or tries to connect.
    pub fn join(&mut self, context: &mut Context, at_ns: u64) {
        if !self.phase.is_gone() || self.phase == ClientPhase::Leaving(Then::Connect) {
            return;
        }
        if let Some(publishing) = &context.publishing {
            let passed_ns = publishing.schedule_before(self.population(), at_ns);
            self.enter_schedule(context, passed_ns);
        }
        self.begin(context);
    }

    /// Ends the schedule at `at_ns`, in the middle of a publish stage, and disconnects, like a
    /// device that is switched off: messages in flight are given up with the session.
    pub fn leave(&mut self, context: &mut Context, at_ns: u64) {
        self.end_schedule(context, at_ns);
        self.end(context);
    }

    /// Ends the session lifetime at `at_ns`: the client leaves, and may return.
    pub fn go_offline(&mut self, context: &mut Context, at_ns: u64) {
        self.end_schedule(context, at_ns);
        self.depart(context, Then::Return);
        context.tally.populations[self.population()].counters.left_total += 1;
        context.lifetimes.go(self.population(), self.local, at_ns);
    }

    /// Ends the schedule of this client at `at_ns`, in the middle of a publish stage.
    fn end_schedule(&mut self, context: &mut Context, at_ns: u64) {
        if let Some(end_ns) = context.publishing.as_ref().map(|publishing| publishing.end_ns) {
            let end_at = |context: &mut Context, end_ns| {
                context.publishing.iter_mut().for_each(|publishing| publishing.end_ns = end_ns);
            };
            end_at(context, at_ns.min(end_ns));
            self.end_publishing(context);
            end_at(context, end_ns);
        }
    }

    /// Sends the messages scheduled before the end of a publish stage, and counts those that cannot
    /// be sent as skipped.
    pub fn end_publishing(&mut self, context: &mut Context) {
        self.publish_due(context);
        self.skip_rest(context);
    }

    /// Sends all scheduled messages in one write, and notes the instant of the next message.
    pub fn publish_due(&mut self, context: &mut Context) {
        self.schedule_nothing();
        let publishing = context.publishing.as_ref();
        let takes_part = publishing.is_some_and(|p| p.populations[self.population()]);
        if !takes_part || self.phase != ClientPhase::Ready || self.unsent.is_some() {
            return;
        }
        context.now_ns = context.host.now_ns();
        context.out.clear();
        let left = self.left(context);
        let before = context.sparkplug.is_played().then(|| self.sent_of_all());
        if before.is_some() {
            self.revive_device(context);
        }
        for index in 0..self.publications.len() {
            self.publish_slice(context, index);
        }
        if let Some(before) = before {
            self.kill_device(context, before);
        }
        let sent = left - self.left(context);
        let quotas = context.publishing.as_mut().and_then(|p| p.quotas.as_mut());
        quotas.into_iter().for_each(|quotas| quotas.note_sent(sent));
        self.flush(context);
        if self.unsent.is_some() {
            self.next_due_ns = u64::MAX;
        }
    }

    /// Messages sent in the whole run.
    pub(super) fn sent_of_all(&self) -> u64 {
        self.publications.iter().map(Progress::sent).sum()
    }

    /// Messages that the client has left to send in a stage with a number of messages; `u64::MAX`
    /// in other stages.
    fn left(&self, context: &Context) -> u64 {
        let quotas = context.publishing.as_ref().and_then(|p| p.quotas.as_ref());
        quotas.map_or(u64::MAX, |quotas| {
            // Messages of earlier stages are balanced.
            let sent: u64 = self.publications.iter().map(Progress::unbalanced).sum();
            quotas.of(self.population(), self.global(context)).saturating_sub(sent)
        })
    }

    /// Appends the scheduled messages of one publication to `context.out`.
    fn publish_slice(&mut self, context: &mut Context, index: usize) {
        let (population, left) = (usize::from(self.population), self.left(context));
        let Context { setup, tally, out, scratch, publishing, sparkplug, now_ns, .. } = context;
        let Some(publishing) = publishing else { return };
        let (now_ns, client) = (*now_ns, setup.shard.global(self.local));
        let mut sender = sender(setup, population, client);
        let mut node = sparkplug.node(population, self.local);
        let (publication, ready) = publication(setup, (population, index));
        let is_acknowledged = publication.qos > 0;
        let (at, progress) = (at(self, setup, now_ns), &mut self.publications[index]);
        let end = progress.sent.saturating_add(left);
        let pacer = ready.pacer.as_ref();
        let after = |place| pacer.map_or(place, |pacer| pacer.after(client, place));
        while progress.sent < end {
            let schedule_ns = pacer.map(|pacer| pacer.due_ns(client, progress.place));
            let due_ns = publishing.due_ns(population, schedule_ns, now_ns);
            let Some(due_ns) = due_ns.filter(|due_ns| *due_ns < publishing.end_ns) else { return };
            progress.waits = is_acknowledged && progress.in_flight >= publication.window;
            let is_later = due_ns > now_ns || due_ns >= publishing.horizon_ns;
            if is_later || out.len() >= SLICE_BYTES {
                self.next_due_ns = self.next_due_ns.min(due_ns);
                return;
            }
            if progress.waits {
                return;
            }
            let late_ns = now_ns - due_ns;
            let too_late = |pacer: &Pacer| {
                publishing.schedule_late_ns(population, due_ns, late_ns) > pacer.period_ns(client)
            };
            if ready.skips_late && pacer.is_some_and(too_late) {
                progress.place = after(progress.place);
                tally.populations[population].counters.skipped_total += 1;
                continue;
            }
            let sent = SentAt::after(self.last_wait, now_ns, due_ns, self.free_since_ns);
            let token = Token::new(index, progress.sent, due_ns, sent);
            sender.node_number = node.as_ref().map_or(0, |node| node.next());
            let outgoing = Outgoing { publication, ready, sender: &sender };
            let (request, to) = (Request::Publish(&outgoing, token), Buffers { out, scratch });
            let polled = self.session.poll(&at, request, to);
            progress.note(polled, now_ns, &mut tally.populations[population]);
            if progress.waits {
                return;
            }
            let counters = &mut tally.populations[population].counters;
            progress.place = after(progress.place);
            if let Polled::Refused(reason) = polled {
                counters.skipped_total += 1;
                tally.populations[population].outcome(reason);
                // A closed loop would try again at once, for ever.
                if pacer.is_none() {
                    return;
                }
                continue;
            }
            if pacer.is_some() {
                let held_up = due_ns < self.free_since_ns;
                let lateness = if held_up { &mut tally.blocked } else { &mut tally.lateness };
                lateness.record(late_ns.cast_signed());
            }
            progress.sent += 1;
            node.iter_mut().for_each(|node| node.advance());
            count_sent(counters, publication);
            if is_acknowledged {
                progress.in_flight += 1;
                tally.populations[population].gauges.in_flight += 1;
            }
        }
    }

    /// Counts a message that the broker refuses. Returns `true` if a blocked publication can
    /// continue.
    pub fn rejected(
        &mut self,
        context: &mut Context,
        (token, holds_back): (&Token, bool),
        cause: Cause<'_>,
    ) -> bool {
        let tally = &mut context.tally.populations[usize::from(self.population)];
        tally.counters.rejected_total += 1;
        cause.count(tally);
        self.answered(context, token, holds_back)
    }

    /// Counts an acknowledgement. Returns `true` if a blocked publication can continue.
    pub fn acknowledged(
        &mut self,
        context: &mut Context,
        (token, holds_back): (&Token, bool),
    ) -> bool {
        if token.is_own() {
            return self.answered(context, token, holds_back);
        }
        let tally = &mut context.tally.populations[usize::from(self.population)];
        tally.counters.acked_total += 1;
        let Moment { intended_ns, sent, .. } = token.moment();
        tally.acknowledgements().record(context.now_ns, intended_ns, sent);
        self.answered(context, token, holds_back)
    }

    /// Ends the flight of a message. `holds_back`: those of an earlier connection are not all sent
    /// again. Returns `true` if a blocked publication can continue.
    fn answered(&mut self, context: &mut Context, token: &Token, holds_back: bool) -> bool {
        self.end_flight(context, token);
        if holds_back {
            self.send_again(context);
        }
        self.send_answers(context);
        // A publication may wait for a packet identifier that another one has held.
        let publications =
            &context.setup.plan.populations[usize::from(self.population)].publications;
        let can_continue = |(progress, publication): (&Progress, &Publication)| {
            progress.waits && progress.in_flight < publication.window
        };
        let continues = self.publications.iter().zip(publications).any(can_continue);
        if continues {
            self.free_from(WaitCause::Window, context.now_ns);
        }
        continues
    }

    fn end_flight(&mut self, context: &mut Context, token: &Token) {
        context.tally.populations[usize::from(self.population)].gauges.in_flight -= 1;
        match token.answer() {
            Some(number) => context.outboxes.acknowledged(self.index, number),
            None if token.is_own() => {}
            None => self.publications[token.publication()].in_flight -= 1,
        }
    }

    /// Sends the messages that a kept session has in flight, then the scheduled messages.
    pub fn retransmit(&mut self, context: &mut Context) {
        self.send_again(context);
        self.send_answers(context);
        self.flush(context);
        self.publish_due(context);
    }

    /// Appends messages of an earlier connection, as many as the peer accepts now. Gives up those
    /// that are beyond a limit of this connection.
    fn send_again(&mut self, context: &mut Context) {
        let population = usize::from(self.population);
        let Context { setup, tally, outboxes, out, scratch, now_ns, .. } = context;
        let sender = sender(setup, population, setup.shard.global(self.local));
        let responds = setup.plan.populations[population].responds;
        let answer = |token: Token| {
            outboxes.in_flight(self.index, token.answer()?, responds?).map(Resent::Answer)
        };
        let message = |token: Token| {
            Resent::Message(outgoing(setup, (population, token.publication()), &sender))
        };
        let of = |token| answer(token).unwrap_or_else(|| message(token));
        let (at, mut refused) = (at(self, setup, *now_ns), Vec::new());
        let request = Request::Resend(Resend { of: &of, refused: &mut refused });
        if let Polled::Sent(again) = self.session.poll(&at, request, Buffers { out, scratch }) {
            let counters = &mut tally.populations[population].counters;
            counters.resent_total += again.packets;
            counters.packets_sent_total += again.packets;
        }
        for (token, reason) in refused {
            let tally = &mut context.tally.populations[population];
            tally.outcome(reason);
            tally.counters.abandoned_total += 1;
            self.end_flight(context, &token);
        }
    }

    /// Counts all messages in flight as given up; there are `dropped`.
    pub(super) fn abandon(&mut self, context: &mut Context, dropped: u64) {
        if dropped > 0 {
            self.publications.iter_mut().for_each(Progress::forget_in_flight);
            context.outboxes.forget_in_flight(self.index);
            let tally = &mut context.tally.populations[usize::from(self.population)];
            tally.counters.abandoned_total += dropped;
            tally.gauges.in_flight -= dropped;
        }
    }

    /// Messages scheduled before `until_ns` that are neither sent nor skipped, up to the number of
    /// messages of the stage; 0 for an inactive client.
    pub fn backlog(&self, context: &Context, until_ns: u64) -> u64 {
        let Some(publishing) = &context.publishing else { return 0 };
        let is_there = match self.phase {
            ClientPhase::Idle | ClientPhase::Offline => false,
            ClientPhase::Leaving(then) => then == Then::Connect,
            _ => true,
        };
        if !publishing.populations[self.population()] || !is_there {
            return 0;
        }
        let until_ns = until_ns.min(publishing.end_ns);
        let elapsed_ns = publishing.schedule_before(self.population(), until_ns);
        let ready = &context.setup.populations[self.population()].publications;
        let of = |(progress, ready): (&Progress, &PublicationSetup)| {
            let client = self.global(context);
            let due = |pacer: &Pacer| pacer.count_before(client, progress.place, elapsed_ns);
            ready.pacer.as_ref().map_or(0, due)
        };
        let due = self.publications.iter().zip(ready).map(of).sum::<u64>();
        due.min(self.left(context))
    }

    /// Ends the schedule of a publish stage: counts the messages that remain as skipped.
    fn skip_rest(&mut self, context: &mut Context) {
        let skipped = self.backlog(context, u64::MAX);
        context.tally.populations[self.population()].counters.skipped_total += skipped;
        self.end_holds(context);
        self.schedule_nothing();
    }

    /// Forgets the instant of the next message, which only a ready client has.
    fn schedule_nothing(&mut self) {
        self.retime = true;
        if self.phase == ClientPhase::Ready {
            self.next_due_ns = u64::MAX;
        }
    }

    /// Ends the waits for the Receive Maximum of the broker, and counts the time in which the
    /// broker has blocked messages.
    pub(super) fn end_holds(&mut self, context: &mut Context) {
        let tally = &mut context.tally.populations[usize::from(self.population)];
        tally.counters.blocked_ns += self.session.blocked_ns(context.now_ns);
        self.publications.iter_mut().for_each(|each| each.end_hold(context.now_ns, tally));
    }

    /// Sets the number of the next message, as if the earlier messages had been sent.
    pub fn set_next_number(&mut self, number: u64) {
        for progress in &mut self.publications {
            (progress.sent, progress.balanced) = (number, number);
        }
    }

    /// Adds the messages that are sent and not balanced to `batches`.
    pub fn take_sent(&mut self, setup: &Setup, batches: &mut Vec<Batch>) {
        let (population, client) = (self.population(), setup.shard.global(self.local));
        for (publication, progress) in self.publications.iter_mut().enumerate() {
            let numbers = std::mem::replace(&mut progress.balanced, progress.sent)..progress.sent;
            if !numbers.is_empty() {
                batches.push(Batch { population, client, publication, numbers, variant: 0 });
            }
        }
    }
}

/// Counts a message of a publication.
#[inline]
fn count_sent(counters: &mut Counters, publication: &Publication) {
    counters.sent_total += 1;
    counters.packets_sent_total += 1;
    counters.requests_total += u64::from(publication.request);
}

fn sender(setup: &Setup, population: usize, client: u32) -> Sender {
    Sender {
        run_tag: setup.plan.run_tag,
        since_1970_ns: setup.since_1970_ns,
        first_sequence: setup.incarnation * INCARNATION_PLACES,
        client,
        n: setup.plan.populations[population].first + u64::from(client),
        node_number: 0,
    }
}

/// One of the publications of a population, for messages of `sender`.
#[inline]
fn outgoing<'a>(
    setup: &'a Setup,
    (population, publication): (usize, usize),
    sender: &'a Sender,
) -> Outgoing<'a> {
    let (publication, ready) = self::publication(setup, (population, publication));
    Outgoing { publication, ready, sender }
}

/// One of the publications of a population, and the same as prepared at the start.
#[inline]
fn publication(
    setup: &Setup,
    (population, index): (usize, usize),
) -> (&Publication, &PublicationSetup) {
    let ready = &setup.populations[population].publications[index];
    (&setup.plan.populations[population].publications[index], ready)
}
