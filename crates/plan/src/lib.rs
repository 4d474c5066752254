//! The plan and everything that follows from it by arithmetic alone: which clients an agent
//! plays, when each of their messages is due, what a message carries, who ought to receive it,
//! and how what was seen is counted and added up. Pure: no socket, clock, thread or file; time
//! enters as nanoseconds, chance as the plan's seed.

mod arrivals;
mod attachment;
mod check;
mod control;
mod fan_out;
mod histogram;
mod lifetime;
mod model;
mod order;
mod pacer;
mod random;
mod rows;
mod shard;
mod snapshot;
mod stamp;
mod template;
mod tempo;
mod texts;
mod zeromq;

pub use arrivals::{Arrivals, Publishers};
pub use check::PlanError;
pub use control::{Beat, Bye, ClockState, Command, Failure, Hello, ReferenceHello, Sent};
pub use fan_out::{FanOut, Ways};
pub use histogram::{Batch, Histogram};
pub use model::{
    Action, Attachment, Bridges, Change, ChangeAction, Choice, Direction, End, Late, Lifetime,
    Order, Pace, Payload, Phase, Plan, Player, Population, Psk, Publication, Reconnect, Route,
    Rows, Security, Stage, Subscription, Target, Tls, TlsVersion, Version, Will, Zmq,
};
pub use order::Variants;
pub use pacer::{Pacer, payload_bytes};
pub use random::Random;
pub use rows::Column;
pub use shard::Shard;
pub use snapshot::{
    Counters, EngineLoad, FlowCounters, FlowSnapshot, Gauges, Outcomes, PopulationSnapshot, Reason,
    Snapshot, Stall, TargetSnapshot,
};
pub use stamp::{INCARNATION_PLACES, INCARNATIONS, STAMP_BYTES, Stamp, StreamId};
pub use template::{MessageFacts, Place, Template, TemplateError};
pub use tempo::Tempo;
pub use texts::Columns;

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;
