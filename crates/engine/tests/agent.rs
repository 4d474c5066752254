//! The real engine, as a process, against a scripted broker over TCP.

mod acks;
mod addresses;
mod changes;
mod lease;
mod lives;
mod losses;
mod places;
mod stalls;
mod texts;

use crate::support::{Agent, CLOSED_PORT, Scripted, Server, plan, population, publication};
use plan::{Command, Counters, Reason};
use serde_json::{Value, json};
use testkit::{Fate, Script};

fn connect(populations: &[usize]) -> Value {
    let action = json!({"kind": "connect", "rate_per_s": null, "parallelism": 50, "timeout_ns": 1});
    json!({"name": "connect", "action": action, "populations": populations})
}

fn publish(populations: &[usize], ms: u64) -> Value {
    let action = json!({"kind": "publish", "duration_ns": ms * 1_000_000, "changes": []});
    json!({"name": "publish", "action": action, "populations": populations})
}

fn hold(populations: &[usize], ms: u64) -> Value {
    let action = json!({"kind": "hold", "duration_ns": ms * 1_000_000});
    json!({"name": "hold", "action": action, "populations": populations})
}

fn received_all(totals: &crate::support::Totals) -> bool {
    totals.flows.values().all(|flow| flow.expected_total == flow.received_total)
}

#[test]
fn every_message_of_every_qos_is_sent_acknowledged_and_received_once() {
    for qos in 0..=2 {
        let broker = Scripted::start(Script::reliable);
        let subscriptions = json!([{"filter": "t/{n}/{1..3}", "qos": qos}]);
        let publications = json!([publication("t/{n}/{1..3}", qos, 10)]);
        let populations = [
            population("pub", 20, json!({"publications": publications})),
            population("sub", 20, json!({"subscriptions": subscriptions})),
            population("all", 1, json!({"subscriptions": [{"filter": "t/#", "qos": qos}]})),
        ];
        let stages = [connect(&[0, 1, 2]), publish(&[0], 300)];
        let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
        agent.stage(0);
        agent.stage_until(1, |snapshot, totals| {
            // The last message is acknowledged after it has been handed on.
            let all_acked = snapshot.populations[0].gauges.in_flight == 0;
            snapshot.settled && received_all(totals) && all_acked
        });
        let totals = agent.stop();
        let (counters, _) = &totals.populations[0];
        assert_eq!(counters.sent_total, 600);
        assert_eq!(counters.acked_total, if qos == 0 { 0 } else { 600 });
        for to in [1, 2] {
            let flow = totals.flow(0, to);
            assert_eq!((flow.expected_total, flow.received_total), (600, 600), "{to}");
            assert_eq!((flow.duplicate_total, flow.reordered_total, flow.missing_total), (0, 0, 0));
        }
        assert_eq!(totals.populations[1].0.subscribed_total, 60);
    }
}

#[test]
fn a_settled_stage_is_reported_at_once() {
    let broker = Scripted::start(Script::reliable);
    let mut plan = plan(broker.port, &[population("p", 20, json!({}))], &[connect(&[0])]);
    plan["snapshot_interval_ns"] = json!(20_000_000_000u64);
    let mut agent = Agent::start(&plan, "0/1");
    agent.stage(0);
    let length_ns = agent.totals.last.as_ref().map(|last| last.to_ns - last.from_ns);
    assert!(
        length_ns.is_some_and(|ns| ns < 10_000_000_000),
        "only at the interval: {length_ns:?} ns"
    );
}

