//! `pubstorm-engine`: one agent. The plan and commands come in on stdin, snapshots go out on
//! stdout as lines of JSON, logs go to stderr. When stdin closes, every client is disconnected and
//! the process ends, so no engine outlives its conductor.

mod changes;
mod client;
mod event_loop;
mod lifetimes;
mod pause;
mod read_rate;
mod setup;
mod shared;
mod sink;
mod socket;
mod stage;
mod stalls;
mod stream;
mod tls;
mod told;
mod wheel;

use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;

use agent::lease::Lease;
use agent::{clock, ledger, pipes, process, tally};
use anyhow::{Context, Result};
use plan::{Bye, Hello, INCARNATIONS, Plan, PlanError, Shard};

use event_loop::EventLoop;
use setup::{Setup, SetupError};

const USAGE: &str = "\
Usage: pubstorm-engine [--shard INDEX/COUNT] [--incarnation K] [--lease SECONDS]
       pubstorm-engine --sink

Reads a plan (one line of JSON), then commands, from stdin; writes snapshots to stdout.
The formats are those of contract/ in Pubstorm's repository.

Options:
  --shard INDEX/COUNT  which share of the clients to play (default 0/1)
  --incarnation K      which of the agents that play this share in turn it is; the next one starts
                       when one is lost (default 0)
  --lease SECONDS      end when stdin says nothing for so long (default: wait for ever)
  --sink               be a peer that answers and throws everything away, to calibrate against
  --version            print the version
  --help               print this text";

fn main() -> ExitCode {
    process::end(run(), hint)
}

fn hint(error: &anyhow::Error) -> &'static str {
    if let Some(error) = error.downcast_ref::<SetupError>() {
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
    let Some(role) = arguments()? else { return Ok(()) };
    let descriptors = process::prepare()?;
    match role {
        Role::Agent(part) => play(&part, descriptors),
        Role::Sink => sink::run(),
    }
}

/// Plays one agent's share of the plan on stdin.
fn play(part: &Part, descriptors: u64) -> Result<()> {
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
        clock: None,
    };
    pipes::write_line(&hello)?;
    let (input_sender, inputs) = mpsc::channel();
    let (snapshot_sender, snapshots) = mpsc::channel();
    let (event_loop, waker) = EventLoop::new(setup, inputs, snapshot_sender)?;
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

/// What the process is.
enum Role {
    Agent(Part),
    Sink,
}

/// What an agent plays, and for how long without a word.
struct Part {
    shard: Shard,
    incarnation: u32,
    lease: Lease,
}

/// What to be; `None` where the arguments asked for a text only.
fn arguments() -> Result<Option<Role>> {
    let mut sink = false;
    let mut part = Part { shard: Shard::WHOLE, incarnation: 0, lease: Lease::new(None) };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("shard") => {
                let text = parser.value()?.to_string_lossy().into_owned();
                part.shard = text.parse().map_err(anyhow::Error::msg).context("--shard")?;
            }
            lexopt::Arg::Long("incarnation") => {
                part.incarnation = incarnation(&parser.value()?.to_string_lossy())?;
            }
            lexopt::Arg::Long("lease") => {
                let text = parser.value()?.to_string_lossy().into_owned();
                part.lease = text.parse().map_err(anyhow::Error::msg).context("--lease")?;
            }
            lexopt::Arg::Long("sink") => sink = true,
            lexopt::Arg::Long("help") => return pipes::write_text(USAGE).map(|()| None),
            lexopt::Arg::Long("version") => {
                let version = concat!("pubstorm-engine ", env!("CARGO_PKG_VERSION"));
                return pipes::write_text(version).map(|()| None);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Some(if sink { Role::Sink } else { Role::Agent(part) }))
}

fn incarnation(text: &str) -> Result<u32> {
    let found = text.parse().ok().filter(|found| *found < INCARNATIONS);
    found.with_context(|| {
        format!("--incarnation: found '{text}', allowed are 0 to {}", INCARNATIONS - 1)
    })
}
