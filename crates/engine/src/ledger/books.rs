//! Deliveries of one read: each is looked up, noted in the ledger, classified and counted. Nearly
//! all are plain. Plain deliveries of one stream that follow each other are counted together.

use agent::ledger::{Delivery, Ledger};
use agent::tally::{Tally, is_received};
use plan::{Expected, Stamp, StreamId, Ways};

use super::classify::{Effects, Facts, Noted, classify};
use super::origin::Origin;
use super::receiver::Receiver;
use super::run::DeliveryRun;
use crate::context::Context;
use crate::expectations::retained::RetainedMessages;
use crate::expectations::{Absence, Expectations, Unstamped};
use crate::schedule::publishing::Publishing;
use crate::seam::received::{BESIDE, CARRIED, Inbox, Next, ORDERED, RETAINED, Received};
use crate::setup::Setup;
use crate::sparkplug::{SparkplugClients, SparkplugNote};

/// The books of one receiver during one read.
pub struct Books<'c> {
    setup: &'c Setup,
    tally: &'c mut Tally,
    ledger: &'c mut Ledger,
    expectations: &'c mut Expectations,
    retained: &'c RetainedMessages,
    sparkplug: &'c mut SparkplugClients,
    publishing: Option<&'c Publishing>,
    receiver: Receiver,
    now_ns: u64,
    /// Messages that were sent earlier waited in the queue of the receiver; 0: it had none.
    queued_before_ns: u64,
    /// Messages that were taken, and those that the read rate allows.
    taken: u64,
    allowed: u64,
    /// Stream and publisher of the last delivery, if the delivery was plain.
    last: Option<(StreamId, usize)>,
    /// `true` while `run` has deliveries.
    is_open: bool,
    run: &'c mut DeliveryRun,
}

impl Inbox for Books<'_> {
    #[inline]
    fn take(&mut self, message: &Received<'_>) -> Next {
        self.taken += 1;
        let is_watched = (message.marks | CARRIED) & self.receiver.watched != 0;
        let stamp = self.setup.origins.stamp_at_start(message.payload);
        let asks = match stamp.filter(|stamp| !is_watched && stamp.stream.of_requests().is_none()) {
            Some(stamp) if self.continues(&stamp) => false,
            Some(stamp) => match self.setup.origins.publisher(&stamp) {
                Some(from) => {
                    self.delivered(message, &stamp, from);
                    false
                }
                None => self.take_rest(message),
            },
            None => self.take_rest(message),
        };
        match asks {
            true => Next::Answer,
            false if self.taken == self.allowed => Next::Pause,
            false => Next::More,
        }
    }
}

impl<'c> Books<'c> {
    /// Books of a receiver that may take `allowed` messages now, the setup, and the buffer for
    /// replies.
    #[inline]
    pub fn new(
        context: &'c mut Context,
        receiver: Receiver,
        allowed: u64,
    ) -> (Self, &'c Setup, &'c mut Vec<u8>) {
        let Context { setup, tally, ledger, expectations, retained, sparkplug, .. } = context;
        let books = Self {
            setup,
            tally,
            ledger,
            expectations,
            retained,
            sparkplug,
            publishing: context.publishing.as_ref(),
            receiver,
            now_ns: context.now_ns,
            queued_before_ns: context
                .returned
                .queued_before_ns(receiver.population, receiver.local),
            taken: 0,
            allowed,
            last: None,
            is_open: false,
            run: &mut context.run,
        };
        (books, setup, &mut context.out)
    }

    /// Counts what is not counted yet. Returns the number of messages that were taken.
    #[inline]
    pub fn finish(&mut self) -> u64 {
        self.close_run();
        self.taken
    }

    /// Counts a message of this run: notes it in the ledger, classifies it and applies the effects.
    #[inline]
    fn delivered(&mut self, message: &Received<'_>, stamp: &Stamp, from: usize) {
        self.close_run();
        let noted = self.note(message, stamp);
        let Receiver { population: to, index, .. } = self.receiver;
        if noted != Noted::PLAIN || !self.expectations.is_simple(to) {
            self.last = None;
            let facts = self.facts(message, stamp, &noted);
            return self.apply(&classify(&noted, &facts), stamp, from);
        }
        self.last = Some((stamp.stream, from));
        let counters = self.tally.note_received((from, to), index, stamp, self.now_ns);
        counters.expected_total += i64::from(!self.expectations.counts_loss(to));
        if self.was_queued(stamp) {
            self.tally.note_queued((from, to), stamp, self.now_ns);
        }
    }

