//! Exchanges within the crate, and with libzmq.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue has failed")]

mod exchange;
mod libzmq;
