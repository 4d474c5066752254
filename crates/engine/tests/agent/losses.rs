//! Agent failure: behaviour of the other agents and of the replacement.

use plan::{ChangeAction, Command, FlowCounters, Snapshot};
use serde_json::{Value, json};
use testkit::Script;

use super::{connect, publish};
use crate::support::{Agent, Scripted, Server, plan, population, publication};

const MS: u64 = 1_000_000;
const PERIOD_MS: u64 = 10;

fn publisher(clients: u32) -> Value {
    population("pub", clients, json!({"publications": [publication("t/{n}", 1, PERIOD_MS)]}))
}

fn subscriber(clients: u32) -> Value {
    population("sub", clients, json!({"subscriptions": [{"filter": "t/#", "qos": 1}]}))
}

/// Stops the delivery of messages to these clients.
fn mute(broker: &Scripted, clients: &[&str]) {
    let muted: Vec<String> = clients.iter().map(|client| (*client).to_owned()).collect();
    broker.order(move |server: &mut Server| {
        server.broker.set_script(Script { muted, ..Script::reliable() });
    });
}

fn exclude_subscribers(agent: &mut Agent) {
    agent.send(&Command::ExcludeFromLoss { populations: vec![1] });
}

/// Reads until `expected` deliveries are expected and `received` are received, in addition to
/// `before`.
fn read_flow(agent: &mut Agent, before: FlowCounters, expected: i64, received: i64) {
    let (expected, received) = (before.expected_total + expected, before.received_total + received);
    agent.read_until(|snapshot, totals| {
        let flow = totals.flow(0, 1);
        snapshot.settled && (flow.expected_total, flow.received_total) == (expected, received)
    });
}

#[test]
fn an_excluded_population_expects_what_it_receives() {
    let broker = Scripted::start(Script::reliable);
    let stages = [connect(&[0, 1]), publish(&[0], 300), publish(&[0], 100)];
    let mut agent =
        Agent::start(&plan(broker.port, &[publisher(5), subscriber(2)], &stages), "0/1");
    agent.stage(0);
    mute(&broker, &["sub-1"]);
    agent.stage_until(1, |_, totals| totals.flow(0, 1).received_total > 20);
    exclude_subscribers(&mut agent);
    exclude_subscribers(&mut agent);
    read_flow(&mut agent, FlowCounters::default(), 5 * 30, 5 * 30);
    // The next stage counts losses again.
    mute(&broker, &[]);
    let before = agent.totals.flow(0, 1);
    agent.stage_until(2, |_, _| true);
    read_flow(&mut agent, before, 2 * 5 * 10, 2 * 5 * 10);
    agent.stop();
}

#[test]
fn a_stage_ends_with_the_clients_by_their_deliveries() {
    let broker = Scripted::start(Script::reliable);
    let stages = [connect(&[0, 1]), publish(&[0], 100), publish(&[0], 100), publish(&[0], 100)];
    let plan = plan(broker.port, &[publisher(5), subscriber(3)], &stages);
    let counts = |snapshot: &Snapshot| snapshot.populations[1].clients_by_deliveries.clone();
    let mut agent = Agent::start(&plan, "0/1");
    agent.stage(0);
    mute(&broker, &["sub-1"]);
    agent.stage(1);
    read_flow(&mut agent, FlowCounters::default(), 3 * 50, 2 * 50);
    mute(&broker, &[]);
    for (next, counted) in [(2, vec![(0, 1), (50, 2)]), (3, vec![(50, 3)])] {
        let before = agent.totals.flow(0, 1);
        agent.send(&Command::Stage { index: next, at_ns: Agent::now_ns() });
        agent.read_until(|snapshot, _| !counts(snapshot).is_empty());
        assert_eq!(agent.totals.last.as_ref().map(counts), Some(counted));
        read_flow(&mut agent, before, 3 * 50, 3 * 50);
    }
    agent.stop();
}

