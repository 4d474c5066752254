//! Ends a client's connection with DISCONNECT behind everything that the client has sent. If the
//! socket has no room for these bytes, the client waits for room, 2 s at most. Meanwhile it reads
//! and discards, so that a broker that waits for the client can continue.

use plan::{End, Reason, SECOND_NS};

use super::wills::Death;
use super::{Client, Phase};
use crate::shared::Shared;
use crate::stream::Halt;

/// Longest wait of a leaving client for room, in nanoseconds.
pub const LEAVE_NS: u64 = 2 * SECOND_NS;

/// The next state of a client that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Stay,
    /// It may come back by itself.
    Return,
    /// It connects again, since it was asked to meanwhile.
    Connect,
}

impl Then {
    /// The phase once it has left.
    const fn phase(self) -> Phase {
        match self {
            Self::Return => Phase::Away,
            Self::Stay | Self::Connect => Phase::Idle,
        }
    }
}

impl Client {
    /// Ends the connection in the way of its population, because a stage or a change says so.
    pub fn end(&mut self, shared: &mut Shared) {
        self.depart(shared, Then::Stay);
        shared.lifetimes.forget(self.population(), self.local);
    }

    /// Says DISCONNECT and closes, whatever the way of its population: the run is over.
    pub fn disconnect(&mut self, shared: &mut Shared) {
        self.say_goodbye(shared, Then::Stay);
        shared.lifetimes.forget(self.population(), self.local);
    }

    /// Ends the connection in the way of its population.
    pub(super) fn depart(&mut self, shared: &mut Shared, then: Then) {
        match shared.setup.plan.populations[self.population()].end {
            End::Disconnect => self.say_goodbye(shared, then),
            End::Abort => self.abort(shared, then),
        }
    }

    /// Resets the connection.
    fn abort(&mut self, shared: &mut Shared, then: Then) {
        if let Some(stream) = &self.stream {
            stream.reset_on_close();
        }
        if self.phase.is_accepted() {
            self.expect_will(shared, Death::Chosen);
        }
        self.leave_phase(shared, then.phase());
        self.close(shared);
    }

    /// Says DISCONNECT and closes, now or when there is room for it.
    fn say_goodbye(&mut self, shared: &mut Shared, then: Then) {
        if self.phase.is_leaving() {
            self.phase = Phase::Leaving(then);
            return;
        }
        // A broker that has not got the whole CONNECT knows nothing of the client.
        if self.phase != Phase::Greeting || self.unsent.is_none() {
            shared.out.clear();
            if self.session.say_goodbye(shared.version(self.population()), &mut shared.out) {
                shared.tally.populations[self.population()].counters.packets_sent_total += 1;
                self.flush(shared);
            }
        }
        if self.unsent.is_none() || !self.phase.is_accepted() {
            return self.gone(shared, then);
        }
        self.leave_phase(shared, Phase::Leaving(then));
        self.deadline_ns = shared.now_ns + LEAVE_NS;
        self.next_due_ns = u64::MAX;
        self.unread = Vec::new();
        self.discard(shared);
    }

    /// Reads what has come and throws it away.
    pub(super) fn discard(&mut self, shared: &mut Shared) {
        let mut buffer = std::mem::take(&mut shared.read_buffer);
        while let Some(stream) = &mut self.stream {
            match stream.read(&mut buffer, false) {
                Ok(count) => {
                    let tally = &mut shared.tally.populations[usize::from(self.population)];
                    tally.counters.bytes_received_total += count as u64;
                }
                Err(Halt::Later) => break,
                Err(Halt::Lost(reason)) => self.lost(shared, reason),
            }
        }
        shared.read_buffer = buffer;
    }

    /// Some of what a leaving client had to send has gone, or its time is over.
    pub(super) fn leave_on(&mut self, shared: &mut Shared) {
        let Phase::Leaving(then) = self.phase else { return };
        if self.unsent.is_none() {
            self.gone(shared, then);
        } else if self.deadline_ns <= shared.now_ns {
            self.lost(shared, Reason::DisconnectTimeout);
        }
    }

    /// Closes, and does what comes then.
    pub(super) fn gone(&mut self, shared: &mut Shared, then: Then) {
        if let Some(stream) = &mut self.stream {
            stream.finish();
        }
        self.leave_phase(shared, then.phase());
        self.close(shared);
        if then == Then::Connect {
            self.begin(shared);
        }
    }
}
