//! Reading of a client: bytes from the socket, events of the protocol, deliveries into the ledger,
//! at the read rate.

use agent::ledger::Delivery;
use plan::{Expected, Reason, Stamp};

use super::{Client, Phase, identity_of};
use crate::context::Context;
use crate::expectations::Unstamped;
use crate::ledger::classify::{Effects, Facts, Noted, classify};
use crate::protocol::{Event, Message, Reading, Step};
use crate::schedule::read_rate::ReadRate;
use crate::setup::origin::Origin;
use crate::transport::{Halt, Stream};

/// Bytes that a client reads in one time slice at most.
const SLICE_BYTES: usize = 256 * 1024;

/// Bytes that a read counts for at least.
const READ_BYTES_MIN: usize = 512;

/// Length of a period as a power of two: 1.07 s. The client requests delayed acknowledgements once
/// in a period at most, because the kernel ends the delay by itself after a pause of the peer.
const ACKS_SHIFT: u32 = 30;

/// The number of a period, modulo 256.
pub(super) const fn acks_period(now_ns: u64) -> u8 {
    (now_ns >> ACKS_SHIFT) as u8
}

impl Client {
    /// Handles bytes in the socket, unless too many replies wait for room: then the peer's own
    /// bytes wait too, until it reads. `ended`: the peer has closed its side.
    pub fn readable(&mut self, context: &mut Context, ended: bool) {
        self.ended |= ended;
        if let Some(stream) = &mut self.stream {
            stream.wake(self.ended);
        }
        if self.phase == Phase::Connecting {
            // The rest of the handshake. A client that waits for TCP waits for room to write.
            if self.stream.as_ref().is_some_and(Stream::has_handshake) {
                self.establish(context);
            }
            // No further news comes of bytes, or of the end, behind the handshake.
            if self.phase != Phase::Greeting {
                return;
            }
        }
        if self.phase.is_leaving() {
            return self.discard(context);
        }
        if !self.unread.is_empty() && !self.paused {
            self.handle_unread(context);
        }
        let mut budget = SLICE_BYTES;
        let mut buffer = std::mem::take(&mut context.read_buffer);
        while !self.paused && !self.unsent.as_ref().is_some_and(|unsent| unsent.is_full()) {
            let connecting = !self.phase.is_accepted();
            let Some(stream) = &mut self.stream else { break };
            let read = stream.read(&mut buffer, connecting, &mut context.framing);
            if read == Err(Halt::Later) {
                break;
            }
            context.now_ns = context.host.now_ns();
            match read {
                Ok(count) => {
                    if count > 0 {
                        self.handle_bytes(context, &buffer[..count]);
                    }
                    budget = budget.saturating_sub(count.max(READ_BYTES_MIN));
                    if budget == 0 {
                        self.read_again(context);
                        break;
                    }
                }
                Err(Halt::Later) => break,
                Err(Halt::Lost(reason)) => self.lost(context, reason),
            }
        }
        context.read_buffer = buffer;
        self.count_frames(context);
    }

    /// Counts the control frames that have arrived.
    pub(super) fn count_frames(&self, context: &mut Context) {
        let framing = &mut context.framing;
        let (pings, pongs) =
            (std::mem::take(&mut framing.pings), std::mem::take(&mut framing.pongs));
        if pings | pongs > 0 {
            let counters = &mut context.tally.populations[self.population()].counters;
            counters.websocket_pings_total += pings;
            counters.websocket_pongs_total += pongs;
        }
    }

    /// Leaves the rest to a time slice in the next turn of the loop.
    pub(super) fn read_again(&mut self, context: &mut Context) {
        if !std::mem::replace(&mut self.reads_again, true) {
            context.again.push(self.index);
        }
    }

    /// Continues to read in the next time slice.
    pub fn read_on(&mut self, context: &mut Context) {
        self.reads_again = false;
        self.readable(context, false);
    }

