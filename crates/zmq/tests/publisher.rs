//! The real publisher, as a process, against SUB sockets of libzmq.

use std::net::TcpListener;

use crate::support::{
    Agent, connect, free_port, left_alone, plan, population, publication, publish, publisher,
    subscriber,
};
use plan::{ChangeAction, Command, Resume, Stamp};
use serde_json::{Value, json};
use zmq::{Context, Socket, SocketEvent};

const PUBLISHER: &str = "0/1 --population 0 --agent 2 --agents 4";

/// Publishes in stage 0 until the socket has had a message, so that its subscription is known to
/// have arrived; returns what was sent.
fn warm_up(agent: &mut Agent, socket: &Socket) -> u64 {
    agent.send(&Command::Stage { index: 0, at_ns: Agent::now_ns() });
    frames(socket);
    agent.send(&Command::Close { sent: Vec::new() });
    agent.read_until(|snapshot, _| snapshot.settled);
    agent.totals.populations[0].0.sent_total
}

fn frames(socket: &Socket) -> Vec<Vec<u8>> {
    socket.recv_multipart(0).unwrap()
}

/// Returns the stamps of the messages after the first `sent`, up to the last of `total`.
fn stamps(socket: &Socket, sent: u64, total: u64) -> Vec<Stamp> {
    let mut stamps = Vec::new();
    while stamps.last().is_none_or(|last: &Stamp| u64::from(last.sequence) + 1 < total) {
        let stamp = Stamp::read(frames(socket).last().unwrap()).unwrap();
        stamps.extend((u64::from(stamp.sequence) >= sent).then_some(stamp));
    }
    stamps
}

fn total(agent: &Agent) -> u64 {
    agent.totals.populations[0].0.sent_total
}

/// Returns the number of scheduled messages: sent, or skipped on a busy machine.
fn due(agent: &Agent) -> u64 {
    total(agent) + agent.totals.populations[0].0.skipped_total
}

#[test]
fn a_publisher_that_is_to_follow_a_clock_needs_the_key_of_the_run() {
    let arguments = format!("{PUBLISHER} --reference 127.0.0.1:9");
    let (said, status) = Agent::output("", &arguments);
    assert!(!status.success());
    assert!(said.contains("PUBSTORM_CLOCK_KEY: found none, needed are 64"), "{said}");
}

#[test]
fn bursts_follow_the_schedule_and_carry_stamps() {
    let port = free_port();
    let feed = publisher("", 500, 4);
    let stages = [publish(60_000, &json!([])), publish(200, &json!([]))];
    let mut agent = Agent::start(&plan(port, &[feed], &stages), PUBLISHER);
    assert_eq!((agent.hello.agent, agent.hello.agents), (2, 4));
    assert_eq!(agent.hello.clients, [1]);
    assert_eq!(agent.hello.library.as_deref(), Some("libzmq 4.3.5"));
    let socket = subscriber(&Context::new(), port, &[""]);
    let sent = warm_up(&mut agent, &socket);
    let due_before = due(&agent);
    agent.stage(1);
    assert_eq!(due(&agent) - due_before, 400);
    let stamps = stamps(&socket, sent, total(&agent));
    let first = stamps[0];
    assert_eq!(stamps.len() as u64, total(&agent) - sent);
    for (k, stamp) in stamps.iter().enumerate() {
        let burst = k as u64 / 4;
        assert_eq!(stamp.intended_ns, first.intended_ns + burst * 4 * 500_000);
        assert!(stamp.actual_ns() >= stamp.intended_ns);
        assert_eq!((stamp.run_tag, stamp.stream), (77, first.stream));
        assert_eq!(u64::from(stamp.sequence), sent + k as u64);
    }
    let last = agent.totals.last.as_ref().unwrap().populations[0].gauges;
    assert_eq!((last.connected, last.ready, last.backlog), (1, 1, 0));
    let (counters, _) = &agent.stop().populations[0];
    assert_eq!(counters.bytes_sent_total, counters.sent_total * 32);
    assert_eq!(counters.packets_sent_total, counters.sent_total);
}