#[test]
fn shards_send_together_exactly_what_one_agent_sends() {
    let broker = Scripted::start(Script::reliable);
    let populations = [
        population("pub", 11, json!({"publications": [publication("t/{n}", 1, 7)]})),
        population("sub", 2, json!({"subscriptions": [{"filter": "t/#", "qos": 1}]})),
    ];
    let plan = plan(broker.port, &populations, &[connect(&[0, 1]), publish(&[0], 200)]);
    let mut agents: Vec<Agent> = (0..3).map(|i| Agent::start(&plan, &format!("{i}/3"))).collect();
    let shares: Vec<_> = agents.iter().map(|a| a.hello.clients.clone()).collect();
    assert_eq!(shares, [[4, 1], [4, 1], [3, 0]]);
    agents.iter_mut().for_each(|agent| agent.stage(0));
    agents.iter_mut().for_each(|agent| agent.stage(1));
    let mut sum = Counters::default();
    let mut expected = 0;
    for totals in agents.into_iter().map(Agent::stop) {
        sum.add(&totals.populations[0].0);
        expected += totals.flow(0, 1).expected_total;
    }
    let mut whole = Agent::start(&plan, "0/1");
    whole.stage(0);
    whole.stage(1);
    let whole = whole.stop();
    assert_eq!(sum.sent_total, whole.populations[0].0.sent_total);
    assert_eq!(expected, whole.flow(0, 1).expected_total);
    assert_eq!(expected, 2 * sum.sent_total as i64);
}

#[test]
fn what_the_broker_refuses_is_counted_by_reason() {
    let broker = Scripted::start(|| Script { connack_code: 5, ..Script::reliable() });
    let populations = [population("p", 7, json!({"reconnect": null}))];
    let mut agent = Agent::start(&plan(broker.port, &populations, &[connect(&[0])]), "0/1");
    agent.stage(0);
    let totals = agent.stop();
    let (counters, outcomes) = &totals.populations[0];
    assert_eq!((counters.connect_attempts_total, counters.connect_failed_total), (7, 7));
    assert_eq!(outcomes.get(&Reason::NotAuthorized), Some(&7));
}

#[test]
fn a_source_address_of_another_machine_is_named() {
    let broker = Scripted::start(Script::reliable);
    let populations = [population("p", 3, json!({"reconnect": null}))];
    let mut plan = plan(broker.port, &populations, &[connect(&[0])]);
    plan["sources"] = json!(["203.0.113.1"]);
    let mut agent = Agent::start(&plan, "0/1");
    agent.stage(0);
    let totals = agent.stop();
    let (counters, outcomes) = &totals.populations[0];
    assert_eq!((counters.connected_total, counters.connect_failed_total), (0, 3));
    assert_eq!(outcomes.get(&Reason::BadSource), Some(&3));
}

#[test]
fn source_addresses_of_other_hosts_are_left_to_them() {
    let broker = Scripted::start(Script::reliable);
    let populations = [population("p", 6, json!({"reconnect": null}))];
    let mut plan = plan(broker.port, &populations, &[connect(&[0])]);
    plan["sources"] = json!(["203.0.113.1", "127.0.0.5", "203.0.113.2", "127.0.0.6"]);
    let mut agents = ["0/2", "1/2"].map(|shard| Agent::start(&plan, shard));
    agents.iter_mut().for_each(|agent| agent.stage(0));
    let from = broker.order(Server::sources);
    assert_eq!(from.get("127.0.0.5"), Some(&4), "{from:?}");
    assert_eq!(from.get("127.0.0.6"), Some(&2), "{from:?}");
    for totals in agents.map(Agent::stop) {
        assert_eq!(totals.populations[0].0.connected_total, 3);
    }
}

#[test]
fn a_closed_target_is_retried_until_the_agent_stops() {
    let populations = [population("p", 3, json!({}))];
    let mut agent = Agent::start(&plan(CLOSED_PORT, &populations, &[connect(&[0])]), "0/1");
    agent.stage_until(0, |_, totals| totals.populations[0].0.connect_attempts_total > 9);
    let totals = agent.stop();
    let (counters, outcomes) = &totals.populations[0];
    assert_eq!(outcomes.get(&Reason::ConnectRefused), Some(&counters.connect_failed_total));
    assert!(totals.last.is_some_and(|last| last.populations[0].gauges.connected == 0));
}

