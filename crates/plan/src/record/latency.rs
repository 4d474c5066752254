//! Latencies of messages: from the intended send, from the actual send, and the parts of the
//! former. Messages that follow each other are mostly alike, and are counted in batches.

use crate::record::delays::{Delays, Waits, add_wait};
use crate::record::histogram::{Histogram, MAX_NS, shift};
use crate::record::sent_at::SentAt;

/// Histograms and delays of one kind of latency.
pub struct Latencies<'a> {
    /// Time from the intended send.
    pub intended: &'a mut Histogram,
    /// Time from the actual send.
    pub actual: &'a mut Histogram,
    /// Parts of the time from the intended send.
    pub delays: &'a mut Delays,
}

/// Latencies that are in one bucket of each of the two histograms, not yet added to these.
#[derive(Clone, Copy, Debug)]
pub struct LatencyBatch {
    count: u64,
    intended: BucketSums,
    actual: BucketSums,
    waits: Waits,
}

/// Durations of one bucket.
#[derive(Clone, Copy, Debug)]
struct BucketSums {
    /// Shortest duration of the bucket, in nanoseconds.
    low_ns: u64,
    width_ns: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

impl Latencies<'_> {
    /// Counts a message that arrived at `now_ns`.
    #[inline]
    pub fn record(&mut self, now_ns: u64, intended_ns: u64, sent: SentAt) {
        let latency_ns = now_ns.wrapping_sub(intended_ns).cast_signed();
        self.intended.record(latency_ns);
        self.actual.record(latency_ns.wrapping_sub(sent.lateness_ns(intended_ns)));
        self.delays.record(latency_ns, intended_ns, sent);
    }
}

impl LatencyBatch {
    /// No latencies.
    pub const EMPTY: Self = Self {
        count: 0,
        intended: BucketSums::at(0, 0),
        actual: BucketSums::at(0, 0),
        waits: [0; 3],
    };

    /// Counts a message that arrived at `now_ns`. Returns `false` and counts nothing if one of its
    /// latencies is outside the buckets, or if the message has waited:
    /// [`LatencyBatch::record_rest`] counts such a message.
    #[inline]
    #[must_use]
    pub fn record(&mut self, now_ns: u64, intended_ns: u64, sent: SentAt) -> bool {
        // The word of a message that has waited is in no bucket: its difference is too large.
        self.add(now_ns.wrapping_sub(intended_ns), now_ns.wrapping_sub(sent.word()))
    }

    /// Counts any message that arrived at `now_ns`. The batch begins anew with its buckets if the
    /// message is outside the buckets.
    pub fn record_rest(
        &mut self,
        (now_ns, intended_ns): (u64, u64),
        sent: SentAt,
        latencies: &mut Latencies<'_>,
    ) {
        let latency_ns = now_ns.wrapping_sub(intended_ns);
        let after_ns = now_ns.wrapping_sub(sent.actual_ns(intended_ns));
        if !self.add(latency_ns, after_ns) {
            self.flush(latencies);
            if latency_ns.cast_signed() < 0 || after_ns.cast_signed() < 0 {
                return latencies.record(now_ns, intended_ns, sent);
            }
            let (intended, actual) = (BucketSums::around(latency_ns), BucketSums::around(after_ns));
            *self = Self { count: 1, intended, actual, waits: Waits::default() };
        }
        add_wait(&mut self.waits, intended_ns, sent);
    }

    /// Adds the latencies to the histograms and their parts to the delays.
    pub fn flush(&mut self, latencies: &mut Latencies<'_>) {
        let count = std::mem::take(&mut self.count);
        if count > 0 {
            let Self { intended, actual, waits, .. } = self;
            intended.flush(count, latencies.intended);
            actual.flush(count, latencies.actual);
            let lateness_ns = intended.sum_ns.saturating_sub(actual.sum_ns);
            latencies.delays.add_cell(intended.low_ns, lateness_ns, waits);
            *waits = Waits::default();
        }
    }

    #[inline]
    fn add(&mut self, latency_ns: u64, after_ns: u64) -> bool {
        let is_inside =
            self.count > 0 && self.intended.has(latency_ns) && self.actual.has(after_ns);
        if is_inside {
            self.count += 1;
            self.intended.add(latency_ns);
            self.actual.add(after_ns);
        }
        is_inside
    }
}

