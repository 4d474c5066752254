//! NATS in the simulation, written from the documentation of its client protocol and independent of
//! the crate that the engine uses: operations in bytes, subjects, a scripted server and the record
//! of a connection.

mod operation;
mod record;
mod server;

pub use operation::{GARBAGE, NatsOperation, PING, PORT, matches};
pub use record::NatsRecord;
pub use server::{Conduct, NatsScript, NatsServer};
