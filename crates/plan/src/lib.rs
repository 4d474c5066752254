//! The plan and all results of arithmetic on the plan: clients of an agent, schedules, payloads,
//! expected deliveries, and counters that add up. The crate is pure: no socket, clock, thread or
//! file. Time enters as nanoseconds, chance as the plan's seed.

mod check;
mod control;
mod error;
mod fan_out;
mod model;
mod questions;

mod text {
    //! Texts of a population: templates, their places, rows of a file, and records of payloads.

    pub mod records;
    pub mod rows;
    pub mod template;
    pub mod texts;
}

mod schedule {
    //! Instants of messages, orders of topics and lifetimes of sessions, and what each client of
    //! each agent draws.

    pub mod attachment;
    pub mod clones;
    pub mod lifetime;
    pub mod order;
    pub mod pacer;
    pub mod quota;
    pub mod random;
    pub mod rate_profile;
    pub mod recorded;
    pub mod sessions;
    pub mod shard;
    pub mod tempo;
}

mod estimate {
    //! Load and deliveries that a plan leads to.

    pub mod arrivals;
    pub mod offered_load;
}

mod record {
    //! Counters, histograms and reasons that add up, and the stamps of messages.

    pub mod answer;
    pub mod delays;
    pub mod explanation;
    pub mod histogram;
    pub mod latency;
    pub mod reason;
    pub mod sent_at;
    pub mod snapshot;
    pub mod stamp;
}

pub use control::{Beat, Bye, ClockState, Command, Failure, Hello, ReferenceHello, Resume, Sent};
pub use error::PlanError;
pub use estimate::arrivals::{Arrivals, Publishers};
pub use estimate::offered_load::{
    FlapLoad, FlowLoad, OfferedLoad, Opening, PhaseLoad, PopulationLoad, PublicationLoad,
    StageLoad, Unmatched,
};
pub use fan_out::{Expected, FanOut, MessageOrigin, Ways};
pub use model::addresses::{AddressOrder, AddressUse, PlannedProxyProtocol, ProxyVersion};
pub use model::capabilities::{Capabilities, Secures};
pub use model::flows::{
    Late, Order, Pace, Payload, Phase, PlannedFlow, PlannedRetainHandling, Process, Publication,
    Responds, SizeBin, Subscription,
};
pub use model::link::LinkConditions;
pub use model::names::Names;
pub use model::property::{Property, PropertyValue};
pub use model::protocol::*;
pub use model::sparkplug::{Sparkplug, SparkplugHost, SparkplugNode};
pub use model::{
    Action, Attachment, Bridges, Change, ChangeAction, Choice, Direction, End, Flapping, Header,
    Lifetime, Plan, PlannedStage, PlannedTls, Population, Psk, Reconnect, Route, Target,
    TlsVersion,
};
pub use record::answer::AnswerCode;
pub use record::delays::Delays;
pub use record::explanation::{Explanation, Explanations, TextProperty};
pub use record::histogram::Histogram;
pub use record::latency::{Latencies, LatencyBatch};
pub use record::reason::{Family, Reason};
pub use record::sent_at::{SentAt, WaitCause};
pub use record::snapshot::{
    AddressSnapshot, AnswerCounters, Counters, EngineLoad, FlowCounters, FlowSnapshot, Gauges,
    Outcomes, PopulationSnapshot, Snapshot, Stall, TargetSnapshot,
};
pub use record::stamp::{
    INCARNATION_PLACES, INCARNATIONS, NUMBERED_BYTES, PUBLICATIONS_MAX, STAMP_BYTES,
    STAMP_PROPERTY, Stamp, StreamId,
};
pub use schedule::clones::ReadOnce;
pub use schedule::order::{ROUND_MAX, Variants};
pub use schedule::pacer::{Pacer, payload_bytes};
pub use schedule::quota::quota;
pub use schedule::random::Random;
pub use schedule::rate_profile::RatePoint;
pub use schedule::recorded::{
    Played, Recorded, RecordedBuilder, RecordedContent, RecordedError, RecordedRow, Recording,
};
pub use schedule::sessions::{
    RecordedSessions, SessionRow, SessionsBuilder, SessionsError, SessionsRecording,
};
pub use schedule::shard::Shard;
pub use schedule::tempo::Tempo;
pub use text::records::{Records, RecordsError};
pub use text::rows::{Column, Rows};
pub use text::template::{MessageFacts, Place, Template, TemplateError};
pub use text::texts::Columns;

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;
