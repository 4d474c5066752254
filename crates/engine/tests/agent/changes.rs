//! Populations that change in a running publish stage.

use std::cell::Cell;

use plan::{ChangeAction, Command, Counters};
use serde_json::{Value, json};
use testkit::{Fate, Script};

use super::{connect, publish, received_all};
use crate::support::{Agent, Scripted, Totals, plan, population, publication};

const SUBSCRIBED: &str = r#"{"subscriptions": [{"filter": "t/#", "qos": 1}]}"#;

/// A publish stage of all populations with changes `(after_ms, population, action)`.
fn changing(ms: u64, changes: &[(u64, usize, Value)]) -> Value {
    let mut stage = publish(&[0, 1], ms);
    let change = |(after_ms, population, action): &(u64, usize, Value)| {
        let after_ns = after_ms * 1_000_000;
        json!({"name": "c", "after_ns": after_ns, "population": population, "action": action})
    };
    stage["action"]["changes"] = changes.iter().map(change).collect();
    stage
}

fn add(clients: u32, over_ms: u64) -> Value {
    json!({"kind": "add", "clients": clients, "over_ns": over_ms * 1_000_000})
}

fn remove(clients: u32, over_ms: u64) -> Value {
    json!({"kind": "remove", "clients": clients, "over_ns": over_ms * 1_000_000})
}

fn rate(factor: f64) -> Value {
    json!({"kind": "rate", "factor": factor})
}

/// 20 publishers with one message each 10 ms, and one subscriber to all messages.
fn populations() -> [Value; 2] {
    let publications = json!([publication("t/{n}", 1, 10)]);
    [
        population("pub", 20, json!({"publications": publications})),
        population("sub", 1, serde_json::from_str(SUBSCRIBED).unwrap()),
    ]
}

/// Plays two stages until all messages have arrived.
fn play(first: Value, second: Value) -> Totals {
    let broker = Scripted::start(Script::reliable);
    let mut agent = Agent::start(&plan(broker.port, &populations(), &[first, second]), "0/1");
    agent.stage(0);
    agent.stage_until(1, |snapshot, totals| snapshot.settled && received_all(totals));
    agent.stop()
}

#[test]
fn clients_that_are_added_publish_from_then_on() {
    let totals = play(connect(&[1]), changing(400, &[(200, 0, add(10, 0))]));
    let counters = &totals.populations[0].0;
    assert_eq!((counters.connected_total, counters.sent_total), (10, 10 * 20));
    assert_eq!((counters.skipped_total, totals.flow(0, 1).received_total), (0, 10 * 20));
}

#[test]
fn removed_clients_leave_and_their_schedule_ends() {
    let totals = play(connect(&[0, 1]), changing(400, &[(200, 0, remove(5, 0))]));
    let counters = &totals.populations[0].0;
    assert_eq!((counters.sent_total, counters.skipped_total), (15 * 40 + 5 * 20, 0));
    assert_eq!(counters.disconnected_total, 0, "they said so");
    assert_eq!(totals.last.unwrap().populations[0].gauges.connected, 0);
}

#[test]
fn starts_are_spread_over_the_configured_time() {
    let totals = play(connect(&[1]), changing(400, &[(0, 0, add(20, 400))]));
    // Client i joins after 20 i ms, and then publishes every 10 ms.
    let expected: u64 = (0..20).map(|i| 40 - 2 * i).sum();
    let sent = totals.populations[0].0.sent_total;
    assert_eq!(sent, expected, "{sent} sent");
}

#[test]
fn a_rate_change_keeps_the_schedule_and_zero_pauses_it() {
    let changes = [(100, 0, rate(2.0)), (200, 0, rate(0.0)), (300, 0, rate(1.0))];
    let totals = play(connect(&[0, 1]), changing(400, &changes));
    let counters = &totals.populations[0].0;
    assert_eq!((counters.sent_total, counters.skipped_total), (20 * (10 + 20 + 10), 0));
}

#[test]
fn a_change_takes_back_what_one_before_has_not_done_yet() {
    let changes = [(0, 0, add(20, 400)), (200, 0, remove(15, 0)), (300, 0, add(1, 0))];
    let totals = play(connect(&[1]), changing(400, &changes));
    // Ten clients have joined before 200 ms, and one joins and leaves at that instant. Five more
    // leave, and the first of these five rejoins. On a busy machine a client may leave before the
    // broker has accepted it.
    let counters = &totals.populations[0].0;
    assert_eq!(counters.connect_attempts_total, 12);
    let stayed: u64 = (0..5).map(|i| 40 - 2 * i).sum();
    let left: u64 = (5..10).map(|i| 20 - 2 * i).sum();
    assert_eq!(counters.sent_total + counters.skipped_total, stayed + left + 10);
}

