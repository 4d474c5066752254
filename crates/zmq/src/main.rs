//! `pubstorm-zmq`: an agent whose clients are sockets of libzmq, either one publisher or a
//! population of subscribers. As the engine, it reads the plan and commands from stdin, writes
//! snapshots to stdout, and ends when stdin closes.

mod arrivals;
mod composer;
mod event_loop;
mod publisher;
mod setup;
mod stage;
mod subscribers;
mod zap_handler;

use std::process::ExitCode;

use agent::clock::exchange::{self, follower};
use agent::error::{AgentError, Stop};
use agent::lease::Lease;
use agent::process::whole_number;
use agent::{clock, pipes, process};
use clap::Parser;
use plan::{Hello, Plan, Shard};

use event_loop::{EventLoop, Player};
use publisher::Publisher;
use setup::Setup;
use subscribers::Subscribers;

/// Plays clients of one population with libzmq. Reads a plan (one line of JSON), then commands,
/// from stdin; writes snapshots to stdout.
#[derive(Parser)]
#[command(
    version = version(),
    after_help = "The formats are those of contract/ in Pubstorm's repository."
)]
struct Arguments {
    /// Index of the population: a publisher, or subscribers
    #[arg(long, value_name = "INDEX", value_parser = whole_number::<usize>)]
    population: usize,
    /// Share of its clients to play
    #[arg(long, value_name = "INDEX/COUNT", default_value_t = Shard::WHOLE)]
    shard: Shard,
    /// Number of this agent among all agents of the run
    #[arg(long, value_name = "INDEX", default_value_t = 0, value_parser = whole_number::<u32>)]
    agent: u32,
    /// Number of agents of the run
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = whole_number::<u32>)]
    agents: u32,
    /// Ends the agent when nothing arrives on stdin for SECONDS [default: never]
    #[arg(long, value_name = "SECONDS")]
    lease: Option<Lease>,
    /// Takes the time from a reference clock over UDP; the key of the run is in PUBSTORM_CLOCK_KEY
    /// [default: the time of this host]
    #[arg(long, value_name = "HOST:PORT")]
    reference: Option<String>,
}

/// Returns the versions of this program and of libzmq.
fn version() -> String {
    format!("{} ({})", env!("CARGO_PKG_VERSION"), library())
}

fn main() -> ExitCode {
    let code = process::end(run(), "see pubstorm-zmq --help");
    exchange::end();
    code
}

fn run() -> Result<(), Stop> {
    let Some(arguments) = process::arguments::<Arguments>()? else { return Ok(()) };
    let Arguments { agent, agents, population, shard, lease, reference } = arguments;
    if agent >= agents {
        let allowed =
            format!("found --agent {agent} of {agents}, allowed are numbers below {agents}");
        return Err(AgentError::Arguments(allowed).into());
    }
    let lease = lease.unwrap_or_else(|| Lease::new(None));
    let descriptors = process::prepare()?;
    exchange::inject_clock_skew()?;
    if let Some(address) = &reference {
        follower::follow(address)?;
    }
    let plan = Plan::from_json(&pipes::read_plan(&lease)?)?;
    let setup = Setup::new(plan, population, shard)?;
    let player: Box<dyn Player> = if setup.population().publications.is_empty() {
        Box::new(Subscribers::new(&setup))
    } else {
        Box::new(Publisher::new(&setup)?)
    };
    let hello = Hello {
        agent,
        agents,
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        descriptors,
        clients: setup.clients(),
        clock_ns: clock::now_ns(),
        library: Some(library()),
        clock: clock::take_state(),
    };
    pipes::write_line(&hello)?;
    pipes::play(&lease, |inputs, snapshots| {
        let (event_loop, waker) = EventLoop::new(agent, setup, player, (inputs, snapshots))?;
        Ok((|| Ok(event_loop.run()?), move || waker.wake()))
    })
}

/// Returns name and version of the library.
fn library() -> String {
    let (major, minor, patch) = zmq::version();
    format!("libzmq {major}.{minor}.{patch}")
}