#[test]
fn a_persistent_session_sends_again_what_was_not_acknowledged() {
    let broker = Scripted::start(|| Script::with_fates(|_| Fate::Drop));
    let populations = [population(
        "p",
        1,
        json!({"protocol": {"clean_session": false}, "publications": [publication("t", 1, 5)]}),
    )];
    let stages = [connect(&[0]), publish(&[0], 100)];
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    agent.stage(0);
    agent.stage_until(1, |s, _| s.settled && s.populations[0].gauges.in_flight == 20);
    broker.order(|server| {
        server.broker.set_script(Script::reliable());
        server.cut_all();
    });
    agent.read_until(|snapshot, _| snapshot.populations[0].gauges.in_flight == 0);
    let totals = agent.stop();
    let (counters, outcomes) = &totals.populations[0];
    assert_eq!((counters.sent_total, counters.resent_total), (20, 20));
    assert_eq!((counters.acked_total, counters.abandoned_total), (20, 0));
    assert_eq!(outcomes.get(&Reason::ClosedByBroker), Some(&1));
    assert_eq!(broker.order(|server| server.broker.accepted().len()), 40);
}

#[test]
fn a_clean_session_gives_up_what_was_not_acknowledged() {
    let broker = Scripted::start(|| Script::with_fates(|_| Fate::Drop));
    let populations = [population("p", 1, json!({"publications": [publication("t", 2, 5)]}))];
    let stages = [connect(&[0]), publish(&[0], 100)];
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    agent.stage(0);
    agent.stage_until(1, |s, _| s.settled && s.populations[0].gauges.in_flight == 20);
    broker.order(Server::cut_all);
    agent.read_until(|snapshot, _| snapshot.populations[0].gauges.in_flight == 0);
    let (counters, _) = agent.stop().populations[0].clone();
    assert_eq!((counters.abandoned_total, counters.resent_total), (20, 0));
}

#[test]
fn a_broker_that_does_not_answer_is_dead_after_the_keep_alive() {
    let broker = Scripted::start(Script::reliable);
    let populations = [population("p", 2, json!({"keep_alive_s": 1, "reconnect": null}))];
    let mut agent = Agent::start(&plan(broker.port, &populations, &[connect(&[0])]), "0/1");
    agent.stage(0);
    broker.order(|server| server.silent = true);
    agent.read_until(|_, totals| totals.populations[0].0.disconnected_total == 2);
    let (_, outcomes) = &agent.stop().populations[0];
    assert_eq!(outcomes.get(&Reason::KeepAliveTimeout), Some(&2));
}

#[test]
fn a_window_of_one_has_one_message_in_flight() {
    let broker = Scripted::start(Script::reliable);
    let mut closed = publication("t/{n}", 1, 1);
    closed["pace"] = json!({"kind": "closed"});
    closed["window"] = json!(1);
    let populations = [population("p", 4, json!({"publications": [closed]}))];
    let stages = [connect(&[0]), publish(&[0], 300)];
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    agent.stage(0);
    agent.stage_until(1, |snapshot, _| {
        assert!(snapshot.populations[0].gauges.in_flight <= 4);
        snapshot.settled
    });
    let (counters, _) = &agent.stop().populations[0];
    assert!(counters.sent_total > 4, "round trips: {}", counters.sent_total);
}

#[test]
fn payloads_without_room_for_a_stamp_are_counted_all_the_same() {
    let broker = Scripted::start(Script::reliable);
    let mut small = publication("small/{n}", 1, 10);
    small["payload"] = json!({"kind": "fixed", "bytes": 8});
    let mut text = publication("text/{n}", 0, 10);
    text["payload"] = json!({"kind": "text", "template": "{{\"device\": {n}, \"value\": 17}}"});
    let populations = [
        population("p", 3, json!({"publications": [small, text]})),
        population("s", 1, json!({"subscriptions": [{"filter": "#", "qos": 1}]})),
    ];
    let stages = [connect(&[0, 1]), publish(&[0], 100)];
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    agent.stage(0);
    agent.stage_until(1, |snapshot, totals| snapshot.settled && received_all(totals));
    let totals = agent.stop();
    assert_eq!(totals.flow(0, 1).received_total, 60);
    let payloads = broker.order(|server| {
        let texts = server.broker.accepted().iter().filter(|m| m.topic == "text/2");
        texts.map(|m| String::from_utf8(m.payload.clone()).unwrap()).collect::<Vec<_>>()
    });
    assert!(payloads.iter().all(|text| text == "{\"device\": 2, \"value\": 17}"));
}