    fn handle_bytes(&mut self, context: &mut Context, bytes: &[u8]) {
        let tally = &mut context.tally.populations[usize::from(self.population)];
        tally.counters.bytes_received_total += bytes.len() as u64;
        self.session.note_receipt();
        self.delay_acks(context);
        if !self.unread.is_empty() {
            self.unread.extend_from_slice(bytes);
            self.handle_unread(context);
            return;
        }
        let handled = self.handle_whole(context, bytes);
        if handled < bytes.len() && self.stream.is_some() {
            self.unread.extend_from_slice(&bytes[handled..]);
        }
    }

    /// Lets the kernel delay its acknowledgements, if the plan says so.
    fn delay_acks(&mut self, context: &Context) {
        let period = acks_period(context.now_ns);
        if context.setup.plan.populations[self.population()].delayed_acks
            && std::mem::replace(&mut self.acks_period, period) != period
            && let Some(stream) = &self.stream
        {
            stream.delay_acks();
        }
    }

    fn handle_unread(&mut self, context: &mut Context) {
        let mut bytes = std::mem::take(&mut self.unread);
        let handled = self.handle_whole(context, &bytes);
        if handled < bytes.len() && self.stream.is_some() {
            bytes.drain(..handled);
            self.unread = bytes;
        }
    }

    /// Handles whole packets and writes the replies. Returns the number of bytes handled.
    fn handle_whole(&mut self, context: &mut Context, bytes: &[u8]) -> usize {
        let identity = identity_of(self, &context.setup);
        let reading = self.session.reading(&identity, context.setup.plan.max_packet_bytes);
        let (mut handled, mut can_publish) = (0, false);
        let mut next: Option<Step<'_>> = None;
        context.out.clear();
        while self.stream.is_some() && !self.paused {
            let step = match next.take() {
                Some(step) => step,
                None => self.session.handle(&reading, &bytes[handled..], &mut context.out),
            };
            handled += step.len;
            let tally = &mut context.tally.populations[usize::from(self.population)];
            tally.counters.packets_sent_total += u64::from(step.replied);
            let is_whole = match step.event {
                Event::Incomplete => break,
                Event::Ended(_) => step.len > 0,
                _ => true,
            };
            tally.counters.packets_received_total += u64::from(is_whole);
            match step.event {
                Event::Delivered(message @ Message::Mqtt(_)) => {
                    self.delivered(context, &message);
                    self.note_read(context, 1);
                }
                Event::Delivered(message @ Message::Zmtp(_)) => {
                    let (taken, step) =
                        self.delivered_together(context, &reading, message, &bytes[handled..]);
                    handled += taken;
                    next = step;
                }
                Event::Acknowledged(token) => can_publish |= self.acknowledged(context, &token),
                Event::Connected { resumed, dropped, sets_keep_alive, proof } => {
                    tally.counters.server_keep_alives_total += u64::from(sets_keep_alive);
                    self.connected(context, (resumed, dropped), proof);
                }
                Event::Challenged(challenge) => self.challenged(context, challenge),
                Event::Subscribed { granted, refused, is_last } => {
                    self.subscribed(context, granted, refused, is_last);
                }
                Event::Unsubscribed { removed, refused } => {
                    self.unsubscribed(context, removed, refused);
                }
                Event::Rejected(token, cause) => {
                    can_publish |= self.rejected(context, &token, cause);
                }
                Event::Refused(cause) | Event::Ended(cause) => self.lost(context, cause),
                Event::UnknownAcknowledgement => tally.outcome(Reason::UnexpectedAck),
                Event::Incomplete | Event::Handled => {}
            }
        }
        self.flush(context);
        if can_publish {
            self.publish_due(context);
        }
        handled
    }

    fn delivered(&mut self, context: &mut Context, message: &Message<'_>) {
        let to = usize::from(self.population);
        context.stalls.note_delivery(self.index, context.now_ns);
        let origin = context.setup.origin_of_message(message);
        if message.is_retained() && !self.is_forwarded(context, origin.as_ref()) {
            context.tally.populations[to].counters.retained_total += 1;
            return;
        }
        self.respond(context, message);
        match origin {
            Some(Origin::Message(stamp, from)) => {
                self.delivered_in_stream(context, message, &stamp, from);
            }
            Some(Origin::Answer(stamp, from)) => self.receive_answer(context, &stamp, from),
            Some(Origin::OtherRun) => {
                context.tally.populations[to].counters.foreign_total += 1;
            }
            None => self.delivered_unstamped(context, message),
        }
    }

