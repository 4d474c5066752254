//! `pubstorm-engine`: one agent. Reads the plan and commands from stdin, writes snapshots to stdout
//! as lines of JSON, and logs to stderr. When stdin closes, the agent disconnects every client and
//! ends.

use std::process::ExitCode;
use std::time::Duration;

use agent::clock::exchange::{self, follower, reference};
use agent::error::Stop;
use agent::lease::Lease;
use agent::process::whole_number;
use agent::{clock, pipes, process};
use clap::Parser;
use engine::{EventLoop, Host, Part, Setup, bind_rows};
use plan::{Hello, INCARNATIONS, OfferedLoad, Plan, Shard};

/// Plays one agent's share of a plan. Reads the plan (one line of JSON), then commands, from stdin;
/// writes snapshots to stdout.
#[derive(Parser)]
#[command(version, after_help = "The formats are those of contract/ in Pubstorm's repository.")]
struct Arguments {
    /// Share of the clients to play
    #[arg(long, value_name = "INDEX/COUNT", default_value_t = Shard::WHOLE)]
    shard: Shard,
    /// Number of this agent among all engines of the run [default: that of its share]
    #[arg(long, value_name = "INDEX/COUNT")]
    agent: Option<Shard>,
    /// Indices of the populations to play [default: all]
    #[arg(long, value_name = "INDEX,...", value_delimiter = ',',
          value_parser = whole_number::<usize>)]
    populations: Option<Vec<usize>>,
    /// Number of agents that played this share before and failed
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = incarnation)]
    incarnation: u32,
    /// Ends the agent when nothing arrives on stdin for SECONDS [default: never]
    #[arg(long, value_name = "SECONDS")]
    lease: Option<Lease>,
    /// Takes the time from a reference clock over UDP; the key of the run is in PUBSTORM_CLOCK_KEY
    /// [default: the time of this host]
    #[arg(long, value_name = "HOST:PORT")]
    reference: Option<String>,
    /// Answers as the reference clock of a run instead
    #[arg(long, conflicts_with = "sink")]
    clock: bool,
    /// Address where the reference clock answers; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: String,
    /// Answers and discards everything instead, as a peer to calibrate against
    #[arg(long)]
    sink: bool,
    /// Prints the load that the plan on stdin offers, as a line of JSON, and ends
    #[arg(long, conflicts_with_all = ["clock", "sink"])]
    explain: bool,
}

fn incarnation(text: &str) -> Result<u32, String> {
    let found = text.parse().ok().filter(|found| *found < INCARNATIONS);
    found.ok_or_else(|| format!("allowed are 0 to {}", INCARNATIONS - 1))
}

fn main() -> ExitCode {
    let code = process::end(run(), "see pubstorm-engine --help");
    exchange::end();
    code
}

fn run() -> Result<(), Stop> {
    let Some(arguments) = process::arguments::<Arguments>()? else { return Ok(()) };
    let descriptors = process::prepare()?;
    exchange::inject_clock_skew()?;
    if arguments.clock {
        Ok(reference::run(&arguments.listen)?)
    } else if arguments.sink {
        sink::run(0, Duration::ZERO, Ok)?;
        Ok(())
    } else if arguments.explain {
        explain()
    } else {
        play(arguments, descriptors)
    }
}

/// Prints the load that the plan on stdin offers.
fn explain() -> Result<(), Stop> {
    let plan = Plan::from_json(&pipes::read_plan(&Lease::new(None))?)?;
    bind_rows(&plan, Shard::WHOLE)?;
    Ok(pipes::write_line(&OfferedLoad::of(&plan))?)
}

/// Plays one agent's share of the plan on stdin.
fn play(arguments: Arguments, descriptors: u64) -> Result<(), Stop> {
    let Arguments { shard, incarnation, populations, .. } = arguments;
    let agent = arguments.agent.unwrap_or(shard);
    let lease = arguments.lease.unwrap_or_else(|| Lease::new(None));
    if let Some(address) = &arguments.reference {
        follower::follow(address)?;
    }
    let plan = Plan::from_json(&pipes::read_plan(&lease)?)?;
    let setup = Setup::new(plan, Part { shard, agent, populations }, incarnation)?;
    let hello = Hello {
        agent: agent.index(),
        agents: agent.count(),
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        descriptors,
        clients: setup.populations.iter().map(|p| p.share).collect(),
        clock_ns: clock::now_ns(),
        library: None,
        clock: clock::take_state(),
    };
    pipes::write_line(&hello)?;
    pipes::play(&lease, |inputs, snapshots| {
        let (host, waker) = Host::machine()?;
        let event_loop = EventLoop::new(setup, host, inputs, snapshots);
        Ok((|| Ok(event_loop.run()?), move || waker.wake()))
    })
}
