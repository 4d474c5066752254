//! Clients that connect in parts, and clients with a session lifetime.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use plan::{Command, Counters};
use serde_json::{Value, json};
use testkit::Script;

use super::{connect, publish, received_all};
use crate::support::{Agent, Scripted, Server, plan, population, publication};

const MS: u64 = 1_000_000;

/// A connect stage for a part of the clients of its populations.
fn connect_part(populations: &[usize], rate_per_s: Option<f64>, clients: &[u32]) -> Value {
    let mut stage = connect(populations);
    stage["action"]["rate_per_s"] = json!(rate_per_s);
    stage["action"]["clients"] = json!(clients);
    stage
}

fn hold(ms: u64) -> Value {
    let action = json!({"kind": "hold", "duration_ns": ms * MS});
    json!({"name": "hold", "action": action, "populations": []})
}

fn disconnect(populations: &[usize]) -> Value {
    let action = json!({"kind": "disconnect", "rate_per_s": null});
    json!({"name": "disconnect", "action": action, "populations": populations})
}

fn lifetime(min_ms: u64, max_ms: u64, again_ms: Option<u64>) -> Value {
    let offline_ns = again_ms.map(|ms| ms * MS);
    json!({"min_ns": min_ms * MS, "max_ns": max_ms * MS, "offline_ns": offline_ns})
}

#[test]
fn a_connect_stage_brings_up_a_part_and_the_next_goes_on_from_there() {
    let broker = Scripted::start(Script::reliable);
    let populations = [population("a", 10, json!({})), population("b", 6, json!({}))];
    // At this rate a slot for a connected client would last a quarter of an hour.
    let stages = [
        connect_part(&[1, 0], None, &[2, 4]),
        connect_part(&[0], Some(0.001), &[5]),
        connect_part(&[0], Some(0.001), &[3]),
        connect(&[0, 1]),
    ];
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    for (stage, expected) in [[4, 2], [5, 2], [5, 2], [10, 6]].into_iter().enumerate() {
        agent.stage(stage);
        let last = agent.totals.last.as_ref().unwrap();
        let ready = [0, 1].map(|p: usize| last.populations[p].gauges.ready);
        let attempts = [0, 1].map(|p| agent.totals.populations[p].0.connect_attempts_total);
        assert_eq!((ready, attempts), (expected, expected), "stage {stage}");
    }
    agent.stop();
}

#[test]
fn a_part_expects_its_own_deliveries_and_shards_connect_it_together() {
    let broker = Scripted::start(Script::reliable);
    let subscriptions = json!([{"filter": "t/{n%2}", "qos": 1}]);
    let populations = [
        population("pub", 7, json!({"publications": [publication("t/{n%2}", 1, 10)]})),
        population("sub", 9, json!({"subscriptions": subscriptions})),
    ];
    let stages = [connect_part(&[1, 0], None, &[5, 3]), publish(&[0], 100)];
    let plan = plan(broker.port, &populations, &stages);
    let mut agents: Vec<Agent> = (0..3).map(|i| Agent::start(&plan, &format!("{i}/3"))).collect();
    agents.iter_mut().for_each(|agent| agent.stage(0));
    let at_ns = Agent::now_ns() + 50 * MS;
    agents.iter_mut().for_each(|agent| agent.send(&Command::Stage { index: 1, at_ns }));
    let settled = |agent: &mut Agent| agent.read_until(|s, _| s.stage == Some(1) && s.settled);
    agents.iter_mut().for_each(settled);
    let mut sum = Counters::default();
    let mut expected = 0;
    for totals in agents.into_iter().map(Agent::stop) {
        sum.add(&totals.populations[0].0);
        expected += totals.flow(0, 1).expected_total;
    }
    // Publishers 0 and 2 reach subscribers 0, 2 and 4; publisher 1 reaches 1 and 3.
    assert_eq!((sum.connected_total, sum.sent_total), (3, 30));
    assert_eq!(expected, 10 * (3 + 3 + 2));
}