#[test]
fn clients_that_were_to_leave_and_are_added_again_keep_their_connection() {
    let totals =
        play(connect(&[0, 1]), changing(400, &[(0, 0, remove(10, 400)), (200, 0, add(10, 0))]));
    // Client 19 - k leaves after 40 k ms. Six have left before ten are added, and the same six
    // join.
    let counters = &totals.populations[0].0;
    assert_eq!((counters.connect_attempts_total, counters.connected_total), (26, 26));
    assert_eq!((counters.disconnected_total, counters.skipped_total), (0, 0));
    let left: u64 = (0..6).map(|k| 4 * k + 20).sum();
    assert_eq!(counters.sent_total, 14 * 40 + left);
    assert_eq!(totals.last.unwrap().populations[0].gauges.in_flight, 0);
}

#[test]
fn shards_change_together_exactly_as_one_agent() {
    let changes =
        [(0, 0, add(17, 100)), (100, 0, rate(3.0)), (200, 0, remove(9, 50)), (300, 0, add(4, 0))];
    let whole = play(connect(&[1]), changing(400, &changes));
    let broker = Scripted::start(Script::reliable);
    let stages = [connect(&[1]), changing(400, &changes)];
    let plan = plan(broker.port, &populations(), &stages);
    let mut agents: Vec<Agent> = (0..3).map(|i| Agent::start(&plan, &format!("{i}/3"))).collect();
    agents.iter_mut().for_each(|agent| agent.stage(0));
    let at_ns = Agent::now_ns() + 50_000_000;
    agents.iter_mut().for_each(|agent| agent.send(&Command::Stage { index: 1, at_ns }));
    let settled = |agent: &mut Agent| agent.read_until(|s, _| s.stage == Some(1) && s.settled);
    agents.iter_mut().for_each(settled);
    let mut sum = Counters::default();
    let mut expected = 0;
    for totals in agents.into_iter().map(Agent::stop) {
        sum.add(&totals.populations[0].0);
        expected += totals.flow(0, 1).expected_total;
    }
    let counters = &whole.populations[0].0;
    assert_eq!(sum.connected_total, counters.connected_total);
    assert_eq!(sum.sent_total, counters.sent_total);
    assert_eq!(expected, counters.sent_total as i64);
}

#[test]
fn a_command_changes_what_the_plan_did_not_foresee() {
    let broker = Scripted::start(Script::reliable);
    let stages = [connect(&[1]), publish(&[0], 3_000)];
    let mut agent = Agent::start(&plan(broker.port, &populations(), &stages), "0/1");
    agent.change(0, ChangeAction::Add { clients: 20, over_ns: 0 });
    agent.stage(0);
    agent.stage_until(1, |_, _| true);
    agent.change(7, ChangeAction::Add { clients: 20, over_ns: 0 });
    agent.change(0, ChangeAction::Add { clients: 20, over_ns: 9_000_000_000 });
    agent.change(0, ChangeAction::Rate { factor: -1.0 });
    agent.change(0, ChangeAction::Add { clients: 12, over_ns: 50_000_000 });
    agent.read_until(|snapshot, _| snapshot.populations[0].gauges.ready == 12);
    agent.change(0, ChangeAction::Remove { clients: 2, over_ns: 0 });
    agent.read_until(|snapshot, _| snapshot.populations[0].gauges.ready == 10);
    agent.read_until(|snapshot, totals| snapshot.settled && received_all(totals));
    let totals = agent.stop();
    let counters = &totals.populations[0].0;
    assert_eq!((counters.connected_total, counters.skipped_total), (12, 0));
    assert_eq!(totals.flow(0, 1).expected_total, counters.sent_total as i64);
}

#[test]
fn a_command_may_come_before_the_stage_that_it_changes_has_begun() {
    let broker = Scripted::start(Script::reliable);
    let stages = [connect(&[1]), publish(&[0], 400)];
    let mut agent = Agent::start(&plan(broker.port, &populations(), &stages), "0/1");
    agent.stage(0);
    let at_ns = Agent::now_ns() + 100_000_000;
    agent.send(&Command::Stage { index: 1, at_ns });
    let action = ChangeAction::Add { clients: 10, over_ns: 0 };
    agent.send(&Command::Change { at_ns: at_ns + 200_000_000, population: 0, action });
    agent.read_until(|snapshot, _| snapshot.stage == Some(1) && snapshot.settled);
    assert_eq!(agent.stop().populations[0].0.sent_total, 10 * 20);
}

