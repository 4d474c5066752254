//! What deliveries mean to the counts of their flow. It knows neither ledger nor protocol.

use plan::{Batch, FlowCounters, FlowSnapshot, Stamp};

use crate::ledger::Delivery;

/// Deliveries of one flow that were read together.
pub struct Deliveries<'a> {
    counters: &'a mut FlowCounters,
    unfollowed_total: &'a mut u64,
    /// Those that are not in the counters yet.
    received: i64,
    /// Those of them that the ledger does not follow.
    unfollowed: u64,
    intended: Batch<'a>,
    actual: Batch<'a>,
    /// Whether the receiver is owed what is published, and not what it receives.
    judged: bool,
    now_ns: i64,
}

impl<'a> Deliveries<'a> {
    /// Deliveries read at `now_ns`; those that the ledger does not follow are counted apart too.
    #[inline]
    pub(crate) const fn new(
        flow: &'a mut FlowSnapshot,
        unfollowed_total: &'a mut u64,
        judged: bool,
        now_ns: u64,
    ) -> Self {
        let FlowSnapshot { counters, latency_intended, latency_actual, .. } = flow;
        Self {
            counters,
            unfollowed_total,
            received: 0,
            unfollowed: 0,
            intended: latency_intended.batch(),
            actual: latency_actual.batch(),
            judged,
            now_ns: now_ns.cast_signed(),
        }
    }

    /// Counts one.
    #[inline]
    pub fn note(&mut self, delivery: Delivery, stamp: &Stamp) {
        let (counters, judged) = (&mut *self.counters, self.judged);
        match delivery {
            Delivery::Duplicate => {
                counters.duplicate_total += 1;
                return;
            }
            Delivery::Stale => {
                counters.stale_total += 1;
                return;
            }
            Delivery::First { passed_over: 0 } => {}
            Delivery::Unfollowed => self.unfollowed += 1,
            Delivery::First { passed_over } => {
                // Whoever was away has missed nothing that it ought to have had.
                counters.missing_total += i64::from(passed_over) * i64::from(judged);
            }
            Delivery::Reordered { filled } => {
                counters.reordered_total += 1;
                counters.missing_total -= i64::from(filled && judged);
            }
        }
        self.received += 1;
        self.intended.record(self.now_ns - stamp.intended_ns.cast_signed());
        self.actual.record(self.now_ns - stamp.actual_ns.cast_signed());
    }
}

impl Drop for Deliveries<'_> {
    #[inline]
    fn drop(&mut self) {
        self.counters.received_total += self.received;
        *self.unfollowed_total += self.unfollowed;
        self.counters.expected_total += if self.judged { 0 } else { self.received };
    }
}
