//! The rate of a publish stage over time: points, between which the factor of the planned rate is
//! linear. Before the first point and after the last one the factor is constant.

use serde::{Deserialize, Serialize};

use crate::model::bounds;

/// Point of a rate profile. Two points of one instant are a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatePoint {
    /// Time after the start of the stage, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub after_ns: u64,
    /// Factor of the planned rate.
    pub factor: f64,
}

/// Most points of a profile.
pub const POINTS_MAX: usize = 100_000;

/// Factor at an instant; 1 without points.
pub fn factor_at(points: &[RatePoint], at_ns: u64) -> f64 {
    let after = points.partition_point(|point| point.after_ns <= at_ns);
    match (after.checked_sub(1).map(|before| points[before]), points.get(after)) {
        (None, None) => 1.0,
        (Some(only), None) => only.factor,
        (None, Some(only)) => only.factor,
        (Some(before), Some(next)) => {
            let passed = (at_ns - before.after_ns) as f64;
            let length = (next.after_ns - before.after_ns) as f64;
            before.factor + (next.factor - before.factor) * (passed / length)
        }
    }
}

/// Largest factor between two instants.
pub fn largest(points: &[RatePoint], (from_ns, to_ns): (u64, u64)) -> f64 {
    let within = points.iter().filter(|point| (from_ns..=to_ns).contains(&point.after_ns));
    let ends = factor_at(points, from_ns).max(factor_at(points, to_ns));
    within.map(|point| point.factor).fold(ends, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(of: &[(u64, f64)]) -> Vec<RatePoint> {
        of.iter().map(|&(after_ns, factor)| RatePoint { after_ns, factor }).collect()
    }

    #[test]
    fn factors_are_linear_between_points_and_constant_outside() {
        let profile = points(&[(10, 1.0), (20, 3.0), (20, 0.0), (30, 0.5)]);
        for (at_ns, factor) in
            [(0, 1.0), (10, 1.0), (15, 2.0), (19, 2.8), (20, 0.0), (26, 0.3), (30, 0.5), (99, 0.5)]
        {
            assert!((factor_at(&profile, at_ns) - factor).abs() < 1e-12, "at {at_ns}");
        }
        assert_eq!(factor_at(&[], 7), 1.0);
    }

    #[test]
    fn the_largest_factor_may_lie_at_a_point_or_at_an_end() {
        let profile = points(&[(10, 1.0), (20, 3.0), (30, 0.0)]);
        for (span, largest_factor) in
            [((0, 5), 1.0), ((0, 15), 2.0), ((0, 99), 3.0), ((25, 99), 1.5), ((40, 50), 0.0)]
        {
            assert_eq!(largest(&profile, span), largest_factor, "{span:?}");
        }
    }
}