#[test]
fn changing_subscribers_are_excluded_from_loss_until_the_next_stage() {
    let broker = Scripted::start(Script::reliable);
    let publications = json!([publication("t/{n}", 1, 10)]);
    let populations = [
        population("pub", 5, json!({"publications": publications})),
        population("sub", 8, serde_json::from_str(SUBSCRIBED).unwrap()),
    ];
    let stages = [connect(&[0, 1]), publish(&[0], 100), publish(&[0], 60_000), publish(&[0], 100)];
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    agent.stage(0);
    agent.stage(1);
    read_to_the_last(&mut agent);
    let before = agent.totals.flow(0, 1);
    assert_eq!((before.expected_total, before.received_total), (50 * 8, 50 * 8));
    agent.stage_until(2, |_, totals| totals.flow(0, 1).received_total > before.received_total);
    agent.change(1, ChangeAction::Remove { clients: 6, over_ns: 0 });
    agent.read_until(|snapshot, _| snapshot.populations[1].gauges.ready == 2);
    let with_all = agent.totals.populations[0].0.sent_total as i64 - 50;
    agent.change(1, ChangeAction::Add { clients: 1, over_ns: 0 });
    agent.read_until(|snapshot, _| snapshot.populations[1].gauges.ready == 3);
    // The rejoined subscriber receives a message of every stream before the next stage.
    let since = agent.totals.populations[0].0.sent_total;
    agent.read_until(|_, totals| totals.populations[0].0.sent_total > since + 50);
    agent.send(&Command::Close { sent: Vec::new() });
    agent.read_until(|snapshot, _| snapshot.settled);
    read_to_the_last(&mut agent);
    let changed = agent.totals.flow(0, 1);
    // Two subscribers received all messages, the rejoined subscriber the last 50. There were 8
    // subscribers until the removal, then at most 3.
    let between = changed.expected_total - before.expected_total;
    assert_eq!(between, changed.received_total - before.received_total);
    let sent = agent.totals.populations[0].0.sent_total as i64 - 50;
    let most = with_all * 8 + (sent - with_all) * 3;
    assert!((sent * 2 + 50..=most).contains(&between), "{between} of {sent}, at most {most}");
    agent.stage(3);
    read_to_the_last(&mut agent);
    let flow = agent.totals.flow(0, 1);
    assert_eq!(flow.expected_total - changed.expected_total, 50 * 3);
    assert_eq!((flow.received_total, flow.missing_total), (flow.expected_total, 0));
}

/// Reads until all messages have arrived: for a changing receiver, the last delivery is unknown.
fn read_to_the_last(agent: &mut Agent) {
    agent.read_until(|_, totals| received_all(totals));
    let quiet = Cell::new(0);
    agent.read_until(|snapshot, _| {
        quiet.set(if snapshot.flows.is_empty() { quiet.get() + 1 } else { 0 });
        quiet.get() == 3
    });
}

#[test]
fn what_is_in_flight_leaves_with_its_client() {
    let broker = Scripted::start(|| Script::with_fates(|_| Fate::Drop));
    let stages = [connect(&[0]), changing(200, &[(150, 0, remove(20, 0))])];
    let mut agent = Agent::start(&plan(broker.port, &populations(), &stages), "0/1");
    agent.stage(0);
    agent.stage_until(1, |s, _| s.settled && s.populations[0].gauges.in_flight == 0);
    let counters = agent.stop().populations[0].0;
    assert_eq!((counters.sent_total, counters.abandoned_total), (20 * 15, 20 * 15));
    assert_eq!((counters.acked_total, counters.skipped_total), (0, 0));
}

#[test]
fn a_factor_of_zero_stops_a_closed_loop() {
    let broker = Scripted::start(Script::reliable);
    let mut closed = publication("t/{n}", 1, 1);
    closed["pace"] = json!({"kind": "closed"});
    closed["window"] = json!(1);
    let populations =
        [population("pub", 4, json!({"publications": [closed]})), population("sub", 1, json!({}))];
    let stages = [connect(&[0]), publish(&[0], 60_000)];
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    agent.stage(0);
    agent.stage_until(1, |_, totals| totals.populations[0].0.sent_total > 4);
    agent.change(0, ChangeAction::Rate { factor: 0.0 });
    agent.read_until(|s, _| s.populations[0].counters.sent_total == 0);
    let paused = agent.totals.populations[0].0.sent_total;
    agent.change(0, ChangeAction::Rate { factor: 0.5 });
    agent.read_until(|_, totals| totals.populations[0].0.sent_total > paused);
    agent.stop();
}
