//! Stdin, stdout and stderr of a program. A thread reads commands and a thread writes snapshots, so
//! that neither JSON nor a slow reader delays the event loop.

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Builder;

use plan::{Beat, Bye, Command};
use serde::Serialize;

use crate::error::AgentError;
use crate::lease::Lease;
use crate::snapshots::Snapshots;

/// Input of an agent's event loop.
pub enum Input {
    /// A line from the controller.
    Command(Command),
    /// Stdin has ended, or the lease is over.
    Closed,
}

/// Reads the first line of stdin, within the lease.
///
/// # Errors
/// A line without a plan, and those of stdin and the lease.
pub fn read_plan(lease: &Lease) -> Result<String, AgentError> {
    lease.first(read_line)
}

fn read_line() -> Result<String, AgentError> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(AgentError::of("cannot read the plan from stdin"))?;
    if line.trim().is_empty() { Err(AgentError::NoPlan) } else { Ok(line) }
}

/// Writes a value as one line of JSON.
///
/// # Errors
/// Those of stdout, and of a value that has no JSON.
pub fn write_line(value: &impl Serialize) -> Result<(), AgentError> {
    write_text(&serde_json::to_string(value).map_err(io::Error::from)?)
}

/// Writes one line of text.
///
/// # Errors
/// Those of stdout.
pub fn write_text(text: &str) -> Result<(), AgentError> {
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    written.map_err(AgentError::of("cannot write to stdout"))
}

/// Writes a line of the log.
pub fn log(text: &str) {
    // A failure of stderr cannot be reported anywhere.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Starts the thread that hands over the lines of stdin, until `take` refuses one or stdin ends;
/// then drops `take` and calls `end`.
///
/// # Errors
/// The kernel's, when no thread is left.
pub fn read_lines(
    mut take: impl FnMut(&str) -> bool + Send + 'static,
    end: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let read = move || {
        io::stdin().lock().lines().map_while(io::Result::ok).all(|line| take(&line));
        drop(take);
        end();
    };
    Builder::new().name("stdin".into()).spawn(read)?;
    Ok(())
}

/// Plays an agent until its event loop ends: starts the threads of stdin and stdout, runs the loop,
/// and writes the farewell. `begin` makes the loop from where its inputs come and its snapshots go,
/// and the waker that ends a wait of the loop.
///
/// # Errors
/// Those of `begin` and of the loop, the end of the lease, and those of stdout.
pub fn play<Run, Wake, Error: From<AgentError>>(
    lease: &Lease,
    begin: impl FnOnce(Receiver<Input>, Snapshots) -> Result<(Run, Wake), Error>,
) -> Result<(), Error>
where
    Run: FnOnce() -> Result<u64, Error>,
    Wake: Fn() -> io::Result<()> + Send + Sync + 'static,
{
    let (input_sender, inputs) = mpsc::channel();
    let (snapshots, mut unread) = Snapshots::new();
    let (run, wake) = begin(inputs, snapshots)?;
    let wake = Arc::new(wake);
    let close = {
        let (inputs, wake) = (input_sender.clone(), Arc::clone(&wake));
        move || {
            // Both fail only when the loop has ended.
            let _ = inputs.send(Input::Closed);
            let _ = wake();
        }
    };
    lease.watch(close.clone())?;
    read_lines(command_taker(lease.clone(), input_sender, Arc::clone(&wake)), close.clone())
        .map_err(AgentError::from)?;
    let write = move || {
        if unread.any(|snapshot| write_line(&snapshot).is_err()) {
            close();
        }
    };
    let writer = Builder::new().name("snapshots".into()).spawn(write).map_err(AgentError::from)?;
    let snapshots = run()?;
    lease.check().map_err(AgentError::from)?;
    writer.join().ok();
    Ok(write_line(&Bye { snapshots })?)
}

/// Returns what hands commands to the loop until a line is none, or the loop has ended.
fn command_taker(
    lease: Lease,
    inputs: Sender<Input>,
    wake: Arc<impl Fn() -> io::Result<()>>,
) -> impl FnMut(&str) -> bool {
    move |line| {
        lease.renew();
        // Only the controller writes commands: after any other line it is safer to stop.
        let Ok(command) = serde_json::from_str(line) else { return false };
        match command {
            // The thread that writes snapshots notices a reader that is gone.
            Command::Beat => {
                let _ = write_line(&Beat {});
                return true;
            }
            Command::Stop => lease.release(),
            _ => {}
        }
        inputs.send(Input::Command(command)).is_ok() && wake().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Begins a lease that is over, and returns it with its length.
    fn overdue() -> (Lease, Duration) {
        let length = Duration::from_secs(3_600);
        (Lease::begun_at(Some(length), Instant::now() - 2 * length), length)
    }

    #[test]
    fn every_line_of_the_controller_renews_the_lease() {
        let beat = serde_json::to_string(&Command::Beat).unwrap();
        let stage = serde_json::to_string(&Command::Stage { index: 0, at_ns: 0 }).unwrap();
        for (line, handed_over) in [(beat, 0), (stage, 1)] {
            let (sender, inputs) = mpsc::channel();
            let (lease, length) = overdue();
            assert!(lease.left(length, Instant::now()).is_none());
            let mut take = command_taker(lease.clone(), sender, Arc::new(|| Ok(())));
            assert!(take(&line), "{line}");
            assert!(lease.left(length, Instant::now()).is_some(), "{line}");
            assert_eq!(inputs.try_iter().count(), handed_over, "{line}");
        }
    }
}
