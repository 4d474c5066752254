//! The proxy's ends of stdin, stdout and stderr: a thread that hands lines to the loop, so that
//! the loop waits in one place.

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::Builder;

use anyhow::{Context, Result};
use mio::Waker;

/// Starts the thread that hands over the lines of stdin. The sender is dropped at its end.
pub fn read_lines(lines: Sender<String>, waker: Arc<Waker>) -> Result<()> {
    let read = move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() || waker.wake().is_err() {
                return;
            }
        }
        drop(lines);
        // Fails only when the loop has ended, which is what is wanted.
        let _ = waker.wake();
    };
    Builder::new().name("commands".into()).spawn(read)?;
    Ok(())
}

/// Writes one line of text to stdout.
pub fn write_line(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).context("cannot write to stdout")
}

/// Writes a line of the log.
pub fn log(text: &str) {
    // Nobody is left to be told where even stderr fails.
    let _ = writeln!(io::stderr().lock(), "{text}");
}
