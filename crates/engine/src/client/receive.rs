//! What a client reads: bytes from the socket, deliveries into the ledger, at its read rate.

use mqtt::Publish;

use super::{Client, Phase, Session};
use crate::read_rate::ReadRate;
use crate::shared::Shared;
use crate::stream::{Halt, Stream};

/// Bytes that a client reads in one turn of the loop at most, before others have theirs.
const TURN_BYTES: usize = 256 * 1024;

/// Length of a period as a power of two, 1.07 s. Delayed acknowledgements are asked for once in
/// each at most, since the kernel ends the delay by itself after a pause of the peer.
const ACKS_SHIFT: u32 = 30;

/// The number of a period, modulo 256.
pub(super) const fn acks_period(now_ns: u64) -> u8 {
    (now_ns >> ACKS_SHIFT) as u8
}

impl Client {
    /// Its socket has bytes. `ended` says that the broker has closed its side.
    pub fn readable(&mut self, shared: &mut Shared, ended: bool) {
        self.ended |= ended;
        if let Some(stream) = &mut self.stream {
            stream.wake(self.ended);
        }
        if self.phase == Phase::Connecting {
            // The rest of the handshake; whoever waits for TCP waits for space to write.
            if matches!(self.stream, Some(Stream::Tls(_))) {
                self.establish(shared);
            }
            return;
        }
        if self.phase.is_leaving() {
            return self.discard(shared);
        }
        if !self.unread.is_empty() && !self.paused {
            self.handle_unread(shared);
        }
        let mut budget = TURN_BYTES;
        let mut buffer = std::mem::take(&mut shared.read_buffer);
        while !self.paused {
            let connecting = !self.phase.is_accepted();
            let Some(stream) = &mut self.stream else { break };
            let read = stream.read(&mut buffer, connecting);
            if read == Err(Halt::Later) {
                break;
            }
            shared.now_ns = shared.host.now_ns();
            match read {
                Ok(count) => {
                    // A short read has emptied the socket; only its end may still be waiting.
                    let emptied = stream.is_empty_after(count, buffer.len()) && !self.ended;
                    self.handle_bytes(shared, &buffer[..count]);
                    if emptied {
                        break;
                    }
                    budget = budget.saturating_sub(count);
                    if budget == 0 {
                        self.read_again(shared);
                        break;
                    }
                }
                Err(Halt::Later) => break,
                Err(Halt::Lost(reason)) => self.lost(shared, reason),
            }
        }
        shared.read_buffer = buffer;
    }

    /// Leaves the rest to the next turn of the loop, so that others have theirs.
    fn read_again(&mut self, shared: &mut Shared) {
        if !std::mem::replace(&mut self.reads_again, true) {
            shared.again.push(self.index);
        }
    }

    /// Its next turn of reading has come.
    pub fn read_on(&mut self, shared: &mut Shared) {
        self.reads_again = false;
        self.readable(shared, false);
    }

    fn handle_bytes(&mut self, shared: &mut Shared, bytes: &[u8]) {
        let tally = &mut shared.tally.populations[usize::from(self.population)];
        tally.counters.bytes_received_total += bytes.len() as u64;
        self.session.note_heard();
        self.delay_acks(shared);
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

    /// Has the kernel delay its acknowledgements, where the plan says so.
    fn delay_acks(&mut self, shared: &Shared) {
        let period = acks_period(shared.now_ns);
        if shared.setup.plan.populations[self.population()].delayed_acks
            && std::mem::replace(&mut self.acks_period, period) != period
            && let Some(stream) = &self.stream
        {
            stream.delay_acks();
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
        let Shared { setup, tally, ledger, judged, receivers, stalls, wills, now_ns, .. } = shared;
        stalls.hear(self.index, *now_ns);
        if publish.retain {
            tally.populations[to].counters.retained_total += 1;
            return;
        }
        let client = setup.shard.global(self.local);
        let ways = || receivers.ways(to, client, publish.topic);
        let stamp = setup.stamp_of(publish.payload);
        let from = stamp.and_then(|s| setup.publisher_of.get(usize::from(s.stream.publication)));
        let (Some(stamp), Some(&from)) = (stamp, from) else {
            let publisher = setup.unstamped_publisher(publish.topic);
            let Some(from) = publisher.or_else(|| setup.owner_of_will(publish.topic)) else {
                tally.populations[to].counters.foreign_total += 1;
                return;
            };
            let is_expected = judged[to] && (publisher.is_some() || wills.are_expected_by(to));
            let flow = tally.flow(from, to);
            flow.counters.received_total += 1;
            flow.counters.expected_total += i64::from(!is_expected || !ways().expected);
            if let Some(ended_ns) = wills.ended_ns(publish.topic) {
                let latency_ns = now_ns.cast_signed() - ended_ns.cast_signed();
                flow.latency_intended.record(latency_ns);
                flow.latency_actual.record(latency_ns);
            }
            return;
        };
        let (delivery, expected) = ledger.note_ways(self.index, stamp.stream, stamp.sequence, ways);
        tally.deliveries((from, to), judged[to] && expected, *now_ns).note(delivery, &stamp);
    }

    /// How many messages its read rate allows it now, at least one.
    pub(super) fn allowance(&self, shared: &Shared) -> u64 {
        let rate = self.read_rate(shared);
        rate.map_or(u64::MAX, |rate| rate.allowance(self.deadline_ns, shared.now_ns))
    }

    /// It has read so many messages: at a read rate it pauses until the next one is due.
    pub(super) fn note_read(&mut self, shared: &Shared, messages: u64) {
        let Some(rate) = self.read_rate(shared) else { return };
        self.deadline_ns = rate.due_after(messages, self.deadline_ns, shared.now_ns);
        self.paused = self.deadline_ns > shared.now_ns;
        self.retime = true;
    }

    /// When it reads on after a pause.
    pub(super) fn resume_ns(&self, shared: &Shared) -> u64 {
        self.read_rate(shared).map_or(0, |rate| rate.resume_ns(self.deadline_ns))
    }

    /// Its read rate, once it is ready.
    fn read_rate(&self, shared: &Shared) -> Option<ReadRate> {
        let rate_per_s = shared.setup.plan.populations[self.population()].read_rate_per_s;
        rate_per_s.filter(|_| self.phase == Phase::Ready).map(ReadRate::new)
    }
}
