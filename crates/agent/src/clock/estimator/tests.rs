use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const MS: i64 = 1_000_000;
const YEAR_NS: i64 = 365 * 86_400 * 1_000_000_000;

/// Offset and rate of a reference clock against the host's clock.
#[derive(Clone, Copy, Debug)]
struct Truth {
    lead_ns: i64,
    /// In parts of 10^9.
    rate_ppb: i64,
}

/// Durations of one exchange, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Way {
    pause_ns: i64,
    there_ns: i64,
    stay_ns: i64,
    back_ns: i64,
}

impl Truth {
    fn lead_ns(&self, host_ns: i64) -> i64 {
        let gained = i128::from(host_ns) * i128::from(self.rate_ppb);
        self.lead_ns + gained.div_euclid(1_000_000_000) as i64
    }

    fn exchange(&self, asked_ns: i64, way: Way) -> Exchange {
        let came_ns = asked_ns + way.there_ns;
        let left_ns = came_ns + way.stay_ns;
        Exchange {
            asked_ns,
            came_ns: came_ns + self.lead_ns(came_ns),
            left_ns: left_ns + self.lead_ns(left_ns),
            answered_ns: left_ns + way.back_ns,
        }
    }

    /// Bursts of one exchange; returns when the last was answered.
    fn play(&self, estimator: &mut Estimator, mut host_ns: i64, ways: &[Way]) -> i64 {
        for way in ways {
            let exchange = self.exchange(host_ns + way.pause_ns, *way);
            estimator.add(&[exchange]);
            host_ns = exchange.answered_ns;
        }
        host_ns
    }
}

prop_compose! {
    fn truths()(
        lead_ns in -30 * YEAR_NS..30 * YEAR_NS,
        rate_ppb in -999_000i64..999_000,
    ) -> Truth {
        Truth { lead_ns, rate_ppb }
    }
}

prop_compose! {
    fn ways()(
        pause_ns in 0i64..2000 * MS,
        there_ns in 0i64..50 * MS,
        stay_ns in 0i64..5 * MS,
        back_ns in 0i64..50 * MS,
    ) -> Way {
        Way { pause_ns, there_ns, stay_ns, back_ns }
    }
}

proptest! {
    #[test]
    fn the_truth_is_always_inside(
        truth in truths(),
        ways in vec(ways(), 1..60),
        later_ns in 0i64..100_000 * MS,
    ) {
        let mut estimator = Estimator::default();
        let now_ns = truth.play(&mut estimator, 0, &ways);
        let estimate = estimator.estimate().unwrap();
        for at_ns in [now_ns, now_ns + later_ns] {
            let (least_ns, most_ns) = estimate.range_ns(at_ns);
            let lead_ns = truth.lead_ns(at_ns);
            prop_assert!((least_ns..=most_ns).contains(&lead_ns), "{estimate:?} at {at_ns}");
        }
        let rate = truth.rate_ppb as f64 / 1e9;
        prop_assert!((estimate.slowest - 1e-9..=estimate.fastest + 1e-9).contains(&rate));
        prop_assert_eq!(estimate.exchanges_total, ways.len() as u64);
    }

    #[test]
    fn more_bursts_never_know_less_at_the_same_instant(
        truth in truths(),
        ways in vec(ways(), 2..KEPT_MAX),
    ) {
        let mut estimator = Estimator::default();
        let before_ns = truth.play(&mut estimator, 0, &ways[1..]);
        let before = estimator.estimate().unwrap();
        let now_ns = truth.play(&mut estimator, before_ns, &ways[..1]);
        let (least_ns, most_ns) = before.range_ns(now_ns);
        let now = estimator.estimate().unwrap();
        prop_assert!(now.least_ns >= least_ns - 2 && now.most_ns <= most_ns + 2);
    }

    #[test]
    fn a_rate_that_changes_unseen_costs_less_than_the_last_exchange_took(
        truths in vec(truths(), 1..10),
        ways in vec(ways(), 1..6),
    ) {
        let mut estimator = Estimator::default();
        let mut now = (0, truths[0].lead_ns);
        for truth in &truths {
            // The lead continues from its present value, at another rate.
            let lead_ns = now.1 - truth.lead_ns(now.0) + truth.lead_ns;
            let truth = Truth { lead_ns, ..*truth };
            for way in &ways {
                let now_ns = truth.play(&mut estimator, now.0, &[*way]);
                now = (now_ns, truth.lead_ns(now_ns));
                let (least_ns, most_ns) = estimator.estimate().unwrap().range_ns(now_ns);
                let took_ns = way.there_ns + way.stay_ns + way.back_ns;
                let slack_ns = way.there_ns + way.back_ns + gained_ns(2.1 * RATE_MAX, took_ns) + 9;
                prop_assert!((least_ns - slack_ns..=most_ns + slack_ns).contains(&now.1));
            }
        }
    }

    #[test]
    fn what_contradicts_newer_exchanges_is_forgotten(
        truth in truths(),
        leap_ns in 200 * MS..YEAR_NS,
        before in vec(ways(), 1..40),
        after in vec(ways(), 1..40),
    ) {
        let mut estimator = Estimator::default();
        let now_ns = truth.play(&mut estimator, 0, &before);
        let leapt = Truth { lead_ns: truth.lead_ns + leap_ns, ..truth };
        // Nothing that leaps further than two exchanges and the largest rate allow goes unseen.
        let elapsed_ns: i64 = after.iter().map(|way| way.pause_ns + 105 * MS).sum();
        prop_assume!(leap_ns > 210 * MS + gained_ns(2.0 * RATE_MAX, now_ns + elapsed_ns));
        let now_ns = leapt.play(&mut estimator, now_ns, &after);
        let (least_ns, most_ns) = estimator.estimate().unwrap().range_ns(now_ns);
        prop_assert!((least_ns..=most_ns).contains(&leapt.lead_ns(now_ns)));
    }
}

