//! An agent that follows a reference clock for a minute of virtual time: whatever the network does
//! to the exchanges, its time is never off by more than it says, and never runs backwards.

use agent::clock::estimator::{Estimator, Exchange};
use agent::clock::steering::Steering;
use proptest::collection::vec;
use proptest::prelude::*;

const MS: i64 = 1_000_000;
const HOUR_NS: i64 = 3_600_000 * MS;
/// Of rounding, in nanoseconds.
const SLACK_NS: u64 = 4;

/// Half a second of it.
#[derive(Clone, Debug)]
struct Turn {
    /// Travel times of the questions and answers of a burst, in nanoseconds; empty if all are lost.
    ways_ns: Vec<(i64, i64)>,
    /// Pauses between looks at the clock.
    looks_ns: Vec<i64>,
    /// The agent reports the clock's state at the end.
    reports: bool,
}

/// The reference clock as the host's clock would have it.
#[derive(Clone, Copy, Debug)]
struct Truth {
    lead_ns: i64,
    rate_ppb: i64,
}

impl Truth {
    fn at(&self, host_ns: i64) -> i64 {
        let gained = i128::from(host_ns) * i128::from(self.rate_ppb);
        host_ns + self.lead_ns + gained.div_euclid(1_000_000_000) as i64
    }

    /// A burst from an instant of the host's clock on; returns when it is over.
    fn burst(&self, estimator: &mut Estimator, mut host_ns: i64, ways_ns: &[(i64, i64)]) -> i64 {
        let mut exchanges = Vec::new();
        for (there_ns, back_ns) in ways_ns {
            let asked_ns = host_ns;
            let came_ns = self.at(asked_ns + there_ns);
            host_ns += there_ns + back_ns;
            exchanges.push(Exchange { asked_ns, came_ns, left_ns: came_ns, answered_ns: host_ns });
        }
        estimator.add(&exchanges);
        host_ns
    }
}

/// Mostly tens of microseconds, sometimes milliseconds.
fn way_ns() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 10_000i64..100_000, 1 => 100_000i64..20 * MS]
}

prop_compose! {
    fn turns()(
        ways_ns in prop_oneof![6 => vec((way_ns(), way_ns()), 1..9), 1 => Just(Vec::new())],
        looks_ns in vec(prop_oneof![0i64..1000, 0i64..200 * MS], 0..12),
        reports: bool,
    ) -> Turn {
        Turn { ways_ns, looks_ns, reports }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_time_is_never_off_by_more_than_it_says(
        lead_ns in -HOUR_NS..HOUR_NS,
        rate_ppb in -500_000i64..500_000,
        first in vec((way_ns(), way_ns()), 1..17),
        turns in vec(turns(), 1..120),
    ) {
        let truth = Truth { lead_ns, rate_ppb };
        let mut estimator = Estimator::default();
        let mut host_ns = truth.burst(&mut estimator, 0, &first);
        let mut steering = Steering::new(estimator.estimate().unwrap(), host_ns);
        let (mut before_ns, mut off_ns) = (i64::MIN, 0);
        for turn in turns {
            for pause_ns in turn.looks_ns {
                host_ns += pause_ns;
                let now_ns = steering.apply(host_ns);
                prop_assert!(now_ns >= before_ns);
                before_ns = now_ns;
                off_ns = off_ns.max(now_ns.abs_diff(truth.at(host_ns)));
            }
            host_ns = truth.burst(&mut estimator, host_ns, &turn.ways_ns);
            if !turn.ways_ns.is_empty() {
                steering = steering.towards(estimator.estimate().unwrap(), host_ns);
            }
            if turn.reports {
                let state = steering.take_state(host_ns);
                prop_assert!(off_ns <= state.bound_ns + SLACK_NS, "{off_ns}: {state:?}");
                off_ns = 0;
            }
        }
    }
}
