//! A host's clock that is read wrongly on purpose, by an offset and a rate: how tests show that
//! clocks of several hosts are reckoned right. Pure arithmetic.

/// Skew of a clock.
#[derive(Clone, Copy, Debug)]
pub struct Skew {
    /// The instant at which it is wrong by the offset alone, by CLOCK_MONOTONIC.
    pub since_ns: u64,
    /// Offset, in nanoseconds.
    pub offset_ns: i64,
    /// Drift, in parts of 10^9.
    pub rate_ppb: i64,
}

const BILLION: i128 = 1_000_000_000;

impl Skew {
    /// Skewed time at an instant of CLOCK_MONOTONIC.
    pub fn apply(&self, monotonic_ns: u64) -> i64 {
        let elapsed_ns = i128::from(monotonic_ns) - i128::from(self.since_ns);
        let gained_ns = (elapsed_ns * i128::from(self.rate_ppb)).div_euclid(BILLION);
        clamped(i128::from(monotonic_ns) + i128::from(self.offset_ns) + gained_ns)
    }

    /// The first instant of CLOCK_MONOTONIC at which at least `read_ns` is read.
    pub fn invert(&self, read_ns: i64) -> u64 {
        let elapsed_ns =
            i128::from(read_ns) - i128::from(self.offset_ns) - i128::from(self.since_ns);
        // The least e with floor(e (10^9 + rate) / 10^9) >= elapsed.
        let rate = BILLION + i128::from(self.rate_ppb);
        let own_ns = -(-elapsed_ns * BILLION).div_euclid(rate);
        clamped(i128::from(self.since_ns) + own_ns).max(0).unsigned_abs()
    }
}

fn clamped(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const YEAR_NS: i64 = 365 * 86_400 * 1_000_000_000;

    proptest! {
        #[test]
        fn it_is_inverted_to_the_nanosecond(
            since_ns in 0u64..1 << 60,
            offset_ns in -30 * YEAR_NS..30 * YEAR_NS,
            rate_ppb in -100_000_000i64..100_000_000,
            elapsed_ns in 0u64..1 << 50,
        ) {
            let skew = Skew { since_ns, offset_ns, rate_ppb };
            let instant_ns = since_ns + elapsed_ns;
            let found_ns = skew.invert(skew.apply(instant_ns));
            prop_assert_eq!(skew.apply(found_ns), skew.apply(instant_ns));
            prop_assert!(found_ns <= instant_ns && instant_ns - found_ns <= 2);
        }
    }

    #[test]
    fn a_clock_that_gains_a_millionth_is_a_microsecond_ahead_after_a_second() {
        let skew = Skew { since_ns: 1000, offset_ns: -7, rate_ppb: 1000 };
        assert_eq!(skew.apply(1000), 993);
        assert_eq!(skew.apply(1_000_001_000), 1_000_001_993);
    }
}
