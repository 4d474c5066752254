//! `pubstorm-zmq` as a process, and sockets of libzmq to talk to it.

#![allow(dead_code, unused_imports, reason = "each test program has its own copy")]

#[path = "../../../engine/tests/support/agent.rs"]
mod agent;
#[path = "../../../engine/tests/support/ports.rs"]
mod ports;

use std::io::Write;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use zmq::{Context, Socket};

pub use agent::{Agent, Totals};
pub use ports::free_port;

/// A port at which no server listens. The kernel gives it to no socket by itself.
pub const CLOSED_PORT: u16 = 1;

/// Returns a plan with one target.
pub fn plan(port: u16, populations: &[Value], stages: &[Value]) -> Value {
    agent::plan(port, populations, stages)
}

/// Returns a population for libzmq; `fields` replaces fields of it.
pub fn population(name: &str, clients: u32, fields: Value) -> Value {
    let protocol = json!({
        "kind": "zmtp", "player": "libzmq", "high_water_mark": 0, "io_threads": 1,
        "security": "null",
    });
    let mut population = agent::population_of(name, clients, protocol, fields);
    population["keep_alive_s"] = json!(0);
    population
}

/// Returns a publisher of 32-byte messages, `burst` at once, with the average period.
pub fn publisher(topic: &str, period_us: u64, burst: u32) -> Value {
    let pace = json!({
        "kind": "open", "period_ns": period_us * 1000, "spread": 0.0, "jitter": 0.0,
        "phase": "spread", "late": "send", "burst": burst,
    });
    population("feed", 1, json!({"publications": [publication(topic, &pace)]}))
}

/// Returns a publication of 32-byte messages.
pub fn publication(topic: &str, pace: &Value) -> Value {
    json!({
        "topic": topic, "order": "turn", "qos": 0, "retain": false, "window": 1, "pace": pace,
        "payload": {"kind": "fixed", "bytes": 32},
    })
}

/// Returns a stage in which the first population publishes.
pub fn publish(ms: u64, changes: &Value) -> Value {
    let action = json!({"kind": "publish", "duration_ns": ms * 1_000_000, "changes": changes});
    json!({"name": "publish", "action": action, "populations": [0]})
}

/// Returns a stage in which these populations connect or disconnect.
pub fn connect(populations: &[usize]) -> Value {
    let action = json!({"kind": "connect", "rate_per_s": null, "parallelism": null,
                        "timeout_ns": 1});
    json!({"name": "connect", "action": action, "populations": populations})
}

/// Returns a SUB socket of libzmq that keeps all messages.
pub fn subscriber(context: &Context, port: u16, prefixes: &[&str]) -> Socket {
    let socket = context.socket(zmq::SUB).unwrap();
    socket.set_rcvhwm(0).unwrap();
    socket.set_linger(0).unwrap();
    socket.set_rcvtimeo(20_000).unwrap();
    prefixes.iter().for_each(|prefix| socket.set_subscribe(prefix.as_bytes()).unwrap());
    socket.connect(&format!("tcp://127.0.0.1:{port}")).unwrap();
    socket
}

/// Returns the exit code of an agent that receives nothing after its plan.
pub fn left_alone(plan: &Value, arguments: &str) -> Option<i32> {
    let mut process = spawn(arguments);
    // Waiting for a process closes its stdin, unless that is kept.
    let mut stdin = process.stdin.take().unwrap();
    writeln!(stdin, "{plan}").unwrap();
    let code = process.wait().unwrap().code();
    drop(stdin);
    code
}

/// Starts `pubstorm-zmq`; `arguments` are its shard, and any options behind it.
fn spawn(arguments: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pubstorm-zmq"));
    command.args(["--shard"]).args(arguments.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}
