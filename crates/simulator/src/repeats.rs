//! A seed decides the whole run: a failure that its seed names can be played again.

use std::collections::BTreeSet;

use plan::{MqttVersion, Payload, Population};
use testkit::for_each_seed;

use super::case::Case;
use super::totals::{speaks_amqp, speaks_nats};
use super::weather::Climate;
use super::{number, play};

/// An aspect of cases: its name, and whether a case has it.
type Aspect = (&'static str, fn(&Case) -> bool);

/// Aspects of cases, each of which has draws, queues or timers of its own.
const ASPECTS: [Aspect; 21] = [
    ("fair", |case| case.climate == Climate::Fair),
    ("narrow", |case| case.climate == Climate::Narrow),
    ("storm", |case| case.climate == Climate::Storm),
    ("agents", |case| case.agents > 1),
    ("MQTT 5", |case| any(case, |p| p.mqtt().is_some_and(|m| m.version == MqttVersion::V5))),
    ("NATS", |case| any(case, speaks_nats)),
    ("AMQP", |case| any(case, speaks_amqp)),
    ("flows", |case| !case.plan.flows.is_empty()),
    ("TLS", |case| case.plan.targets.iter().any(|target| target.tls && !target.quic)),
    ("QUIC", |case| case.plan.targets.iter().any(|target| target.quic)),
    ("resumption", |case| any(case, |p| p.tls.as_ref().is_some_and(|tls| tls.resume > 0.0))),
    ("WebSocket", |case| case.plan.targets.iter().any(|target| target.websocket.is_some())),
    ("addresses", |case| case.plan.addresses.is_some()),
    ("link", |case| any(case, |p| !p.link.is_empty())),
    ("lifetime", |case| any(case, |p| p.lifetime.is_some())),
    ("flapping", |case| any(case, |p| p.flapping.is_some())),
    ("takeover", |case| any(case, |p| p.takes_over.is_some())),
    ("authentication", |case| any(case, |p| p.mqtt().is_some_and(|m| m.authentication.is_some()))),
    ("answers", |case| any(case, |p| p.responds.is_some())),
    ("recorded messages", |case| {
        any(case, |p| p.publications.iter().any(|own| matches!(own.payload, Payload::Recorded(_))))
    }),
    ("recorded sessions", |case| {
        any(case, |p| p.lifetime.as_ref().is_some_and(|lifetime| lifetime.recorded.is_some()))
    }),
];

fn any(case: &Case, has: impl Fn(&Population) -> bool) -> bool {
    case.plan.populations.iter().any(has)
}

/// Plays the first seed that has each aspect, or the seeds of the environment.
#[test]
fn the_same_seed_plays_the_same_run() {
    let from = number("SIMULATE_FROM").unwrap_or(0);
    let seeds: BTreeSet<u64> = match number("SIMULATE_SEEDS") {
        Some(seeds) => (from..from + seeds).collect(),
        None => ASPECTS.iter().map(|(name, has)| first(name, *has)).collect(),
    };
    for seed in seeds {
        for_each_seed(seed..seed + 1, |seed| {
            let [(summary, snapshots), again] = [played(seed), played(seed)];
            for (at, (one, other)) in snapshots.iter().zip(&again.1).enumerate() {
                assert_eq!(one, other, "snapshot {at}");
            }
            assert_eq!((summary, snapshots.len()), (again.0, again.1.len()));
        });
    }
}

fn first(name: &str, has: fn(&Case) -> bool) -> u64 {
    let seed = (0..super::SEEDS).find(|&seed| has(&Case::of(seed)));
    seed.unwrap_or_else(|| panic!("no case has {name}"))
}

/// The summary of a run, and its snapshots as JSON.
fn played(seed: u64) -> (String, Vec<String>) {
    let run = play(seed);
    let json = |snapshot| serde_json::to_string(snapshot).expect("a snapshot has a JSON form");
    (run.summary(), run.snapshots.iter().map(json).collect())
}
