//! Errors that end a program, each with its advice. `main` turns each of them into a [`Stop`], so
//! that no caller asks an error for its type.

use std::fmt::Display;
use std::io::{self, ErrorKind};

use plan::PlanError;

/// An error that ends a program.
pub trait Hint: Display {
    /// Advice for the user; `None`: the program's help.
    fn hint(&self) -> Option<&'static str> {
        None
    }

    /// Kind of the end.
    fn end(&self) -> ProgramEnd {
        ProgramEnd::Failure
    }
}

/// Kind of the end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
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
    pub end: ProgramEnd,
}

impl<E: Hint> From<E> for Stop {
    fn from(error: E) -> Self {
        Self { message: error.to_string(), hint: error.hint(), end: error.end() }
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
