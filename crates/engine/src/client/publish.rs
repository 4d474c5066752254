//! What a client sends: which messages are due, their encoding with stamp, one write for all that
//! are due together, and sending again after a reconnect.

use agent::publication::{self, PublicationSetup};
use mqtt::{PublishHeader, QoS, Version, encode_publish_header};
use plan::{INCARNATION_PLACES, Pacer, Payload, Publication, payload_bytes};

use super::{Client, Phase, Then};
use crate::balance::Batch;
use crate::shared::Shared;

/// Bytes that a client writes in one turn at most, before others have theirs.
const TURN_BYTES: usize = 64 * 1024;

/// How far a client has got with one publication.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    /// Messages of this stage's schedule that are sent or skipped.
    scheduled: u64,
    /// Messages sent in the whole run, the next one's number.
    sent: u64,
    /// Messages sent up to the last balance of the ledger.
    balanced: u64,
    in_flight: u16,
    /// Its window is full, or no packet id is free.
    waits: bool,
}

/// A message in flight: what it takes to make the same bytes again.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    intended_ns: u64,
    actual_ns: u64,
    /// Index of the publication in its population, above [`NUMBER_BITS`] of the number.
    place: u64,
}

/// Bits for the number of a message among those of its client and publication: 89 years at 100,000
/// messages a second.
const NUMBER_BITS: u32 = 48;

/// Who sends a message, and how it is written.
#[derive(Clone, Copy)]
struct Sender {
    version: Version,
    who: publication::Sender,
}

impl Progress {
    /// Messages sent in the whole run.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// What was in flight is given up.
    pub const fn forget_in_flight(&mut self) {
        self.in_flight = 0;
        self.waits = false;
    }
}

impl Client {
    /// Starts the schedule of a publish stage.
    pub fn begin_publishing(&mut self, shared: &mut Shared) {
        self.publications.iter_mut().for_each(|progress| progress.scheduled = 0);
        self.publish_due(shared);
    }

    /// Starts its life and its schedule in the middle of a publish stage: what was due before
    /// `at_ns` is not its own. A client that is connected, or tries to be, stays as it is.
    pub fn join(&mut self, shared: &mut Shared, at_ns: u64) {
        if !self.phase.is_gone() || self.phase == Phase::Leaving(Then::Connect) {
            return;
        }
        if let Some(publishing) = &shared.publishing {
            let passed_ns = publishing.schedule_before(self.population(), at_ns);
            let client = self.global(shared);
            let ready = &shared.setup.populations[self.population()].publications;
            for (progress, ready) in self.publications.iter_mut().zip(ready) {
                let due = ready.pacer.as_ref().map(|pacer| pacer.due_before(client, passed_ns));
                progress.scheduled = due.unwrap_or(0);
            }
        }
        self.begin(shared);
    }

    /// Ends its schedule at `at_ns`, in the middle of a publish stage, and disconnects, as a device
    /// that is switched off: what is in flight is given up with its session.
    pub fn leave(&mut self, shared: &mut Shared, at_ns: u64) {
        self.end_schedule(shared, at_ns);
        self.end(shared);
    }

    /// Its life was over at `at_ns`: it leaves, and may come back.
    pub fn go_away(&mut self, shared: &mut Shared, at_ns: u64) {
        self.end_schedule(shared, at_ns);
        self.depart(shared, Then::Return);
        shared.tally.populations[self.population()].counters.left_total += 1;
        shared.lifetimes.go(self.population(), self.local, at_ns);
    }

    /// Sends what was due before `at_ns`, where a publish stage is on, and skips what could not be
    /// sent.
    fn end_schedule(&mut self, shared: &mut Shared, at_ns: u64) {
        if let Some(end_ns) = shared.publishing.as_ref().map(|publishing| publishing.end_ns) {
            let end_at = |shared: &mut Shared, end_ns| {
                shared.publishing.iter_mut().for_each(|publishing| publishing.end_ns = end_ns);
            };
            end_at(shared, at_ns.min(end_ns));
            self.publish_due(shared);
            self.skip_rest(shared);
            end_at(shared, end_ns);
        }
    }

    /// Sends all that is due now, in one write, and notes when the next message is due.
    pub fn publish_due(&mut self, shared: &mut Shared) {
        self.next_due_ns = u64::MAX;
        self.retime = true;
        let publishing = shared.publishing.as_ref();
        let takes_part = publishing.is_some_and(|p| p.populations[self.population()]);
        if !takes_part || self.phase != Phase::Ready || self.unsent.is_some() {
            return;
        }
        shared.now_ns = shared.host.now_ns();
        shared.out.clear();
        for index in 0..self.publications.len() {
            self.publish_turn(shared, index);
        }
        self.flush(shared);
        if self.unsent.is_some() {
            self.next_due_ns = u64::MAX;
        }
    }

