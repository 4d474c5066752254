//! `pubstorm-engine`: one agent. The plan and commands come in on stdin, snapshots go out on
//! stdout as lines of JSON, logs go to stderr. When stdin closes, every client is disconnected and
//! the process ends, so no engine outlives its conductor.

mod changes;
mod client;
mod event_loop;
mod exchange;
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

use agent::{clock, ledger, pipes, process, tally};
use anyhow::{Context, Result};
use plan::{Bye, Hello, Plan, PlanError, Shard};

use event_loop::EventLoop;
use exchange::{ExchangeError, follower, reference};
use setup::{Setup, SetupError};

const USAGE: &str = "\
Usage: pubstorm-engine [--shard INDEX/COUNT] [--reference HOST:PORT]
       pubstorm-engine --clock [--listen HOST:PORT]
       pubstorm-engine --sink

Reads a plan (one line of JSON), then commands, from stdin; writes snapshots to stdout.
The formats are those of contract/ in Pubstorm's repository.

Options:
  --shard INDEX/COUNT  which share of the clients to play (default 0/1)
  --reference HOST:PORT
                       whose time to speak in: that of a reference clock, asked over UDP; the key
                       of the run is in PUBSTORM_CLOCK_KEY (default: the time of this host)
  --clock              be the reference clock of the run
  --listen HOST:PORT   where it answers (default 127.0.0.1:0, a free port)
  --sink               be a peer that answers and throws everything away, to calibrate against
  --version            print the version
  --help               print this text";

fn main() -> ExitCode {
    process::end(run(), hint)
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
    let Some(role) = arguments()? else { return Ok(()) };
    let descriptors = process::prepare()?;
    exchange::misread_clock()?;
    match role {
        Role::Agent { shard, reference } => {
            if let Some(address) = reference {
                follower::follow(&address)?;
            }
            play(shard, descriptors)
        }
        Role::Clock { listen } => reference::run(&listen),
        Role::Sink => sink::run(),
    }
}

/// Plays one agent's share of the plan on stdin.
fn play(shard: Shard, descriptors: u64) -> Result<()> {
    let plan = Plan::from_json(&pipes::read_line()?)?;
    let setup = Setup::new(plan, shard)?;
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
    let (event_loop, waker) = EventLoop::new(setup, inputs, snapshot_sender)?;
    let waker = Arc::new(waker);
    let wake = move || waker.wake();
    pipes::read_commands(input_sender.clone(), wake.clone())?;
    let writer = pipes::write_snapshots(snapshots, input_sender, wake)?;
    let snapshots = event_loop.run()?;
    writer.join().ok();
    pipes::write_line(&Bye { snapshots })?;
    Ok(())
}

/// What the process is.
enum Role {
    Agent { shard: Shard, reference: Option<String> },
    Clock { listen: String },
    Sink,
}

/// What to be; `None` where the arguments asked for a text only.
fn arguments() -> Result<Option<Role>> {
    let (mut shard, mut reference, mut listen) = (Shard::WHOLE, None, None);
    let (mut is_clock, mut is_sink) = (false, false);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("shard") => {
                shard =
                    text(&mut parser)?.parse().map_err(anyhow::Error::msg).context("--shard")?;
            }
            lexopt::Arg::Long("reference") => reference = Some(text(&mut parser)?),
            lexopt::Arg::Long("clock") => is_clock = true,
            lexopt::Arg::Long("listen") => listen = Some(text(&mut parser)?),
            lexopt::Arg::Long("sink") => is_sink = true,
            lexopt::Arg::Long("help") => return pipes::write_text(USAGE).map(|()| None),
            lexopt::Arg::Long("version") => {
                let version = concat!("pubstorm-engine ", env!("CARGO_PKG_VERSION"));
                return pipes::write_text(version).map(|()| None);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let role = match (is_clock, is_sink) {
        (true, _) => Role::Clock { listen: listen.unwrap_or_else(|| "127.0.0.1:0".to_owned()) },
        (false, true) => Role::Sink,
        (false, false) => Role::Agent { shard, reference },
    };
    Ok(Some(role))
}

fn text(parser: &mut lexopt::Parser) -> Result<String> {
    Ok(parser.value()?.to_string_lossy().into_owned())
}
