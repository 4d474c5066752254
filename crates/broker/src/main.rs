//! `pubstorm-broker`: the embedded MQTT broker, from command line to exit code. `serve` wires the
//! broker crate, `options` owns the command line.

mod counts;
mod directory;
mod exporter;
mod gate;
mod options;
mod quic;
mod rights;
mod routes;
mod serve;
mod shared_subscriptions;
mod takeover;
mod window;

use std::env;
use std::process::ExitCode;

use agent::hint::Stop;
use agent::{pipes, process};
use log::{Log, Metadata, Record};

use crate::options::BrokerOptions;

fn main() -> ExitCode {
    process::end_in_words(run())
}

fn run() -> Result<(), Stop> {
    let Some(options) = process::arguments::<BrokerOptions>()? else { return Ok(()) };
    let options = options.with_secrets(|name| env::var_os(name))?;
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(options.log);
    }
    if options.follow_stdin {
        process::prepare()?;
    } else {
        process::raise_descriptors()?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve::serve(&options));
    runtime.shutdown_background();
    Ok(outcome?)
}

/// Writes log lines of the broker and its crates to stderr.
struct Stderr;

impl Log for Stderr {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        pipes::log(&format!("{} {}: {}", record.level(), record.target(), record.args()));
    }

    fn flush(&self) {}
}
