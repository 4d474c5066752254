//! Counts of durations in log-linear buckets. Durations below 256 ns are exact. Each further power
//! of two has 128 buckets, so a bucket is at most 0.8 % wide (the layout of HdrHistogram with seven
//! bits). Histograms add up; percentiles are computed from sums only.

use serde::{Deserialize, Serialize};

const SUB_BITS: u32 = 7;
const LINEAR: u64 = 1 << (SUB_BITS + 1);
/// Longest duration with a bucket of its own: 4.9 hours. The last bucket also counts longer
/// durations.
pub(crate) const MAX_NS: u64 = (1 << 44) - 1;

/// A histogram of signed durations in nanoseconds. Negative durations, which only wrong clocks
/// cause, are counted separately and have no bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, from = "StoredHistogram", into = "StoredHistogram")]
pub struct Histogram {
    count: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    negative_total: u64,
    negative_min_ns: i64,
    buckets: Vec<u64>,
}

/// JSON form: buckets as `[index, count]`, without empty buckets.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredHistogram {
    count: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    negative_total: u64,
    negative_min_ns: i64,
    buckets: Vec<(u32, u64)>,
}

/// Width of the bucket of a duration, as a power of two, in nanoseconds.
#[inline]
pub(crate) const fn shift(ns: u64) -> u32 {
    63 - (ns | LINEAR >> 1).leading_zeros() - SUB_BITS
}

impl Histogram {
    /// Counts one duration, in nanoseconds.
    #[inline]
    pub fn record(&mut self, duration_ns: i64) {
        let Ok(ns) = u64::try_from(duration_ns) else { return self.record_negative(duration_ns) };
        let index = Self::index(ns);
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, 0);
        }
        self.buckets[index] += 1;
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.count += 1;
    }

    #[cold]
    fn record_negative(&mut self, duration_ns: i64) {
        self.negative_total += 1;
        self.negative_min_ns = self.negative_min_ns.min(duration_ns);
    }

    /// Counts durations of one bucket: one of them, their number, sum, least and largest.
    pub(crate) fn add_bucket(&mut self, ns: u64, count: u64, sum_ns: u64, range_ns: (u64, u64)) {
        let index = Self::index(ns);
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, 0);
        }
        self.buckets[index] += count;
        let (min_ns, max_ns) = range_ns;
        self.min_ns = if self.count == 0 { min_ns } else { self.min_ns.min(min_ns) };
        self.max_ns = self.max_ns.max(max_ns);
        self.sum_ns = self.sum_ns.saturating_add(sum_ns);
        self.count += count;
    }

    /// Number of durations, without negative durations.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Self) {
        if other.count > 0 {
            self.min_ns =
                if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        }
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.negative_total += other.negative_total;
        self.negative_min_ns = self.negative_min_ns.min(other.negative_min_ns);
        if other.buckets.len() > self.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
    }

    /// Duration that a fraction `quantile` (0 to 1) of the counts does not exceed, in nanoseconds.
    /// The value is the upper end of the bucket, at most the largest duration; 0 if the histogram
    /// is empty.
    #[must_use]
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let rank = ((quantile.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Self::upper_ns(index).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// Index of the bucket that holds `ns`.
    #[must_use]
    pub const fn index(ns: u64) -> usize {
        let ns = if ns > MAX_NS { MAX_NS } else { ns };
        let shift = shift(ns);
        ((shift as usize) << SUB_BITS) + (ns >> shift) as usize
    }

    /// Largest duration in bucket `index`, in nanoseconds.
    #[must_use]
    pub const fn upper_ns(index: usize) -> u64 {
        if index < LINEAR as usize {
            return index as u64;
        }
        let shift = (index >> SUB_BITS) - 1;
        let mantissa = (index - (shift << SUB_BITS)) as u64;
        ((mantissa + 1) << shift) - 1
    }
}

impl From<StoredHistogram> for Histogram {
    fn from(stored: StoredHistogram) -> Self {
        let mut buckets = Vec::new();
        let last = Self::index(MAX_NS);
        for (index, count) in stored.buckets {
            let index = (index as usize).min(last);
            if index >= buckets.len() {
                buckets.resize(index + 1, 0);
            }
            buckets[index] += count;
        }
        Self {
            count: stored.count,
            sum_ns: stored.sum_ns,
            min_ns: stored.min_ns,
            max_ns: stored.max_ns,
            negative_total: stored.negative_total,
            negative_min_ns: stored.negative_min_ns,
            buckets,
        }
    }
}

impl From<Histogram> for StoredHistogram {
    fn from(histogram: Histogram) -> Self {
        let filled = histogram.buckets.iter().enumerate().filter(|&(_, &count)| count > 0);
        Self {
            count: histogram.count,
            sum_ns: histogram.sum_ns,
            min_ns: histogram.min_ns,
            max_ns: histogram.max_ns,
            negative_total: histogram.negative_total,
            negative_min_ns: histogram.negative_min_ns,
            buckets: filled.map(|(index, &count)| (index as u32, count)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[i64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|&v| histogram.record(v));
        histogram
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket_and_the_bucket_is_narrow(ns in 0..=MAX_NS) {
            let index = Histogram::index(ns);
            let upper = Histogram::upper_ns(index);
            prop_assert!(ns <= upper);
            prop_assert!(upper - ns <= ns / 128);
            prop_assert!(index == 0 || Histogram::upper_ns(index - 1) < ns);
        }

        #[test]
        fn adding_is_associative_and_keeps_every_value(
            a in prop::collection::vec(-5i64..1 << 40, 0..50),
            b in prop::collection::vec(-5i64..1 << 40, 0..50),
            c in prop::collection::vec(-5i64..1 << 40, 0..50),
        ) {
            let (mut left, mut right) = (of(&a), of(&b));
            left.add(&of(&b));
            left.add(&of(&c));
            right.add(&of(&c));
            let mut whole = of(&a);
            whole.add(&right);
            prop_assert_eq!(&left, &whole);
            let all: Vec<i64> = [a, b, c].concat();
            prop_assert_eq!(&whole, &of(&all));
        }
    }

    #[test]
    fn the_json_form_leaves_empty_buckets_out() {
        let histogram = of(&[5, 5, 1000, -3]);
        let json = serde_json::to_string(&histogram).unwrap();
        assert!(json.ends_with(r#""buckets":[[5,2],[506,1]]}"#), "{json}");
        assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), histogram);
    }

    #[test]
    fn quantiles_are_upper_ends_and_never_above_the_maximum() {
        let histogram = of(&(1..=1000).map(|v| v * 1000).collect::<Vec<_>>());
        assert_eq!(histogram.quantile_ns(1.0), 1_000_000);
        let p50 = histogram.quantile_ns(0.5);
        assert!((500_000..=504_000).contains(&p50), "{p50}");
        assert_eq!(Histogram::default().quantile_ns(0.99), 0);
    }
}
