//! The start and the end of every program: reads the command line, ties the process to its parent,
//! raises the limit of descriptors, and reports why the program cannot continue.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Parser;
use clap::error::ErrorKind;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use plan::Failure;

use crate::error::AgentError;
use crate::hint::{ProgramEnd, Stop};
use crate::pipes;

/// Exit code of a program that cannot read its command line.
const WRONG_ARGUMENTS: u8 = 2;

/// Reads the command line of this process; `None` if it asked for a text only, which is printed.
///
/// # Errors
/// [`AgentError::Arguments`], and those of stdout.
pub fn arguments<T: Parser>() -> Result<Option<T>, AgentError> {
    match T::try_parse() {
        Ok(arguments) => Ok(Some(arguments)),
        Err(text) if matches!(text.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            pipes::write_text(text.to_string().trim_end())?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

impl From<clap::Error> for AgentError {
    /// Keeps what was found and what is allowed, on one line; leaves out the usage.
    fn from(error: clap::Error) -> Self {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
        Self::Arguments(lines.collect::<Vec<_>>().join(" "))
    }
}

/// Reads a whole number, as a parser of clap.
///
/// # Errors
/// Words for a text that is no such number.
pub fn whole_number<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{error}, allowed is a whole number"))
}

/// Makes the process end with its parent, and raises its limit of descriptors; returns that limit.
///
/// # Errors
/// The kernel's.
pub fn prepare() -> Result<u64, AgentError> {
    // A second line of defence: the first is the end of stdin. SIGKILL also ends a process that was
    // stopped, which reads no stdin and takes no SIGTERM.
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(AgentError::of("cannot tie this process to its parent"))?;
    raise_descriptors()
}

/// Lets the process open all descriptors that it may; returns their number.
///
/// # Errors
/// The kernel's.
pub fn raise_descriptors() -> Result<u64, AgentError> {
    let (_, descriptors) = getrlimit(Resource::RLIMIT_NOFILE).map_err(io::Error::from)?;
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors)
        .map_err(AgentError::of("cannot raise the limit of open descriptors"))?;
    Ok(descriptors)
}

/// Returns the exit code of an agent; reports a failure and its hint as a line of JSON on stdout.
/// `help` is the hint of failures without one.
pub fn end(outcome: Result<(), Stop>, help: &str) -> ExitCode {
    let Err(Stop { message, hint, end }) = outcome else { return ExitCode::SUCCESS };
    if end == ProgramEnd::LeaseOver {
        // A line on stdout could block for ever.
        pipes::log(&message);
    } else {
        pipes::write_line(&Failure { message, hint: hint.unwrap_or(help).into() }).ok();
    }
    ExitCode::FAILURE
}

/// Returns the exit code of another program; reports a failure and its hint on stderr.
pub fn end_in_words(outcome: Result<(), Stop>) -> ExitCode {
    let Err(Stop { message, hint, end }) = outcome else { return ExitCode::SUCCESS };
    pipes::log(&format!("error: {message}"));
    if let Some(hint) = hint {
        pipes::log(&format!("hint: {hint}"));
    }
    if end == ProgramEnd::WrongArguments { WRONG_ARGUMENTS.into() } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[arg(long, value_name = "N", value_parser = whole_number::<u32>)]
        count: u32,
    }

    #[test]
    fn a_wrong_command_line_is_reported_on_one_line() {
        let message = |words: &[&str]| {
            let words = [&["program"], words].concat();
            Arguments::try_parse_from(words).map_err(|error| AgentError::from(error).to_string())
        };
        for (words, expected) in [
            (
                &["--count", "x"][..],
                "invalid value 'x' for '--count <N>': invalid digit found in string, \
                 allowed is a whole number",
            ),
            (&[], "the following required arguments were not provided: --count <N>"),
            (&["--count", "1", "--size"], "unexpected argument '--size' found"),
            (&["--count"], "a value is required for '--count <N>' but none was supplied"),
        ] {
            assert_eq!(message(words).unwrap_err(), expected);
        }
        assert_eq!(message(&["--count", "7"]).map(|found| found.count), Ok(7));
    }
}