    /// Appends the due messages of one publication to `shared.out`.
    fn publish_turn(&mut self, shared: &mut Shared, index: usize) {
        let population = usize::from(self.population);
        let Shared { setup, tally, out, text, publishing, now_ns, .. } = shared;
        let (Some(publishing), Some(session)) = (publishing, self.session.mqtt()) else { return };
        let (now_ns, publication) =
            (*now_ns, &setup.plan.populations[population].publications[index]);
        let ready = &setup.populations[population].publications[index];
        let qos = QoS::try_from(publication.qos).expect("the plan's check allows 0, 1 and 2");
        let sender = sender(setup, population, setup.shard.global(self.local));
        let tempo = &publishing.tempos[population];
        let progress = &mut self.publications[index];
        loop {
            let due_ns = match &ready.pacer {
                Some(pacer) => {
                    let after = pacer.due_ns(sender.who.client, progress.scheduled);
                    publishing.start_ns.saturating_add(tempo.real_ns(after))
                }
                None if tempo.factor() == 0.0 => return,
                None => now_ns.max(publishing.start_ns),
            };
            if due_ns >= publishing.end_ns {
                return;
            }
            progress.waits = qos != QoS::AtMostOnce && progress.in_flight >= publication.window;
            let is_later = due_ns > now_ns || due_ns >= publishing.horizon_ns;
            if is_later || out.len() >= TURN_BYTES {
                self.next_due_ns = self.next_due_ns.min(due_ns);
                return;
            }
            if progress.waits {
                return;
            }
            let counters = &mut tally.populations[population].counters;
            let late_ns = now_ns - due_ns;
            let too_late = |pacer: &Pacer| {
                late_ns as f64 * tempo.factor() > pacer.period_ns(sender.who.client)
            };
            if ready.skips_late && ready.pacer.as_ref().is_some_and(too_late) {
                progress.scheduled += 1;
                counters.skipped_total += 1;
                continue;
            }
            let message = Message {
                intended_ns: due_ns,
                actual_ns: now_ns,
                place: (index as u64) << NUMBER_BITS | progress.sent,
            };
            let Some(packet_id) = session.publish(qos, message) else {
                progress.waits = true;
                return;
            };
            progress.scheduled += 1;
            if ready.pacer.is_some() {
                let held_up = due_ns < self.free_since_ns;
                let lateness = if held_up { &mut tally.blocked } else { &mut tally.lateness };
                lateness.record(late_ns.cast_signed());
            }
            message.append(publication, ready, &sender, (packet_id, false), (out, text));
            progress.sent += 1;
            counters.sent_total += 1;
            counters.packets_sent_total += 1;
            if qos != QoS::AtMostOnce {
                progress.in_flight += 1;
                tally.populations[population].gauges.in_flight += 1;
            }
        }
    }

    /// An acknowledgement has come; says whether a held-up publication can go on.
    pub fn acknowledged(&mut self, shared: &mut Shared, message: &Message) -> bool {
        let tally = &mut shared.tally.populations[usize::from(self.population)];
        tally.counters.acked_total += 1;
        tally.gauges.in_flight -= 1;
        let now_ns = shared.now_ns.cast_signed();
        tally.ack_intended.record(now_ns - message.intended_ns.cast_signed());
        tally.ack_actual.record(now_ns - message.actual_ns.cast_signed());
        self.publications[message.publication()].in_flight -= 1;
        // A publication may wait for a packet id that another one has held.
        let publications =
            &shared.setup.plan.populations[usize::from(self.population)].publications;
        let can_go_on = |(progress, publication): (&Progress, &Publication)| {
            progress.waits && progress.in_flight < publication.window
        };
        let goes_on = self.publications.iter().zip(publications).any(can_go_on);
        if goes_on {
            self.free_since_ns = shared.now_ns;
        }
        goes_on
    }

    /// Sends what a persistent session still has in flight, then what has become due.
    pub fn retransmit(&mut self, shared: &mut Shared) {
        let population = usize::from(self.population);
        let Shared { setup, tally, out, text, .. } = shared;
        let sender = sender(setup, population, setup.shard.global(self.local));
        let again = |message: Message, packet_id: u16, out: &mut Vec<u8>| {
            let index = message.publication();
            let publication = &setup.plan.populations[population].publications[index];
            let ready = &setup.populations[population].publications[index];
            message.append(publication, ready, &sender, (packet_id, true), (out, text));
        };
        let Some(session) = self.session.mqtt() else { return };
        let resent = session.retransmit(sender.version, out, again) as u64;
        let counters = &mut tally.populations[population].counters;
        counters.resent_total += resent;
        counters.packets_sent_total += resent;
        self.flush(shared);
        self.publish_due(shared);
    }

