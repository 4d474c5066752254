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

use agent::clock::exchange;
use agent::error::AgentError;
use agent::hint::Stop;
use agent::process;
use agent::process::whole_number;
use agent::program::{AgentFacts, AgentOptions};
use clap::Parser;
use plan::Shard;

use event_loop::{PopulationPlayer, ZmqLoop};
use publisher::Publisher;
use setup::ZmqSetup;
use subscribers::Subscribers;

/// Plays clients of one population with libzmq. Reads a plan (one line of JSON), then commands,
/// from stdin; writes snapshots to stdout.
#[derive(Parser)]
#[command(
    version = version(),
    after_help = "The formats are those of contract/ in Pubstorm's repository."
)]
struct ZmqArguments {
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
    #[command(flatten)]
    program: AgentOptions,
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
    let Some(arguments) = process::arguments::<ZmqArguments>()? else { return Ok(()) };
    let ZmqArguments { agent, agents, population, shard, program } = arguments;
    if agent >= agents {
        let allowed =
            format!("found --agent {agent} of {agents}, allowed are numbers below {agents}");
        return Err(AgentError::Arguments(allowed).into());
    }
    let (program, plan) = program.begin()?;
    let setup = ZmqSetup::new(plan, population, shard)?;
    let player: Box<dyn PopulationPlayer> = if setup.population().publications.is_empty() {
        Box::new(Subscribers::new(&setup))
    } else {
        Box::new(Publisher::new(&setup)?)
    };
    let (clients, library) = (setup.clients(), Some(library()));
    let identity = AgentFacts { agent, agents, clients, library };
    program.play(identity, |inputs, snapshots| {
        let (event_loop, waker) = ZmqLoop::new(agent, setup, player, (inputs, snapshots))?;
        Ok((|| Ok(event_loop.run()?), move || waker.wake()))
    })
}

/// Returns name and version of the library.
fn library() -> String {
    let (major, minor, patch) = zmq::version();
    format!("libzmq {major}.{minor}.{patch}")
}
