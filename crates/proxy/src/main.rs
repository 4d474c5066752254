//! `pubstorm-proxy`: links that can be cut, stalled and delayed. Commands come in on stdin, one
//! answer to each goes out on stdout, logs go to stderr. When stdin closes, every connection ends
//! and so does the process.

mod clock;
mod command;
mod flow;
mod links;
mod listener;
mod pair;
mod pipes;
mod proxy;
mod queue;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;

use anyhow::{Context, Result};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;

use proxy::Proxy;

const USAGE: &str = r#"Usage: pubstorm-proxy

Forwards connections over links. Reads commands from stdin, a line of JSON each, and writes one
answer to each to stdout; ends with its stdin.

  {"command": "open", "name": "up", "to": "HOST:PORT", "count": 2, "listen": "127.0.0.1"}
  {"command": "set", "name": "up", "links": [0], "state": "pass", "delay_ns": 0}
  {"command": "count"}

States:
  pass   bytes pass, delay_ns later than they came
  close  connections are reset, and new ones refused
  stall  nothing passes, and nobody is told

Options:
  --version  print the version
  --help     print this text"#;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            pipes::log(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    if !arguments()? {
        return Ok(());
    }
    // A second line of defence: the first is the end of stdin.
    prctl::set_pdeathsig(Signal::SIGTERM).context("cannot tie this process to its parent")?;
    let (_, descriptors) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors)?;
    let (sender, lines) = mpsc::channel();
    let (proxy, waker) = Proxy::new()?;
    // A waker that is dropped takes back that it woke: this one lives as long as the loop.
    let waker = Arc::new(waker);
    pipes::read_lines(sender, Arc::clone(&waker))?;
    proxy.serve(&lines)
}

/// Whether to serve; `false` where the arguments asked for a text only.
fn arguments() -> Result<bool> {
    let mut parser = lexopt::Parser::from_env();
    let Some(argument) = parser.next()? else { return Ok(true) };
    match argument {
        lexopt::Arg::Long("help") => pipes::write_line(USAGE)?,
        lexopt::Arg::Long("version") => {
            pipes::write_line(concat!("pubstorm-proxy ", env!("CARGO_PKG_VERSION")))?;
        }
        other => return Err(other.unexpected().into()),
    }
    Ok(false)
}