#[test]
fn a_closed_loop_sends_every_counted_message() {
    let port = free_port();
    let publications = json!([publication("", &json!({"kind": "closed"}))]);
    let feed = population("feed", 1, json!({"publications": publications}));
    let stages = [publish(60_000, &json!([])), publish(50, &json!([]))];
    let mut agent = Agent::start(&plan(port, &[feed], &stages), PUBLISHER);
    let socket = subscriber(&Context::new(), port, &[""]);
    let sent = warm_up(&mut agent, &socket);
    agent.stage(1);
    let stamps = stamps(&socket, sent, total(&agent));
    assert_eq!(stamps.len() as u64, total(&agent) - sent);
    assert!(stamps.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence));
    assert_eq!(agent.close().populations[0].0.skipped_total, 0);
}

#[test]
fn the_rate_changes_by_plan_and_by_command() {
    let port = free_port();
    let change = |after_ms: u64, factor: f64| {
        let action = json!({"kind": "rate", "factor": factor});
        json!({"name": "c", "after_ns": after_ms * 1_000_000, "population": 0, "action": action})
    };
    let planned = json!([change(0, 2.0), change(50, 0.0)]);
    let paused = json!([change(0, 0.0)]);
    let stages = [publish(100, &planned), publish(60_000, &paused), connect(&[0])];
    let mut agent = Agent::start(&plan(port, &[publisher("", 500, 1)], &stages), PUBLISHER);
    agent.stage(0);
    assert_eq!(due(&agent), 200);
    agent.send(&Command::Stage { index: 1, at_ns: Agent::now_ns() });
    // A message that is due at the instant of a pause waits for its end.
    agent.read_until(|snapshot, _| snapshot.stage == Some(1));
    assert_eq!(due(&agent), 200);
    let sent = total(&agent);
    agent.change(0, ChangeAction::Rate { factor: 1.0 });
    agent.read_until(|_, totals| totals.populations[0].0.sent_total > sent);
    agent.send(&Command::Close { sent: Vec::new() });
    agent.read_until(|snapshot, _| snapshot.settled);
    assert!(due(&agent) < 60_000, "what is due after the close is not skipped");
    agent.stage(2);
    agent.stop();
}

#[test]
fn a_publisher_that_is_started_again_continues_its_streams_and_skips_what_it_missed() {
    let port = free_port();
    let stages = [publish(60_000, &json!([]))];
    let mut agent = Agent::start(&plan(port, &[publisher("", 500, 1)], &stages), PUBLISHER);
    let context = Context::new();
    let socket = subscriber(&context, port, &[""]);
    // The stage began two seconds ago. Of its 4000 messages, 700 were sent or skipped.
    let from_ns = Agent::now_ns() + 200_000_000;
    let at_ns = from_ns - 2_000_000_000;
    agent.send(&Command::Resume(Resume { from_ns, sent: 5000, scheduled: 700 }));
    agent.send(&Command::Stage { index: 0, at_ns });
    let follows = |frames: &[Vec<u8>]| {
        let stamp = Stamp::read(frames.last().unwrap()).unwrap();
        assert!(stamp.sequence >= 5000 && stamp.intended_ns >= from_ns, "{stamp:?}");
        let place = (stamp.intended_ns - at_ns) / 500_000;
        assert_eq!(place - 4000, u64::from(stamp.sequence) - 5000, "{stamp:?}");
        u64::from(stamp.sequence)
    };
    let mut last = follows(&frames(&socket));
    agent.send(&Command::Close { sent: Vec::new() });
    agent.read_until(|snapshot, _| snapshot.settled);
    while last + 1 < 5000 + total(&agent) {
        last = follows(&frames(&socket));
    }
    assert!(agent.totals.populations[0].0.skipped_total >= 3300);
    agent.close();
}

