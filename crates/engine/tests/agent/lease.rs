//! An agent without commands from its controller: the end of its lease.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};

use plan::{Command, Snapshot};
use serde_json::{Value, json};
use testkit::Script;

use super::{connect, publish};
use crate::support::{Agent, Scripted, engine, plan, population, publication};

/// A lease that no test outlives.
const LONG: &str = "3600";

/// Starts an engine with a lease in seconds and a plan.
fn leased(seconds: &str, plan: &Value) -> Child {
    let process = engine(&format!("0/1 --lease {seconds}")).stderr(Stdio::piped()).spawn().unwrap();
    writeln!(process.stdin.as_ref().unwrap(), "{plan}").unwrap();
    process
}

fn send(process: &Child, command: &Command) {
    let line = serde_json::to_string(command).unwrap();
    writeln!(process.stdin.as_ref().unwrap(), "{line}").unwrap();
}

/// Waits for the end of a process and returns its stderr; stdin stays open without input.
fn end(mut process: Child) -> String {
    // Waiting for a process closes its stdin, unless the test keeps the handle.
    let stdin = process.stdin.take();
    assert_eq!(process.wait().unwrap().code(), Some(1));
    drop(stdin);
    let mut text = String::new();
    process.stderr.unwrap().read_to_string(&mut text).unwrap();
    text
}

/// Reads lines up to a line for which `last` returns true.
fn read_until(lines: &mut impl Iterator<Item = String>, last: impl Fn(&str) -> bool) {
    assert!(lines.any(|line| last(&line)), "the engine has ended before");
}

fn is_beat(line: &str) -> bool {
    line == r#"{"kind":"beat"}"#
}

fn are_ready(line: &str, clients: u64) -> bool {
    let snapshot: Result<Snapshot, _> = serde_json::from_str(line);
    snapshot.is_ok_and(|snapshot| snapshot.populations[0].gauges.ready == clients)
}

#[test]
fn a_silent_but_open_stdin_disconnects_every_client_and_ends_the_engine() {
    let broker = Scripted::start(Script::reliable);
    let will = json!({"topic": "gone", "payload": "{n}", "qos": 0, "retain": false});
    let populations = [population("p", 5, json!({"protocol": {"will": will}}))];
    let mut process = leased("3", &plan(broker.port, &populations, &[connect(&[0])]));
    send(&process, &Command::Stage { index: 0, at_ns: Agent::now_ns() });
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    // Beats keep the lease until all clients are ready.
    while let Some(line) = lines.next().filter(|line| !are_ready(line, 5)) {
        if !is_beat(&line) {
            send(&process, &Command::Beat);
        }
    }
    assert_eq!(end(process), "received nothing for 3 s: the lease is over\n");
    let (links, wills) = broker.order(|server| (server.links(), server.broker.accepted().len()));
    assert_eq!((links, wills), (0, 0), "a DISCONNECT takes the will back");
}

#[test]
fn each_beat_is_answered_by_a_busy_engine() {
    let broker = Scripted::start(Script::reliable);
    let mut closed = publication("t/{n}", 0, 1);
    closed["pace"] = json!({"kind": "closed"});
    let subscriptions = json!([{"filter": "t/#", "qos": 0}]);
    let populations = [
        population("pub", 10, json!({"publications": [closed]})),
        population("sub", 1, json!({"subscriptions": subscriptions})),
    ];
    let mut plan = plan(broker.port, &populations, &[connect(&[0, 1]), publish(&[0], 60_000)]);
    plan["snapshot_interval_ns"] = json!(5_000_000);
    let mut process = leased(LONG, &plan);
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    send(&process, &Command::Stage { index: 0, at_ns: Agent::now_ns() });
    read_until(&mut lines, |line| line.contains(r#""settled":true"#));
    send(&process, &Command::Stage { index: 1, at_ns: Agent::now_ns() });
    for _ in 0..50 {
        send(&process, &Command::Beat);
        read_until(&mut lines, is_beat);
    }
    send(&process, &Command::Stop);
    read_until(&mut lines, |line| line.contains(r#""kind":"bye""#));
    assert!(process.wait().unwrap().success());
}

#[test]
fn an_engine_whose_output_is_not_read_ends_too() {
    let populations: Vec<Value> = (0..50).map(|_| population("p", 1, json!({}))).collect();
    let mut plan = plan(1, &populations, &[]);
    plan["snapshot_interval_ns"] = json!(1_000_000);
    // Its stdout is full long before the lease is over.
    assert!(end(leased("1.5", &plan)).contains("the lease is over"));
}

#[test]
fn an_engine_that_is_given_no_plan_ends() {
    let process = engine("0/1 --lease 0.1").stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(end(process), "received nothing for 1 s: the lease is over\n");
}

#[test]
fn a_closed_stdin_is_no_lost_lease() {
    let mut process = leased(LONG, &plan(1, &[population("p", 1, json!({}))], &[]));
    process.stdin = None;
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
}
