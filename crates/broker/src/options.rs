//! What can be asked of the broker on its command line, and the default of each. It knows no socket
//! and no broker crate: it turns arguments into `Options` that cannot be wrong.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::num::{NonZeroU16, NonZeroU32};

use lexopt::{Arg, Parser, ValueExt};
use log::LevelFilter;

/// What the process is asked to do.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Accept clients until told to end.
    Serve(Options),
    /// Print `HELP`.
    Help,
    /// Print name and version.
    Version,
}

/// How to serve.
#[derive(Debug, PartialEq)]
pub struct Options {
    /// Address to listen on.
    pub listen: IpAddr,
    /// TCP port; 0 lets the system choose a free one.
    pub port: u16,
    /// Sessions held at once, connected or kept for their clients; 0 is no limit.
    pub max_connections: u32,
    /// Messages queued per session beyond the window, connected or not.
    pub max_queued: NonZeroU32,
    /// Unacknowledged QoS 1 and 2 messages towards one client.
    pub max_inflight: NonZeroU16,
    /// Largest MQTT packet taken or sent, in bytes.
    pub max_packet_size: NonZeroU32,
    /// End when stdin does, and with the parent process.
    pub follow_stdin: bool,
    /// What is written to stderr.
    pub log: LevelFilter,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 1883,
            max_connections: 0,
            max_queued: DEFAULT_MAX_QUEUED,
            max_inflight: DEFAULT_MAX_INFLIGHT,
            max_packet_size: DEFAULT_MAX_PACKET_SIZE,
            follow_stdin: false,
            log: LevelFilter::Warn,
        }
    }
}

/// Reads the process's arguments; the first is its own name.
///
/// # Errors
/// The first argument that is unknown, lacks its value, or has one out of range.
pub fn parse<I>(args: I) -> Result<Command, lexopt::Error>
where
    I: IntoIterator<Item = OsString>,
{
    let mut parser = Parser::from_iter(args);
    let mut options = Options::default();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("listen") => options.listen = parser.value()?.parse()?,
            Arg::Long("port") => options.port = parser.value()?.parse()?,
            Arg::Long("max-connections") => options.max_connections = parser.value()?.parse()?,
            Arg::Long("max-queued") => options.max_queued = parser.value()?.parse()?,
            Arg::Long("max-inflight") => options.max_inflight = parser.value()?.parse()?,
            Arg::Long("max-packet-size") => options.max_packet_size = parser.value()?.parse()?,
            Arg::Long("follow-stdin") => options.follow_stdin = true,
            Arg::Long("log") => options.log = parser.value()?.parse()?,
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help),
            Arg::Long("version") | Arg::Short('V') => return Ok(Command::Version),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Command::Serve(options))
}

/// The text of `--help`.
pub const HELP: &str = "\
pubstorm-broker: the MQTT broker that comes with Pubstorm (MQTT 3.1.1 and 5 on one port).

Usage: pubstorm-broker [OPTIONS]

  --listen ADDR            IP address to listen on [127.0.0.1]
  --port N                 TCP port; 0 takes a free one [1883]
  --max-connections N      sessions held at once, connected or kept; 0 is no limit [0]
  --max-queued N           messages queued per session beyond the window [100000]
  --max-inflight N         unacknowledged QoS 1 and 2 messages towards one client [1000]
  --max-packet-size BYTES  largest MQTT packet taken or sent [16777216]
  --follow-stdin           end when stdin does, and with the parent process
  --log LEVEL              off, error, warn, info, debug or trace, on stderr [warn]
  -h, --help               print this
  -V, --version            print name and version

Once it accepts clients it prints one line of JSON on stdout:
  {\"kind\":\"ready\",\"port\":1883,\"pid\":4711,\"version\":\"...\"}
It keeps everything in memory, writes no file, and ends with 0 on SIGTERM or SIGINT.
";

const DEFAULT_MAX_QUEUED: NonZeroU32 = NonZeroU32::new(100_000).expect("not zero");
const DEFAULT_MAX_INFLIGHT: NonZeroU16 = NonZeroU16::new(1_000).expect("not zero");
const DEFAULT_MAX_PACKET_SIZE: NonZeroU32 = NonZeroU32::new(16 << 20).expect("not zero");

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Command, lexopt::Error> {
        parse(std::iter::once("pubstorm-broker").chain(line.split_whitespace()).map(Into::into))
    }

    #[test]
    fn no_argument_means_the_defaults() {
        assert_eq!(parse_line("").unwrap(), Command::Serve(Options::default()));
    }

    #[test]
    fn each_option_sets_its_own_field() {
        let line = "--listen ::1 --port 0 --max-connections 7 --max-queued 8 --max-inflight 9 \
                    --max-packet-size 10 --follow-stdin --log debug";
        let expected = Options {
            listen: "::1".parse().unwrap(),
            port: 0,
            max_connections: 7,
            max_queued: NonZeroU32::new(8).unwrap(),
            max_inflight: NonZeroU16::new(9).unwrap(),
            max_packet_size: NonZeroU32::new(10).unwrap(),
            follow_stdin: true,
            log: LevelFilter::Debug,
        };
        assert_eq!(parse_line(line).unwrap(), Command::Serve(expected));
    }

    #[test]
    fn impossible_values_and_unknown_options_are_refused() {
        for line in ["--port 65536", "--max-inflight 0", "--max-queued", "--retain", "stray"] {
            assert!(parse_line(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_help_states_the_defaults_that_are_in_force() {
        let Options { port, max_queued, max_inflight, max_packet_size, .. } = Options::default();
        for value in [port.into(), max_queued.get(), max_inflight.get().into()] {
            assert!(HELP.contains(&format!("[{value}]")), "{value}");
        }
        assert!(HELP.contains(&format!("[{max_packet_size}]")));
    }
}
