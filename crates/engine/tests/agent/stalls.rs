//! Subscribers that stop receiving while their publishers continue.

use serde_json::{Value, json};
use testkit::Script;

use super::{connect, publish};
use crate::support::{Agent, Scripted, Server, plan, population, publication};

const MS: u64 = 1_000_000;
const STALL_NS: u64 = 1_000 * MS;
const PERIOD_MS: u64 = 20;

fn publisher(name: &str, clients: u32, topic: &str) -> Value {
    population(name, clients, json!({"publications": [publication(topic, 0, PERIOD_MS)]}))
}

fn subscriber(name: &str, clients: u32, filter: &str) -> Value {
    population(name, clients, json!({"subscriptions": [{"filter": filter, "qos": 0}]}))
}

fn watched(broker: &Scripted, populations: &[Value], stages: &[Value]) -> Value {
    let mut plan = plan(broker.port, populations, stages);
    plan["stall_ns"] = json!(STALL_NS);
    plan
}

/// Stops the delivery of messages to these clients.
fn mute(broker: &Scripted, clients: &[&str]) {
    let muted: Vec<String> = clients.iter().map(|client| (*client).to_owned()).collect();
    broker.order(move |server: &mut Server| {
        server.broker.set_script(Script { muted, ..Script::reliable() });
    });
}

#[test]
fn a_subscriber_that_gets_nothing_more_is_named_with_the_time_and_so_is_its_end() {
    let broker = Scripted::start(Script::reliable);
    let populations = [publisher("pub", 5, "t/{n}"), subscriber("sub", 5, "t/{n}")];
    let stages = [connect(&[0, 1]), publish(&[0], 60_000)];
    let mut agent = Agent::start(&watched(&broker, &populations, &stages), "0/1");
    agent.stage(0);
    let start_ns = Agent::now_ns();
    agent.stage_until(1, |_, totals| totals.flow(0, 1).received_total >= 50);
    mute(&broker, &["sub-3"]);
    agent.read_until(|snapshot, _| snapshot.populations[1].gauges.stalled == 1);
    let reported_ns = agent.totals.last.as_ref().unwrap().to_ns;
    let stall = agent.totals.stalls[0];
    assert_eq!((stall.population, stall.number, stall.until_ns), (1, 3, None));
    assert!(start_ns < stall.since_ns && stall.since_ns + STALL_NS <= reported_ns, "{stall:?}");
    let due = (reported_ns - stall.since_ns) / (PERIOD_MS * MS);
    assert!(stall.due.abs_diff(due) <= 1, "{stall:?}, but {due} were due");
    mute(&broker, &[]);
    agent.read_until(|snapshot, _| snapshot.populations[1].gauges.stalled == 0);
    let [_, end] = agent.totals.stalls[..] else { panic!("{:?}", agent.totals.stalls) };
    assert_eq!((end.population, end.number, end.since_ns), (1, 3, stall.since_ns));
    assert!(end.until_ns.is_some_and(|until_ns| until_ns >= reported_ns - 2 * MS), "{end:?}");
    assert!(end.due >= stall.due, "{end:?} after {stall:?}");
    let totals = agent.stop();
    assert_eq!(totals.populations[1].0.stalled_total, 1);
}

#[test]
fn idle_slow_and_disconnected_subscribers_have_not_stalled() {
    let broker = Scripted::start(Script::reliable);
    let mut slow = subscriber("slow", 2, "t/{n}");
    slow["read_rate_per_s"] = json!(0.5);
    let mut lost = subscriber("lost", 2, "t/{n}");
    (lost["reconnect"], lost["at"]["first"]) = (json!(null), json!(1));
    let populations = [
        publisher("pub", 4, "t/{n}"),
        publisher("idle", 4, "idle/{n}"),
        subscriber("muted", 4, "t/{n}"),
        subscriber("other", 4, "other/{n}"),
        subscriber("of idle", 4, "idle/{n}"),
        subscriber("beyond", 9, "t/1{n}"),
        slow,
        lost,
    ];
    let far = Scripted::start(Script::reliable);
    let stages = [connect(&[0, 1, 2, 3, 4, 5, 6, 7]), publish(&[0], 60_000)];
    let mut plan = watched(&broker, &populations, &stages);
    let target = |port: u16| json!({"host": "127.0.0.1", "port": port, "tls": false});
    plan["targets"] = json!([target(broker.port), target(far.port)]);
    let mut agent = Agent::start(&plan, "0/1");
    agent.stage(0);
    mute(&broker, &["muted-0", "muted-2"]);
    agent.stage_until(1, |_, totals| totals.flow(0, 2).received_total > 0);
    far.order(Server::cut_all);
    // All clients except the slow clients and two muted clients have received nothing since the
    // stage began.
    agent.read_until(|snapshot, _| snapshot.populations[2].gauges.stalled == 2);
    let totals = agent.stop();
    let named: Vec<_> =
        totals.stalls.iter().map(|stall| (stall.population, stall.number)).collect();
    assert_eq!(named, [(2, 0), (2, 2)]);
    assert!(totals.flow(0, 6).received_total >= 2, "slow, but they read");
    assert_eq!(totals.populations[7].0.disconnected_total, 2);
}

#[test]
fn removed_publishers_and_removed_subscribers_cause_no_stalls() {
    let broker = Scripted::start(Script::reliable);
    let populations = [publisher("pub", 3, "t/{n}"), subscriber("sub", 3, "t/{n}")];
    let mut removed = publish(&[0], 60_000);
    removed["action"]["changes"] = json!([
        {"name": "fewer", "after_ns": 0, "population": 0,
         "action": {"kind": "remove", "clients": 1, "over_ns": 0}},
        {"name": "gone", "after_ns": 2_000 * MS, "population": 1,
         "action": {"kind": "remove", "clients": 2, "over_ns": 0}},
    ]);
    let stages = [connect(&[0, 1]), removed];
    let mut agent = Agent::start(&watched(&broker, &populations, &stages), "0/1");
    agent.stage(0);
    mute(&broker, &["sub-0", "sub-1"]);
    // The publisher of the third subscriber has left, so this subscriber has not stalled.
    agent.stage_until(1, |snapshot, _| snapshot.populations[1].gauges.stalled == 2);
    agent.read_until(|snapshot, _| snapshot.populations[1].gauges.ready == 1);
    let totals = agent.stop();
    assert_eq!(totals.populations[1].0.stalled_total, 2);
    let mut named: Vec<u64> = totals.stalls.iter().map(|stall| stall.number).collect();
    named.sort_unstable();
    assert_eq!(named, [0, 1]);
}
