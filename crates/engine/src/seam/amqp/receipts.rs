//! Acknowledgements of deliveries: at once, for several together, later, never, and refusals.

use std::collections::VecDeque;

use amqp::push_ack;
use plan::Acknowledge;

/// Deliveries that a client has not acknowledged yet, and counts of those received.
#[derive(Default)]
pub struct Receipts {
    /// First deliveries of each queue that may be refused.
    firsts: Vec<u64>,
    /// For each channel the deliveries since the last acknowledgement of several, and the number
    /// of the last of them.
    pending: Vec<(u32, u64)>,
    /// Acknowledgements to come: instant in nanoseconds, channel, and number. In the order of the
    /// instants. The prefetch of the queues, or their delay, bounds them.
    late: VecDeque<(u64, u16, u64)>,
}

impl Receipts {
    /// Returns `true` for the deliveries of a queue that a share refuses: evenly, so that any
    /// number of them has the share.
    pub fn refuses(&mut self, queue: usize, share: f64) -> bool {
        if self.firsts.len() <= queue {
            self.firsts.resize(queue + 1, 0);
        }
        let count = &mut self.firsts[queue];
        let refused = |count: u64| (count as f64 * share) as u64;
        let before = refused(*count);
        *count += 1;
        refused(*count) > before
    }

    /// Takes a delivery: channel and number. Appends an acknowledgement if it is time for one.
    /// Returns the number of packets.
    #[inline]
    pub fn take(
        &mut self,
        acknowledge: Acknowledge,
        (channel, number): (u16, u64),
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> u32 {
        match acknowledge {
            Acknowledge::Each => {
                push_ack(channel, number, false, out);
                1
            }
            Acknowledge::None | Acknowledge::Never => 0,
            Acknowledge::Multiple { every } => {
                let place = usize::from(channel);
                if self.pending.len() <= place {
                    self.pending.resize(place + 1, (0, 0));
                }
                let (count, last) = &mut self.pending[place];
                (*count, *last) = (*count + 1, number);
                if *count < every {
                    return 0;
                }
                *count = 0;
                push_ack(channel, number, true, out);
                1
            }
            Acknowledge::Late { delay_ns } => {
                let due_ns = now_ns.saturating_add(delay_ns);
                let place = self.late.partition_point(|(other_ns, ..)| *other_ns <= due_ns);
                self.late.insert(place, (due_ns, channel, number));
                0
            }
        }
    }

    /// Instant of the next acknowledgement, in nanoseconds; `u64::MAX` if there is none.
    pub fn next_ns(&self) -> u64 {
        self.late.front().map_or(u64::MAX, |(due_ns, ..)| *due_ns)
    }

    /// Appends the acknowledgements whose instant has come. Returns their number.
    pub fn send_due(&mut self, now_ns: u64, out: &mut Vec<u8>) -> u64 {
        let count = self.late.partition_point(|(due_ns, ..)| *due_ns <= now_ns);
        self.late.drain(..count).for_each(|(_, channel, number)| {
            push_ack(channel, number, false, out);
        });
        count as u64
    }

    /// Appends the acknowledgements that wait for further deliveries. Returns their number.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> u64 {
        let mut packets = 0;
        for (channel, (count, last)) in self.pending.drain(..).enumerate() {
            if count > 0 {
                push_ack(channel as u16, last, true, out);
                packets += 1;
            }
        }
        packets
    }
}