impl BucketSums {
    const fn at(low_ns: u64, width_ns: u64) -> Self {
        Self { low_ns, width_ns, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }

    /// The bucket of a duration, with this one.
    #[inline]
    fn around(ns: u64) -> Self {
        let bucketed_ns = ns.min(MAX_NS);
        let shift = shift(bucketed_ns);
        let mut part = Self::at(bucketed_ns >> shift << shift, (1 << shift) - 1);
        part.add(ns);
        part
    }

    /// Returns `true` if a duration is in the bucket. A negative one is in none, since as an
    /// unsigned number it is too large.
    #[inline]
    const fn has(&self, ns: u64) -> bool {
        ns.wrapping_sub(self.low_ns) <= self.width_ns
    }

    #[inline]
    fn add(&mut self, ns: u64) {
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds `count` durations to a histogram.
    fn flush(&self, count: u64, histogram: &mut Histogram) {
        histogram.add_bucket(self.low_ns, count, self.sum_ns, (self.min_ns, self.max_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sent_at::WaitCause;
    use proptest::prelude::*;

    const NOW_NS: u64 = 1 << 50;

    type Counted = (Histogram, Histogram, Delays);

    fn latencies((intended, actual, delays): &mut Counted) -> Latencies<'_> {
        Latencies { intended, actual, delays }
    }

    /// A latency, of which many are in one bucket, some negative and some beyond the last bucket;
    /// with a lateness, and the share of a wait.
    fn message() -> impl Strategy<Value = (i64, u64, Option<u64>)> {
        let latency_ns = prop_oneof![-5i64..300, 9_990i64..10_000, (1i64 << 43)..(1 << 45)];
        (latency_ns, prop_oneof![0u64..40, 0..9_990u64], prop::option::of(0u64..=64))
    }

    proptest! {
        #[test]
        fn a_batch_counts_as_its_messages_one_by_one(
            messages in prop::collection::vec(message(), 0..50),
        ) {
            let (mut one_by_one, mut batched, mut batch) =
                (Counted::default(), Counted::default(), LatencyBatch::EMPTY);
            for &(latency_ns, lateness_ns, share) in &messages {
                let intended_ns = NOW_NS.wrapping_add_signed(-latency_ns);
                let actual_ns = intended_ns + lateness_ns;
                let sent = share.map_or_else(
                    || SentAt::plain(actual_ns),
                    |share| {
                        let until_ns = intended_ns + lateness_ns * share / 64;
                        SentAt::after(WaitCause::Socket, actual_ns, intended_ns, until_ns)
                    },
                );
                latencies(&mut one_by_one).record(NOW_NS, intended_ns, sent);
                if !batch.record(NOW_NS, intended_ns, sent) {
                    batch.record_rest((NOW_NS, intended_ns), sent, &mut latencies(&mut batched));
                }
            }
            batch.flush(&mut latencies(&mut batched));
            batch.flush(&mut latencies(&mut batched));
            prop_assert_eq!(&batched, &one_by_one);
            let negative = messages.iter().filter(|&&(latency_ns, ..)| latency_ns < 0).count();
            prop_assert_eq!(batched.0.count() as usize, messages.len() - negative);
        }

        #[test]
        fn messages_with_any_times_are_counted(
            messages in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..50),
        ) {
            let (mut counted, mut batch) = (Counted::default(), LatencyBatch::EMPTY);
            for &(now_ns, intended_ns, word) in &messages {
                let sent = SentAt::of_word(word);
                latencies(&mut counted).record(now_ns, intended_ns, sent);
                batch.record_rest((now_ns, intended_ns), sent, &mut latencies(&mut counted));
            }
            batch.flush(&mut latencies(&mut counted));
            let (intended, _, delays) = &mut counted;
            intended.add(&intended.clone());
            delays.add(&delays.clone());
            let mut all = serde_json::to_value(&counted.0).unwrap();
            let negative = all["negative_total"].take().as_u64().unwrap();
            prop_assert_eq!(counted.0.count() + negative, 4 * messages.len() as u64);
        }
    }
}
