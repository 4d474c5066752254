//! Read rate of a client that is slow on purpose: messages are read at equal distances on an
//! absolute schedule. The client keeps to its rate over any longer time, however late the loop
//! handles it. Times are in nanoseconds.

use plan::SECOND_NS;

/// Longest lag that a client catches up; older lag is forgiven.
const CREDIT_NS: u64 = 5_000_000;
/// Shortest time between two time slices for reading: each costs a timer and a system call.
const SLICE_NS: u64 = 1_000_000;

/// A read rate.
#[derive(Clone, Copy, Debug)]
pub struct ReadRate {
    period_ns: f64,
}

impl ReadRate {
    /// Read rate in messages a second.
    pub const fn new(rate_per_s: f64) -> Self {
        Self { period_ns: SECOND_NS as f64 / rate_per_s }
    }

    /// Number of messages that may be read at `now_ns`, at least one. The next message is scheduled
    /// at `due_ns`, which has passed.
    pub fn allowance(self, due_ns: u64, now_ns: u64) -> u64 {
        let since_ns = now_ns.saturating_sub(since(due_ns, now_ns));
        (since_ns as f64 / self.period_ns) as u64 + 1
    }

    /// Instant of the next message after `messages` were read.
    pub fn due_after(self, messages: u64, due_ns: u64, now_ns: u64) -> u64 {
        since(due_ns, now_ns) + (messages as f64 * self.period_ns).round() as u64
    }

    /// Instant of the next read, where the next message is scheduled at `due_ns`. At high rates one
    /// read takes several messages.
    pub fn resume_ns(self, due_ns: u64) -> u64 {
        due_ns + if self.period_ns < SLICE_NS as f64 { SLICE_NS } else { 0 }
    }
}

/// Instant of the next message, with older lag forgiven.
fn since(due_ns: u64, now_ns: u64) -> u64 {
    due_ns.max(now_ns.saturating_sub(CREDIT_NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages read until `end_ns` from an endless backlog, by a loop that is up to `late_ns` late
    /// in each time slice; and the most messages in one slice.
    fn read(rate_per_s: f64, end_ns: u64, late_ns: u64) -> (u64, u64) {
        let (rate, chance) = (ReadRate::new(rate_per_s), plan::Random::new(7, 0));
        let (mut now_ns, mut due_ns, mut messages, mut most) = (0, 0, 0, 0);
        while now_ns < end_ns {
            while due_ns <= now_ns {
                let slice = rate.allowance(due_ns, now_ns);
                due_ns = rate.due_after(slice, due_ns, now_ns);
                messages += slice;
                most = most.max(slice);
            }
            now_ns = rate.resume_ns(due_ns) + chance.of(messages).below(late_ns + 1);
        }
        (messages, most)
    }

    #[test]
    fn a_client_keeps_to_its_rate_however_late_the_loop_is() {
        for rate_per_s in [0.5, 1.0, 3.0, 250.0, 999.0, 1001.0, 30_000.0, 100_000.0, 700_000.0] {
            for seconds in [1u64, 10, 60] {
                for late_ns in [0, 60_000, 1_000_000, 3_000_000] {
                    let (messages, most) = read(rate_per_s, seconds * SECOND_NS, late_ns);
                    let expected = rate_per_s * seconds as f64;
                    let slices = rate_per_s * (SLICE_NS + late_ns) as f64 / SECOND_NS as f64;
                    let off = (messages as f64 - expected).abs();
                    assert!(
                        off <= slices + 1.0 + expected * 1e-3,
                        "{messages} of {expected} at {rate_per_s}/s, up to {late_ns} ns late"
                    );
                    let credit = rate_per_s * CREDIT_NS as f64 / SECOND_NS as f64;
                    assert!(most as f64 <= credit + 1.0, "{most} at once at {rate_per_s}/s");
                }
            }
        }
    }

    #[test]
    fn older_lag_is_forgiven() {
        let rate = ReadRate::new(1000.0);
        assert_eq!(rate.allowance(SECOND_NS, SECOND_NS), 1);
        assert_eq!(rate.allowance(SECOND_NS, 60 * SECOND_NS), 6);
        assert_eq!(rate.due_after(6, SECOND_NS, 60 * SECOND_NS), 60 * SECOND_NS + 1_000_000);
    }
}
