//! The real engine, as a process, as subscribers of real libzmq.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;

use crate::support::{
    Agent, Feed, Totals, feed, free_port, plan, population, sockets, subscribers,
};
use plan::{Command, Reason};
use serde_json::{Value, json};

fn stages() -> [Value; 2] {
    let connect =
        json!({"kind": "connect", "rate_per_s": null, "parallelism": 500, "timeout_ns": 1});
    let publish = json!({"kind": "publish", "duration_ns": 1_000_000, "changes": []});
    [
        json!({"name": "connect", "action": connect, "populations": [0, 1]}),
        json!({"name": "publish", "action": publish, "populations": [0]}),
    ]
}

fn agent(port: u16, populations: &[Value]) -> Agent {
    Agent::start(&plan(port, populations, &stages()), "0/1")
}

/// Closes the stage as the controller does, and reads until `received` deliveries to the
/// subscribers are counted.
fn close(agent: &mut Agent, feed: &Feed, received: i64) {
    agent.send(&Command::Close { sent: feed.totals() });
    agent.read_until(|snapshot, totals| {
        snapshot.settled && totals.flow(0, 1).received_total == received
    });
}

fn count(totals: &Totals, reason: Reason) -> u64 {
    totals.populations[1].1.get(&reason).copied().unwrap_or_default()
}

#[test]
fn every_message_reaches_every_subscriber_and_is_expected() {
    let context = zmq::Context::new();
    let mut publisher = Feed::start(&context, 0);
    let mut agent = agent(publisher.port, &[feed("", 32), subscribers(30)]);
    assert_eq!(agent.hello.clients, [0, 30], "another program plays the publisher");
    agent.stage(0);
    agent.stage_until(1, |_, _| true);
    publisher.send(5000);
    agent.read_until(|_, totals| totals.flow(0, 1).received_total == 150_000);
    let settled = agent.totals.last.as_ref().map(|last| last.settled);
    assert_eq!(settled, Some(false), "the agent waits for the number of published messages");
    close(&mut agent, &publisher, 150_000);
    // The same total again adds no expected deliveries.
    agent.send(&Command::Close { sent: publisher.totals() });
    let totals = agent.stop();
    let flow = totals.flow(0, 1);
    assert_eq!((flow.expected_total, flow.missing_total), (150_000, 0));
    assert_eq!((flow.duplicate_total, flow.reordered_total, flow.stale_total), (0, 0, 0));
    let (counters, outcomes) = &totals.populations[1];
    assert_eq!((counters.connected_total, counters.subscribed_total), (30, 30));
    assert_eq!((counters.foreign_total, outcomes.len()), (0, 0));
    assert_eq!(totals.targets[0].connected_total, 30);
}

#[test]
fn a_subscriber_gets_what_it_asked_for_by_prefix() {
    let context = zmq::Context::new();
    let mut publisher = Feed::start(&context, 0);
    let subscriptions = json!([{"filter": "s{n}", "qos": 0}, {"filter": "s{1..3}", "qos": 0}]);
    let subscribers = sockets("sub", 12, json!({"subscriptions": subscriptions}));
    let mut agent = agent(publisher.port, &[feed("s{1..12}", 32), subscribers]);
    agent.stage(0);
    agent.stage_until(1, |_, _| true);
    let topics: Vec<String> = (1..=12).map(|n| format!("s{n}")).collect();
    publisher.send_to(&topics.iter().map(String::as_str).collect::<Vec<_>>(), 1200);
    // All subscribers match s1, s2, s3, s10, s11 and s12; one subscriber matches each other topic.
    close(&mut agent, &publisher, 100 * (6 * 12 + 6));
    let totals = agent.stop();
    assert_eq!(totals.flow(0, 1).expected_total, 100 * (6 * 12 + 6));
    assert_eq!(totals.populations[1].0.subscribed_total, 12 * 4);
}

#[test]
fn the_first_shard_counts_the_expected_deliveries_of_all_shards() {
    let context = zmq::Context::new();
    let mut publisher = Feed::start(&context, 0);
    let plan = plan(publisher.port, &[feed("", 32), subscribers(5)], &stages());
    let mut agents = ["0/2", "1/2"].map(|shard| Agent::start(&plan, shard));
    for agent in &mut agents {
        agent.stage(0);
        agent.stage_until(1, |_, _| true);
    }
    publisher.send(100);
    for (agent, subscribers) in agents.iter_mut().zip([3, 2]) {
        close(agent, &publisher, 100 * subscribers);
    }
    let flows = agents.map(|agent| agent.stop().flow(0, 1));
    assert_eq!(flows.map(|flow| flow.expected_total), [500, 0]);
    assert_eq!(flows.map(|flow| flow.received_total), [300, 200]);
}

