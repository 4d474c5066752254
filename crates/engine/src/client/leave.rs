//! Ends a client's connection with DISCONNECT behind everything that the client has sent. If the
//! socket has no room for these bytes, the client waits for room, 2 s at most. Meanwhile it reads
//! and discards, so that a broker that waits for the client can continue. A client with a link
//! leaves once its last byte has passed the link, one that awaits acknowledgements once the broker
//! has closed.

use plan::{End, Reason, SECOND_NS};

use super::receive::{READ_BYTES_MIN, SLICE_BYTES};
use super::{Client, ClientPhase};
use crate::context::Context;
use crate::expectations::Death;
use crate::seam::{Goodbye, Polled, Request};
use crate::transport::{Halt, Stream};

/// Longest wait of a leaving client for room, in nanoseconds.
pub const LEAVE_NS: u64 = 2 * SECOND_NS;

/// The next state of a client that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Stay,
    /// It may return by itself.
    Return,
    /// It connects again, because a stage or a change demands it.
    Connect,
}

impl Then {
    /// The phase once it has left.
    pub(super) const fn phase(self) -> ClientPhase {
        match self {
            Self::Return => ClientPhase::Offline,
            Self::Stay | Self::Connect => ClientPhase::Idle,
        }
    }
}

impl ClientPhase {
    /// Returns `true` from the start of an attempt to connect until the client is ready.
    pub(super) const fn is_underway(self) -> bool {
        matches!(self, Self::Connecting | Self::Greeting | Self::Subscribing)
    }

    /// Returns `true` from the end of a session lifetime until the client is ready again. `before`
    /// is that of the phase before.
    pub(super) const fn returns(self, before: bool) -> bool {
        match self {
            Self::Offline | Self::Leaving(Then::Return) => true,
            Self::Idle | Self::GaveUp | Self::Ready => false,
            _ => before,
        }
    }
}

impl Client {
    /// Ends the connection in the way of its population, because a stage or a change says so.
    pub fn end(&mut self, context: &mut Context) {
        self.depart(context, Then::Stay);
        context.lifetimes.forget(self.population(), self.local);
    }

    /// Connects the client for a stage, or lets it wait for its first recorded session.
    pub fn start(&mut self, context: &mut Context) {
        let (population, local) = (self.population(), self.local);
        if !context.lifetimes.waits(population, local) {
            return self.begin(context);
        }
        if self.phase.is_leaving() {
            self.phase = ClientPhase::Leaving(Then::Return);
        } else {
            self.leave_phase(context, ClientPhase::Offline);
        }
        context.lifetimes.go(population, local, context.now_ns);
    }

    /// Sends DISCONNECT and closes at the end of the run, also for populations that abort.
    pub fn disconnect(&mut self, context: &mut Context) {
        self.say_goodbye(context, Then::Stay, Goodbye::Plain);
        context.lifetimes.forget(self.population(), self.local);
    }

    /// Ends the connection in the way of its population.
    pub(super) fn depart(&mut self, context: &mut Context, then: Then) {
        match context.setup.plan.populations[self.population()].end {
            End::Disconnect => self.say_goodbye(context, then, Goodbye::Plain),
            End::DisconnectWithWill => self.say_goodbye(context, then, Goodbye::WithWill),
            End::Abort => self.abort(context, then),
            End::Vanish => self.vanish(context, then),
        }
    }

    /// Resets the connection.
    fn abort(&mut self, context: &mut Context, then: Then) {
        if let Some(stream) = &self.stream {
            stream.reset_on_close();
        }
        if self.phase.is_accepted() {
            self.expect_will(context, Death::Chosen);
        }
        self.leave_phase(context, then.phase());
        self.close(context);
    }