    /// Counts a message of this run: notes it in the ledger, classifies it and applies the effects.
    #[inline]
    fn delivered_in_stream(
        &self,
        context: &mut Context,
        message: &Message<'_>,
        stamp: &Stamp,
        from: usize,
    ) {
        let noted = self.note(context, message, stamp);
        let to = self.population();
        let expecting = match noted.expected {
            Expected::Group { population, .. } => Some(usize::from(population)),
            Expected::Client | Expected::Nothing => None,
        };
        let Context { setup, tally, expectations, now_ns, .. } = context;
        let absence = match expecting {
            None => expectations.absence(to, setup.shard.global(self.local), stamp),
            Some(_) => None,
        };
        let facts = Facts {
            to,
            counts_loss: expectations.counts_loss(to),
            group_counts_loss: expecting.is_some_and(|other| expectations.counts_loss(other)),
            absence,
            expiry_left_s: absence.and_then(|_| message.expiry_s()),
        };
        if noted.is_plain(&facts) {
            let counters = tally.note_received((from, to), self.index, stamp, *now_ns);
            counters.expected_total += i64::from(!facts.counts_loss);
            return;
        }
        let effects = classify(&noted, &facts);
        self.apply(context, &effects, stamp, from);
    }

    /// Notes a message in the windows of its receiver, of its copies and of its group.
    #[inline]
    fn note(&self, context: &mut Context, message: &Message<'_>, stamp: &Stamp) -> Noted {
        let Context { setup, ledger, expectations, .. } = context;
        let Stamp { stream, sequence, .. } = *stamp;
        let (to, client) = (self.population(), setup.shard.global(self.local));
        let ways = || {
            let topic = self.session.topic(message).unwrap_or_default();
            expectations.ways(to, client, topic, setup.target(to, client))
        };
        let (delivery, expected) = ledger.note_ways(self.index, stream, sequence, ways);
        let copy_is_new = setup.populations[to].copy_of(message).map(|copy| {
            let window = ledger.follow_copy(self.index, stream, sequence, copy);
            window.is_some_and(|w| w.note(sequence) != Delivery::Duplicate)
        });
        let group_had_it = match expected {
            Expected::Group { group, .. } if delivery != Delivery::Duplicate => {
                let member = setup.group_at(usize::from(group), setup.target(to, client));
                let window = ledger.follow(member, stream, sequence);
                Some(window.is_some_and(|w| w.note(sequence) == Delivery::Duplicate))
            }
            _ => None,
        };
        Noted { delivery, expected, copy_is_new, group_had_it }
    }

    /// Counts the effects of a delivery that is not plain.
    #[inline(never)]
    fn apply(&self, context: &mut Context, effects: &Effects, stamp: &Stamp, from: usize) {
        let Context { tally, now_ns, .. } = context;
        let to = self.population();
        tally.unfollowed_total += u64::from(effects.unfollowed);
        tally.populations[to].counters.expiry_reduced_total += u64::from(effects.expiry_reduced);
        if let Some(other) = effects.less {
            tally.flow(from, other).counters.expected_total -= 1;
        }
        let counters = match effects.received {
            true => tally.note_received((from, to), self.index, stamp, *now_ns),
            false => &mut tally.flow(from, to).counters,
        };
        effects.add_to(counters);
    }

