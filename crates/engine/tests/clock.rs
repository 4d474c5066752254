//! Engines with an artificial clock error, and the reference clock, as processes over UDP on
//! loopback. The tests compare clocks within the reported bound.

mod packets;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::process::{self, Child, ChildStdin, Stdio};

use crate::support::{Agent, Scripted, plan, population, publication};
use plan::{ClockState, Command, Failure, ReferenceHello};
use serde_json::{Value, json};
use testkit::Script;

const HOUR_NS: i64 = 3_600_000_000_000;
const YEAR_NS: i64 = 8760 * HOUR_NS;
const KEY: (&str, &str) = ("PUBSTORM_CLOCK_KEY", KEY_DIGITS);
const KEY_DIGITS: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeefF";
const SKEW: &str = "PUBSTORM_CLOCK_SKEW";

/// A reference clock whose process ends on drop.
struct Reference {
    process: Child,
    stdin: Option<ChildStdin>,
    port: u16,
}

impl Reference {
    fn start() -> Self {
        Self::start_with(&[KEY])
    }

    fn start_with(variables: &[(&str, &str)]) -> Self {
        let mut process = spawn_with(&["--clock"], variables);
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ReferenceHello { port } = serde_json::from_str(&line).unwrap();
        let stdin = process.stdin.take();
        Self { process, stdin, port }
    }

