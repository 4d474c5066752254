//! Deliveries into the ledger of received messages: their origin, their meaning for the counters,
//! and the counting.

pub mod books;
pub mod classify;
pub mod origin;
pub mod receiver;
pub mod run;