    /// Counts a message with RETAIN that the broker forwards as published, which takes part in the
    /// ledger. Returns `false` for a message that the broker has kept, or may have kept.
    fn is_forwarded(&self, context: &mut Context, origin: Option<&Origin>) -> bool {
        let Some(Origin::Message(stamp, _) | Origin::Answer(stamp, _)) = origin else {
            return false;
        };
        let Context { forwarded, tally, .. } = context;
        let is_forwarded = forwarded.is_forwarded(self.population(), self.local, stamp.actual_ns);
        let counters = &mut tally.populations[self.population()].counters;
        counters.retained_as_published_total += u64::from(is_forwarded);
        is_forwarded
    }

    /// Counts a message, and those of its stream behind it as far as the read rate allows. Returns
    /// the number of bytes of the messages behind it, and the step after them if it was made.
    fn delivered_together<'a>(
        &mut self,
        context: &mut Context,
        reading: &Reading,
        message: Message<'a>,
        rest: &'a [u8],
    ) -> (usize, Option<Step<'a>>) {
        context.stalls.note_delivery(self.index, context.now_ns);
        let Some((mut stamp, from)) = context.setup.origin_of(message.payload()) else {
            self.delivered_unstamped(context, &message);
            self.note_read(context, 1);
            return (0, None);
        };
        let allowed = self.allowance(context);
        let Context { setup, tally, ledger, expectations, now_ns, out, .. } = &mut *context;
        let to = usize::from(self.population);
        let counts_loss = expectations.counts_loss(to);
        let mut deliveries = tally.deliveries((from, to), self.index, counts_loss, *now_ns);
        let mut window = ledger.follow(self.index, stamp.stream, stamp.sequence);
        let (mut taken, mut count) = (0, 0);
        let next = loop {
            count += 1;
            let noted = window.as_mut().map(|window| window.note(stamp.sequence));
            deliveries.note(noted.unwrap_or(Delivery::Unfollowed), &stamp);
            if count >= allowed {
                break None;
            }
            let step = self.session.handle_in_run(reading, &rest[taken..], out);
            let (len, message) = match step {
                Ok(message) => message,
                Err(step) => break Some(step),
            };
            match Stamp::read(message.payload()) {
                Some(next) if next.run_tag == setup.plan.run_tag && next.stream == stamp.stream => {
                    stamp = next;
                    taken += len;
                }
                _ => {
                    let event = Event::Delivered(Message::Zmtp(message));
                    break Some(Step { len, replied: false, event });
                }
            }
        };
        drop(deliveries);
        tally.populations[to].counters.packets_received_total += count - 1;
        self.note_read(context, count);
        (taken, next)
    }

    /// Counts a message that carries no stamp of this run.
    fn delivered_unstamped(&self, context: &mut Context, message: &Message<'_>) {
        let delivery = Unstamped {
            to: usize::from(self.population),
            client: self.global(context),
            target: self.target(context),
            topic: self.session.topic(message),
            now_ns: context.now_ns,
        };
        let Context { setup, tally, expectations, .. } = context;
        expectations.note_unstamped(setup, tally, &delivery);
    }

    /// Number of messages that the read rate allows now, at least one.
    pub(super) fn allowance(&self, context: &Context) -> u64 {
        let rate = self.read_rate(context);
        rate.map_or(u64::MAX, |rate| rate.allowance(self.deadline_ns, context.now_ns))
    }

    /// Notes messages that were read. With a read rate, reading waits for the next instant.
    pub(super) fn note_read(&mut self, context: &Context, messages: u64) {
        let Some(rate) = self.read_rate(context) else { return };
        self.deadline_ns = rate.due_after(messages, self.deadline_ns, context.now_ns);
        self.paused = self.deadline_ns > context.now_ns;
        self.retime = true;
    }

    /// Instant at which reading continues, in nanoseconds.
    pub(super) fn resume_ns(&self, context: &Context) -> u64 {
        self.read_rate(context).map_or(0, |rate| rate.resume_ns(self.deadline_ns))
    }

    /// Read rate of a ready client.
    fn read_rate(&self, context: &Context) -> Option<ReadRate> {
        let rate_per_s = context.setup.plan.populations[self.population()].read_rate_per_s;
        rate_per_s.filter(|_| self.phase == Phase::Ready).map(ReadRate::new)
    }
}
