//! Failures of the parts that programs share.

use std::io;
use std::time::Duration;

use crate::clock::exchange::ExchangeError;
use crate::hint::{Hint, ProgramEnd};

/// Failure of a part that programs share.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The kernel refuses what a program needs.
    #[error("{what}: {error}")]
    Kernel {
        /// The action that failed.
        what: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// Another error of the kernel.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Stdin has no plan.
    #[error("found no plan on the first line of stdin")]
    NoPlan,
    /// The command line is not allowed.
    #[error("{0}")]
    Arguments(String),
    /// The end of the lease.
    #[error(transparent)]
    Lease(#[from] LeaseOver),
    /// A failure of the reference clock.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
}

/// An agent has received nothing for the length of its lease.
#[derive(Debug, thiserror::Error)]
#[error("received nothing for {} s: the lease is over", .0.as_secs_f64())]
pub struct LeaseOver(pub Duration);

impl AgentError {
    /// Returns what makes this error of the kernel's: `what` has failed.
    pub fn of<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Kernel { what, error: error.into() }
    }
}

impl Hint for AgentError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Kernel { error, .. } | Self::Io(error) => error.hint(),
            Self::Exchange(error) => error.hint(),
            Self::Arguments(_) => Some("--help lists the options"),
            Self::NoPlan | Self::Lease(_) => None,
        }
    }

    fn end(&self) -> ProgramEnd {
        match self {
            Self::Arguments(_) => ProgramEnd::WrongArguments,
            Self::Lease(_) => ProgramEnd::LeaseOver,
            _ => ProgramEnd::Failure,
        }
    }
}
