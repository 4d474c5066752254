//! The real subscribers, as a process, against a publishing socket of libzmq.

use crate::support::{
    Agent, CLOSED_PORT, connect, free_port, plan, population, publish, publisher,
};
use plan::{FlowCounters, Reason, SentAt, Stamp, StreamId};
use serde_json::{Value, json};
use zmq::{Context, Socket};

const SUBSCRIBERS: &str = "0/1 --population 1 --agent 1 --agents 2";
const CLIENTS: u32 = 5;

/// Returns a publishing socket that reports every subscription.
fn publishing(context: &Context, port: u16) -> Socket {
    let socket = context.socket(zmq::XPUB).unwrap();
    socket.set_xpub_verbose(true).unwrap();
    socket.set_rcvtimeo(20_000).unwrap();
    socket.set_linger(0).unwrap();
    socket.bind(&format!("tcp://127.0.0.1:{port}")).unwrap();
    socket
}

fn plan_with(port: u16, fields: Value) -> Value {
    let subscribers = population("sub", CLIENTS, fields);
    plan(port, &[publisher("{a|b}/x", 500, 1), subscribers], &[connect(&[1]), disconnect()])
}

fn disconnect() -> Value {
    let action = json!({"kind": "disconnect", "rate_per_s": null});
    json!({"name": "disconnect", "action": action, "populations": [1]})
}

fn subscribed_to(filter: &str) -> Value {
    json!({"subscriptions": [{"filter": filter, "qos": 0}]})
}

fn send(socket: &Socket, topic: &str, run_tag: u32, sequence: u32) {
    let stream = StreamId { publication: 0, variant: 0, client: 0 };
    let now_ns = Agent::now_ns();
    let stamp =
        Stamp { run_tag, stream, sequence, intended_ns: now_ns, sent: SentAt::plain(now_ns) };
    socket.send(topic, zmq::SNDMORE).unwrap();
    socket.send(&stamp.to_bytes()[..], 0).unwrap();
}

#[test]
fn deliveries_are_counted_as_in_the_engine() {
    let (port, context) = (free_port(), Context::new());
    let socket = publishing(&context, port);
    let mut agent = Agent::start(&plan_with(port, subscribed_to("a")), SUBSCRIBERS);
    assert_eq!(agent.hello.clients, [0, CLIENTS]);
    agent.stage(0);
    for _ in 0..CLIENTS {
        assert_eq!(socket.recv_bytes(0).unwrap(), b"\x01a");
    }
    for sequence in [0, 1, 1, 4] {
        send(&socket, "a/x", 77, sequence);
    }
    send(&socket, "b/x", 77, 5);
    send(&socket, "a/y", 78, 5);
    let all = u64::from(CLIENTS);
    agent.read_until(|_, totals| totals.populations[1].0.foreign_total == all);
    let FlowCounters { received_total, missing_total, duplicate_total, expected_total, .. } =
        agent.totals.flow(0, 1);
    let all = i64::from(CLIENTS);
    assert_eq!((received_total, missing_total, duplicate_total), (3 * all, 2 * all, all));
    assert_eq!(expected_total, 0, "engines report expected deliveries");
    agent.stage(1);
    let totals = agent.stop();
    let counters = totals.populations[1].0;
    assert_eq!((counters.connected_total, counters.subscribed_total), (5, 5));
    assert_eq!(counters.packets_received_total, 5 * u64::from(CLIENTS));
    assert_eq!(totals.targets[0].connected, 0);
}

#[test]
fn a_subscriber_has_more_prefixes_than_a_high_water_mark_has_places() {
    const PREFIXES: usize = 3_000;
    let (port, context) = (free_port(), Context::new());
    let socket = publishing(&context, port);
    let mut fields = subscribed_to("{1..3000}/");
    fields["clients"] = json!(1);
    let mut agent = Agent::start(&plan_with(port, fields), SUBSCRIBERS);
    agent.stage(0);
    let found: std::collections::BTreeSet<Vec<u8>> =
        (0..PREFIXES).map(|_| socket.recv_bytes(0).unwrap()).collect();
    assert_eq!(found.len(), PREFIXES);
    let totals = agent.stop();
    assert_eq!(totals.populations[1].0.subscribed_total, PREFIXES as u64);
}

