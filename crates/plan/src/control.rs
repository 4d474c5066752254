//! The lines that go between conductor and agent besides plan and snapshot: commands in,
//! greeting, failure and farewell out (`contract/control.schema.json`). It knows no pipe.

use serde::{Deserialize, Serialize};

use crate::model::ChangeAction;

/// A line from the conductor, after the plan on the first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Enter stage `index` at the instant `at_ns`.
    Stage {
        /// Index into the plan's stages.
        index: usize,
        /// Instant of the reference clock, in nanoseconds.
        at_ns: u64,
    },
    /// Change a population in the current publish stage, beyond what the plan says.
    Change {
        /// Instant of the reference clock, in nanoseconds.
        at_ns: u64,
        /// Index of the population.
        population: usize,
        /// What changes.
        action: ChangeAction,
    },
    /// Close the current publish stage: what is still due is skipped, the ledger is balanced.
    Close {
        /// What programs other than engines have sent; the agent of shard 0 balances it.
        #[serde(default)]
        sent: Vec<Sent>,
    },
    /// From here to the end of the publish stage, or of the one that has been told of and has not
    /// begun, these populations are owed what they receive: nobody can say what they ought to have
    /// had, since an agent is lost.
    Unjudge {
        /// Indices of the populations.
        populations: Vec<usize>,
    },
    /// The conductor is there; an agent answers with the same word, and its lease begins anew.
    Beat,
    /// Disconnect every client, send the last snapshot, say bye and exit.
    Stop,
}

/// What a publisher that no engine plays has sent in the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// Index of its population.
    pub population: usize,
    /// Its index in the population.
    pub client: u32,
    /// Messages of its one publication.
    pub total: u64,
}

/// An agent's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "hello")]
pub struct Hello {
    /// Index of the agent's shard.
    pub agent: u32,
    /// Number of shards.
    pub agents: u32,
    /// Version of the engine.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Its limit of open descriptors.
    pub descriptors: u64,
    /// Its share of each population.
    pub clients: Vec<u32>,
    /// Its clock at the time of this line, in nanoseconds.
    pub clock_ns: u64,
    /// Library and version that plays its clients, such as `libzmq 4.3.5`; `None` for an engine.
    #[serde(default)]
    pub library: Option<String>,
    /// How well it knows the reference clock, in whose time it speaks; `None`: its host's clock is
    /// the reference.
    #[serde(default)]
    pub clock: Option<ClockState>,
}

/// How well an agent knows the reference clock: what it learned from exchanges with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockState {
    /// What is added to its host's clock, in nanoseconds.
    pub offset_ns: i64,
    /// How much faster the reference clock runs, in parts of 10^9.
    pub drift_ppb: i64,
    /// Its time is off by this much at most, in nanoseconds.
    pub bound_ns: u64,
    /// Shortest round trip of the exchanges that it relies on, in nanoseconds.
    pub round_trip_ns: u64,
    /// Exchanges that were answered.
    pub exchanges_total: u64,
}

/// The first line of the reference clock: where it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "reference")]
pub struct ReferenceHello {
    /// Its port of UDP.
    pub port: u16,
}

/// The answer to [`Command::Beat`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "beat")]
pub struct Beat {}

/// Why an agent cannot go on; it exits after this line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "failure")]
pub struct Failure {
    /// What was found.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// An agent's last line: every snapshot has been written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "bye")]
pub struct Bye {
    /// Number of snapshots it wrote.
    pub snapshots: u64,
}
