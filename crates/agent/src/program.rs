//! An agent as a process: its options, its plan, its hello, and its loop.

use std::io;
use std::process;
use std::sync::mpsc::Receiver;

use plan::{Hello, Plan};

use crate::clock;
use crate::clock::exchange::{self, follower};
use crate::error::AgentError;
use crate::hint::Stop;
use crate::lease::Lease;
use crate::pipes::{self, Input};
use crate::process::prepare;
use crate::snapshots::Snapshots;

/// Options of every agent.
#[derive(clap::Args)]
pub struct AgentOptions {
    /// Ends the agent when nothing arrives on stdin for SECONDS [default: never]
    #[arg(long, value_name = "SECONDS")]
    lease: Option<Lease>,
    /// Takes the time from a reference clock over UDP; the key of the run is in PUBSTORM_CLOCK_KEY
    /// [default: the time of this host]
    #[arg(long, value_name = "HOST:PORT")]
    reference: Option<String>,
}

/// An agent that has its plan.
pub struct Program {
    lease: Lease,
    /// Descriptors that the process may open.
    descriptors: u64,
}

/// Facts about an agent that its controller asks for.
pub struct AgentFacts {
    /// Number of the agent among all agents of the run.
    pub agent: u32,
    /// Number of agents.
    pub agents: u32,
    /// Clients of each population in this agent.
    pub clients: Vec<u32>,
    /// Library and version that plays the clients; `None` for an engine.
    pub library: Option<String>,
}

impl AgentOptions {
    /// Prepares the process, follows the reference clock, and reads the plan from stdin.
    ///
    /// # Errors
    /// Those of the kernel, of the clock, of the lease, and a text that is no plan.
    pub fn begin(self) -> Result<(Program, Plan), Stop> {
        let descriptors = prepare()?;
        exchange::inject_clock_skew()?;
        if let Some(address) = &self.reference {
            follower::follow(address)?;
        }
        let lease = self.lease.unwrap_or_else(|| Lease::new(None));
        let plan = Plan::from_json(&pipes::read_plan(&lease)?)?;
        Ok((Program { lease, descriptors }, plan))
    }
}

impl Program {
    /// Says hello, and plays until the loop ends; see [`pipes::play`].
    ///
    /// # Errors
    /// Those of stdout and of the loop.
    pub fn play<Run, Wake, Error: From<AgentError>>(
        self,
        identity: AgentFacts,
        begin: impl FnOnce(Receiver<Input>, Snapshots) -> Result<(Run, Wake), Error>,
    ) -> Result<(), Error>
    where
        Run: FnOnce() -> Result<u64, Error>,
        Wake: Fn() -> io::Result<()> + Send + Sync + 'static,
    {
        let AgentFacts { agent, agents, clients, library } = identity;
        pipes::write_line(&Hello {
            agent,
            agents,
            version: env!("CARGO_PKG_VERSION").into(),
            pid: process::id(),
            descriptors: self.descriptors,
            clients,
            clock_ns: clock::now_ns(),
            library,
            clock: clock::take_state(),
        })?;
        pipes::play(&self.lease, begin)
    }
}
