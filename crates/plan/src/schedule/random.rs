//! Chance as a pure function: value number `index` of a stream with a seed. Nothing is stored, so
//! every agent, and a second run, draws the same value for the same client and message.

/// A stream of random values that can be read at any index.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of one purpose; different `purpose`s are independent.
    #[must_use]
    pub const fn new(seed: u64, purpose: u64) -> Self {
        Self(mix(seed ^ mix(purpose)))
    }

    /// A sub-stream, such as that of one client.
    #[must_use]
    pub const fn of(self, index: u64) -> Self {
        Self(mix(self.0 ^ mix(index)))
    }

    /// The value: 64 uniform bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Uniform in `[0, 1)`.
    #[must_use]
    pub fn unit(self) -> f64 {
        (self.0 >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform below `end`, but for a bias of `end` / 2^64 (Lemire: "Fast random integer generation
    /// in an interval", 2019, without its rejection).
    #[must_use]
    pub const fn below(self, end: u64) -> u64 {
        ((self.0 as u128 * end as u128) >> 64) as u64
    }

    /// Standard normal, cut at four deviations (Box and Muller, 1958, on the two halves of
    /// the bits).
    #[must_use]
    pub fn normal(self) -> f64 {
        let u = (((self.0 >> 32) + 1) as f64) * (1.0 / 4_294_967_296.0);
        let v = ((self.0 & 0xffff_ffff) as f64) * (1.0 / 4_294_967_296.0);
        let value = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        value.clamp(-4.0, 4.0)
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", 2014).
const fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_values_are_uniform() {
        let stream = Random::new(7, 1);
        let mean = (0..10_000).map(|i| stream.of(i).unit()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "mean {mean}");
    }

    #[test]
    fn normal_values_have_mean_zero_and_deviation_one() {
        let stream = Random::new(7, 2);
        let values: Vec<f64> = (0..20_000).map(|i| stream.of(i).normal()).collect();
        let mean = values.iter().sum::<f64>() / 20_000.0;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.05, "variance {variance}");
        assert!(values.iter().all(|v| v.abs() <= 4.0));
    }
}
