//! `pubstorm-broker`: the embedded MQTT broker, from command line to exit code. It knows the order
//! of start-up and nothing of MQTT; `serve` wires the broker crate, `options` owns the defaults.

mod counts;
mod directory;
mod exporter;
mod gate;
mod host;
mod logger;
mod options;
mod retained;
mod rights;
mod serve;
mod share;
mod takeover;
mod window;

use std::io::{self, Write};
use std::process::ExitCode;

use crate::options::{Command, Options};

fn main() -> ExitCode {
    match options::parse(std::env::args_os(), |name| std::env::var_os(name)) {
        Ok(Command::Help) => print(options::HELP),
        Ok(Command::Version) => print(concat!("pubstorm-broker ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(Command::Serve(options)) => match run(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&error, hint_of(&error), ExitCode::from(1)),
        },
        Err(error) => {
            complain(&error.into(), Some("pubstorm-broker --help lists the options"), 2.into())
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    logger::install(options.log);
    host::raise_descriptor_limit();
    if options.follow_stdin {
        host::end_with_parent();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve::serve(options));
    runtime.shutdown_background();
    Ok(outcome?)
}

fn hint_of(error: &anyhow::Error) -> Option<&'static str> {
    error.downcast_ref::<serve::ServeError>().and_then(serve::ServeError::hint)
}

fn print(text: &str) -> ExitCode {
    let written = io::stdout().write_all(text.as_bytes());
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// The error on one line and the hint on the next. A closed stderr is no reason to fail twice.
fn complain(error: &anyhow::Error, hint: Option<&str>, code: ExitCode) -> ExitCode {
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "error: {error:#}");
    if let Some(hint) = hint {
        let _ = writeln!(stderr, "hint: {hint}");
    }
    code
}
