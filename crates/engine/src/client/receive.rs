//! Reading of a client: bytes from the socket, events of the protocol, deliveries into the ledger,
//! at the read rate.

use plan::Reason;

use super::{Client, ClientPhase, at};
use crate::context::Context;
use crate::ledger::books::Books;
use crate::ledger::receiver::Receiver;
use crate::schedule::read_rate::ReadRate;
use crate::seam::{Event, Notice, Protocol, Session};
use crate::transport::{Halt, Stream};

/// Bytes that a client reads in one time slice at most.
pub(super) const SLICE_BYTES: usize = 256 * 1024;

/// Bytes that a read counts for at least.
pub(super) const READ_BYTES_MIN: usize = 512;

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
        if self.phase == ClientPhase::Connecting {
            // The rest of the handshake. A client that waits for TCP waits for room to write.
            if self.stream.as_ref().is_some_and(Stream::has_handshake) {
                self.establish(context);
            }
            // No further news comes of bytes, or of the end, behind the handshake.
            if self.phase != ClientPhase::Greeting {
                return;
            }
        }
        if self.phase.is_leaving() {
            return self.discard(context);
        }
        if !self.unread.is_empty() && !self.paused {
            self.handle_unread(context, false);
        }
        let mut budget = SLICE_BYTES;
        let mut buffer = std::mem::take(&mut context.read_buffer);
        while !self.paused && !self.unsent.as_ref().is_some_and(|unsent| unsent.is_full()) {
            if self.phase == ClientPhase::Connecting {
                break; // TLS has begun: its handshake reads.
            }
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
        self.session.note(Notice::Alive);
        self.delay_acks(context);
        if !self.unread.is_empty() {
            self.unread.extend_from_slice(bytes);
            self.handle_unread(context, true);
            return;
        }
        let handled = self.handle_whole(context, bytes, true);
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

    fn handle_unread(&mut self, context: &mut Context, are_new: bool) {
        let mut bytes = std::mem::take(&mut self.unread);
        let handled = self.handle_whole(context, &bytes, are_new);
        if handled < bytes.len() && self.stream.is_some() {
            bytes.drain(..handled);
            self.unread = bytes;
        }
    }

    /// Handles whole packets and writes the replies. Returns the number of bytes handled.
    /// `are_new`: some bytes have just been read.
    fn handle_whole(&mut self, context: &mut Context, bytes: &[u8], are_new: bool) -> usize {
        let setup = &context.setup.populations[self.population()];
        let Self { index, local, .. } = *self;
        let (population, watched) = (self.population(), setup.watched);
        let receiver = Receiver { population, index, local, watched };
        let population = &context.setup.plan.populations[receiver.population];
        let is_paced = population.read_rate_per_s.is_some();
        let (mut handled, mut in_flight, mut can_publish) = (0, 0, false);
        context.out.clear();
        while handled < bytes.len() && self.stream.is_some() && !self.paused {
            let allowed = if is_paced { self.allowance(context) } else { u64::MAX };
            let now_ns = context.now_ns;
            let (mut books, setup, out) = Books::new(context, receiver, allowed);
            let at = at(self, setup, now_ns);
            let step = self.session.handle(&at, &bytes[handled..], out, &mut books);
            let delivered = books.finish();
            handled += step.len;
            in_flight += step.in_flight;
            let tally = &mut context.tally.populations[usize::from(self.population)];
            step.add_to(&mut tally.counters);
            step.lapses.iter().for_each(|&reason| tally.breach(reason));
            self.retime |= step.retimes;
            if delivered > 0 {
                context.stalls.note_delivery(self.index, context.now_ns);
                if is_paced {
                    self.note_read(context, delivered);
                }
            }
            match step.event {
                Event::Incomplete => break,
                Event::Asked(response) => self.respond(context, response),
                Event::Acknowledged(token) => {
                    can_publish |= self.acknowledged(context, (&token, step.holds_back));
                }
                Event::Connected(accepted) => self.connected(context, &accepted),
                Event::Secure => self.secure_open(context),
                Event::Challenged(challenge) => self.challenged(context, challenge),
                Event::Subscribed { granted, refused, is_last } => {
                    self.subscribed(context, granted, refused, is_last);
                }
                Event::Unsubscribed { removed, refused, is_last } => {
                    self.unsubscribed(context, removed, refused, is_last);
                }
                Event::Rejected(token, cause) => {
                    can_publish |= self.rejected(context, (&token, step.holds_back), cause);
                }
                Event::Returned(name, reason) => self.returned(context, &name, reason),
                Event::Blocked(is_blocked) => can_publish |= self.blocked(context, is_blocked),
                Event::Refused(cause) | Event::Ended(cause) => self.lost(context, cause),
                Event::Broken(broken) => self.broke(context, &broken),
                Event::UnknownAcknowledgement => {
                    context.tally.populations[receiver.population].breach(Reason::UnexpectedAck);
                }
                Event::Handled => {}
            }
            if context.sparkplug.is_asked() {
                self.act(context);
            }
        }
        if are_new {
            self.check_prefetch(context, in_flight, &bytes[handled..]);
        }
        self.flush(context);
        if can_publish {
            self.publish_due(context);
        }
        handled
    }

    /// Counts a breach if more messages of a read wait for an acknowledgement than the client has
    /// announced: `in_flight` that it has handled, and those in `rest`.
    fn check_prefetch(&self, context: &mut Context, in_flight: u32, rest: &[u8]) {
        let setup = &context.setup.populations[self.population()].protocol;
        let waiting = || Session::cut(setup, rest, usize::MAX).acknowledged;
        if setup.prefetch != u64::MAX && u64::from(in_flight) + waiting() > setup.prefetch {
            let tally = &mut context.tally.populations[self.population()];
            tally.breach(Reason::ReceiveMaximumExceeded);
        }
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
        rate_per_s.filter(|_| self.phase == ClientPhase::Ready).map(ReadRate::new)
    }
}
