//! Flapping subscriptions in simulated runs: draws, and the check against the wire.

use plan::Flapping;
use testkit::Rng;

use crate::case::Case;
use crate::course::Run;
use crate::totals::{Totals, population_of};
use crate::weather::{MS, S};

/// Draws flapping populations, apart from the other draws.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0xf1a9_0029);
    for population in &mut case.plan.populations {
        if population.subscriptions.is_empty()
            || !population.capabilities().flaps
            || !rng.chance(12)
        {
            continue;
        }
        let min_ns = 1 + rng.bits() % S;
        let unsubscribed_ns = rng.pick(&[0, 50 * MS, 1_500 * MS]);
        let max_ns = min_ns + rng.bits() % S;
        population.flapping = Some(Flapping { min_ns, max_ns, unsubscribed_ns });
    }
}

/// Filters are removed as often as UNSUBACK says.
pub fn check(run: &Run, totals: &Totals) {
    let network = run.network();
    for (p, population) in run.plan().populations.iter().enumerate() {
        let removed = network.wire.removed.iter();
        let own = removed.filter(|(client, _)| population_of(run, **client) == p);
        let read: u64 = own.map(|(_, filters)| filters).sum();
        let counters = &totals.counters[p];
        let counted = counters.unsubscribed_total + counters.unsubscribe_failed_total;
        assert!(counted <= read, "{}: {counted} of {read}", population.name);
        if run.case.handles_all(p) {
            assert_eq!(counted, read, "{}", population.name);
        }
        assert!(population.flapping.is_some() || read == 0, "{}", population.name);
    }
}
