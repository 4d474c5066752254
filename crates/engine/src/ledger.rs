//! The meaning of a delivery for the counters, apart from the state that it changes.

pub mod classify;
