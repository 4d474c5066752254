//! Several addresses of a target's name. The broker listens on 127.0.0.1 only.

use plan::Reason;
use serde_json::{Value, json};
use testkit::Script;

use super::connect;
use crate::support::{Agent, Scripted, Totals, plan, population};

/// Connects six clients that do not retry to a name with three addresses.
fn connected(addresses: &Value) -> Totals {
    let broker = Scripted::start(Script::reliable);
    let populations = [population("p", 6, json!({"reconnect": null}))];
    let mut plan = plan(broker.port, &populations, &[connect(&[0])]);
    plan["targets"][0]["host"] = json!("broker.example");
    plan["targets"][0]["addresses"] = json!(["::1", "127.0.0.2", "127.0.0.1"]);
    plan["addresses"] = addresses.clone();
    let mut agent = Agent::start(&plan, "0/1");
    agent.stage(0);
    agent.stop()
}

/// Attempts, connections and failures at each address.
fn counts(totals: &Totals) -> Vec<(&str, [u64; 3])> {
    let row = |((_, address), sum): (&(usize, String), &plan::AddressSnapshot)| {
        assert_eq!(sum.outcomes.values().sum::<u64>(), sum.connect_failed_total);
        (
            address.clone(),
            [sum.connect_attempts_total, sum.connected_total, sum.connect_failed_total],
        )
    };
    let rows: Vec<_> = totals.addresses.iter().map(row).collect();
    let known = ["127.0.0.1", "127.0.0.2", "::1"];
    let find = |name: &&'static str| {
        rows.iter().find(|(address, _)| address == name).map(|(_, counts)| (*name, *counts))
    };
    known.iter().filter_map(find).collect()
}

#[test]
fn a_client_tries_the_next_address_at_once_without_a_retry() {
    let totals = connected(&json!({"use": "in_turn", "failover": true}));
    // Two clients each begin at 127.0.0.2, at 127.0.0.1 and at ::1, in this order.
    let expected = [("127.0.0.1", [6, 6, 0]), ("127.0.0.2", [4, 0, 4]), ("::1", [2, 0, 2])];
    assert_eq!(counts(&totals), expected);
    let (counters, outcomes) = &totals.populations[0];
    assert_eq!((counters.connect_attempts_total, counters.connected_total), (12, 6));
    assert_eq!(outcomes.values().sum::<u64>(), 6);
    let refused = &totals.addresses[&(0, "127.0.0.2".to_owned())].outcomes;
    assert_eq!(refused.get(&Reason::ConnectRefused), Some(&4));
}

#[test]
fn a_client_without_failover_gives_up_at_its_address() {
    let totals = connected(&json!({"use": "in_turn", "failover": false}));
    let expected = [("127.0.0.1", [2, 2, 0]), ("127.0.0.2", [2, 0, 2]), ("::1", [2, 0, 2])];
    assert_eq!(counts(&totals), expected);
}

#[test]
fn a_name_without_a_rule_has_its_first_address_of_ipv4() {
    let totals = connected(&json!(null));
    assert_eq!(counts(&totals), [("127.0.0.2", [6, 0, 6])]);
}
