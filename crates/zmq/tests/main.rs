//! Publishers and subscribers as programs, against libzmq.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue has failed")]

mod publisher;
mod subscribers;
mod support;
