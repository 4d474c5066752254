//! `pubstorm-floor`: what the engine is measured against. As a client it does with plain epoll and
//! prebuilt bytes what the engine does with a protocol, a schedule and a ledger; the CPU it takes
//! is the floor. As the sink it is the peer of both, and counts what really arrived.

mod blast;
mod connect;
mod meter;
mod options;
mod paced;
mod pool;
mod publish;
mod receive;
mod secure;
mod send;
mod sink;
mod subscribe;
mod wire;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use options::{Mode, Options};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to be done if stderr is gone too.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let Some(options) = Options::from_arguments()? else { return print_line(options::USAGE) };
    let (_, descriptors) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors)
        .context("cannot raise the limit of open descriptors")?;
    match options.mode {
        Mode::Sink => sink::run(&options),
        Mode::Send => send::run(&options),
        Mode::Blast => blast::run(&options),
        Mode::Connect => connect::run(&options),
        Mode::Receive => receive::run(&options),
        Mode::Publish => publish::run(&options),
        Mode::Subscribe => subscribe::run(&options),
    }
}

/// Writes one line to stdout at once.
fn print_line(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).context("cannot write to stdout")
}
