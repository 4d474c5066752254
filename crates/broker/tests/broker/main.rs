//! Tests of the binary on a free port, with handwritten bytes.

// The functions around the tests may do all that clippy.toml allows in tests.
#![allow(clippy::panic, clippy::print_stderr, clippy::unwrap_used)]

mod auth;
#[path = "../../../engine/tests/support/ports.rs"]
mod ports;
mod process;
mod redis;
mod wire;

use crate::process::{Broker, finish, spawn};
use crate::wire::{Client, Version};

#[test]
fn the_ready_line_is_one_line_of_json() {
    let broker = Broker::start(&[]);
    let pid = broker.pid();
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "{{\"kind\":\"ready\",\"port\":{},\"pid\":{pid},\"version\":\"{version}\"}}\n",
        broker.port
    );
    assert_eq!(broker.ready, expected);
}

#[test]
fn both_versions_connect_to_one_port() {
    let broker = Broker::start(&[]);
    for version in [Version::V311, Version::V5] {
        Client::connect(broker.port, version, "c").ping();
    }
}

#[test]
fn a_client_that_reconnects_at_once_is_never_refused() {
    let broker = Broker::start(&[]);
    for _ in 0..200 {
        Client::connect(broker.port, Version::V311, "same");
    }
}

#[test]
fn qos_1_is_acknowledged_and_delivered_between_the_versions() {
    let broker = Broker::start(&[]);
    for (from, to) in [(Version::V311, Version::V5), (Version::V5, Version::V311)] {
        let mut subscriber = Client::connect(broker.port, to, "subscriber");
        subscriber.subscribe("a/+", 1);
        let mut publisher = Client::connect(broker.port, from, "publisher");
        publisher.publish_qos_1("a/b", b"hello", false);
        let (first_byte, topic, payload) = subscriber.delivery_of_qos_1();
        assert_eq!((first_byte, &*topic, &*payload), (0x32, "a/b", &b"hello"[..]));
    }
}

#[test]
fn members_come_and_go_while_a_large_group_receives() {
    /// rmqtt lets other tasks run after each 128 members that it looks at.
    const MEMBERS: usize = 300;
    const CLIENTS: usize = 8;
    let broker = Broker::start(&[]);
    let port = broker.port;
    let member = |id: &str| {
        let mut member = Client::connect(port, Version::V311, id);
        member.subscribe("$share/g/t", 0);
        member
    };
    let members: Vec<_> = (0..MEMBERS).map(|n| member(&format!("m{n}"))).collect();
    std::thread::scope(|scope| {
        for n in 0..CLIENTS {
            scope.spawn(move || {
                let mut publisher = Client::connect(port, Version::V311, &format!("p{n}"));
                (0..500).for_each(|_| publisher.publish_qos_1("t", b"to a group", false));
            });
            scope.spawn(move || {
                for turn in 0..100 {
                    let id = format!("l{n}-{turn}");
                    Client::connect(port, Version::V311, &id).subscribe_and_leave("$share/g/t");
                }
            });
        }
    });
    drop(members);
}

#[test]
fn a_retained_message_waits_for_its_subscriber() {
    let broker = Broker::start(&[]);
    Client::connect(broker.port, Version::V311, "publisher").publish_qos_1("a", b"kept", true);
    let mut subscriber = Client::connect(broker.port, Version::V311, "subscriber");
    subscriber.subscribe("a", 1);
    let (first_byte, _, payload) = subscriber.delivery_of_qos_1();
    assert_eq!((first_byte, &*payload), (0x33, &b"kept"[..]));
}

#[test]
fn a_session_above_the_limit_is_refused() {
    let broker = Broker::start(&["--max-connections", "1"]);
    let _held = Client::connect(broker.port, Version::V311, "first");
    let mut refused = Client::dial(broker.port, Version::V311);
    assert_eq!(refused.offer("second"), 3, "[MQTT-3.2.2-4] server unavailable");
}

#[test]
fn a_port_in_use_is_reported_with_a_hint() {
    let broker = Broker::start(&[]);
    let port = broker.port.to_string();
    let output = spawn(&["--port", &port]).wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"");
    assert_eq!(lines.len(), 2, "{stderr}");
    assert!(lines[0].starts_with(&format!("error: cannot listen on 127.0.0.1:{port}: ")));
    assert!(lines[1].starts_with("hint: "));
}

#[test]
fn bad_usage_ends_with_2() {
    let output = spawn(&["--port", "many"]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("error: "));
}

#[test]
fn the_end_of_stdin_ends_the_broker_with_follow_stdin() {
    let mut broker = Broker::start(&["--follow-stdin"]);
    let mut client = Client::connect(broker.port, Version::V311, "c");
    broker.close_stdin();
    assert!(client.is_cut_off());
    assert_eq!(broker.exit_code(), Some(0));
}

#[test]
fn the_end_of_stdin_has_no_effect_without_follow_stdin() {
    let mut broker = Broker::start(&[]);
    broker.close_stdin();
    Client::connect(broker.port, Version::V311, "c").ping();
}

#[test]
fn metrics_are_exported_with_metrics_port() {
    let broker = Broker::start(&["--metrics-port", "0"]);
    let mut held = Client::connect(broker.port, Version::V5, "held");
    held.subscribe("a/#", 1);
    held.publish_qos_1("a/b", b"x", false);
    held.delivery_of_qos_1();
    let expected = [
        ("connections", 1),
        ("connected_total", 1),
        ("subscriptions", 1),
        ("messages_received_total", 1),
        ("messages_sent_total", 1),
        ("auth_refused_total", 0),
    ];
    for (name, value) in expected {
        assert_eq!(broker.metric(name), value, "{name}");
    }
    assert!(broker.page("/").starts_with("HTTP/1.1 404 "));
}

#[test]
fn a_metrics_port_in_use_is_reported_with_a_hint() {
    let broker = Broker::start(&[]);
    let port = broker.port.to_string();
    let output = spawn(&["--port", "0", "--metrics-port", &port]).wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.starts_with(&format!("error: cannot listen on 127.0.0.1:{port}: ")), "{stderr}");
    assert!(stderr.contains("\nhint: "), "{stderr}");
}

#[test]
fn signals_end_the_broker_with_0() {
    for signal in ["TERM", "INT"] {
        let mut broker = Broker::start(&[]);
        let mut client = Client::connect(broker.port, Version::V5, "c");
        broker.signal(signal);
        assert!(client.is_cut_off());
        assert_eq!(broker.exit_code(), Some(0), "SIG{signal}");
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    for (option, start) in [("--help", "pubstorm-broker: "), ("--version", "pubstorm-broker 0.")] {
        let output = finish(spawn(&[option]));
        assert!(output.starts_with(start), "{output}");
    }
}
