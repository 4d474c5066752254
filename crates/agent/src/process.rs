//! What a program does first and last: it ties itself to its parent, raises its limit of
//! descriptors, and says why it cannot go on.

use std::process::ExitCode;

use anyhow::{Context, Result};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use plan::Failure;

use crate::lease::LeaseOver;
use crate::pipes;

/// Makes the process end with its parent and lets it open all descriptors that it may; returns how
/// many these are.
///
/// # Errors
/// The kernel's.
pub fn prepare() -> Result<u64> {
    // A second line of defence: the first is the end of stdin.
    prctl::set_pdeathsig(Signal::SIGTERM).context("cannot tie this process to its parent")?;
    let (_, descriptors) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors)?;
    Ok(descriptors)
}

/// The exit code of a program; one that cannot go on says why, and what to do about it.
pub fn end(outcome: Result<()>, hint: impl Fn(&anyhow::Error) -> &'static str) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody may read stdout any more: a line there could wait for ever.
        Err(error) if error.is::<LeaseOver>() => {
            pipes::log(&error.to_string());
            ExitCode::FAILURE
        }
        Err(error) => {
            let failure = Failure { message: format!("{error:#}"), hint: hint(&error).into() };
            pipes::write_line(&failure).ok();
            ExitCode::FAILURE
        }
    }
}
