//! Bounds of the numbers of a plan and of its commands, which hold where the numbers are read.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// Largest duration and instant in nanoseconds, and largest number of a client. The sum of three
/// such numbers fits into 64 bits.
pub const NUMBER_MAX: u64 = 1 << 62;
/// Lowest rate: one event in 116 days.
const RATE_MIN_PER_S: f64 = 1e-7;
/// Highest rate: one event in each nanosecond.
const RATE_MAX_PER_S: f64 = 1e9;

/// Reads a duration, an instant or a number of a client.
pub fn number<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
    let found = u64::deserialize(from)?;
    if found > NUMBER_MAX {
        return Err(D::Error::custom(format!("found {found}, allowed are up to {NUMBER_MAX}")));
    }
    Ok(found)
}

/// Reads a duration that may be absent.
pub fn some_number<'a, D: Deserializer<'a>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    struct Bounded(#[serde(deserialize_with = "number")] u64);
    Ok(Option::<Bounded>::deserialize(from)?.map(|Bounded(number)| number))
}

/// Reads a rate that may be absent.
pub fn some_rate<'a, D: Deserializer<'a>>(from: D) -> Result<Option<f64>, D::Error> {
    let rate = Option::<f64>::deserialize(from)?;
    let allowed = RATE_MIN_PER_S..=RATE_MAX_PER_S;
    match rate.filter(|rate| !allowed.contains(rate)) {
        None => Ok(rate),
        Some(found) => Err(D::Error::custom(format!(
            "found {found:e}/s, allowed are {RATE_MIN_PER_S:e}/s to {RATE_MAX_PER_S:e}/s"
        ))),
    }
}