#[test]
fn a_topic_is_a_separate_frame_and_takes_all_values_of_its_range() {
    let port = free_port();
    let feed = publisher("{red|green}/x", 500, 1);
    let stages = [publish(60_000, &json!([])), publish(100, &json!([]))];
    let mut agent = Agent::start(&plan(port, &[feed], &stages), PUBLISHER);
    let context = Context::new();
    let red = subscriber(&context, port, &["red"]);
    let sent = warm_up(&mut agent, &red);
    agent.stage(1);
    let messages = total(&agent);
    let (before, after) = (sent.div_ceil(2), messages.div_ceil(2));
    let mut seen = 0;
    loop {
        let frames = frames(&red);
        assert_eq!((frames.len(), frames[0].as_slice()), (2, &b"red/x"[..]));
        let stamp = Stamp::read(&frames[1]).unwrap();
        assert_eq!(stamp.stream.variant, 0);
        seen += u64::from(u64::from(stamp.sequence) >= before);
        if u64::from(stamp.sequence) + 1 == after {
            break;
        }
    }
    assert_eq!(seen, after - before);
    let bytes = agent.stop().populations[0].0.bytes_sent_total;
    assert_eq!(bytes, after * (5 + 32) + (messages - after) * (7 + 32));
}

#[test]
fn a_wrong_password_gets_nothing() {
    let port = free_port();
    let mut feed = publisher("", 500, 1);
    feed["protocol"]["security"] = json!("plain");
    (feed["username"], feed["password"]) = (json!("ann"), json!("right"));
    let stages = [publish(60_000, &json!([]))];
    let mut agent = Agent::start(&plan(port, &[feed], &stages), PUBLISHER);
    let context = Context::new();
    let with_password = |password: &str| {
        let socket = context.socket(zmq::SUB).unwrap();
        socket.set_plain_username(Some("ann")).unwrap();
        socket.set_plain_password(Some(password)).unwrap();
        socket.set_subscribe(b"").unwrap();
        socket.set_rcvtimeo(20_000).unwrap();
        socket
    };
    let wrong = with_password("wrong");
    let failed = SocketEvent::HANDSHAKE_FAILED_AUTH;
    wrong.monitor("inproc://wrong", failed as i32).unwrap();
    let monitor = context.socket(zmq::PAIR).unwrap();
    monitor.connect("inproc://wrong").unwrap();
    wrong.connect(&format!("tcp://127.0.0.1:{port}")).unwrap();
    let event = monitor.recv_multipart(0).unwrap();
    assert_eq!(event[0][..2], failed.to_raw().to_ne_bytes());
    let right = with_password("right");
    right.connect(&format!("tcp://127.0.0.1:{port}")).unwrap();
    warm_up(&mut agent, &right);
    assert_eq!(wrong.recv_bytes(zmq::DONTWAIT), Err(zmq::Error::EAGAIN));
    agent.stop();
}

/// Returns the failure of the program.
fn failure(plan: &Value) -> (String, String) {
    let (output, status) = Agent::output(&format!("{plan}\n"), PUBLISHER);
    assert_eq!(status.code(), Some(1));
    let line: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(line["kind"], "failure");
    (line["message"].as_str().unwrap().into(), line["hint"].as_str().unwrap().into())
}

#[test]
fn an_impossible_plan_is_reported_with_a_hint() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (message, hint) = failure(&plan(port, &[publisher("", 500, 1)], &[]));
    assert!(message.starts_with(&format!("cannot listen at tcp://127.0.0.1:{port}")), "{message}");
    assert!(hint.starts_with("another program listens there"), "{hint}");
    let subscriptions = json!([{"filter": "", "qos": 0}]);
    for (fields, found, advice) in [
        (json!({"protocol": {"security": "curve"}}), "found security curve", "pyzmq"),
        (json!({}), "found several publications, or both", "one publication"),
        (
            json!({"protocol": {"player": "engine"}}),
            "is not played by sockets of libzmq",
            "right index",
        ),
        (
            json!({"subscriptions": subscriptions, "read_rate_per_s": 5.0}),
            "found a read rate",
            "simulated",
        ),
    ] {
        let (message, hint) = failure(&plan(port, &[population("p", 1, fields)], &[]));
        assert!(message.contains(found), "{message}");
        assert!(hint.contains(advice), "{hint}");
    }
}

#[test]
fn a_publisher_without_commands_ends_after_its_lease() {
    let plan = plan(free_port(), &[publisher("", 500, 4)], &[publish(60_000, &json!([]))]);
    assert_eq!(left_alone(&plan, &format!("{PUBLISHER} --lease 0.3")), Some(1));
}
