//! Puts the real engine and the scripted broker together over TCP on loopback, plain or under TLS.
//! Every test program uses a part of it.

mod agent;
mod certificates;
mod feed;
mod ports;
mod scripted;

use std::process::{Child, Command, Stdio};

pub use agent::{Agent, Totals, plan, population, publication};
pub use certificates::{Authority, Folder, Issued};
pub use feed::{Feed, feed, sockets, subscribers};
pub use ports::free_port;
pub use scripted::{Scripted, Server};

/// A port at which no server listens. The kernel gives it to no socket by itself.
pub const CLOSED_PORT: u16 = 1;

/// Starts an engine; `arguments` are its shard, and any options behind it.
fn spawn(arguments: &str) -> Child {
    engine(arguments).spawn().unwrap()
}

/// An engine with pipes, to be started.
pub fn engine(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pubstorm-engine"));
    command.args(["--shard"]).args(arguments.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}