#[test]
fn clients_go_when_their_time_is_over_and_come_back() {
    let broker = Scripted::start(Script::reliable);
    let fields = json!({"lifetime": lifetime(20, 60, Some(30)), "reconnect": null});
    let populations = [population("p", 8, fields), population("stays", 2, json!({}))];
    let stages = [connect(&[0, 1]), hold(60_000), disconnect(&[0, 1]), hold(300)];
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    agent.stage(0);
    agent.stage_until(1, |_, totals| totals.populations[0].0.left_total >= 40);
    agent.read_until(|snapshot, _| snapshot.populations[0].gauges.offline > 0);
    agent.stage(2);
    let totals = &agent.totals;
    let (lives, stay) = (totals.populations[0].0, totals.populations[1].0);
    let gauges = totals.last.as_ref().unwrap().populations[0].gauges;
    assert_eq!((gauges.connected, gauges.ready, gauges.offline), (0, 0, 0));
    assert_eq!((lives.disconnected_total, lives.connect_failed_total), (0, 0), "they said so");
    assert_eq!((stay.connected_total, stay.left_total), (2, 0));
    let at_the_end = lives.connected_total - lives.left_total;
    assert!(at_the_end <= 8, "{at_the_end} were active when all had to leave");
    let attempts = lives.connect_attempts_total;
    agent.stage(3);
    let totals = agent.stop();
    assert_eq!(totals.populations[0].0.connect_attempts_total, attempts, "none comes back");
}

#[test]
fn a_life_without_another_is_the_last() {
    let broker = Scripted::start(Script::reliable);
    let fields = json!({"lifetime": lifetime(10, 50, None)});
    let stages = [connect(&[0]), hold(60_000), disconnect(&[0]), connect(&[0])];
    let plan = plan(broker.port, &[population("p", 7, fields)], &stages);
    let mut agents: Vec<Agent> = (0..3).map(|i| Agent::start(&plan, &format!("{i}/3"))).collect();
    agents.iter_mut().for_each(|agent| agent.stage(0));
    let all_away = |agent: &mut Agent, stage: usize| {
        let share = u64::from(agent.hello.clients[0]);
        agent.stage_until(stage, |snapshot, _| snapshot.populations[0].gauges.offline == share);
    };
    agents.iter_mut().for_each(|agent| all_away(agent, 1));
    agents.iter_mut().for_each(|agent| agent.stage(2));
    agents.iter_mut().for_each(|agent| all_away(agent, 3));
    let mut sum = Counters::default();
    for totals in agents.into_iter().map(Agent::stop) {
        sum.add(&totals.populations[0].0);
    }
    assert_eq!((sum.connected_total, sum.left_total), (2 * 7, 2 * 7));
}

#[test]
fn a_connect_stage_does_not_wait_for_who_has_been_there_and_gone() {
    let broker = Scripted::start(Script::reliable);
    let lives = json!({"lifetime": lifetime(1, 2, Some(3_600_000))});
    let populations = [population("p", 3, lives), population("late", 4, json!({}))];
    let mut stage = connect(&[0, 1]);
    stage["action"]["rate_per_s"] = json!(50.0);
    let mut agent = Agent::start(&plan(broker.port, &populations, &[stage]), "0/1");
    agent.stage(0);
    let last = agent.stop();
    assert_eq!(last.populations[0].0.connected_total, 3);
    assert_eq!(last.populations[1].0.connected_total, 4);
}

#[test]
fn clients_with_a_lifetime_publish_only_what_was_scheduled_while_connected() {
    let broker = Scripted::start(Script::reliable);
    let publications = json!([publication("t/{n}", 1, 5)]);
    let fields = json!({"publications": publications, "lifetime": lifetime(30, 90, Some(40))});
    let subscriptions = json!({"subscriptions": [{"filter": "t/#", "qos": 1}]});
    let populations = [population("pub", 12, fields), population("sub", 2, subscriptions)];
    let stages = [connect(&[0, 1]), publish(&[0], 600)];
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    agent.stage(0);
    agent.stage_until(1, |snapshot, totals| {
        assert!(snapshot.populations[0].gauges.backlog < 12 * 120);
        snapshot.settled && received_all(totals)
    });
    let totals = agent.stop();
    let counters = &totals.populations[0].0;
    assert!(counters.left_total >= 12, "{} left", counters.left_total);
    assert!((12..12 * 120).contains(&counters.sent_total), "{} sent", counters.sent_total);
    assert_eq!(counters.skipped_total, 0);
    assert_eq!(counters.sent_total, counters.acked_total + counters.abandoned_total);
    assert_eq!(totals.flow(0, 1).received_total, 2 * counters.sent_total as i64);
}

#[test]
fn subscribers_with_a_lifetime_are_excluded_from_loss() {
    let broker = Scripted::start(Script::reliable);
    let publications = json!({"publications": [publication("t/{n}", 1, 5)]});
    let subscriptions = json!([{"filter": "t/#", "qos": 1}]);
    let lives = json!({"subscriptions": subscriptions, "lifetime": lifetime(20, 80, Some(20))});
    let populations = [population("pub", 5, publications), population("sub", 4, lives)];
    let stages = [connect(&[0, 1]), publish(&[0], 400)];
    let mut agent = Agent::start(&plan(broker.port, &populations, &stages), "0/1");
    agent.stage(0);
    agent.stage(1);
    let flow = agent.stop().flow(0, 1);
    assert_eq!((flow.expected_total, flow.missing_total), (flow.received_total, 0));
    let whole = 5 * 80 * 4;
    assert!((1..whole).contains(&flow.received_total), "{} of {whole}", flow.received_total);
}

