//! What deliveries mean to the counts of their flow. It knows neither ledger nor protocol.

use plan::{FlowSnapshot, Stamp};

use crate::ledger::Delivery;

/// Deliveries of one flow that were read together.
pub struct Arrivals<'a> {
    flow: &'a mut FlowSnapshot,
    /// Whether the receiver is owed what is published, and not what it receives.
    judged: bool,
    now_ns: i64,
}

impl<'a> Arrivals<'a> {
    /// Deliveries read at `now_ns`.
    pub const fn new(flow: &'a mut FlowSnapshot, judged: bool, now_ns: u64) -> Self {
        Self { flow, judged, now_ns: now_ns.cast_signed() }
    }

    /// Counts one.
    #[inline]
    pub fn note(&mut self, delivery: Delivery, stamp: &Stamp) {
        let (counters, judged) = (&mut self.flow.counters, self.judged);
        match delivery {
            Delivery::Duplicate => {
                counters.duplicate_total += 1;
                return;
            }
            Delivery::Stale => {
                counters.stale_total += 1;
                return;
            }
            Delivery::First { passed_over } => {
                // Whoever was away has missed nothing that it ought to have had.
                counters.missing_total += i64::from(passed_over) * i64::from(judged);
            }
            Delivery::Reordered { filled } => {
                counters.reordered_total += 1;
                counters.missing_total -= i64::from(filled && judged);
            }
            Delivery::Unfollowed => {}
        }
        counters.received_total += 1;
        counters.expected_total += i64::from(!judged);
        self.flow.latency_intended.record(self.now_ns - stamp.intended_ns.cast_signed());
        self.flow.latency_actual.record(self.now_ns - stamp.actual_ns.cast_signed());
    }
}
