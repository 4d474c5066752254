//! Conditions of the link between a client and its target, which the engine plays in user space.

use serde::{Deserialize, Serialize};

use super::{Population, bounds};
use crate::SECOND_NS;
use crate::error::{PlanError, require};

/// Bytes that wait in front of a link with a rate: the buffer of a device.
const BUFFER_BYTES: u64 = 64 * 1024;
/// Bytes that each direction of a link holds at most.
const LINK_BYTES: u64 = 512 * 1024;
/// Lowest rate, in bits a second.
const RATE_MIN: u64 = 8_000;
/// Highest rate, in bits a second.
const RATE_MAX: u64 = 100_000_000_000;

/// Conditions of a link from an instant of a stage on, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkConditions {
    /// Time after the start of a publish or hold stage, in nanoseconds. The first conditions, at 0,
    /// hold in all other stages too.
    #[serde(deserialize_with = "bounds::number")]
    pub after_ns: u64,
    /// Delay in each direction, in nanoseconds.
    #[serde(deserialize_with = "bounds::number")]
    pub delay_ns: u64,
    /// Largest difference from the delay, in nanoseconds, at most the delay.
    #[serde(deserialize_with = "bounds::number")]
    pub jitter_ns: u64,
    /// Share of the segments that come one retransmission later.
    pub loss: f64,
    /// Rate in each direction, in bits a second; `None`: no limit.
    pub bits_per_s: Option<u64>,
}

impl LinkConditions {
    /// Bytes that each direction holds: what its rate carries in the longest delay, and a buffer
    /// in front of it. The sender waits while the direction is full.
    #[must_use]
    pub fn room_bytes(&self) -> u64 {
        let Some(bits_per_s) = self.bits_per_s else { return LINK_BYTES };
        let longest_ns = u128::from(self.delay_ns + self.jitter_ns);
        let carried = u128::from(bits_per_s) * longest_ns / 8 / u128::from(SECOND_NS);
        BUFFER_BYTES.saturating_add(u64::try_from(carried).unwrap_or(u64::MAX))
    }

    fn check(&self, path: &str) -> Result<(), PlanError> {
        require(self.jitter_ns <= self.delay_ns, &format!("{path}.jitter_ns"), || {
            format!("found {}, allowed is up to the delay, {}", self.jitter_ns, self.delay_ns)
        })?;
        require((0.0..1.0).contains(&self.loss), &format!("{path}.loss"), || {
            format!("found {}, allowed is 0 to below 1", self.loss)
        })?;
        let rate = self.bits_per_s.unwrap_or(RATE_MIN);
        require((RATE_MIN..=RATE_MAX).contains(&rate), &format!("{path}.bits_per_s"), || {
            format!("found {rate}, allowed are {RATE_MIN} to {RATE_MAX}")
        })?;
        require(self.room_bytes() <= LINK_BYTES, path, || {
            let most = LINK_BYTES - BUFFER_BYTES;
            format!("found more than {most} bytes under way at the rate, allowed are {most}")
        })
    }
}

impl Population {
    pub(crate) fn check_link(&self, path: &str) -> Result<(), PlanError> {
        let path = format!("{path}.link");
        for (c, conditions) in self.link.iter().enumerate() {
            conditions.check(&format!("{path}[{c}]"))?;
        }
        let first = self.link.first().map_or(0, |first| first.after_ns);
        let ascends = self.link.is_sorted_by(|a, b| a.after_ns < b.after_ns);
        require(first == 0 && ascends, &path, || {
            "allowed are conditions at 0 and then in the order of time".into()
        })?;
        require(self.link.is_empty() || self.is_played_by_engines(), &path, || {
            "found a link of clients that other programs play, allowed are clients of engines"
                .into()
        })
    }
}