#[test]
fn a_lost_connection_goes_on_with_the_same_life() {
    let broker = Scripted::start(Script::reliable);
    let fields = json!({"lifetime": lifetime(3_600_000, 3_600_000, None)});
    let stages = [connect(&[0]), hold(60_000), hold(60_000)];
    let mut agent = Agent::start(&plan(broker.port, &[population("p", 3, fields)], &stages), "0/1");
    agent.stage(0);
    broker.order(Server::cut_all);
    agent.stage_until(1, |snapshot, totals| {
        let is_back = snapshot.populations[0].gauges.ready == 3;
        is_back && totals.populations[0].0.disconnected_total == 3
    });
    let totals = agent.stop();
    assert_eq!(
        (totals.populations[0].0.connected_total, totals.populations[0].0.left_total),
        (6, 0)
    );
}

#[test]
fn connections_are_counted_by_target() {
    let brokers = [(); 3].map(|()| Scripted::start(Script::reliable));
    let refusing = Scripted::start(|| Script { connack_code: 3, ..Script::reliable() });
    let at = json!({"first": 1, "count": 3, "choice": "turn", "shift": 2});
    let populations = [
        population("p", 10, json!({"at": at, "reconnect": null})),
        population("q", 2, json!({"at": {"first": 3, "count": 1, "choice": "turn"}})),
        population(
            "refused",
            5,
            json!({"at": {"first": 0, "count": 1, "choice": "turn"}, "reconnect": null}),
        ),
    ];
    let ports = [refusing.port, brokers[0].port, brokers[1].port, brokers[2].port];
    let mut plan = plan(0, &populations, &[connect(&[0, 1, 2]), hold(60_000)]);
    let target = |port| json!({"host": "127.0.0.1", "port": port, "tls": false});
    plan["targets"] = ports.iter().map(target).collect();
    let mut agent = Agent::start(&plan, "0/1");
    agent.stage(0);
    let counts = |agent: &Agent| {
        let targets = agent.totals.targets.iter();
        let all = targets.map(|t| (t.connected, t.connected_total, t.connect_failed_total));
        all.collect::<Vec<_>>()
    };
    // Client 0 of the first population is at the third of its targets, client 1 at the first.
    assert_eq!(counts(&agent), [(0, 0, 5), (3, 3, 0), (3, 3, 0), (6, 6, 0)]);
    brokers[1].order(Server::cut_all);
    agent.stage_until(1, |snapshot, _| snapshot.populations[0].gauges.connected == 7);
    assert_eq!(counts(&agent), [(0, 0, 5), (3, 3, 0), (0, 3, 0), (6, 6, 0)]);
    agent.stop();
}

/// Accepts one client, leaves its publications unread until it has left, acknowledges two of them,
/// and reads on. Returns all bytes of the client.
fn read_late(broker: &TcpListener) -> std::io::Result<Vec<u8>> {
    let (mut client, _) = broker.accept()?;
    let mut read = vec![0; 1024];
    let count = client.read(&mut read)?;
    read.truncate(count);
    client.write_all(&[0x20, 2, 0, 0])?;
    thread::sleep(Duration::from_millis(600));
    for number in [1, 2] {
        client.write_all(&[0x40, 2, 0, number])?;
        thread::sleep(Duration::from_millis(100));
    }
    let mut part = [0; 1024];
    while !read.ends_with(&[0xe0, 0]) {
        let count = client.read(&mut part)?;
        read.extend_from_slice(&part[..count]);
    }
    Ok(read)
}

#[test]
fn a_client_that_leaves_resets_no_messages_that_its_broker_has_not_read() {
    let broker = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let port = broker.local_addr().expect("it is bound").port();
    let reading = thread::spawn(move || read_late(&broker));
    let publications = json!([publication("t", 1, 10)]);
    let fields = json!({"publications": publications, "lifetime": lifetime(200, 200, None)});
    let stages = [connect(&[0]), publish(&[0], 2000)];
    let mut agent = Agent::start(&plan(port, &[population("p", 1, fields)], &stages), "0/1");
    agent.stage(0);
    agent.stage(1);
    let totals = agent.stop();
    let read = reading.join().expect("it does not panic").expect("no reset");
    let sent = totals.populations[0].0.sent_total as usize;
    assert!(sent > 1);
    assert_eq!(read.windows(3).filter(|bytes| bytes == b"\0\x01t").count(), sent);
}
