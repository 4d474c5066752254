//! For tests only: a [`Broker`] without sockets that misbehaves by [`Script`], a virtual [`Clock`],
//! a simulated link ([`Pipe`]) and the [`Pair`] of one client session and the broker over it, after
//! quinn-proto's test harness. All chance comes from a seeded [`Rng`].

mod broker;
mod clock;
mod link;
mod pair;
mod rng;

pub use broker::{Broker, BrokerError, Fate, LinkId, Message, Script};
pub use clock::Clock;
pub use link::Pipe;
pub use pair::{Observed, Pair, Token};
pub use rng::{Rng, for_each_seed};
