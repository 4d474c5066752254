//! Lines between controller and agent besides plan and snapshot: commands to the agent; hello,
//! failure and bye from the agent (`contract/control.schema.json`).

use serde::{Deserialize, Serialize};

use crate::model::ChangeAction;
use crate::model::bounds;

/// A line from the controller, after the plan on the first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Enter stage `index` at the instant `at_ns`.
    Stage {
        /// Index into the plan's stages.
        index: usize,
        /// Instant of the reference clock, in nanoseconds.
        #[serde(deserialize_with = "bounds::number")]
        at_ns: u64,
    },
    /// Continue a publisher that was started again, from the next stage command on.
    Resume(Resume),
    /// Change a population in the current publish stage, in addition to the plan's changes.
    Change {
        /// Instant of the reference clock, in nanoseconds.
        #[serde(deserialize_with = "bounds::number")]
        at_ns: u64,
        /// Index of the population.
        population: usize,
        /// Kind of the change.
        action: ChangeAction,
    },
    /// Close the current publish stage: agents skip the messages that are still scheduled and
    /// balance the ledger.
    Close {
        /// Externally published messages; the agent of shard 0 balances these messages.
        #[serde(default)]
        sent: Vec<Sent>,
    },
    /// Exclude populations from loss to the end of the current publish stage, or of the pending
    /// one: expected := received, because an agent has failed.
    ExcludeFromLoss {
        /// Indices of the populations.
        populations: Vec<usize>,
    },
    /// Sign of life of the controller. An agent answers with the same word, and its lease begins
    /// anew.
    Beat,
    /// Disconnect every client, send the last snapshot, say bye and exit.
    Stop,
}

/// State of a publisher whose former process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// Instant before which the publisher sends nothing, in nanoseconds of the reference clock.
    #[serde(deserialize_with = "bounds::number")]
    pub from_ns: u64,
    /// Messages that its former processes have sent in the whole run.
    pub sent: u64,
    /// Messages of the stage that its former processes have sent or skipped.
    pub scheduled: u64,
}

/// Number of messages that an external publisher has sent in the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// Index of the publisher's population.
    pub population: usize,
    /// Index of the publisher in the population.
    pub client: u32,
    /// Messages of the publisher's one publication.
    pub total: u64,
}

/// First line of an agent.
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
    /// Limit of open descriptors of the process.
    pub descriptors: u64,
    /// Number of the agent's clients in each population.
    pub clients: Vec<u32>,
    /// Clock of the agent at the time of this line, in nanoseconds.
    pub clock_ns: u64,
    /// Library and version that plays the clients, such as `NAME 4.3.5`; `None` for an engine.
    #[serde(default)]
    pub library: Option<String>,
    /// Relation to the reference clock, whose time the agent reports; `None` if the clock of the
    /// agent's host is the reference clock.
    #[serde(default)]
    pub clock: Option<ClockState>,
}

/// Relation of an agent's clock to the reference clock, measured by exchanges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockState {
    /// Offset added to the clock of the agent's host, in nanoseconds.
    pub offset_ns: i64,
    /// Rate of the reference clock relative to the host's clock, in parts of 10^9.
    pub drift_ppb: i64,
    /// Largest error of the agent's time, in nanoseconds.
    pub bound_ns: u64,
    /// Shortest round trip of the exchanges in use, in nanoseconds.
    pub round_trip_ns: u64,
    /// Number of answered exchanges.
    pub exchanges_total: u64,
}

/// First line of the reference clock, with its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "reference")]
pub struct ReferenceHello {
    /// UDP port of the reference clock.
    pub port: u16,
}

/// Answer to [`Command::Beat`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "beat")]
pub struct Beat {}

/// Reason why an agent cannot continue; the agent exits after this line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "failure")]
pub struct Failure {
    /// Cause of the failure.
    pub message: String,
    /// Remedy for the user.
    pub hint: String,
}

/// Last line of an agent, after its last snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "bye")]
pub struct Bye {
    /// Number of snapshots that the agent wrote.
    pub snapshots: u64,
}