#[test]
fn an_exclusion_after_the_stage_reduces_the_expected_deliveries() {
    let broker = Scripted::start(Script::reliable);
    let stages = [connect(&[0, 1]), publish(&[0], 100)];
    let mut agent =
        Agent::start(&plan(broker.port, &[publisher(5), subscriber(2)], &stages), "0/1");
    agent.stage(0);
    mute(&broker, &["sub-1"]);
    agent.stage(1);
    let nothing = FlowCounters::default();
    read_flow(&mut agent, nothing, 2 * 5 * 10, 5 * 10);
    exclude_subscribers(&mut agent);
    read_flow(&mut agent, nothing, 5 * 10, 5 * 10);
    exclude_subscribers(&mut agent);
    let seen = agent.totals.snapshots + 2;
    agent.read_until(|_, totals| totals.snapshots >= seen);
    read_flow(&mut agent, nothing, 5 * 10, 5 * 10);
    agent.stop();
}

#[test]
fn an_exclusion_before_a_stage_begins_covers_that_stage_only() {
    let broker = Scripted::start(Script::reliable);
    let stages = [connect(&[0, 1]), publish(&[0], 100), publish(&[0], 100), publish(&[0], 100)];
    let mut agent =
        Agent::start(&plan(broker.port, &[publisher(5), subscriber(2)], &stages), "0/1");
    agent.stage(0);
    mute(&broker, &["sub-1"]);
    for (stage, excluded, expected) in [(1, false, 100), (2, true, 50), (3, false, 100)] {
        let before = agent.totals.flow(0, 1);
        agent.send(&Command::Stage { index: stage, at_ns: Agent::now_ns() + 100 * MS });
        if excluded {
            exclude_subscribers(&mut agent);
        }
        agent.read_until(|snapshot, _| snapshot.stage == Some(stage));
        read_flow(&mut agent, before, expected, 50);
    }
    agent.stop();
}

#[test]
fn who_gets_nothing_because_an_agent_is_lost_has_not_stalled() {
    let broker = Scripted::start(Script::reliable);
    let stages = [connect(&[0, 1]), publish(&[0], 60_000), publish(&[0], 60_000)];
    let mut plan = plan(broker.port, &[publisher(5), subscriber(2)], &stages);
    plan["stall_ns"] = json!(300 * MS);
    let mut agent = Agent::start(&plan, "0/1");
    agent.stage(0);
    agent.stage_until(1, |_, totals| totals.flow(0, 1).received_total > 20);
    exclude_subscribers(&mut agent);
    mute(&broker, &["sub-1"]);
    let looked_ns = Agent::now_ns() + 1_000 * MS;
    agent.read_until(|snapshot, _| snapshot.to_ns > looked_ns);
    assert_eq!(agent.totals.populations[1].0.stalled_total, 0);
    agent.stage_until(2, |snapshot, _| snapshot.populations[1].gauges.stalled == 1);
    agent.stop();
}

#[test]
fn the_agent_in_its_place_publishes_from_then_on_and_its_streams_begin_anew() {
    let broker = Scripted::start(Script::reliable);
    let stages = [connect(&[0, 1]), publish(&[0], 2_000), publish(&[0], 200)];
    let plan = plan(broker.port, &[publisher(4), subscriber(2)], &stages);
    let mut agents = ["0/2", "1/2"].map(|shard| Agent::start(&plan, shard));
    agents.iter_mut().for_each(|agent| agent.stage(0));
    let at_ns = Agent::now_ns();
    for agent in &mut agents {
        agent.send(&Command::Stage { index: 1, at_ns });
    }
    let [mut stays, lost] = agents;
    stays.read_until(|_, totals| totals.flow(0, 1).received_total > 40);
    drop(lost);
    exclude_subscribers(&mut stays);
    let mut new = Agent::start(&plan, "1/2 --incarnation 1");
    new.send(&Command::Stage { index: 1, at_ns });
    exclude_subscribers(&mut new);
    let joined_ns = Agent::now_ns();
    for (population, clients) in [(0, 4), (1, 2)] {
        let action = ChangeAction::Add { clients, over_ns: 0 };
        new.send(&Command::Change { at_ns: joined_ns, population, action });
    }
    new.read_until(|snapshot, totals| {
        let counters = |p: usize| totals.populations[p].0.connected_total;
        snapshot.stage == Some(1) && (counters(0), counters(1)) == (2, 1)
    });
    for agent in [&mut new, &mut stays] {
        agent.read_until(|snapshot, _| snapshot.settled);
    }
    let counters = &new.totals.populations[0].0;
    let due = 2 * (at_ns + 2_000 * MS - joined_ns) / (PERIOD_MS * MS);
    assert!(counters.sent_total.abs_diff(due) <= 2, "{} sent, {due} due", counters.sent_total);
    assert_eq!(counters.skipped_total, 0);
    let before = settled_flows(&mut [&mut stays, &mut new]);
    assert_eq!(before.expected_total, before.received_total, "expected = received");
    play_stage(&mut [&mut stays, &mut new], 2);
    let after = settled_flows(&mut [&mut stays, &mut new]);
    // 4 publishers, 20 messages each, to both subscribers.
    let flow = (after.expected_total, after.received_total);
    let all = 4 * 20 * 2;
    assert_eq!(flow, (before.expected_total + all, before.received_total + all));
    assert_eq!((after.stale_total, after.duplicate_total, after.missing_total), (0, 0, 0));
}

