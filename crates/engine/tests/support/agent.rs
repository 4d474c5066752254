//! An agent as a process, driven by commands, its snapshots added up.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus};

use nix::time::{ClockId, clock_gettime};
use plan::{
    AddressSnapshot, Bye, ChangeAction, Command, Counters, FlowCounters, Hello, Histogram,
    Outcomes, Plan, Snapshot, Stall, TargetSnapshot,
};
use serde_json::{Value, json};

use super::spawn;

/// A running agent.
pub struct Agent {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    pub hello: Hello,
    pub totals: Totals,
}

/// Snapshots added up.
#[derive(Default)]
pub struct Totals {
    pub snapshots: u64,
    pub last: Option<Snapshot>,
    pub populations: Vec<(Counters, Outcomes)>,
    pub flows: BTreeMap<(usize, usize), FlowCounters>,
    /// Of all flows, since messages were sent.
    pub latency: Histogram,
    /// One entry for each target up to the last reported target, with its last state.
    pub targets: Vec<TargetSnapshot>,
    /// By target and address.
    pub addresses: BTreeMap<(usize, String), AddressSnapshot>,
    pub stalls: Vec<Stall>,
    /// Largest reported bound of the agent's clock, in nanoseconds.
    pub bound_ns: u64,
}

impl Agent {
    /// Starts an agent on a shard of a plan and waits for its hello; see [`spawn`] for further
    /// content of `shard`.
    pub fn start(plan: &Value, shard: &str) -> Self {
        Self::of(spawn(shard), plan)
    }

    /// Sends a plan to a new agent and waits for its hello.
    pub fn of(mut process: Child, plan: &Value) -> Self {
        let mut stdin = process.stdin.take().unwrap();
        writeln!(stdin, "{plan}").unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let hello = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        Self { process, stdin: Some(stdin), stdout, hello, totals: Totals::default() }
    }

