//! `pubstorm-proxy`: links that can be cut, stalled and delayed. Reads commands from stdin, writes
//! one answer to each to stdout, and logs to stderr. When stdin closes, every connection ends, and
//! the process ends.

mod command;
mod flow;
mod links;
mod listener;
mod pair;
mod proxy;
mod queue;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;

use agent::hint::Stop;
use agent::{pipes, process};
use clap::Parser;

use proxy::Proxy;

/// Forwards connections over links. Reads commands from stdin, a line of JSON each, and writes one
/// answer to each to stdout; ends with its stdin.
#[derive(Parser)]
#[command(version, after_help = COMMANDS)]
struct ProxyArguments {}

const COMMANDS: &str = r#"Commands:
  {"command": "open", "name": "up", "to": "HOST:PORT", "count": 2, "listen": "127.0.0.1"}
  {"command": "set", "name": "up", "links": [0], "state": "pass", "delay_ns": 0}
  {"command": "count"}

States:
  pass   bytes pass, delay_ns later than they arrived
  close  connections are reset, and new ones refused
  stall  nothing passes, and no peer is notified"#;

fn main() -> ExitCode {
    process::end_in_words(run())
}

fn run() -> Result<(), Stop> {
    let Some(ProxyArguments {}) = process::arguments()? else { return Ok(()) };
    process::prepare()?;
    let (sender, lines) = mpsc::channel();
    let (proxy, waker) = Proxy::new()?;
    // Dropping the waker would lose a pending wake-up: the reader's clone lives as long as stdin,
    // this one as long as the loop.
    let waker = Arc::new(waker);
    let (wakes, ends) = (Arc::clone(&waker), Arc::clone(&waker));
    let take = move |line: &str| sender.send(line.into()).is_ok() && wakes.wake().is_ok();
    pipes::read_lines(take, move || drop(ends.wake()))?;
    Ok(proxy.serve(&lines)?)
}