#[test]
fn half_a_minute_of_short_round_trips_pins_the_clock_down() {
    let truth = Truth { lead_ns: -5_000_000_000, rate_ppb: 200_000 };
    let way = Way { pause_ns: 500 * MS, there_ns: 30_000, stay_ns: 5_000, back_ns: 20_000 };
    let mut estimator = Estimator::default();
    truth.play(&mut estimator, 0, &[way; 60]);
    let estimate = estimator.estimate().unwrap();
    assert!((estimate.rate() - 200e-6).abs() < 4e-6, "{estimate:?}");
    assert!(estimate.most_ns - estimate.least_ns < 51_000, "{estimate:?}");
    assert_eq!(estimate.round_trip_ns / 1000, 49, "by a clock that is slower by 200 ppm");
}

#[test]
fn the_truth_is_inside_when_all_of_the_time_is_spent_on_one_side() {
    for rate_ppb in [-999_000, 0, 999_000] {
        let truth = Truth { lead_ns: 5, rate_ppb };
        for (there_ns, stay_ns, back_ns) in [(0, 0, 400 * MS), (0, 400 * MS, 0), (400 * MS, 0, 0)] {
            let mut estimator = Estimator::default();
            let way = Way { pause_ns: 0, there_ns, stay_ns, back_ns };
            let now_ns = truth.play(&mut estimator, 0, &[way]);
            let (least_ns, most_ns) = estimator.estimate().unwrap().range_ns(now_ns);
            let lead_ns = truth.lead_ns(now_ns);
            assert!((least_ns..=most_ns).contains(&lead_ns), "{rate_ppb}, {way:?}: {lead_ns}");
        }
    }
}

#[test]
fn the_narrowest_exchange_of_a_burst_counts() {
    let truth = Truth { lead_ns: 7, rate_ppb: 0 };
    let way = |there_ns| Way { pause_ns: 0, there_ns, stay_ns: 0, back_ns: 10 };
    let burst: Vec<_> = [900, 30, 500].map(|ns| truth.exchange(ns * 10, way(ns))).into();
    let mut estimator = Estimator::default();
    assert_eq!(estimator.estimate(), None);
    estimator.add(&burst);
    let estimate = estimator.estimate().unwrap();
    assert_eq!((estimate.round_trip_ns, estimate.exchanges_total), (40, 3));
    estimator.add(&[]);
    assert_eq!(estimator.estimate(), Some(estimate));
}

#[test]
fn an_exchange_that_cannot_be_true_is_ignored() {
    let mut estimator = Estimator::default();
    let exchange = Exchange { asked_ns: 10, came_ns: 5, left_ns: 6, answered_ns: 9 };
    estimator.add(&[exchange]);
    estimator.add(&[Exchange { answered_ns: 20, left_ns: 4, ..exchange }]);
    estimator.add(&[Exchange { answered_ns: 20, left_ns: 4000, ..exchange }]);
    assert_eq!(estimator.estimate(), None);
}
