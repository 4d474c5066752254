//! What a client reads: bytes from the socket, deliveries into the ledger, at its read rate.

use mqtt::Publish;
use plan::SECOND_NS;

use super::{Client, Phase, Session};
use crate::arrivals::Arrivals;
use crate::clock;
use crate::shared::Shared;
use crate::stream::{Halt, Stream};

/// What a client at a read rate may have left unread and still read: it keeps to the rate over any
/// longer time, however late the loop comes to it.
const CREDIT_NS: u64 = 5_000_000;
/// Time between two turns of reading where messages are due more often.
const TURN_NS: f64 = 1_000_000.0;

impl Client {
    /// Its socket has bytes. `ended` says that the broker has closed its side.
    pub fn readable(&mut self, shared: &mut Shared, ended: bool) {
        if let Some(stream) = &mut self.stream {
            stream.wake(ended);
        }
        if self.phase == Phase::Connecting {
            // The rest of the handshake; whoever waits for TCP waits for space to write.
            if matches!(self.stream, Some(Stream::Tls(_))) {
                self.establish(shared);
            }
            return;
        }
        if !self.unread.is_empty() && !self.paused {
            self.handle_unread(shared);
        }
        let mut buffer = std::mem::take(&mut shared.read_buffer);
        while !self.paused {
            let connecting = self.phase != Phase::Ready;
            let Some(stream) = &mut self.stream else { break };
            let read = stream.read(&mut buffer, connecting);
            if read == Err(Halt::Later) {
                break;
            }
            shared.now_ns = clock::now_ns();
            match read {
                Ok(count) => {
                    // A short read has emptied the socket; only its end may still be waiting.
                    let emptied = stream.is_empty_after(count, buffer.len()) && !ended;
                    self.handle_bytes(shared, &buffer[..count]);
                    if emptied {
                        break;
                    }
                }
                Err(Halt::Later) => break,
                Err(Halt::Lost(reason)) => self.lost(shared, reason),
            }
        }
        shared.read_buffer = buffer;
    }

    fn handle_bytes(&mut self, shared: &mut Shared, bytes: &[u8]) {
        let tally = &mut shared.tally.populations[usize::from(self.population)];
        tally.counters.bytes_received_total += bytes.len() as u64;
        if !self.unread.is_empty() {
            self.unread.extend_from_slice(bytes);
            self.handle_unread(shared);
            return;
        }
        let handled = self.handle_whole(shared, bytes);
        if handled < bytes.len() && self.stream.is_some() {
            self.unread.extend_from_slice(&bytes[handled..]);
        }
    }

    fn handle_unread(&mut self, shared: &mut Shared) {
        let mut bytes = std::mem::take(&mut self.unread);
        let handled = self.handle_whole(shared, &bytes);
        if handled < bytes.len() && self.stream.is_some() {
            bytes.drain(..handled);
            self.unread = bytes;
        }
    }

    /// Handles what is whole; returns how many bytes that took.
    fn handle_whole(&mut self, shared: &mut Shared, bytes: &[u8]) -> usize {
        match &self.session {
            Session::Mqtt(_) => self.handle_packets(shared, bytes),
            Session::Zmtp(_) => self.handle_frames(shared, bytes),
        }
    }

    pub(super) fn delivered(&mut self, shared: &mut Shared, publish: &Publish<'_>) {
        let to = usize::from(self.population);
        let Shared { setup, tally, ledger, judged, stalls, now_ns, .. } = shared;
        stalls.hear(self.index, *now_ns);
        if publish.retain {
            tally.populations[to].counters.retained_total += 1;
            return;
        }
        let stamp = setup.stamp_of(publish.payload);
        let from = stamp.and_then(|s| setup.publisher_of.get(usize::from(s.stream.publication)));
        let (Some(stamp), Some(&from)) = (stamp, from) else {
            match setup.unstamped_publisher(publish.topic) {
                Some(from) => {
                    let counters = &mut tally.flow(from, to).counters;
                    counters.received_total += 1;
                    counters.expected_total += i64::from(!judged[to]);
                }
                None => tally.populations[to].counters.foreign_total += 1,
            }
            return;
        };
        let delivery = ledger.note(self.index, stamp.stream, stamp.sequence);
        Arrivals::new(tally.flow(from, to), judged[to], *now_ns).note(delivery, &stamp);
    }

    /// How many messages its read rate allows it now, at least one.
    pub(super) fn allowance(&self, shared: &Shared) -> u64 {
        let Some(period_ns) = self.read_period_ns(shared) else { return u64::MAX };
        let due_ns = self.deadline_ns.max(shared.now_ns.saturating_sub(CREDIT_NS));
        (shared.now_ns.saturating_sub(due_ns) as f64 / period_ns) as u64 + 1
    }

    /// It has read so many messages: at a read rate the next one is due so many periods after the
    /// first of them was, and it pauses until then.
    pub(super) fn note_read(&mut self, shared: &Shared, messages: u64) {
        let Some(period_ns) = self.read_period_ns(shared) else { return };
        let due_ns = self.deadline_ns.max(shared.now_ns.saturating_sub(CREDIT_NS));
        self.deadline_ns = due_ns + (messages as f64 * period_ns) as u64;
        self.paused = self.deadline_ns > shared.now_ns;
        self.retime = true;
    }

    /// When it reads on after a pause: at a high rate not at once, so that it then has several to
    /// read.
    pub(super) fn resume_ns(&self, shared: &Shared) -> u64 {
        let several = self.read_period_ns(shared).is_some_and(|period_ns| period_ns < TURN_NS);
        self.deadline_ns + if several { TURN_NS as u64 } else { 0 }
    }

    /// Time between two messages at its read rate, once it is ready; `None`: it has none.
    fn read_period_ns(&self, shared: &Shared) -> Option<f64> {
        let rate = shared.setup.plan.populations[self.population()].read_rate_per_s;
        rate.filter(|_| self.phase == Phase::Ready).map(|rate| SECOND_NS as f64 / rate)
    }
}