/// Enters a stage in all agents and reads until all agents have settled.
fn play_stage(agents: &mut [&mut Agent], index: usize) {
    let at_ns = Agent::now_ns() + 50 * MS;
    agents.iter_mut().for_each(|agent| agent.send(&Command::Stage { index, at_ns }));
    for agent in agents {
        agent.read_until(|snapshot, _| snapshot.stage == Some(index) && snapshot.settled);
    }
}

/// Sum of the deliveries of all agents, once no more arrive.
fn settled_flows(agents: &mut [&mut Agent]) -> FlowCounters {
    loop {
        let (mut sum, mut quiet) = (FlowCounters::default(), true);
        for agent in agents.iter_mut() {
            let seen = agent.totals.snapshots + 2;
            let received = agent.totals.flow(0, 1).received_total;
            agent.read_until(|_, totals| totals.snapshots >= seen);
            quiet &= agent.totals.flow(0, 1).received_total == received;
            sum.add(&agent.totals.flow(0, 1));
        }
        if quiet {
            return sum;
        }
    }
}

/// A planned change of the publishers.
fn change(after_ms: u64, action: &Value) -> Value {
    json!({"name": "c", "after_ns": after_ms * MS, "population": 0, "action": action})
}

#[test]
fn an_agent_that_comes_late_finds_what_has_changed_and_sends_nothing_of_before() {
    let broker = Scripted::start(Script::reliable);
    let mut stage = publish(&[0], 3_000);
    stage["action"]["changes"] = json!([
        change(100, &json!({"kind": "add", "clients": 10, "over_ns": 0})),
        change(150, &json!({"kind": "remove", "clients": 3, "over_ns": 0})),
        change(200, &json!({"kind": "rate", "factor": 2.0})),
        change(2_900, &json!({"kind": "add", "clients": 1, "over_ns": 0})),
    ]);
    let at_ns = Agent::now_ns() - 1_000 * MS;
    let plan = plan(broker.port, &[publisher(20), subscriber(1)], &[stage]);
    let mut agent = Agent::start(&plan, "0/1 --incarnation 3");
    agent.send(&Command::Stage { index: 0, at_ns });
    let joined_ns = Agent::now_ns();
    let action = ChangeAction::Add { clients: 5, over_ns: 0 };
    agent.send(&Command::Change { at_ns: joined_ns, population: 0, action });
    agent.read_until(|snapshot, _| snapshot.populations[0].gauges.ready == 12);
    agent.read_until(|snapshot, _| snapshot.settled);
    let totals = agent.stop();
    let counters = &totals.populations[0].0;
    assert_eq!((counters.connect_attempts_total, counters.skipped_total), (13, 0));
    // At twice the rate: 12 clients from then on, and one for the last 100 ms.
    let due = 2 * (12 * (at_ns + 3_000 * MS - joined_ns) / MS + 100) / PERIOD_MS;
    assert!(counters.sent_total.abs_diff(due) <= 13, "{} sent, {due} due", counters.sent_total);
}
