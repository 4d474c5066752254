//! What can be asked of the broker on its command line, and the default of each. It knows no socket
//! and no broker crate: it turns arguments into `Options` that cannot be wrong.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::num::{NonZeroU16, NonZeroU32};

use lexopt::{Arg, Parser, ValueExt};
use log::LevelFilter;
use redis::ConnectionInfo;

/// What the process is asked to do.
#[derive(Debug)]
pub enum Command {
    /// Accept clients until told to end.
    Serve(Box<Options>),
    /// Print `HELP`.
    Help,
    /// Print name and version.
    Version,
}

/// How to serve.
#[derive(Debug)]
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
    /// The Redis that knows who may log in and do what; `None`: everybody may do everything.
    pub auth: Option<ConnectionInfo>,
    /// A user whom Redis need not know.
    pub trusted: Option<Trusted>,
    /// Port of the metrics; 0 lets the system choose a free one, `None`: there are none.
    pub metrics_port: Option<u16>,
    /// End when stdin does, and with the parent process.
    pub follow_stdin: bool,
    /// What is written to stderr.
    pub log: LevelFilter,
}

/// A user who may do everything.
#[derive(Clone, Debug)]
pub struct Trusted {
    name: String,
    password: String,
}

impl Trusted {
    /// Whether a client is this user.
    pub fn is(&self, name: &str, password: &[u8]) -> bool {
        self.name == name && self.password.as_bytes() == password
    }
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
            auth: None,
            trusted: None,
            metrics_port: None,
            follow_stdin: false,
            log: LevelFilter::Warn,
        }
    }
}

/// Reads the process's arguments, of which the first is its own name, and the two variables that
/// hold what other users of the host must not see; one that is empty says nothing.
///
/// # Errors
/// The first argument or variable that is unknown, lacks its value, or has one out of range.
pub fn parse<I>(
    args: I,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Command, lexopt::Error>
where
    I: IntoIterator<Item = OsString>,
{
    let mut parser = Parser::from_iter(args);
    let said = |name| variable(name).filter(|value| !value.is_empty());
    let mut options = Options {
        auth: said(AUTH).map(redis_at).transpose()?,
        trusted: said(TRUSTED).map(trusted).transpose()?,
        ..Options::default()
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("listen") => options.listen = parser.value()?.parse()?,
            Arg::Long("port") => options.port = parser.value()?.parse()?,
            Arg::Long("max-connections") => options.max_connections = parser.value()?.parse()?,
            Arg::Long("max-queued") => options.max_queued = parser.value()?.parse()?,
            Arg::Long("max-inflight") => options.max_inflight = parser.value()?.parse()?,
            Arg::Long("max-packet-size") => options.max_packet_size = parser.value()?.parse()?,
            Arg::Long("auth") => options.auth = Some(redis_at(parser.value()?)?),
            Arg::Long("metrics-port") => options.metrics_port = Some(parser.value()?.parse()?),
            Arg::Long("follow-stdin") => options.follow_stdin = true,
            Arg::Long("log") => options.log = parser.value()?.parse()?,
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help),
            Arg::Long("version") | Arg::Short('V') => return Ok(Command::Version),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Command::Serve(Box::new(options)))
}

/// The error does not repeat the address, which may hold a password.
fn redis_at(address: OsString) -> Result<ConnectionInfo, lexopt::Error> {
    let found: Result<ConnectionInfo, _> = address.string()?.parse();
    found.map_err(|error| format!("no address such as {AUTH_FORM}: {error}").into())
}

fn trusted(user: OsString) -> Result<Trusted, lexopt::Error> {
    let user = user.string()?;
    let (name, password) = user.split_once(':').ok_or("no user such as NAME:PASSWORD")?;
    Ok(Trusted { name: name.into(), password: password.into() })
}

const AUTH: &str = "PUBSTORM_BROKER_AUTH";
const TRUSTED: &str = "PUBSTORM_BROKER_TRUSTED";
const AUTH_FORM: &str = "redis://[[USER]:PASSWORD@]HOST:PORT/DB";

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
  --auth URL               let in only users of this Redis, who may do what it says:
                           redis://[[USER]:PASSWORD@]HOST:PORT/DB [everybody may do everything]
  --metrics-port N         show counters to Prometheus at http://ADDR:N/metrics; 0 takes a free
                           port [off]
  --follow-stdin           end when stdin does, and with the parent process
  --log LEVEL              off, error, warn, info, debug or trace, on stderr [warn]
  -h, --help               print this
  -V, --version            print name and version

