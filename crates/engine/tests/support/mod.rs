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

/// Starts an engine on a shard.
fn spawn(shard: &str) -> Child {
    spawn_with(&["--shard", shard], &[])
}

/// Starts an engine with arguments and variables.
pub fn spawn_with(arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_pubstorm-engine"))
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}
