//! Puts the real engine and the scripted broker together over TCP on loopback, plain or under TLS.
//! Every test program uses a part of it.

#![allow(dead_code, unused_imports, reason = "each test program has its own copy")]

mod agent;
mod certificates;
mod feed;
mod scripted;

use std::process::{Child, Command, Stdio};

pub use agent::{Agent, Totals, plan, population, publication};
pub use certificates::{Authority, Folder, Issued};
pub use feed::{Feed, feed, sockets, subscribers};
pub use scripted::{Scripted, Server};

/// Starts an engine; `arguments` are its shard, and any options behind it.
fn spawn(arguments: &str) -> Child {
    engine(arguments).spawn().unwrap()
}

/// An engine with pipes, to be started.
pub fn engine(arguments: &str) -> Command {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    program(&[&["--shard"], &arguments[..]].concat())
}

/// Starts an engine with arguments and variables.
pub fn spawn_with(arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    program(arguments).envs(variables.iter().copied()).spawn().unwrap()
}

/// The program with pipes, to be started.
fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pubstorm-engine"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}