    /// Returns `true` if a message was sent before its receiver returned to its session.
    #[inline]
    fn was_queued(&self, stamp: &Stamp) -> bool {
        self.queued_before_ns > 0 && stamp.actual_ns() < self.queued_before_ns
    }

    /// Notes a message in the windows of its receiver, of its copies and of its group.
    #[inline]
    fn note(&mut self, message: &Received<'_>, stamp: &Stamp) -> Noted {
        let Self { setup, ledger, expectations, .. } = self;
        let Stamp { stream, sequence, .. } = *stamp;
        let Receiver { population: to, index, local, .. } = self.receiver;
        let client = setup.shard.global(local);
        if message.marks & ORDERED != 0 {
            let window = ledger.follow(index, stream, sequence);
            let delivery = window.map_or(Delivery::Unfollowed, |window| window.note(sequence));
            let expected = Expected::Client;
            return Noted { delivery, expected, copy_is_new: None, in_group: None };
        }
        let ways = || {
            if expectations.is_simple(to) {
                return Ways::ONE;
            }
            let topic = message.beside.topic().unwrap_or_default();
            expectations.ways(to, client, topic, setup.target(to, client))
        };
        let (delivery, expected) = ledger.note_ways(index, stream, sequence, ways);
        let is_beside = message.marks & self.receiver.watched & BESIDE != 0;
        let identifier = is_beside.then(|| message.beside.carried().identifier).flatten();
        let own = &setup.populations[to];
        let mut is_new = |copy| {
            let window = ledger.follow_copy(index, stream, sequence, copy);
            window.is_some_and(|w| w.note(sequence) != Delivery::Duplicate)
        };
        let copy = is_beside.then(|| own.copy_of(identifier, 0)).flatten();
        let mut copy_is_new = copy.map(&mut is_new);
        if delivery == Delivery::Duplicate && copy_is_new != Some(true) {
            // The broker may send a copy for each filter, with its identifier if it has one.
            let is_meant = |other| !own.distinguishes_copies() || other == identifier;
            let topic = message.beside.topic().unwrap_or_default();
            let copies = expectations.copies((to, client), topic, is_meant);
            let numbers = (0..copies).filter_map(|place| own.copy_of(identifier, place));
            copy_is_new = numbers.map(is_new).find(|is_new| *is_new).or(copy_is_new);
        }
        let in_group = match expected {
            Expected::Group { group, .. } if delivery != Delivery::Duplicate => {
                let member = setup.group_at(usize::from(group), setup.target(to, client));
                Some(ledger.note_group(member, stream, sequence))
            }
            _ => None,
        };
        Noted { delivery, expected, copy_is_new, in_group }
    }

    #[inline]
    fn facts(&self, message: &Received<'_>, stamp: &Stamp, noted: &Noted) -> Facts {
        let to = self.receiver.population;
        let client = self.setup.shard.global(self.receiver.local);
        let (absence, group_counts_loss) = match noted.expected {
            Expected::Group { population, .. } => {
                (None, self.expectations.counts_loss(usize::from(population)))
            }
            Expected::Client | Expected::Nothing => {
                (self.expectations.absence(to, client, stamp), false)
            }
        };
        let (mut absence, mut expiry_left_s) = (absence, None);
        if let Some(Absence::Now { is_expired, .. }) = &mut absence {
            match self.may_be_carried(message) {
                true => *is_expired = false,
                false => expiry_left_s = message.beside.carried().expiry_s,
            }
        }
        let counts_loss = self.expectations.counts_loss(to);
        Facts { to, counts_loss, group_counts_loss, absence, expiry_left_s }
    }

    /// Returns `true` if the program of a flow may have published a message: the expiry is that of
    /// the program.
    fn may_be_carried(&self, message: &Received<'_>) -> bool {
        let Receiver { population: to, local, .. } = self.receiver;
        let plan = &self.setup.plan;
        !plan.flows.is_empty()
            && message.beside.topic().is_some_and(|topic| {
                let names = plan.populations[to].capabilities().names;
                let target = self.setup.target(to, self.setup.shard.global(local));
                plan.is_carried_to(names, target, topic)
            })
    }

