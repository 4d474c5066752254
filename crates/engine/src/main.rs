//! `pubstorm-engine`: one agent. Reads the plan and commands from stdin, writes snapshots to stdout
//! as lines of JSON, and logs to stderr. When stdin closes, the agent disconnects every client and
//! ends.

use std::process::ExitCode;
use std::time::Duration;

use agent::clock::exchange::{self, reference};
use agent::hint::Stop;
use agent::lease::Lease;
use agent::process::whole_number;
use agent::program::{AgentFacts, AgentOptions};
use agent::{pipes, process};
use clap::Parser;
use engine::{Assignment, EventLoop, Host, Setup, bind_rows};
use plan::{INCARNATIONS, OfferedLoad, Plan, Shard};

/// Plays one agent's share of a plan. Reads the plan (one line of JSON), then commands, from stdin;
/// writes snapshots to stdout.
#[derive(Parser)]
#[command(version, after_help = "The formats are those of contract/ in Pubstorm's repository.")]
struct EngineArguments {
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
    #[command(flatten)]
    program: AgentOptions,
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
    let Some(arguments) = process::arguments::<EngineArguments>()? else { return Ok(()) };
    if !(arguments.clock || arguments.sink || arguments.explain) {
        return play(arguments);
    }
    process::prepare()?;
    exchange::inject_clock_skew()?;
    if arguments.explain {
        explain()?;
    } else if arguments.clock {
        reference::run(&arguments.listen)?;
    } else {
        sink::run(0, Duration::ZERO, Ok)?;
    }
    Ok(())
}

/// Prints the load that the plan on stdin offers.
fn explain() -> Result<(), Stop> {
    let plan = Plan::from_json(&pipes::read_plan(&Lease::new(None))?)?;
    bind_rows(&plan, Shard::WHOLE)?;
    Ok(pipes::write_line(&OfferedLoad::of(&plan))?)
}

/// Plays one agent's share of the plan on stdin.
fn play(arguments: EngineArguments) -> Result<(), Stop> {
    let EngineArguments { shard, incarnation, populations, .. } = arguments;
    let agent = arguments.agent.unwrap_or(shard);
    let (program, plan) = arguments.program.begin()?;
    let setup = Setup::new(plan, Assignment { shard, agent, populations }, incarnation)?;
    let identity = AgentFacts {
        agent: agent.index(),
        agents: agent.count(),
        clients: setup.populations.iter().map(|p| p.share).collect(),
        library: None,
    };
    program.play(identity, |inputs, snapshots| {
        let (host, waker) = Host::machine()?;
        let event_loop = EventLoop::new(setup, host, inputs, snapshots);
        Ok((|| Ok(event_loop.run()?), move || waker.wake()))
    })
}
