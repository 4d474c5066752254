//! How fast a client reads that is slow on purpose: its messages are due at equal distances on an
//! absolute schedule, so that it keeps to its rate over any longer time, however late the loop
//! comes to it. Times are in nanoseconds. It knows neither clients nor sockets.

use plan::SECOND_NS;

/// How far a client may lag behind its schedule and still catch up: what it has left unread for
/// longer, or what did not come, it does not make good.
const CREDIT_NS: u64 = 5_000_000;
/// Time between two turns of reading where messages are due more often: each costs a timer and a
/// call.
const TURN_NS: u64 = 1_000_000;

/// A read rate.
#[derive(Clone, Copy, Debug)]
pub struct ReadRate {
    period_ns: f64,
}

impl ReadRate {
    /// So many messages a second.
    pub const fn new(rate_per_s: f64) -> Self {
        Self { period_ns: SECOND_NS as f64 / rate_per_s }
    }

    /// How many messages may be read at `now_ns`, where the next one is due at `due_ns`, which has
    /// come: at least one.
    pub fn allowance(self, due_ns: u64, now_ns: u64) -> u64 {
        let since_ns = now_ns.saturating_sub(since(due_ns, now_ns));
        (since_ns as f64 / self.period_ns) as u64 + 1
    }

    /// When the next message is due after so many were read.
    pub fn due_after(self, messages: u64, due_ns: u64, now_ns: u64) -> u64 {
        since(due_ns, now_ns) + (messages as f64 * self.period_ns).round() as u64
    }

    /// When to read on, where the next message is due at `due_ns`: not for each message where
    /// several are due in a turn.
    pub fn resume_ns(self, due_ns: u64) -> u64 {
        due_ns + if self.period_ns < TURN_NS as f64 { TURN_NS } else { 0 }
    }
}

/// When the next message counts as due.
fn since(due_ns: u64, now_ns: u64) -> u64 {
    due_ns.max(now_ns.saturating_sub(CREDIT_NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages read until `end_ns` where as many are there as are wanted, by a loop that comes up
    /// to `late_ns` too late to each turn; and the most in one turn.
    fn read(rate_per_s: f64, end_ns: u64, late_ns: u64) -> (u64, u64) {
        let (rate, chance) = (ReadRate::new(rate_per_s), plan::Random::new(7, 0));
        let (mut now_ns, mut due_ns, mut messages, mut most) = (0, 0, 0, 0);
        while now_ns < end_ns {
            while due_ns <= now_ns {
                let turn = rate.allowance(due_ns, now_ns);
                due_ns = rate.due_after(turn, due_ns, now_ns);
                messages += turn;
                most = most.max(turn);
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
                    let turns = rate_per_s * (TURN_NS + late_ns) as f64 / SECOND_NS as f64;
                    let off = (messages as f64 - expected).abs();
                    assert!(
                        off <= turns + 1.0 + expected * 1e-3,
                        "{messages} of {expected} at {rate_per_s}/s, up to {late_ns} ns late"
                    );
                    let credit = rate_per_s * CREDIT_NS as f64 / SECOND_NS as f64;
                    assert!(most as f64 <= credit + 1.0, "{most} at once at {rate_per_s}/s");
                }
            }
        }
    }

    #[test]
    fn what_did_not_come_is_not_made_good() {
        let rate = ReadRate::new(1000.0);
        assert_eq!(rate.allowance(SECOND_NS, SECOND_NS), 1);
        assert_eq!(rate.allowance(SECOND_NS, 60 * SECOND_NS), 6);
        assert_eq!(rate.due_after(6, SECOND_NS, 60 * SECOND_NS), 60 * SECOND_NS + 1_000_000);
    }
}
