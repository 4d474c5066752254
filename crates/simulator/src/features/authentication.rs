//! SCRAM-SHA-256 in simulated runs: draws, and the check of all exchanges against the wire.

use std::collections::{BTreeMap, BTreeSet};

use plan::{Authentication, PlannedProtocol, Population, Reason, SCRAM_SHA_256};
use testkit::Rng;

use crate::case::Case;
use crate::course::Run;
use crate::scram::{ExchangeEnd, PASSWORD};
use crate::totals::{Totals, population_of};
use testkit::plans::template;

/// Draws populations of MQTT 5 that authenticate themselves, apart from the other draws.
pub fn draw(case: &mut Case, seed: u64) {
    let mut rng = Rng::new(seed ^ 0x5c4a_0256);
    for population in case.plan.populations.iter_mut().filter(|p| p.capabilities().has_properties) {
        if rng.chance(25) {
            let user = rng.pick(&["all", "u{n}", "u={n},"]);
            let password = format!("{PASSWORD}{user}");
            authenticate(population, user, &password);
        }
    }
}

/// The clients of a population authenticate themselves.
pub fn authenticate(population: &mut Population, user: &str, password: &str) {
    if let PlannedProtocol::Mqtt(mqtt) = &mut population.protocol {
        mqtt.authentication = Some(Authentication { method: SCRAM_SHA_256.into(), data: None });
    }
    population.username = Some(template(user));
    population.password = Some(template(password));
}

/// Ends of all exchanges, with the population of each.
fn ends(run: &Run) -> BTreeMap<(usize, ExchangeEnd), u64> {
    let mut ends = BTreeMap::new();
    for ((_, client), exchange) in &run.network().wire.exchanges {
        *ends.entry((population_of(run, *client), exchange.end())).or_default() += 1;
    }
    ends
}

/// The names of all ends, with their counts.
pub fn seen(run: &Run) -> impl Iterator<Item = (&'static str, u64)> {
    ends(run).into_iter().map(|((_, end), count)| (end.name(), count))
}

/// Every exchange ends as the client has read, and every proof of a client is right.
pub fn check(run: &Run, totals: &Totals) {
    let network = run.network();
    let mut nonces = BTreeSet::new();
    for exchange in network.wire.exchanges.values() {
        let nonce = exchange.nonce();
        assert!(nonces.insert(nonce), "an attempt has a nonce of its own: {nonce}");
        assert!(exchange.is_right(), "{exchange:?}");
    }
    let ends = ends(run);
    for (p, population) in run.plan().populations.iter().enumerate() {
        if population.mqtt().is_none_or(|mqtt| mqtt.authentication.is_none()) {
            continue;
        }
        let of = |reason| totals.outcomes[p].get(&reason).copied().unwrap_or(0);
        for (end, counted) in [
            (ExchangeEnd::Proved, totals.counters[p].connected_total),
            (ExchangeEnd::Unproved, of(Reason::ServerUnproved)),
            (ExchangeEnd::Invalid, of(Reason::AuthenticationInvalid)),
            (ExchangeEnd::Refused, of(Reason::NotAuthorized)),
        ] {
            let read = ends.get(&(p, end)).copied().unwrap_or(0);
            assert_eq!(counted, read, "{}: {end:?}", population.name);
        }
    }
}