    /// Runs an agent with `input` on stdin; returns its output and exit status.
    pub fn output(input: &str, shard: &str) -> (String, ExitStatus) {
        let mut process = spawn(shard);
        // An agent that refuses its arguments does not read stdin.
        let _ = process.stdin.take().unwrap().write_all(input.as_bytes());
        let output = process.wait_with_output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status)
    }

    pub fn send(&mut self, command: &Command) {
        let line = serde_json::to_string(command).unwrap();
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The agent's clock.
    pub fn now_ns() -> u64 {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
        now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs()
    }

    /// Changes a population now.
    pub fn change(&mut self, population: usize, action: ChangeAction) {
        self.send(&Command::Change { at_ns: Self::now_ns(), population, action });
    }

    /// Enters a stage now and reads until `done` returns true for a snapshot of the stage.
    pub fn stage_until(&mut self, index: usize, done: impl Fn(&Snapshot, &Totals) -> bool) {
        self.send(&Command::Stage { index, at_ns: Self::now_ns() });
        self.read_until(|snapshot, totals| snapshot.stage == Some(index) && done(snapshot, totals));
    }

    /// Enters a stage now and reads until the stage has settled.
    pub fn stage(&mut self, index: usize) {
        self.stage_until(index, |snapshot, _| snapshot.settled);
    }

    /// Reads until `done` returns true.
    pub fn read_until(&mut self, done: impl Fn(&Snapshot, &Totals) -> bool) {
        while !self.totals.last.as_ref().is_some_and(|last| done(last, &self.totals)) {
            let line = self.line();
            self.totals.add(serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}")));
        }
    }

    /// Stops the agent and returns the totals of the whole run.
    pub fn stop(mut self) -> Totals {
        self.send(&Command::Stop);
        self.finish()
    }

    /// Closes stdin and returns the totals of the whole run.
    pub fn close(mut self) -> Totals {
        self.stdin = None;
        self.finish()
    }

    fn finish(mut self) -> Totals {
        let bye: Bye = loop {
            let line = self.line();
            match serde_json::from_str(&line) {
                Ok(snapshot) => self.totals.add(snapshot),
                Err(_) => break serde_json::from_str(&line).unwrap(),
            }
        };
        assert_eq!(bye.snapshots, self.totals.snapshots);
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
        std::mem::take(&mut self.totals)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the agent has ended");
        line
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Totals {
    fn add(&mut self, snapshot: Snapshot) {
        self.snapshots += 1;
        self.populations.resize_with(snapshot.populations.len(), Default::default);
        for ((counters, outcomes), population) in
            self.populations.iter_mut().zip(&snapshot.populations)
        {
            counters.add(&population.counters);
            for (&reason, count) in &population.outcomes {
                *outcomes.entry(reason).or_default() += count;
            }
        }
        for flow in &snapshot.flows {
            self.flows.entry((flow.from, flow.to)).or_default().add(&flow.counters);
            self.latency.add(&flow.latency_actual);
        }
        for target in &snapshot.targets {
            let known = self.targets.len().max(target.target + 1);
            self.targets.resize_with(known, TargetSnapshot::default);
            let sum = &mut self.targets[target.target];
            sum.connected = target.connected;
            sum.connected_total += target.connected_total;
            sum.connect_failed_total += target.connect_failed_total;
        }
        for address in &snapshot.addresses {
            let key = (address.target, address.address.clone());
            let sum = self.addresses.entry(key).or_default();
            sum.connect_attempts_total += address.connect_attempts_total;
            sum.connected_total += address.connected_total;
            sum.connect_failed_total += address.connect_failed_total;
            for (&reason, count) in &address.outcomes {
                *sum.outcomes.entry(reason).or_default() += count;
            }
        }
        self.stalls.extend_from_slice(&snapshot.stalls);
        self.bound_ns = self.bound_ns.max(snapshot.clock.map_or(0, |clock| clock.bound_ns));
        self.last = Some(snapshot);
    }

    /// The flow between two populations.
    pub fn flow(&self, from: usize, to: usize) -> FlowCounters {
        self.flows.get(&(from, to)).copied().unwrap_or_default()
    }
}

/// A plan against a broker on a port of loopback, with snapshots ten times a second.
pub fn plan(port: u16, populations: &[Value], stages: &[Value]) -> Value {
    json!({
        "format": Plan::FORMAT, "name": "test", "run_tag": 77, "seed": 1,
        "targets": [{"host": "127.0.0.1", "port": port, "tls": false}],
        "targets_joined": true, "bridges": [], "sources": [],
        "snapshot_interval_ns": 100_000_000, "drain_ns": 1_000_000_000,
        "populations": populations, "stages": stages,
    })
}

/// A population of MQTT clients. `fields` replaces default fields, and fields of `protocol` replace
/// default fields of the protocol.
pub fn population(name: &str, clients: u32, fields: Value) -> Value {
    let protocol = json!({
        "kind": "mqtt", "version": "3.1.1", "client_id": format!("{name}-{{n}}"),
        "clean_session": true,
    });
    population_of(name, clients, protocol, fields)
}

/// A population that speaks a protocol; `fields` as for [`population`].
pub fn population_of(name: &str, clients: u32, mut protocol: Value, fields: Value) -> Value {
    let Value::Object(mut fields) = fields else { panic!("fields are an object") };
    if let Some(Value::Object(options)) = fields.remove("protocol") {
        protocol.as_object_mut().unwrap().extend(options);
    }
    let mut population = json!({
        "name": name, "protocol": protocol, "clients": clients, "first": 0,
        "at": {"first": 0, "count": 1, "choice": "turn"},
        "username": null, "password": null, "tls": null, "keep_alive_s": 60,
        "connect_timeout_ns": 5_000_000_000u64,
        "reconnect": {"min_ns": 10_000_000, "max_ns": 50_000_000},
        "read_rate_per_s": null, "subscriptions": [], "publications": [],
    });
    population.as_object_mut().unwrap().extend(fields);
    population
}

/// An open-loop publication with 64-byte payloads.
pub fn publication(topic: &str, qos: u8, period_ms: u64) -> Value {
    json!({
        "topic": topic, "order": "turn", "qos": qos, "retain": false, "window": 65535,
        "pace": {"kind": "open", "period_ns": period_ms * 1_000_000, "spread": 0.0, "jitter": 0.0,
                 "phase": "spread", "late": "send"},
        "payload": {"kind": "fixed", "bytes": 64},
    })
}
