//! A program's ends of stdin and stdout: a thread that reads commands and a thread that writes
//! snapshots, so that neither JSON nor a slow reader ever holds the loop up.

use std::io::{self, BufRead, Write};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result, bail};
use plan::{Beat, Command, Snapshot};
use serde::Serialize;

use crate::lease::Lease;

/// What comes from outside.
pub enum Input {
    /// A line from the conductor.
    Command(Command),
    /// The conductor is gone, or nothing is heard of it any more.
    Closed,
}

/// The first line of stdin, within the lease.
pub fn read_plan(lease: &Lease) -> Result<String> {
    lease.first(read_line)
}

fn read_line() -> Result<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("cannot read the plan from stdin")?;
    if line.trim().is_empty() {
        bail!("found no plan on the first line of stdin");
    }
    Ok(line)
}

/// Writes a value as one line of JSON.
pub fn write_line(value: &impl Serialize) -> Result<()> {
    write_text(&serde_json::to_string(value)?)
}

/// Writes one line of text.
pub fn write_text(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).context("cannot write to stdout")
}

/// Writes a line of the log.
pub fn log(text: &str) {
    // Nobody is left to be told where even stderr fails.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Starts the thread that hands commands to the loop until stdin ends or the lease is over.
pub fn read_commands(
    lease: &Lease,
    inputs: Sender<Input>,
    wake: impl Fn() -> io::Result<()> + Clone + Send + 'static,
) -> Result<()> {
    let (ended, wake_ended) = (inputs.clone(), wake.clone());
    lease.watch(move || close(&ended, &wake_ended))?;
    let lease = lease.clone();
    let read = move || {
        for line in io::stdin().lock().lines() {
            lease.renew();
            let command = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            // A line that is no command comes from no conductor of ours: better stop than guess.
            let Some(command) = command else { break };
            if command == Command::Beat {
                // A reader that is gone is noticed by the writer.
                let _ = write_line(&Beat {});
                continue;
            }
            if command == Command::Stop {
                lease.release();
            }
            if inputs.send(Input::Command(command)).is_err() || wake().is_err() {
                return;
            }
        }
        close(&inputs, &wake);
    };
    Builder::new().name("commands".into()).spawn(read)?;
    Ok(())
}

/// Starts the thread that writes snapshots until the loop has dropped its end.
pub fn write_snapshots(
    snapshots: Receiver<Snapshot>,
    inputs: Sender<Input>,
    wake: impl Fn() -> io::Result<()> + Send + 'static,
) -> Result<JoinHandle<()>> {
    let write = move || {
        for snapshot in snapshots {
            if write_line(&snapshot).is_err() {
                return close(&inputs, &wake);
            }
        }
    };
    Ok(Builder::new().name("snapshots".into()).spawn(write)?)
}

fn close(inputs: &Sender<Input>, wake: &impl Fn() -> io::Result<()>) {
    // Both fail only when the loop has ended, which is what is wanted.
    let _ = inputs.send(Input::Closed);
    let _ = wake();
}
