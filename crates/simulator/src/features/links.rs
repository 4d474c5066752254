//! Links of clients in simulated runs: how a case draws them, and their figures.

use plan::{Histogram, LinkConditions};
use testkit::Rng;

use crate::case::Case;
use crate::course::Run;
use crate::totals::Totals;
use crate::weather::{Climate, MS, S};

/// Draws links, apart from the other draws. In fair weather they are short, so that each client
/// connects in time.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x11a4_5eed);
    for population in &mut case.plan.populations {
        if rng.chance(80) {
            continue;
        }
        let is_fair = case.climate != Climate::Storm;
        let changes = if is_fair { 0 } else { rng.below(3) as u64 };
        population.link = (0..=changes).map(|at| conditions(&mut rng, is_fair, at * S)).collect();
    }
}

fn conditions(rng: &mut Rng, is_fair: bool, after_ns: u64) -> LinkConditions {
    let delays_ns = if is_fair { [0, MS, 5 * MS] } else { [0, 20 * MS, 90 * MS] };
    let delay_ns = rng.pick(&delays_ns);
    let loss = if is_fair { 0.0 } else { rng.pick(&[0.0, 0.01, 0.2]) };
    let rates = if is_fair { [None, Some(50_000_000)] } else { [None, Some(64_000)] };
    LinkConditions {
        after_ns,
        delay_ns,
        jitter_ns: rng.pick(&[0, delay_ns / 2, delay_ns]),
        loss,
        bits_per_s: rng.pick(&rates),
    }
}

/// Nothing passes a link faster than the link says, and only a link with a loss loses segments.
pub fn check(run: &Run, _: &Totals) {
    for (p, population) in run.plan().populations.iter().enumerate() {
        let snapshots = || run.snapshots.iter().map(|snapshot| &snapshot.populations[p]);
        let [mut time, mut wait] = [Histogram::default(), Histogram::default()];
        snapshots().for_each(|own| time.add(&own.link_time));
        snapshots().for_each(|own| wait.add(&own.link_wait));
        let retransmissions: u64 =
            snapshots().map(|own| own.counters.link_retransmissions_total).sum();
        let loses = population.link.iter().any(|each| each.loss > 0.0);
        assert!(loses || retransmissions == 0, "{}: {retransmissions}", population.name);
        let has_rate = population.link.iter().any(|each| each.bits_per_s.is_some());
        assert!(has_rate || wait.quantile_ns(1.0) == 0, "{}", population.name);
        assert_eq!(time.count(), wait.count());
        let bytes: u64 = snapshots().map(|own| own.counters.bytes_received_total).sum();
        assert_eq!(time.count() > 0 && bytes > 0, !population.link.is_empty() && bytes > 0);
        let least_ns = population.link.iter().map(|each| each.delay_ns - each.jitter_ns).min();
        assert!(time.quantile_ns(0.0) >= least_ns.unwrap_or(0) || time.count() == 0);
    }
}
