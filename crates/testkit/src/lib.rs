//! Tools for simulations in tests. A [`Broker`] without sockets has faults by [`Script`]. A
//! [`Pair`] joins one client session and the broker in virtual time, after quinn-proto's test
//! harness. All chance comes from a seeded [`Rng`].

mod broker;
mod frames;
mod pair;
pub mod plans;
mod quic;
mod records;
mod rng;

pub use broker::{
    Announced, Authenticate, Broker, BrokerError, BrokerMessage, Fate, KEPT, LinkId, Script,
    StepAnswer,
};
pub use frames::{Frames, in_frames};
pub use pair::{Observed, Pair, PairToken};
pub use quic::{QuicAnswer, ScriptedQuicServer, unverified_tls};
pub use records::{HEADER_BYTES, PAYLOAD_MAX, RecordKind, RecordReader, in_records};
pub use rng::{Rng, for_each_seed};
