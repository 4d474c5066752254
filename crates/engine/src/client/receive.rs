//! What a client reads: bytes from the socket, deliveries into the ledger, at its read rate.

use mqtt::Publish;
use plan::SECOND_NS;

use super::packets::After;
use super::{Client, Phase};
use crate::clock;
use crate::ledger::Delivery;
use crate::shared::Shared;
use crate::stream::{Halt, Stream};

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
        let handled = self.handle_packets(shared, bytes);
        if handled < bytes.len() && self.stream.is_some() {
            self.unread.extend_from_slice(&bytes[handled..]);
        }
    }

    fn handle_unread(&mut self, shared: &mut Shared) {
        let mut bytes = std::mem::take(&mut self.unread);
        let handled = self.handle_packets(shared, &bytes);
        if handled < bytes.len() && self.stream.is_some() {
            bytes.drain(..handled);
            self.unread = bytes;
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
        let flow = tally.flow(from, to);
        match ledger.note(self.index, stamp.stream, stamp.sequence) {
            Delivery::Duplicate => {
                flow.counters.duplicate_total += 1;
                return;
            }
            Delivery::Stale => {
                flow.counters.stale_total += 1;
                return;
            }
            Delivery::First { passed_over } => {
                // Whoever was away has missed nothing that it ought to have had.
                flow.counters.missing_total += i64::from(passed_over) * i64::from(judged[to]);
            }
            Delivery::Reordered { filled } => {
                flow.counters.reordered_total += 1;
                flow.counters.missing_total -= i64::from(filled && judged[to]);
            }
            Delivery::Unfollowed => {}
        }
        flow.counters.received_total += 1;
        flow.counters.expected_total += i64::from(!judged[to]);
        let now_ns = now_ns.cast_signed();
        flow.latency_intended.record(now_ns - stamp.intended_ns.cast_signed());
        flow.latency_actual.record(now_ns - stamp.actual_ns.cast_signed());
    }

    /// Keeps to the population's read rate: the next message is read one period after this one.
    pub(super) fn pause(&mut self, shared: &Shared) -> After {
        match shared.setup.plan.populations[self.population()].read_rate_per_s {
            Some(rate) if self.phase == Phase::Ready => {
                self.deadline_ns = shared.now_ns + (SECOND_NS as f64 / rate) as u64;
                self.retime = true;
                After::Pause
            }
            _ => After::Go,
        }
    }
}