    /// Returns `true` for a message of another target, if no flow gives it its name here: a program
    /// has put the payload of one message under the name of another.
    fn is_misnamed(&self, message: &Received<'_>, stamp: &Stamp, from: usize) -> bool {
        let Receiver { population: to, local, watched, .. } = self.receiver;
        let Stamp { stream, .. } = *stamp;
        let (setup, plan) = (self.setup, &self.setup.plan);
        let target = setup.target(to, setup.shard.global(local));
        if watched & CARRIED == 0 || setup.target(from, stream.client) == target {
            return false;
        }
        let before = plan.populations[..from].iter().map(|own| own.publications.len());
        let publication = usize::from(stream.publication) - before.sum::<usize>();
        let origin = plan.origin((from, stream.client), publication, stream.variant.into());
        let place = (plan.populations[to].capabilities().names, target);
        !message.beside.topic().is_some_and(|topic| plan.is_carried_as(origin, place, topic))
    }

    /// Counts the effects of a delivery that is not plain.
    #[inline(never)]
    fn apply(&mut self, effects: &Effects, stamp: &Stamp, from: usize) {
        let Receiver { population: to, index, .. } = self.receiver;
        let tally = &mut *self.tally;
        tally.unfollowed_total += u64::from(effects.unfollowed);
        tally.populations[to].counters.expiry_reduced_total += u64::from(effects.expiry_reduced);
        if let Some(other) = effects.less {
            tally.flow(from, other).counters.expected_total -= 1;
        }
        let counters = match effects.received {
            true => tally.note_received((from, to), index, stamp, self.now_ns),
            false => &mut tally.flow(from, to).counters,
        };
        effects.add_to(counters);
        if effects.received && self.was_queued(stamp) {
            self.tally.note_queued((from, to), stamp, self.now_ns);
        }
    }

    /// Notes a delivery that is plain because the last one was, and the next place of its stream
    /// follows. Returns `false` and notes nothing for others.
    #[inline]
    fn continues(&mut self, stamp: &Stamp) -> bool {
        let Some((stream, from)) = self.last.filter(|(stream, _)| *stream == stamp.stream) else {
            return false;
        };
        let to = self.receiver.population;
        // The messages of a stream follow each other: after a live one, none was queued.
        let is_open = self.is_open || !self.was_queued(stamp) && self.open_run(stream);
        is_open && self.run.note(stamp, self.now_ns, || self.tally.flow(from, to))
    }

    /// Begins to count deliveries of a stream together. Returns `false` for streams of which some
    /// deliveries may not be plain although they come in order.
    #[inline(never)]
    fn open_run(&mut self, stream: StreamId) -> bool {
        let Receiver { population, index, .. } = self.receiver;
        let is_simple = self.expectations.is_simple(population);
        if let Some(window) = self.ledger.lift(index, stream).filter(|_| is_simple) {
            self.run.begin(window);
            self.is_open = true;
        }
        self.is_open
    }

    /// Counts the deliveries of a run, and puts its window back.
    #[inline]
    fn close_run(&mut self) {
        if std::mem::take(&mut self.is_open)
            && let Some(last) = self.last
        {
            self.count_run(last);
        }
    }

    #[inline(never)]
    fn count_run(&mut self, (stream, from): (StreamId, usize)) {
        let Receiver { population: to, index, .. } = self.receiver;
        let counts_loss = self.expectations.counts_loss(to);
        let count = self.run.count();
        let flow = self.tally.note_run((from, to), index, count);
        flow.counters.expected_total += i64::from(count) * i64::from(!counts_loss);
        self.ledger.put_back(index, stream, self.run.end(flow));
    }

    /// Takes a message that is watched, or has no stamp at its start. Returns `true` if the client
    /// answers the message.
    #[inline(never)]
    fn take_rest(&mut self, message: &Received<'_>) -> bool {
        self.close_run();
        self.last = None;
        let to = self.receiver.population;
        let origin = self.setup.origins.of(message);
        if message.marks & RETAINED != 0 && !self.is_forwarded(origin.as_ref()) {
            self.tally.populations[to].counters.retained_total += 1;
            if let Some(Origin::Message(stamp, from)) = origin {
                self.check_expiry(message, &stamp, from);
            }
            return false;
        }
        let mut note = SparkplugNote::default();
        if self.sparkplug.is_played() {
            let counts = (self.setup, &mut *self.tally);
            note = self.sparkplug.note(counts, self.receiver, message, self.now_ns);
        }
        match origin {
            _ if note.is_whole => return note.asks,
            Some(Origin::Message(stamp, from)) if self.is_misnamed(message, &stamp, from) => {
                self.delivered_unstamped(message);
            }
            Some(Origin::Message(stamp, from)) => self.delivered(message, &stamp, from),
            Some(Origin::Answer(stamp, from)) => self.answered(&stamp, from),
            Some(Origin::OtherRun) => self.tally.populations[to].counters.foreign_total += 1,
            None => self.delivered_unstamped(message),
        }
        let responds = self.setup.plan.populations[to].responds.is_some();
        let is_request = || message.beside.carried().response.is_some();
        note.asks || responds && message.marks & BESIDE != 0 && is_request()
    }