#[test]
fn subscribers_reconnect_to_a_publisher() {
    let (port, context) = (free_port(), Context::new());
    let socket = publishing(&context, port);
    let mut agent = Agent::start(&plan_with(port, subscribed_to("a")), SUBSCRIBERS);
    agent.stage(0);
    drop(socket);
    agent.read_until(|snapshot, _| snapshot.populations[1].gauges.connected == 0);
    let socket = publishing(&context, port);
    agent.read_until(|snapshot, _| snapshot.populations[1].gauges.ready == u64::from(CLIENTS));
    let (counters, outcomes) = &agent.stop().populations[1];
    assert_eq!((counters.connected_total, counters.disconnected_total), (10, 5));
    assert_eq!(outcomes.get(&Reason::ClosedByBroker), Some(&5));
    drop(socket);
}

#[test]
fn subscribers_join_and_leave_in_a_stage_and_expect_what_they_receive() {
    let (port, context) = (free_port(), Context::new());
    let socket = publishing(&context, port);
    let change = |after_ms: u64, kind: &str, clients: u32, over_ms: u64| {
        let action = json!({"kind": kind, "clients": clients, "over_ns": over_ms * 1_000_000});
        json!({"name": kind, "after_ns": after_ms * 1_000_000, "population": 1, "action": action})
    };
    let mut some = connect(&[1]);
    some["action"]["clients"] = json!([2]);
    let joins = [change(0, "add", 3, 100)];
    let hold = json!({"kind": "hold", "duration_ns": 200_000_000,
                      "changes": [change(0, "remove", 4, 50), change(100, "add", 2, 0)]});
    let subscribers = population("sub", CLIENTS, subscribed_to("a"));
    let plan = plan(
        port,
        &[publisher("{a|b}/x", 500, 1), subscribers],
        &[
            some,
            publish(600_000, &json!([])),
            publish(600_000, &json!(joins)),
            json!({"name": "hold", "action": hold, "populations": [1]}),
        ],
    );
    let mut agent = Agent::start(&plan, SUBSCRIBERS);
    let subscriptions = |count: usize| {
        (0..count).for_each(|_| assert_eq!(socket.recv_bytes(0).unwrap(), b"\x01a"));
    };
    let ready = |agent: &mut Agent, clients: u64| {
        agent.read_until(|snapshot, _| snapshot.populations[1].gauges.ready == clients);
    };
    agent.stage(0);
    subscriptions(2);
    agent.stage_until(1, |snapshot, _| snapshot.stage == Some(1));
    send(&socket, "a/x", 77, 0);
    agent.read_until(|_, totals| totals.flow(0, 1).received_total == 2);
    assert_eq!(agent.totals.flow(0, 1).expected_total, 0, "engines report expected deliveries");
    agent.stage_until(2, |snapshot, _| snapshot.stage == Some(2));
    subscriptions(3);
    ready(&mut agent, 5);
    send(&socket, "a/x", 77, 1);
    agent.read_until(|_, totals| totals.flow(0, 1).received_total == 7);
    assert_eq!(agent.totals.flow(0, 1).expected_total, 5, "expected = received in this stage");
    agent.stage(3);
    subscriptions(2);
    ready(&mut agent, 3);
    let totals = agent.stop();
    let counters = totals.populations[1].0;
    assert_eq!((counters.connected_total, counters.disconnected_total), (7, 0));
    assert_eq!(totals.targets[0].connected, 0);
}

#[test]
fn a_subscriber_without_reconnect_gives_up() {
    let mut fields = subscribed_to("a");
    fields["reconnect"] = Value::Null;
    let mut agent = Agent::start(&plan_with(CLOSED_PORT, fields), SUBSCRIBERS);
    agent.stage(0);
    let (counters, outcomes) = &agent.stop().populations[1];
    assert_eq!((counters.connect_attempts_total, counters.connect_failed_total), (5, 5));
    assert_eq!(outcomes.get(&Reason::ConnectRefused), Some(&5));
}
