//! The engine in virtual time: the real loop and its real clients on a simulated machine, against
//! the scripted broker of `testkit`. Every choice comes from a seed, which a failure prints.

#![allow(dead_code, reason = "whole plans with faults come next")]

mod agents;
mod host;
mod network;
mod peer;
mod plans;
mod weather;
mod wire;

use plan::{Action, Command};
use testkit::{Broker, Script};

use agents::Agents;
use network::Network;
use peer::Peer;
use weather::{Opening, S, Weather};

pub use host::{Host, Socket};

/// When the simulated runs begin.
const START_NS: u64 = 1_000 * S;

#[test]
fn clients_connect_again_until_they_are_accepted_and_leave_with_a_goodbye() {
    let mut plan = plans::empty(1);
    plan.populations = vec![plans::population("c", 20)];
    let connect =
        Action::Connect { rate_per_s: None, parallelism: None, timeout_ns: S, clients: None };
    plan.stages = vec![plans::stage(connect, &[0])];
    let openings = vec![(Opening::Refused, 30), (Opening::Silence, 30)];
    let weather = Weather { openings, ..Weather::fair() };
    let peer = Peer::new(Broker::new(Script::reliable()));
    let network = Network::new(1, 2, START_NS, weather, peer);
    let mut agents = Agents::new(&plan, 2, network);
    agents.send(&Command::Stage { index: 0, at_ns: START_NS + S });
    let ready = |snapshots: &[plan::Snapshot]| -> u64 {
        snapshots.iter().map(|snapshot| snapshot.populations[0].gauges.ready).sum()
    };
    let (mut last, mut until_ns) = (Vec::new(), START_NS + S);
    while ready(&last) < 20 {
        last = agents.play(until_ns);
        until_ns += S;
        assert!(until_ns < START_NS + 60 * S, "all are accepted at last");
    }
    agents.send(&Command::Stop);
    while !agents.have_ended() {
        agents.play(until_ns);
    }
    let network = agents.network.borrow();
    assert_eq!(network.wire.goodbyes, 20);
    assert!(network.connections_total() > 20);
    assert!(["refused", "silence"].iter().all(|kind| network.weather.seen.contains_key(kind)));
    assert!((0..2).all(|agent| network.descriptors(agent) == 0));
}
