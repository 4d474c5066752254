//! Errors that end a program, each with its advice. `main` turns each of them into a [`Stop`], so
//! that no caller asks an error for its type.

use std::fmt::Display;
use std::io::{self, ErrorKind};

use plan::PlanError;

use crate::clock::exchange::ExchangeError;
use crate::lease::LeaseOver;

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

impl AgentError {
    /// Returns what makes this error of the kernel's: `what` has failed.
    pub fn of<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Kernel { what, error: error.into() }
    }
}

/// An error that ends a program.
pub trait Hint: Display {
    /// Advice for the user; `None`: the program's help.
    fn hint(&self) -> Option<&'static str> {
        None
    }

    /// Kind of the end.
    fn end(&self) -> End {
        End::Failure
    }
}

/// Kind of the end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A failure.
    Failure,
    /// A command line that is not allowed.
    WrongArguments,
    /// The lease is over: the controller may have stopped reading stdout.
    LeaseOver,
}

/// An error as a program reports it.
#[derive(Debug)]
pub struct Stop {
    /// The error in words.
    pub message: String,
    /// Advice for the user.
    pub hint: Option<&'static str>,
    /// Kind of the end.
    pub end: End,
}

impl<E: Hint> From<E> for Stop {
    fn from(error: E) -> Self {
        Self { message: error.to_string(), hint: error.hint(), end: error.end() }
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

    fn end(&self) -> End {
        match self {
            Self::Arguments(_) => End::WrongArguments,
            Self::Lease(_) => End::LeaseOver,
            _ => End::Failure,
        }
    }
}

impl Hint for io::Error {
    fn hint(&self) -> Option<&'static str> {
        // The kernel had no thread left.
        (self.kind() == ErrorKind::WouldBlock).then_some(
            "allow more threads: ulimit -u, or sysctl kernel.threads-max and kernel.pid_max",
        )
    }
}

impl Hint for PlanError {
    fn hint(&self) -> Option<&'static str> {
        Some("a plan is made by the pubstorm of the same version as this program")
    }
}