    /// Messages due before `until_ns` that are neither sent nor skipped. A client that is not there
    /// has none.
    pub fn backlog(&self, shared: &Shared, until_ns: u64) -> u64 {
        let Some(publishing) = &shared.publishing else { return 0 };
        let is_there = match self.phase {
            Phase::Idle | Phase::Away => false,
            Phase::Leaving(then) => then == Then::Connect,
            _ => true,
        };
        if !publishing.populations[self.population()] || !is_there {
            return 0;
        }
        let until_ns = until_ns.min(publishing.end_ns);
        let elapsed_ns = publishing.schedule_before(self.population(), until_ns);
        let ready = &shared.setup.populations[self.population()].publications;
        let of = |(progress, ready): (&Progress, &PublicationSetup)| {
            let due = |pacer: &Pacer| pacer.due_before(self.global(shared), elapsed_ns);
            let due = ready.pacer.as_ref().map_or(0, due);
            due.saturating_sub(progress.scheduled)
        };
        self.publications.iter().zip(ready).map(of).sum()
    }

    /// Ends the schedule of a publish stage: counts what is still due as skipped.
    pub fn skip_rest(&mut self, shared: &mut Shared) {
        let skipped = self.backlog(shared, u64::MAX);
        shared.tally.populations[self.population()].counters.skipped_total += skipped;
        self.next_due_ns = u64::MAX;
        self.retime = true;
    }

    /// Sets the number of the next message, as if those before had been sent.
    #[cfg(test)]
    pub fn set_next_number(&mut self, number: u64) {
        for progress in &mut self.publications {
            (progress.sent, progress.balanced) = (number, number);
        }
    }

    /// Adds the messages that are sent and not balanced to `batches`.
    pub fn take_sent(&mut self, shared: &Shared, batches: &mut Vec<Batch>) {
        let (population, client) = (self.population(), shared.setup.shard.global(self.local));
        for (publication, progress) in self.publications.iter_mut().enumerate() {
            let numbers = std::mem::replace(&mut progress.balanced, progress.sent)..progress.sent;
            if !numbers.is_empty() {
                batches.push(Batch { population, client, publication, numbers, variant: 0 });
            }
        }
    }
}

fn sender(setup: &crate::setup::Setup, population: usize, client: u32) -> Sender {
    let plan = &setup.plan.populations[population];
    let who = publication::Sender {
        run_tag: setup.plan.run_tag,
        since_1970_ns: setup.since_1970_ns,
        first_sequence: setup.incarnation * INCARNATION_PLACES,
        client,
        n: plan.first + u64::from(client),
    };
    Sender { version: crate::shared::wire_version(plan.version), who }
}

impl Message {
    /// Appends its PUBLISH to `out`; a text is made in `text` first, since its size stands in front
    /// of it. `delivery` is packet id and DUP.
    fn append(
        &self,
        publication: &Publication,
        ready: &PublicationSetup,
        sender: &Sender,
        (packet_id, dup): (u16, bool),
        (out, text): (&mut Vec<u8>, &mut Vec<u8>),
    ) {
        let who = &sender.who;
        let variant = ready.variants.of(who.client, self.number());
        let bytes = match &publication.payload {
            Payload::Text { template, .. } => {
                text.clear();
                let facts = ready.facts(who, self.moment(), variant);
                template.render_message(who.n, variant, &facts, text);
                text.len()
            }
            payload => {
                let sizes = ready.sizes.of(u64::from(who.client));
                payload_bytes(payload, sizes, self.number()).unwrap_or(0)
            }
        };
        let header = PublishHeader {
            dup,
            qos: QoS::try_from(publication.qos).expect("the plan's check allows 0, 1 and 2"),
            retain: publication.retain,
            packet_id,
        };
        let topic_bytes = publication.topic.rendered_bytes(who.n, variant);
        encode_publish_header(sender.version, &header, topic_bytes, bytes, out, |out| {
            publication.topic.render(who.n, variant, out);
        })
        .expect("the plan's check bounds topics and payloads");
        if matches!(publication.payload, Payload::Text { .. }) {
            out.extend_from_slice(text);
            return;
        }
        let end = out.len() + bytes;
        if ready.stamped {
            out.extend_from_slice(&ready.stamp(who, self.moment(), variant).to_bytes());
        }
        out.resize(end, b'.');
    }

    const fn moment(&self) -> publication::Moment {
        let Self { intended_ns, actual_ns, .. } = *self;
        publication::Moment { number: self.number(), intended_ns, actual_ns }
    }

    const fn number(&self) -> u64 {
        self.place & ((1 << NUMBER_BITS) - 1)
    }

    const fn publication(&self) -> usize {
        (self.place >> NUMBER_BITS) as usize
    }
}
