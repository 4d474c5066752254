//! The plan and all results of arithmetic on the plan: clients of an agent, schedules, payloads,
//! expected deliveries, and counters that add up. The crate is pure: no socket, clock, thread or
//! file. Time enters as nanoseconds, chance as the plan's seed.

mod answer;
mod arrivals;
mod attachment;
mod bounds;
mod check;
mod control;
mod delays;
mod error;
mod explanation;
mod fan_out;
mod histogram;
mod latency;
mod lifetime;
mod model;
mod offered_load;
mod order;
mod pacer;
mod questions;
mod random;
mod rate_profile;
mod reason;
mod rows;
mod sent_at;
mod shard;
mod snapshot;
mod stamp;
mod template;
mod tempo;
mod texts;

pub use answer::Answer;
pub use arrivals::{Arrivals, Publishers};
pub use control::{Beat, Bye, ClockState, Command, Failure, Hello, ReferenceHello, Sent};
pub use delays::Delays;
pub use error::PlanError;
pub use explanation::{Explanation, Explanations, TextProperty};
pub use fan_out::{Expected, FanOut, Publisher, Ways};
pub use histogram::Histogram;
pub use latency::{Batch, Latencies};
pub use model::capabilities::Capabilities;
pub use model::flows::{
    Late, Order, Pace, Payload, Phase, Process, Publication, Responds, RetainHandling, Subscription,
};
pub use model::names::Names;
pub use model::property::{Property, PropertyValue};
pub use model::protocol::{
    Authentication, Mqtt, MqttVersion, Player, Protocol, SCRAM_SHA_256, Security, Will, Zmtp,
};
pub use model::{
    Action, Attachment, Bridges, Change, ChangeAction, Choice, Direction, End, Flapping, Header,
    Lifetime, Plan, Population, Psk, Reconnect, Route, Stage, Target, Tls, TlsVersion,
};
pub use offered_load::{
    FlapLoad, FlowLoad, OfferedLoad, Opening, PhaseLoad, PopulationLoad, PublicationLoad,
    StageLoad, Unmatched,
};
pub use order::Variants;
pub use pacer::{Pacer, payload_bytes};
pub use random::Random;
pub use rate_profile::RatePoint;
pub use reason::{Family, Reason};
pub use rows::{Column, Rows};
pub use sent_at::{SentAt, Wait};
pub use shard::Shard;
pub use snapshot::{
    AnswerCounters, Counters, EngineLoad, FlowCounters, FlowSnapshot, Gauges, Outcomes,
    PopulationSnapshot, Snapshot, Stall, TargetSnapshot,
};
pub use stamp::{
    INCARNATION_PLACES, INCARNATIONS, PUBLICATIONS_MAX, STAMP_BYTES, STAMP_PROPERTY, Stamp,
    StreamId,
};
pub use template::{MessageFacts, Place, Template, TemplateError};
pub use tempo::Tempo;
pub use texts::Columns;

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;