#[test]
fn many_subscribers_are_ready_before_the_first_message() {
    let context = zmq::Context::new();
    let mut publisher = Feed::start(&context, 0);
    let mut agent = agent(publisher.port, &[feed("", 32), subscribers(900)]);
    agent.stage(0);
    agent.stage_until(1, |_, _| true);
    publisher.send(20);
    close(&mut agent, &publisher, 900 * 20);
    let totals = agent.stop();
    assert_eq!(totals.flow(0, 1).expected_total, 900 * 20);
    let (counters, outcomes) = &totals.populations[1];
    assert_eq!((counters.connect_attempts_total, outcomes), (900, &BTreeMap::new()));
}

#[test]
fn zeromq_subscribers_with_a_lifetime_are_excluded_from_loss() {
    let context = zmq::Context::new();
    let mut publisher = Feed::start(&context, 0);
    let lifetime = json!({"min_ns": 20_000_000, "max_ns": 60_000_000, "offline_ns": 0});
    let subscriptions = json!([{"filter": "", "qos": 0}]);
    let come_and_go =
        sockets("sub", 5, json!({"lifetime": lifetime, "subscriptions": subscriptions}));
    let mut agent = agent(publisher.port, &[feed("", 32), come_and_go]);
    agent.stage(0);
    agent.stage_until(1, |_, _| true);
    while agent.totals.populations[1].0.left_total < 20 {
        publisher.send(100);
        let snapshots = agent.totals.snapshots;
        agent.read_until(|_, totals| totals.snapshots > snapshots);
    }
    agent.send(&Command::Close { sent: publisher.totals() });
    agent.read_until(|snapshot, _| snapshot.settled);
    let totals = agent.stop();
    let flow = totals.flow(0, 1);
    assert!(flow.received_total > 0);
    assert_eq!((flow.expected_total, flow.missing_total), (flow.received_total, 0));
    assert!(totals.populations[1].0.connected_total >= 20, "{:?}", totals.populations[1].1);
}

#[test]
fn unstamped_messages_are_their_publishers_and_others_are_foreign() {
    for (publisher_is_ours, topic) in [(true, ""), (false, "other/topic")] {
        let context = zmq::Context::new();
        let publisher = Feed::start(&context, 0);
        let mut agent = agent(publisher.port, &[feed(topic, 8), subscribers(2)]);
        agent.stage(0);
        agent.stage_until(1, |_, _| true);
        (0..10).for_each(|_| publisher.send_frame(b"12345678"));
        agent.read_until(|_, totals| {
            totals.flow(0, 1).received_total + totals.populations[1].0.foreign_total as i64 == 20
        });
        let totals = agent.stop();
        assert_eq!(totals.flow(0, 1).received_total, if publisher_is_ours { 20 } else { 0 });
        assert!(totals.populations[1].0.bytes_received_total > 20 * 10);
    }
}

#[test]
fn subscribers_come_back_to_a_publisher_that_was_started_again() {
    let context = zmq::Context::new();
    let port = free_port();
    let mut publisher = Feed::start_on(&context, port);
    let mut agent = agent(port, &[feed("", 32), subscribers(20)]);
    agent.stage(0);
    agent.stage_until(1, |_, _| true);
    publisher.send(10);
    agent.read_until(|_, totals| totals.flow(0, 1).received_total == 200);
    drop(publisher);
    drop(context);
    agent.read_until(|_, totals| totals.populations[1].0.disconnected_total == 20);
    let context = zmq::Context::new();
    let mut publisher = Feed::start_on(&context, port);
    agent.read_until(|snapshot, _| snapshot.populations[1].gauges.ready == 20);
    publisher.send(20);
    agent.read_until(|_, totals| totals.flow(0, 1).received_total >= 400);
    let totals = agent.stop();
    assert_eq!(count(&totals, Reason::ClosedByBroker) + count(&totals, Reason::ResetByBroker), 20);
    assert_eq!(totals.populations[1].0.connected_total, 40);
}

/// A publisher of ZMTP 3.1 that answers so many PINGs of its one subscriber. Returns its port.
fn silent_after(pongs: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut greeting = [0; 64];
        (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xff, 0x7f, 3, 1);
        greeting[12..16].copy_from_slice(b"NULL");
        stream.write_all(&greeting).unwrap();
        stream.write_all(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB").unwrap();
        let (mut received, mut answered, mut buffer) = (Vec::new(), 0, [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            received.extend_from_slice(&buffer[..count]);
            let pings = received.windows(5).filter(|bytes| bytes == b"\x04PING").count();
            while answered < pings.min(pongs) {
                stream.write_all(b"\x04\x05\x04PONG").unwrap();
                answered += 1;
            }
        }
    });
    port
}

