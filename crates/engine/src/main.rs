//! `pubstorm-engine`: one agent. The plan and commands come in on stdin, snapshots go out on
//! stdout as lines of JSON, logs go to stderr. When stdin closes, every client is disconnected and
//! the process ends, so no engine outlives its conductor.

mod arguments;
mod balance;
mod changes;
mod client;
mod event_loop;
mod exchange;
mod host;
mod lifetimes;
mod pause;
mod read_rate;
mod setup;
mod shared;
#[cfg(test)]
mod simulation;
mod sink;
mod socket;
mod stage;
mod stalls;
mod stream;
mod tls;
mod wheel;

use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;

use agent::{clock, ledger, pipes, process, tally};
use anyhow::Result;
use plan::{Bye, Hello, Plan, PlanError};

use arguments::{Part, Role};
use event_loop::EventLoop;
use exchange::{ExchangeError, follower, reference};
use host::Host;
use setup::{Setup, SetupError};

fn main() -> ExitCode {
    let code = process::end(run(), hint);
    exchange::end();
    code
}

fn hint(error: &anyhow::Error) -> &'static str {
    if let Some(error) = error.downcast_ref::<SetupError>() {
        error.hint()
    } else if let Some(error) = error.downcast_ref::<ExchangeError>() {
        error.hint()
    } else if error.is::<PlanError>() {
        "a plan is made by the pubstorm of the same version as the engine"
    } else if is_short_of_threads(error) {
        "allow more threads: ulimit -u, or sysctl kernel.threads-max and kernel.pid_max"
    } else {
        "pubstorm-engine --help tells what it reads"
    }
}

/// Whether the kernel had no thread left for this process.
fn is_short_of_threads(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn run() -> Result<()> {
    let Some(role) = arguments::read()? else { return Ok(()) };
    let descriptors = process::prepare()?;
    exchange::misread_clock()?;
    match role {
        Role::Agent(part) => play(&part, descriptors),
        Role::Clock { listen } => reference::run(&listen),
        Role::Sink => sink::run(),
    }
}

/// Plays one agent's share of the plan on stdin.
fn play(part: &Part, descriptors: u64) -> Result<()> {
    if let Some(address) = &part.reference {
        follower::follow(address)?;
    }
    let shard = part.shard;
    let plan = Plan::from_json(&pipes::read_plan(&part.lease)?)?;
    let setup = Setup::new(plan, shard, part.incarnation)?;
    let hello = Hello {
        agent: shard.index(),
        agents: shard.count(),
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        descriptors,
        clients: setup.populations.iter().map(|p| p.share).collect(),
        clock_ns: clock::now_ns(),
        library: None,
        clock: clock::take_state(),
    };
    pipes::write_line(&hello)?;
    let (input_sender, inputs) = mpsc::channel();
    let (snapshot_sender, snapshots) = mpsc::channel();
    let (host, waker) = Host::machine()?;
    let event_loop = EventLoop::new(setup, host, inputs, snapshot_sender);
    let waker = Arc::new(waker);
    let wake = move || waker.wake();
    pipes::read_commands(&part.lease, input_sender.clone(), wake.clone())?;
    let writer = pipes::write_snapshots(snapshots, input_sender, wake)?;
    let snapshots = event_loop.run()?;
    part.lease.check()?;
    writer.join().ok();
    pipes::write_line(&Bye { snapshots })?;
    Ok(())
}
