use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::clock::estimator::{RATE_MAX, gained_ns};

const MS: i64 = 1_000_000;
const YEAR_NS: i64 = 365 * 86_400 * 1_000_000_000;

/// An estimate that comes so long after the one before, relative to its lead.
#[derive(Clone, Copy, Debug)]
struct News {
    after_ns: i64,
    moved_ns: i64,
    width_ns: i64,
    rates: (f64, f64),
}

impl News {
    fn estimate(&self, at_ns: i64, lead_ns: i64) -> Estimate {
        let least_ns = lead_ns + self.moved_ns;
        let (slowest, fastest) = (self.rates.0.min(self.rates.1), self.rates.0.max(self.rates.1));
        let most_ns = least_ns + self.width_ns;
        Estimate { at_ns, least_ns, most_ns, slowest, fastest, ..Estimate::default() }
    }
}

prop_compose! {
    fn news()(
        after_ns in 0i64..3000 * MS,
        moved_ns in prop_oneof![-MS..MS, -100_000 * MS..100_000 * MS],
        width_ns in 0i64..100 * MS,
        rates in (-RATE_MAX..RATE_MAX, -RATE_MAX..RATE_MAX),
    ) -> News {
        News { after_ns, moved_ns, width_ns, rates }
    }
}

proptest! {
    #[test]
    fn it_never_runs_backwards_and_never_leaps(
        lead_ns in -30 * YEAR_NS..30 * YEAR_NS,
        all in vec(news(), 1..30),
        steps_ns in vec(prop_oneof![0i64..10, 0i64..700 * MS], 1..100),
    ) {
        let mut host_ns = 0;
        let mut steering = Steering::new(all[0].estimate(0, lead_ns), 0);
        let mut before_ns = steering.apply(host_ns);
        let mut all = all[1..].iter().peekable();
        let mut next_ns = all.peek().map_or(i64::MAX, |news| news.after_ns);
        for step_ns in steps_ns {
            host_ns += step_ns;
            if host_ns >= next_ns && let Some(news) = all.next() {
                let now_ns = steering.apply(host_ns);
                steering = steering.towards(news.estimate(host_ns, lead_ns), host_ns);
                prop_assert_eq!(steering.apply(host_ns), now_ns);
                next_ns = all.peek().map_or(i64::MAX, |news| host_ns + news.after_ns);
            }
            let now_ns = steering.apply(host_ns);
            prop_assert!(now_ns >= before_ns);
            let gone_ns = now_ns - before_ns - step_ns;
            prop_assert!(gone_ns.abs() <= gained_ns(SLEW_MAX + RATE_MAX, step_ns) + 2);
            before_ns = now_ns;
        }
    }

    #[test]
    fn its_bound_holds_at_every_instant_until_the_state_is_taken(
        lead_ns in -30 * YEAR_NS..30 * YEAR_NS,
        first in news(),
        second in news(),
        parts in (0.0..1.0, 0.0..1.0),
        until_ns in 0i64..5000 * MS,
    ) {
        let start = first.estimate(0, lead_ns);
        let mut steering = Steering::new(start, 0);
        steering.take_state(first.after_ns);
        let at_ns = first.after_ns;
        let estimate = second.estimate(at_ns, lead_ns);
        let steered = steering.towards(estimate, at_ns);
        let state = { steered }.take_state(at_ns + until_ns);
        for step in 0..100 {
            let host_ns = at_ns + until_ns / 100 * step;
            let off = |part: f64| {
                let (least_ns, most_ns) = estimate.range_ns(host_ns);
                let true_ns = least_ns + ((most_ns - least_ns) as f64 * part) as i64;
                (steered.lead_at(host_ns) - true_ns).unsigned_abs()
            };
            prop_assert!(off(parts.0).max(off(parts.1)) <= state.bound_ns + 2, "{host_ns}");
        }
    }

    #[test]
    fn an_instant_has_been_reached_where_it_is_inverted(
        lead_ns in -30 * YEAR_NS..30 * YEAR_NS,
        first in news(),
        second in news(),
        instant_ns in -100_000 * MS..100_000_000 * MS,
    ) {
        let steering = Steering::new(first.estimate(0, lead_ns), 0);
        let steering = steering.towards(second.estimate(first.after_ns, lead_ns), first.after_ns);
        let reference_ns = instant_ns + lead_ns;
        let host_ns = steering.invert(reference_ns);
        let late_ns = steering.apply(host_ns) - reference_ns;
        prop_assert!((0..=4).contains(&late_ns), "{late_ns}");
    }
}

#[test]
fn a_correction_takes_a_second_and_then_the_estimate_is_met() {
    let flat = |lead_ns| Estimate { least_ns: lead_ns, most_ns: lead_ns, ..Estimate::default() };
    let steering = Steering::new(flat(0), 0);
    let steering = steering.towards(flat(1_000_000), 0);
    assert!(steering.lead_at(500 * MS).abs_diff(500_000) < 3);
    assert!(steering.lead_at(1000 * MS).abs_diff(1_000_000) < 3);
    assert!(steering.lead_at(90_000 * MS).abs_diff(1_000_000) < 3);
}

#[test]
fn without_news_the_bound_grows() {
    let rates = (10e-6, 20e-6);
    let news = News { after_ns: 0, moved_ns: 0, width_ns: 40_000, rates };
    let mut steering = Steering::new(news.estimate(0, 0), 0);
    assert!(steering.take_state(0).bound_ns.abs_diff(20_000) < 3);
    let state = steering.take_state(10_000 * MS);
    assert!(state.bound_ns.abs_diff(70_000) < 3, "{state:?}");
    assert_eq!(state.drift_ppb, 15_000);
    assert!(state.offset_ns.abs_diff(170_000) < 3, "{state:?}");
}

#[test]
fn instants_at_the_end_of_time_are_no_trap() {
    let news = News { after_ns: 0, moved_ns: 0, width_ns: 0, rates: (-1e-3, 1e-3) };
    for lead_ns in [-YEAR_NS, 0, YEAR_NS] {
        let steering = Steering::new(news.estimate(0, lead_ns), 0);
        assert!(steering.invert(i64::MAX) > 100 * YEAR_NS);
    }
}