#[test]
fn a_missing_pong_is_named_after_what_waits_for_it() {
    // Two PONGs confirm the subscriptions, and a later one that the publisher lives.
    for (pongs, reason) in [
        (0, Reason::SubscribeTimeout),
        (1, Reason::SubscribeTimeout),
        (2, Reason::KeepAliveTimeout),
    ] {
        let connect_s = if reason == Reason::SubscribeTimeout { 1 } else { 60 };
        let fields = json!({
            "keep_alive_s": 1, "connect_timeout_ns": connect_s * plan::SECOND_NS, "reconnect": null,
            "subscriptions": [{"filter": "", "qos": 0}],
        });
        let subscriber = sockets("sub", 1, fields);
        let mut agent = agent(silent_after(pongs), &[feed("", 32), subscriber]);
        agent.stage(0);
        agent.read_until(|_, totals| totals.populations[1].0.disconnected_total == 1);
        let totals = agent.stop();
        assert_eq!(totals.populations[1].1, [(reason, 1)].into(), "{pongs} PONGs");
        assert_eq!(totals.populations[1].0.connect_failed_total, 0);
    }
}

#[test]
fn a_publisher_that_asks_for_a_password_lets_in_who_has_it() {
    for (password, reason) in [
        ("secret", None),
        ("wrong", Some(Reason::BadCredentials)),
        ("", Some(Reason::ConnectClosed)),
    ] {
        let mut context = zmq::Context::new();
        let gate = Gate::start(&context);
        let socket = Feed::socket(&context, 0);
        socket.set_plain_server(true).unwrap();
        let publisher = Feed::bind(socket, "*");
        let security = if password.is_empty() { "null" } else { "plain" };
        let subscribers = sockets(
            "sub",
            3,
            json!({
                "protocol": {"security": security}, "username": "user-{n}", "password": password,
                "reconnect": null,
            }),
        );
        let mut agent = agent(publisher.port, &[feed("", 32), subscribers]);
        agent.stage(0);
        let totals = agent.stop();
        let refused = reason.map_or(0, |reason| count(&totals, reason));
        let connected = totals.populations[1].0.connected_total;
        let expected = if reason.is_none() { (3, 0) } else { (0, 3) };
        assert_eq!((connected, refused), expected, "{password}: {:?}", totals.populations[1].1);
        drop(publisher);
        context.destroy().unwrap();
        gate.end();
    }
}

#[test]
fn what_a_slow_subscriber_makes_the_publisher_drop_is_missing() {
    let context = zmq::Context::new();
    let socket = Feed::socket(&context, 100);
    socket.set_sndbuf(4096).unwrap();
    let mut publisher = Feed::bind(socket, "*");
    let slow = sockets(
        "slow",
        2,
        json!({"read_rate_per_s": 10.0, "subscriptions": [{"filter": "", "qos": 0}]}),
    );
    let mut plan = plan(publisher.port, &[feed("", 32), slow, subscribers(3)], &stages());
    plan["stages"][0]["populations"] = json!([0, 1, 2]);
    plan["snapshot_interval_ns"] = json!(5_000_000);
    let mut agent = Agent::start(&plan, "0/1");
    agent.stage(0);
    agent.stage_until(1, |_, _| true);
    let mut sent = 0i64;
    // Each step fits the queues of the fast subscribers and exceeds the queues of the slow
    // subscribers.
    while sent < 5000 {
        publisher.send(50);
        sent += 50;
        agent.read_until(|_, totals| totals.flow(0, 2).received_total >= 3 * sent);
    }
    agent.send(&Command::Close { sent: publisher.totals() });
    agent.read_until(|snapshot, _| snapshot.settled);
    let totals = agent.stop();
    let (slow, fast) = (totals.flow(0, 1), totals.flow(0, 2));
    assert_eq!((fast.expected_total, fast.received_total), (3 * sent, 3 * sent));
    assert_eq!(slow.expected_total, 2 * sent);
    assert!(slow.received_total < sent, "{slow:?}");
}

#[test]
fn a_population_that_the_engine_cannot_play_is_refused_with_words() {
    for (wrong, words) in [
        (sockets("sub", 1, json!({"protocol": {"security": "curve"}})), "found curve"),
        (population("sub", 1, json!({"protocol": {"player": "libzmq"}})), "unknown field `player`"),
    ] {
        let plan = plan(1, &[wrong], &[]);
        let (output, status) = Agent::output(&format!("{plan}\n"), "0/1");
        assert!(!status.success() && output.contains(words), "{output}");
    }
}

/// Authentication of libzmq's users: accepts the password `secret` (RFC 27/ZAP).
struct Gate(std::thread::JoinHandle<()>);

impl Gate {
    fn start(context: &zmq::Context) -> Self {
        let socket = context.socket(zmq::REP).unwrap();
        socket.bind("inproc://zeromq.zap.01").unwrap();
        Self(std::thread::spawn(move || {
            // The thread ends with its context.
            while let Ok(request) = socket.recv_multipart(0) {
                let known = request.get(7).is_some_and(|password| password == b"secret");
                let status: &[u8] = if known { b"200" } else { b"400" };
                let answer: [&[u8]; 6] = [b"1.0", &request[1], status, b"", b"", b""];
                if socket.send_multipart(answer, 0).is_err() {
                    return;
                }
            }
        }))
    }

    fn end(self) {
        self.0.join().unwrap();
    }
}
