//! The engine as a program, against scripted peers. One binary, since each further one links the
//! libraries once more.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue has failed")]

mod agent;
mod clock;
mod proxy_protocol;
mod sink;
mod support;
mod tls;
mod websocket;
mod zeromq;
