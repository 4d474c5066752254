//! AMQP 0-9-1 in the simulation, written from the specification and independent of the crate that
//! the engine uses: packets in bytes, keys, a scripted broker and the record of a connection.

mod broker;
mod packet;
mod record;

pub use broker::{AmqpBroker, AmqpConduct, AmqpScript};
pub use packet::{BEAT, GARBAGE, PORT, matches};
pub use record::AmqpRecord;