    fn engine(&self, skew: &str, shard: &str) -> Child {
        engine_of(self.port, skew, shard)
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An engine with arguments and variables.
fn spawn_with(arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    process::Command::new(env!("CARGO_BIN_EXE_pubstorm-engine"))
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// An engine that follows the reference clock on a port.
fn engine_of(port: u16, skew: &str, shard: &str) -> Child {
    let address = format!("127.0.0.1:{port}");
    spawn_with(&["--shard", shard, "--reference", &address], &[KEY, (SKEW, skew)])
}

/// A plan without clients.
fn idle() -> Value {
    plan(1, &[], &[])
}

/// Last state of the clock that the agent has reported.
fn clock(agent: &Agent) -> ClockState {
    agent.totals.last.as_ref().map_or(agent.hello.clock, |last| last.clock).unwrap()
}

fn next_snapshot(agent: &mut Agent) {
    let seen = agent.totals.snapshots;
    agent.read_until(|_, totals| totals.snapshots > seen);
}

/// Asserts that the reported lead includes the true lead.
fn assert_lead(state: ClockState, true_ns: i64) {
    assert!(state.offset_ns.abs_diff(true_ns) <= state.bound_ns, "{state:?}, true is {true_ns}");
}

/// Failure line of a process that cannot continue.
fn failure(mut process: Child) -> Failure {
    process.stdin.take();
    let mut said = String::new();
    process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!process.wait().unwrap().success());
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
}

#[test]
fn a_clock_wrong_by_hours_or_years_is_set_right_within_the_bound() {
    let reference = Reference::start();
    let skews = [0, 2 * HOUR_NS, -2 * HOUR_NS, 30 * YEAR_NS, -30 * YEAR_NS];
    let begun_ns = Agent::now_ns();
    let engines = skews.map(|skew_ns| (skew_ns, reference.engine(&skew_ns.to_string(), "0/1")));
    for (skew_ns, engine) in engines {
        let mut agent = Agent::of(engine, &idle());
        assert_lead(clock(&agent), -skew_ns);
        let bound_ns = clock(&agent).bound_ns;
        assert!(agent.hello.clock_ns + bound_ns >= begun_ns);
        assert!(agent.hello.clock_ns <= Agent::now_ns() + bound_ns);
        for _ in 0..5 {
            next_snapshot(&mut agent);
            assert_lead(clock(&agent), -skew_ns);
        }
        assert!(agent.close().last.is_some());
    }
}

#[test]
fn a_clock_that_drifts_is_kept_right_within_the_bound() {
    let reference = Reference::start();
    let rates_ppb = [200_000, -200_000, 900_000];
    let mut engines = Vec::new();
    for rate_ppb in rates_ppb {
        let engine = reference.engine(&format!("{HOUR_NS},{rate_ppb}"), "0/1");
        engines.push((rate_ppb, engine));
    }
    for (rate_ppb, engine) in engines {
        let mut agent = Agent::of(engine, &idle());
        let (first_ns, first) = sample(&mut agent);
        let mut last = first;
        while last.exchanges_total < 60 {
            let (last_ns, now) = sample(&mut agent);
            // The agent has read the clock shortly before the line arrived.
            let moment_ns = last_ns.1 - last_ns.0 + first_ns.1 - first_ns.0;
            let gained = |ns: u64| i128::from(ns) * i128::from(rate_ppb) / 1_000_000_000;
            let found_ns = i128::from(first.offset_ns - now.offset_ns);
            let off_ns = (found_ns - gained(last_ns.0 - first_ns.0)).unsigned_abs();
            let bound_ns = u128::from(first.bound_ns + now.bound_ns);
            assert!(off_ns <= bound_ns + gained(moment_ns).unsigned_abs(), "{now:?}: {off_ns}");
            last = now;
        }
    }
}

/// Reads a snapshot: the two instants between which the agent read its clock, and the state of the
/// clock.
fn sample(agent: &mut Agent) -> ((u64, u64), ClockState) {
    let before_ns = agent.totals.last.as_ref().map_or(0, |last| last.to_ns);
    next_snapshot(agent);
    let to_ns = agent.totals.last.as_ref().unwrap().to_ns;
    assert!(to_ns >= before_ns, "it runs backwards");
    ((to_ns, Agent::now_ns().max(to_ns)), clock(agent))
}

#[test]
fn a_reference_that_is_wrong_itself_is_followed_all_the_same() {
    let reference = Reference::start_with(&[KEY, (SKEW, "-3000000000")]);
    let agent = Agent::of(reference.engine("5000000000", "0/1"), &idle());
    assert_lead(clock(&agent), -8_000_000_000);
}

#[test]
fn without_a_reference_the_engine_speaks_in_the_time_of_its_host() {
    let skew = (2 * HOUR_NS).to_string();
    let agent = Agent::of(spawn_with(&[], &[(SKEW, &skew)]), &idle());
    assert_eq!(agent.hello.clock, None);
    assert!(agent.hello.clock_ns > Agent::now_ns() + 7_000_000_000_000);
    let mut agent = Agent::of(spawn_with(&[], &[]), &idle());
    assert!(agent.hello.clock_ns <= Agent::now_ns());
    next_snapshot(&mut agent);
    assert_eq!(agent.totals.last.as_ref().unwrap().clock, None);
}

#[test]
fn a_stage_begins_at_the_instant_of_the_reference_clock_whatever_the_engines_clock_says() {
    let reference = Reference::start();
    for skew in ["7200000000000,500000", "-7200000000000,-500000"] {
        let stage = json!({
            "name": "hold", "populations": [], "action": {"kind": "hold", "duration_ns": 0},
        });
        let mut agent = Agent::of(reference.engine(skew, "0/1"), &plan(1, &[], &[stage]));
        let at_ns = Agent::now_ns() + 130_000_000;
        agent.send(&Command::Stage { index: 0, at_ns });
        agent.read_until(|snapshot, _| snapshot.stage == Some(0));
        let (bound_ns, last) = (clock(&agent).bound_ns, agent.totals.last.as_ref().unwrap());
        assert!(last.from_ns >= at_ns, "{} ns early", at_ns - last.from_ns);
        assert!(Agent::now_ns() + bound_ns >= at_ns);
    }
}

/// Two engines, the second of which reads its clock wrongly, send each other messages.
#[test]
fn engines_with_different_clocks_see_the_latencies_of_one() {
    let broker = Scripted::start(Script::reliable);
    let subscriptions = json!([{"filter": "t/#", "qos": 0}]);
    let publications = json!([publication("t/{n}", 0, 10)]);
    let fields = json!({"subscriptions": subscriptions, "publications": publications});
    let action = json!({"kind": "connect", "rate_per_s": null, "parallelism": 9, "timeout_ns": 1});
    let connect = json!({"name": "connect", "action": action, "populations": [0]});
    let action = json!({"kind": "publish", "duration_ns": 1_000_000_000, "changes": []});
    let publish = json!({"name": "publish", "action": action, "populations": [0]});
    let plan = plan(broker.port, &[population("p", 4, fields)], &[connect, publish]);
    let reference = Reference::start();
    let skews = ["0", "-7200000000000,100000"];
    let engines = [0, 1].map(|shard| reference.engine(skews[shard], &format!("{shard}/2")));
    let mut agents = engines.map(|engine| Agent::of(engine, &plan));
    agents.iter_mut().for_each(|agent| agent.stage(0));
    let begun_ns = Agent::now_ns();
    for agent in &mut agents {
        agent.send(&Command::Stage { index: 1, at_ns: begun_ns + 50_000_000 });
    }
    for agent in &mut agents {
        agent.read_until(|snapshot, totals| {
            snapshot.stage == Some(1) && snapshot.settled && totals.latency.count() >= 800
        });
    }
    let took_ns = Agent::now_ns() - begun_ns;
    let bound_ns: u64 = agents.iter().map(|agent| agent.totals.bound_ns).sum();
    for agent in agents {
        let totals = agent.stop();
        let flow = totals.flow(0, 0);
        assert_eq!((flow.received_total, flow.expected_total), (800, 800));
        let latency = serde_json::to_value(&totals.latency).unwrap();
        let earliest_ns = latency["negative_min_ns"].as_i64().unwrap();
        assert!(earliest_ns.unsigned_abs() <= bound_ns, "{earliest_ns} with {bound_ns}");
        assert!(totals.latency.quantile_ns(1.0) <= took_ns + bound_ns);
    }
}

#[test]
fn an_engine_goes_on_without_the_reference_and_knows_ever_less() {
    let mut reference = Reference::start();
    let mut agent = Agent::of(reference.engine("0,50000", "0/1"), &idle());
    next_snapshot(&mut agent);
    reference.stdin.take();
    assert!(reference.process.wait().unwrap().success(), "it ends with its stdin");
    // Messages in transit may still count.
    next_snapshot(&mut agent);
    let mut before = clock(&agent);
    let mut grown = 0;
    while grown < 10 {
        next_snapshot(&mut agent);
        let now = clock(&agent);
        assert!(now.bound_ns >= before.bound_ns || now.exchanges_total > before.exchanges_total);
        grown += usize::from(now.bound_ns > before.bound_ns);
        before = now;
    }
    assert!(agent.stop().last.is_some());
}

#[test]
fn a_silent_reference_clock_is_a_failure_that_names_the_address() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let other_key = ("PUBSTORM_CLOCK_KEY", "ab".repeat(32));
    let reference = Reference::start_with(&[(other_key.0, &other_key.1)]);
    let ports = [silent.local_addr().unwrap().port(), closed, reference.port];
    let engines = ports.map(|port| engine_of(port, "0", "0/1"));
    for (port, engine) in ports.into_iter().zip(engines) {
        let said = failure(engine);
        let expected = format!("no answer from the reference clock at 127.0.0.1:{port} (UDP)");
        assert_eq!(said.message, expected);
        assert!(said.hint.contains("allow UDP"), "{}", said.hint);
    }
}

#[test]
fn what_is_no_key_skew_or_address_is_named() {
    let reference = ["--reference", "127.0.0.1:9"];
    let short = &KEY_DIGITS[1..];
    let not_hexadecimal = KEY_DIGITS.replace('f', "é");
    for arguments in [&reference[..], &["--clock"]] {
        for key in ["", short, &not_hexadecimal, &KEY_DIGITS.replace('f', "g")] {
            let said = failure(spawn_with(arguments, &[("PUBSTORM_CLOCK_KEY", key)]));
            let expected = "PUBSTORM_CLOCK_KEY: found something else, needed are 64 hexadecimal";
            assert!(said.message.starts_with(expected), "{}", said.message);
        }
        let said = failure(spawn_with(arguments, &[]));
        assert!(said.message.contains("found none"), "{}", said.message);
    }
    for skew in ["", "x", "1,", "1,2,3", "1.5", "0,100000000", "99999999999999999999"] {
        let said = failure(spawn_with(&[], &[(SKEW, skew)]));
        let expected = format!("PUBSTORM_CLOCK_SKEW: found '{skew}', allowed is OFFSET_NS[,PPB]");
        assert!(said.message.starts_with(&expected), "{}", said.message);
    }
    for arguments in [["--reference", "nowhere"], ["--listen", "127.0.0.1"]] {
        let clock = if arguments[0] == "--listen" { &["--clock"][..] } else { &[] };
        let said = failure(spawn_with(&[clock, &arguments].concat(), &[KEY]));
        assert!(said.message.starts_with(&arguments.join(" ")), "{}", said.message);
    }
}

#[test]
fn the_key_is_in_nothing_that_is_said() {
    let mut process = spawn_with(&["--reference", "127.0.0.1:9", "--nonsense"], &[KEY]);
    // The process refuses its arguments without reading stdin.
    let _ = process.stdin.take().unwrap().write_all(b"{}\n");
    let said = failure(process);
    assert!(!said.message.contains(KEY_DIGITS) && !said.hint.contains(KEY_DIGITS));
}
