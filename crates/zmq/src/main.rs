//! `pubstorm-zmq`: an agent whose clients are sockets of libzmq, either one publisher or a
//! population of subscribers. Like the engine it reads the plan and commands from stdin, writes
//! snapshots to stdout, and ends when stdin closes.

mod arrivals;
mod composer;
mod doorkeeper;
mod event_loop;
mod own;
mod publisher;
mod stage;
mod subscribers;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;

use agent::lease::Lease;
use agent::{clock, pipes, process};
use anyhow::{Context, Result, bail};
use plan::{Bye, Hello, Plan, PlanError, Shard};

use event_loop::{EventLoop, Player};
use own::{Own, OwnError};
use publisher::Publisher;
use subscribers::Subscribers;

const USAGE: &str = "\
Usage: pubstorm-zmq --population INDEX [--agent INDEX] [--agents COUNT] [--shard INDEX/COUNT]
                    [--lease SECONDS]

Reads a plan (one line of JSON), then commands, from stdin; writes snapshots to stdout.
The formats are those of contract/ in Pubstorm's repository.

Options:
  --population INDEX   which population of the plan to play: one publisher, or subscribers
  --shard INDEX/COUNT  which share of its clients to play (default 0/1)
  --agent INDEX        this agent's number among all agents of the run (default 0)
  --agents COUNT       how many agents there are (default 1)
  --lease SECONDS      end when stdin says nothing for so long (default: wait for ever)
  --version            print the version, and that of libzmq
  --help               print this text";

fn main() -> ExitCode {
    process::end(run(), hint)
}

fn hint(error: &anyhow::Error) -> &'static str {
    if let Some(error) = error.downcast_ref::<OwnError>() {
        error.hint()
    } else if error.is::<PlanError>() {
        "a plan is made by the pubstorm of the same version as pubstorm-zmq"
    } else {
        "pubstorm-zmq --help tells what it reads"
    }
}

fn run() -> Result<()> {
    let Some(role) = arguments()? else { return Ok(()) };
    let descriptors = process::prepare()?;
    let plan = Plan::from_json(&pipes::read_plan(&role.lease)?)?;
    let own = Own::new(plan, role.population, role.shard)?;
    let player: Box<dyn Player> = if own.population().publications.is_empty() {
        Box::new(Subscribers::new(&own))
    } else {
        Box::new(Publisher::new(&own)?)
    };
    let hello = Hello {
        agent: role.agent,
        agents: role.agents,
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        descriptors,
        clients: own.clients(),
        clock_ns: clock::now_ns(),
        library: Some(library()),
        clock: None,
    };
    pipes::write_line(&hello)?;
    play(&role, own, player)
}

/// Plays until it is told to stop.
fn play(role: &Role, own: Own, player: Box<dyn Player>) -> Result<()> {
    let (input_sender, inputs) = mpsc::channel();
    let (snapshot_sender, snapshots) = mpsc::channel();
    let (event_loop, waker) = EventLoop::new(role.agent, own, player, (inputs, snapshot_sender))?;
    let waker = Arc::new(waker);
    let wake = move || waker.wake();
    pipes::read_commands(&role.lease, input_sender.clone(), wake.clone())?;
    let writer = pipes::write_snapshots(snapshots, input_sender, wake)?;
    let snapshots = event_loop.run()?;
    role.lease.check()?;
    writer.join().ok();
    pipes::write_line(&Bye { snapshots })
}

/// The library and its version.
fn library() -> String {
    let (major, minor, patch) = zmq::version();
    format!("libzmq {major}.{minor}.{patch}")
}

/// What to play, as the arguments say.
struct Role {
    agent: u32,
    agents: u32,
    population: usize,
    shard: Shard,
    lease: Lease,
}

/// What to play; `None` where the arguments asked for a text only.
fn arguments() -> Result<Option<Role>> {
    let (mut agent, mut agents, mut population, mut shard) = (0, 1, None, Shard::WHOLE);
    let mut lease = Lease::new(None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("agent") => agent = number(&mut parser).context("--agent")?,
            lexopt::Arg::Long("agents") => agents = number(&mut parser).context("--agents")?,
            lexopt::Arg::Long("population") => {
                population = Some(number(&mut parser).context("--population")?);
            }
            lexopt::Arg::Long("shard") => {
                let text = parser.value()?.to_string_lossy().into_owned();
                shard = text.parse().map_err(anyhow::Error::msg).context("--shard")?;
            }
            lexopt::Arg::Long("lease") => {
                let text = parser.value()?.to_string_lossy().into_owned();
                lease = text.parse().map_err(anyhow::Error::msg).context("--lease")?;
            }
            lexopt::Arg::Long("help") => return pipes::write_text(USAGE).map(|()| None),
            lexopt::Arg::Long("version") => {
                let version = env!("CARGO_PKG_VERSION");
                let text = format!("pubstorm-zmq {version} ({})", library());
                return pipes::write_text(&text).map(|()| None);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(population) = population else { bail!("found no --population, needed is one") };
    if agent >= agents {
        bail!("found --agent {agent} of {agents}, allowed are numbers below {agents}");
    }
    Ok(Some(Role { agent, agents, population: population as usize, shard, lease }))
}

fn number(parser: &mut lexopt::Parser) -> Result<u32> {
    let text = parser.value()?.to_string_lossy().into_owned();
    text.parse().ok().with_context(|| format!("found '{text}', allowed is a whole number"))
}
