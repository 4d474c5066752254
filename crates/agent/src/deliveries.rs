//! Counters of a flow, from classified deliveries.

use plan::{Batch, FlowCounters, FlowSnapshot, Stamp};

use crate::ledger::Delivery;

/// Deliveries of one flow that were read together.
pub struct Deliveries<'a> {
    counters: &'a mut FlowCounters,
    /// Deliveries of the stage to the client; `None` if they are not counted.
    of_client: Option<&'a mut u32>,
    unfollowed_total: &'a mut u64,
    /// Deliveries that the counters do not contain yet.
    received: i64,
    /// Deliveries that the ledger does not follow.
    unfollowed: u64,
    intended: Batch<'a>,
    actual: Batch<'a>,
    /// `false` if the receiver is excluded from loss.
    counts_loss: bool,
    now_ns: i64,
}

impl<'a> Deliveries<'a> {
    /// Deliveries read at `now_ns`. Deliveries that the ledger does not follow are also counted
    /// apart.
    #[inline]
    pub(crate) const fn new(
        flow: &'a mut FlowSnapshot,
        of_client: Option<&'a mut u32>,
        unfollowed_total: &'a mut u64,
        counts_loss: bool,
        now_ns: u64,
    ) -> Self {
        let FlowSnapshot { counters, latency_intended, latency_actual, .. } = flow;
        Self {
            counters,
            of_client,
            unfollowed_total,
            received: 0,
            unfollowed: 0,
            intended: latency_intended.batch(),
            actual: latency_actual.batch(),
            counts_loss,
            now_ns: now_ns.cast_signed(),
        }
    }

    /// Counts one delivery. Returns `true` if it counts as received.
    #[inline]
    pub fn note(&mut self, delivery: Delivery, stamp: &Stamp) -> bool {
        if !is_received(self.counters, delivery, self.counts_loss) {
            return false;
        }
        self.unfollowed += u64::from(delivery == Delivery::Unfollowed);
        self.received += 1;
        self.intended.record(self.now_ns - stamp.intended_ns.cast_signed());
        self.actual.record(self.now_ns - stamp.actual_ns.cast_signed());
        true
    }
}

/// Counts a delivery by its class. Returns `true` if it counts as received.
#[inline]
pub fn is_received(counters: &mut FlowCounters, delivery: Delivery, counts_loss: bool) -> bool {
    match delivery {
        Delivery::Duplicate => {
            counters.duplicate_total += 1;
            return false;
        }
        Delivery::Stale => {
            counters.stale_total += 1;
            return false;
        }
        Delivery::First { passed_over: 0 } | Delivery::Unfollowed => {}
        Delivery::First { passed_over } => {
            // Gaps do not count for receivers that may have been offline.
            counters.missing_total += i64::from(passed_over) * i64::from(counts_loss);
        }
        Delivery::Reordered { filled } => {
            counters.reordered_total += 1;
            counters.missing_total -= i64::from(filled && counts_loss);
        }
    }
    true
}

impl Drop for Deliveries<'_> {
    #[inline]
    fn drop(&mut self) {
        self.counters.received_total += self.received;
        if let Some(deliveries) = &mut self.of_client {
            **deliveries = deliveries.saturating_add(self.received as u32);
        }
        *self.unfollowed_total += self.unfollowed;
        self.counters.expected_total += if self.counts_loss { 0 } else { self.received };
    }
}