#[test]
fn retained_and_foreign_messages_stay_out_of_the_ledger() {
    let broker = Scripted::start(Script::reliable);
    broker.order(|server| {
        let (topic, payload) = ("t/old".to_owned(), vec![1; 64]);
        let message = testkit::BrokerMessage { topic, payload, retain: true, ..Default::default() };
        server.broker.publish(&message);
    });
    let populations = [population("s", 2, json!({"subscriptions": [{"filter": "t/#", "qos": 0}]}))];
    let mut agent = Agent::start(&plan(broker.port, &populations, &[connect(&[0])]), "0/1");
    agent.stage(0);
    broker.order(|server| {
        let (topic, payload) = ("t/new".to_owned(), vec![1; 64]);
        server.broker.publish(&testkit::BrokerMessage { topic, payload, ..Default::default() });
    });
    agent.read_until(|_, totals| totals.populations[0].0.foreign_total == 2);
    let totals = agent.stop();
    assert_eq!(totals.populations[0].0.retained_total, 2);
    assert!(totals.flows.is_empty());
}

#[test]
fn what_cannot_be_sent_before_the_stage_closes_is_skipped() {
    let broker = Scripted::start(|| Script { connack_code: 3, ..Script::reliable() });
    let populations = [population("p", 5, json!({"publications": [publication("t", 0, 10)]}))];
    let stages = [connect(&[0]), publish(&[0], 200)];
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    agent.stage_until(0, |_, totals| totals.populations[0].0.connect_failed_total > 0);
    agent.stage_until(1, |snapshot, _| snapshot.populations[0].gauges.backlog == 100);
    agent.send(&Command::Close { sent: Vec::new() });
    agent.read_until(|snapshot, _| snapshot.settled);
    let (counters, _) = &agent.stop().populations[0];
    assert_eq!((counters.sent_total, counters.skipped_total), (0, 100));
}

#[test]
fn closing_stdin_disconnects_every_client_and_ends_the_engine() {
    let broker = Scripted::start(Script::reliable);
    let will = json!({"topic": "gone", "payload": "{n}", "qos": 0, "retain": false});
    let populations = [population("p", 5, json!({"protocol": {"will": will}}))];
    let mut agent = Agent::start(&plan(broker.port, &populations, &[connect(&[0])]), "0/1");
    agent.stage(0);
    let totals = agent.close();
    assert_eq!(totals.last.unwrap().populations[0].gauges.connected, 0);
    let wills = broker.order(|server| server.broker.accepted().len());
    assert_eq!(wills, 0, "a DISCONNECT takes the will back");
}

#[test]
fn a_bad_plan_or_shard_is_a_failure_with_words() {
    for (input, shard, expected) in [
        ("", "0/1", "no plan"),
        ("{}\n", "0/1", "missing field"),
        ("not json\n", "0/1", "the plan is not valid"),
        ("{}\n", "4/3", "allowed is INDEX/COUNT"),
    ] {
        let (output, status) = Agent::output(input, shard);
        assert!(!status.success());
        let failure: plan::Failure = serde_json::from_str(&output).unwrap();
        assert!(failure.message.contains(expected), "{}", failure.message);
    }
    let mut wrong_host = plan(1, &[], &[]);
    wrong_host["targets"] = json!([{"host": "no-such-host.invalid", "port": 1, "tls": false}]);
    let (output, _) = Agent::output(&format!("{wrong_host}\n"), "0/1");
    assert!(output.contains("target no-such-host.invalid:1"), "{output}");
}