    /// Sends DISCONNECT and closes, now or when there is room.
    fn say_goodbye(&mut self, context: &mut Context, then: Then, goodbye: Goodbye) {
        if self.phase.is_leaving() {
            self.phase = ClientPhase::Leaving(then);
            return;
        }
        // A broker that has not received the whole CONNECT does not know the client.
        if self.phase != ClientPhase::Greeting || self.unsent.is_none() {
            context.out.clear();
            // A client without CONNACK may have no will at the broker yet.
            let leaves_will = goodbye == Goodbye::WithWill && self.phase.is_accepted();
            let goodbye = if leaves_will { Goodbye::WithWill } else { Goodbye::Plain };
            if !leaves_will {
                self.send_death(context);
            }
            if let Polled::Sent(asked) = self.poll(context, Request::Leave(goodbye)) {
                self.leaves_will = leaves_will;
                let counters = &mut context.tally.populations[self.population()].counters;
                counters.packets_sent_total += asked.packets;
                self.flush(context);
            }
        }
        if !self.phase.is_accepted() || !(self.is_sending() || self.awaits_close(context)) {
            return self.gone(context, then);
        }
        self.leave_phase(context, ClientPhase::Leaving(then));
        let sends_until_ns = self.stream.as_ref().and_then(Stream::sends_until_ns);
        self.deadline_ns = context.now_ns.max(sends_until_ns.unwrap_or(0)) + LEAVE_NS;
        self.next_due_ns = u64::MAX;
        self.unread = Vec::new();
        self.discard(context);
    }

    /// Returns `true` for clients of MQTT with messages that the broker has not acknowledged, and
    /// for hosts of Sparkplug, whose last state it acknowledges. If an acknowledgement found the
    /// connection closed, the kernel would answer with a reset. A broker that cannot send the next
    /// one may give up what it has not read: messages, and DISCONNECT, so that it publishes a will.
    fn awaits_close(&self, context: &Context) -> bool {
        let population = &context.setup.plan.populations[self.population()];
        let is_host = population.sparkplug().is_some_and(|own| own.host().is_some());
        is_host || self.awaits_acks()
    }

    /// Reads and discards the bytes in the socket, a time slice of them.
    pub(super) fn discard(&mut self, context: &mut Context) {
        let mut budget = SLICE_BYTES;
        let mut buffer = std::mem::take(&mut context.read_buffer);
        while let Some(stream) = &mut self.stream {
            match stream.read(&mut buffer, false, &mut context.framing) {
                Ok(count) => {
                    let tally = &mut context.tally.populations[usize::from(self.population)];
                    tally.counters.bytes_received_total += count as u64;
                    budget = budget.saturating_sub(count.max(READ_BYTES_MIN));
                    if budget == 0 {
                        self.read_again(context);
                        break;
                    }
                }
                Err(Halt::Later) => break,
                Err(Halt::Lost(reason)) => match self.phase {
                    // The broker has received DISCONNECT.
                    ClientPhase::Leaving(then) if !self.is_sending() => self.gone(context, then),
                    _ => self.lost(context, reason),
                },
            }
        }
        context.read_buffer = buffer;
        self.count_frames(context);
    }

    /// Continues to leave: some bytes were written, or the wait is over.
    pub(super) fn leave_on(&mut self, context: &mut Context) {
        let ClientPhase::Leaving(then) = self.phase else { return };
        let is_over = self.deadline_ns <= context.now_ns;
        if !self.is_sending() && (is_over || !self.awaits_close(context)) {
            self.gone(context, then);
        } else if is_over {
            self.lost(context, Reason::DisconnectTimeout);
        }
    }

    /// Closes the connection and enters the next state.
    pub(super) fn gone(&mut self, context: &mut Context, then: Then) {
        if let Some(stream) = &mut self.stream {
            stream.finish(&mut context.framing);
        }
        if self.leaves_will && self.phase.is_accepted() {
            self.expect_will(context, Death::Chosen);
        }
        // A client that returns may do so before it has left.
        let returns = self.returns && then == Then::Connect;
        self.leave_phase(context, if returns { ClientPhase::Offline } else { then.phase() });
        self.close(context);
        if then == Then::Connect {
            self.begin(context);
        }
    }
}