Once it accepts clients it prints one line of JSON on stdout:
  {\"kind\":\"ready\",\"port\":1883,\"pid\":4711,\"version\":\"...\"}
With --metrics-port it says \"metrics_port\" too.

Users are hashes: mqtt_user:NAME has the field password, mqtt_acl:NAME a field for each topic
filter, with 1 (subscribe), 2 (publish) or 3 (both). They are read once, when a client logs in.
PUBSTORM_BROKER_AUTH stands for --auth and keeps a password out of the list of processes;
PUBSTORM_BROKER_TRUSTED=NAME:PASSWORD is one more user, who may do everything.

It keeps everything in memory, writes no file, and ends with 0 on SIGTERM or SIGINT.
";

const DEFAULT_MAX_QUEUED: NonZeroU32 = NonZeroU32::new(100_000).expect("not zero");
const DEFAULT_MAX_INFLIGHT: NonZeroU16 = NonZeroU16::new(1_000).expect("not zero");
const DEFAULT_MAX_PACKET_SIZE: NonZeroU32 = NonZeroU32::new(16 << 20).expect("not zero");

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Command, lexopt::Error> {
        parse_with(line, |_| None)
    }

    fn parse_with(
        line: &str,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Command, lexopt::Error> {
        let args = std::iter::once("pubstorm-broker").chain(line.split_whitespace());
        parse(args.map(Into::into), variable)
    }

    fn assert_options(found: Result<Command, lexopt::Error>, expected: Options) {
        let expected = Command::Serve(Box::new(expected));
        assert_eq!(format!("{:?}", found.unwrap()), format!("{expected:?}"));
    }

    #[test]
    fn no_argument_means_the_defaults() {
        assert_options(parse_line(""), Options::default());
    }

    #[test]
    fn each_option_sets_its_own_field() {
        let line = "--listen ::1 --port 0 --max-connections 7 --max-queued 8 --max-inflight 9 \
                    --max-packet-size 10 --auth redis://127.0.0.1:6400/3 --metrics-port 11 \
                    --follow-stdin --log debug";
        let expected = Options {
            listen: "::1".parse().unwrap(),
            port: 0,
            max_connections: 7,
            max_queued: NonZeroU32::new(8).unwrap(),
            max_inflight: NonZeroU16::new(9).unwrap(),
            max_packet_size: NonZeroU32::new(10).unwrap(),
            auth: Some("redis://127.0.0.1:6400/3".parse().unwrap()),
            trusted: None,
            metrics_port: Some(11),
            follow_stdin: true,
            log: LevelFilter::Debug,
        };
        assert_options(parse_line(line), expected);
    }

    #[test]
    fn variables_hold_what_others_must_not_see_and_an_option_wins() {
        let variable = |name: &str| match name {
            AUTH => Some("redis://:secret@127.0.0.1:1/0".into()),
            TRUSTED => Some("observer:a:b".into()),
            _ => None,
        };
        let address = |command| match command {
            Ok(Command::Serve(options)) => {
                (options.auth.unwrap().addr().to_string(), options.trusted)
            }
            other => panic!("{other:?}"),
        };
        let (auth, trusted) = address(parse_with("", variable));
        assert_eq!(auth, "127.0.0.1:1");
        assert!(trusted.as_ref().unwrap().is("observer", b"a:b"));
        assert!(!trusted.unwrap().is("observer", b"a"));
        assert_eq!(address(parse_with("--auth redis://h:2", variable)).0, "h:2");
        assert_options(parse_with("", |_| Some("".into())), Options::default());
    }

    #[test]
    fn impossible_values_and_unknown_options_are_refused() {
        for line in ["--port 65536", "--max-inflight 0", "--max-queued", "--retain", "stray"] {
            assert!(parse_line(line).is_err(), "{line}");
        }
        for line in ["--auth", "--auth 127.0.0.1", "--auth http://h", "--metrics-port -1"] {
            assert!(parse_line(line).is_err(), "{line}");
        }
        assert!(parse_with("", |name| (name == TRUSTED).then(|| "observer".into())).is_err());
    }

    #[test]
    fn the_address_of_redis_is_not_repeated_in_an_error() {
        let error = parse_line("--auth redis://:secret@host:port/0").unwrap_err().to_string();
        assert!(error.contains(AUTH_FORM) && !error.contains("secret"), "{error}");
    }

    #[test]
    fn the_help_states_the_defaults_that_are_in_force() {
        let Options { port, max_queued, max_inflight, max_packet_size, .. } = Options::default();
        for value in [port.into(), max_queued.get(), max_inflight.get().into()] {
            assert!(HELP.contains(&format!("[{value}]")), "{value}");
        }
        assert!(HELP.contains(&format!("[{max_packet_size}]")));
    }

    #[test]
    fn the_help_names_the_variables_and_the_form_of_the_address() {
        for text in [AUTH, TRUSTED, AUTH_FORM] {
            assert!(HELP.contains(text), "{text}");
        }
    }
}