    /// Counts a message with RETAIN that the broker forwards as published, which takes part in the
    /// ledger. Returns `false` for a message that the broker has kept, or may have kept.
    fn is_forwarded(&mut self, origin: Option<&Origin>) -> bool {
        let Some(Origin::Message(stamp, _) | Origin::Answer(stamp, _)) = origin else {
            return false;
        };
        let Receiver { population, local, .. } = self.receiver;
        let is_forwarded = self.retained.is_forwarded(population, local, stamp.actual_ns());
        let counters = &mut self.tally.populations[population].counters;
        counters.retained_as_published_total += u64::from(is_forwarded);
        is_forwarded
    }

    /// Checks the expiry of a message of population `from` that the broker has kept. A bridge may
    /// speak another version, and the program of a flow has an expiry of its own or none, so a
    /// message that has crossed one is not checked.
    fn check_expiry(&mut self, message: &Received<'_>, stamp: &Stamp, from: usize) {
        let Receiver { population: to, local, .. } = self.receiver;
        let setup = self.setup;
        let has_crossed = !setup.plan.bridges.is_empty()
            && setup.target(from, stamp.stream.client)
                != setup.target(to, setup.shard.global(local));
        if has_crossed || self.may_be_carried(message) {
            return;
        }
        let left_s = || message.beside.carried().expiry_s;
        let checked = self.retained.check_expiry((to, local), stamp, left_s, self.now_ns);
        let Some(checked) = checked else { return };
        let tally = &mut self.tally.populations[to];
        tally.counters.expiries_checked_total += 1;
        if let Err(reason) = checked {
            tally.counters.expiry_violations_total += 1;
            tally.outcome(reason);
        }
    }

    /// Counts a message that carries no stamp of this run.
    fn delivered_unstamped(&mut self, message: &Received<'_>) {
        let Receiver { population: to, index, local, .. } = self.receiver;
        let client = self.setup.shard.global(local);
        let delivery = Unstamped {
            to,
            index,
            client,
            target: self.setup.target(to, client),
            topic: message.beside.topic(),
            payload: message.payload,
            now_ns: self.now_ns,
        };
        self.expectations.note_unstamped(self.setup, self.tally, &delivery);
    }

    /// Counts an answer to the request with this stamp, which population `from` has sent.
    fn answered(&mut self, stamp: &Stamp, from: usize) {
        let Receiver { population: to, index, local, .. } = self.receiver;
        let Self { setup, tally, ledger, expectations, now_ns, .. } = self;
        if (from, stamp.stream.client) != (to, setup.shard.global(local)) {
            tally.populations[to].counters.answers_of_others_total += 1;
            return;
        }
        let (responding, epoch) = expectations.answers_to(to);
        let counts_loss = expectations.counts_answers(to);
        let stream = StreamId { client: epoch, ..stamp.stream.of_answers() };
        let ways = || expectations.ways_of_answers(setup, to, &stamp.stream);
        let (delivery, _) = ledger.note_ways(index, stream, stamp.sequence, ways);
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
        let is_late = self.publishing.is_none_or(|stage| stamp.intended_ns < stage.start_ns);
        answers.answered_total += 1;
        answers.answers_expected_total += i64::from(!counts_loss);
        answers.answers_late_total += i64::from(is_late);
        let round_trip_ns = now_ns.wrapping_sub(stamp.intended_ns).cast_signed();
        let population = &mut tally.populations[to];
        population.round_trip.record(round_trip_ns);
        population.round_trip_delays.record(round_trip_ns, stamp.intended_ns, stamp.sent);
    }
}

#[cfg(test)]
mod tests;
