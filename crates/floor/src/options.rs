//! The command line: a mode and its numbers. Every mode takes only what means something to it.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use lexopt::{Arg, Parser, ValueExt};

use crate::secure::Security;

/// Shown for `--help`.
pub const USAGE: &str = "\
Usage: pubstorm-floor MODE [OPTIONS]

  sink     the peer: answers, counts, throws away; ends when stdin does
             [--port N] [--fan-out] [--tls WORD [--pem FILE]]
  send     one send per message and connection, evenly paced
             --port N --connections N --rate-per-s R --seconds S [--bytes N]
  blast    as fast as possible, in writes of 64 KiB
             --port N --connections N --messages N [--bytes N]
  connect  socket, connect, CONNECT, CONNACK; all are kept until the end
             --port N --connections N [--rate-per-s R] [--parallelism N]
             [--tls WORD [--pem FILE]]
  receive  subscribers that read what one more connection publishes; the sink needs --fan-out
             --port N --connections N --rate-per-s R --seconds S [--bytes N]
  publish  a PUB socket of libzmq, which sends as fast as it can after a line on stdin
             --port N --connections N --seconds S [--bytes N]
  subscribe  readers of such a socket, until it closes
             --port N --connections N [--bytes N]

  --rate-per-s  of each publishing connection; in connect, of all
  --bytes       payload of a message (default 100)
  --tls         psk-1.2, psk-1.3 or certificate, the same as the sink's
  --pem         where the sink writes its certificate, and connect reads it
The last line of output is a JSON object with the counts, and the CPU time they took.";

/// What the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The peer.
    Sink,
    /// Paced publishers.
    Send,
    /// Publishers without a pace.
    Blast,
    /// Connections, nothing else.
    Connect,
    /// Subscribers and one publisher.
    Receive,
    /// A publisher of ZeroMQ.
    Publish,
    /// Readers of ZeroMQ.
    Subscribe,
}

/// A mode and its numbers; those of other modes have their defaults.
#[derive(Debug)]
pub struct Options {
    /// What the process is.
    pub mode: Mode,
    /// Port on 127.0.0.1; for the sink, 0 takes a free one.
    pub port: u16,
    /// Whether the sink forwards what is published to all that subscribed.
    pub fan_out: bool,
    /// Connections, without the publisher of `receive`.
    pub connections: usize,
    /// Connections under way at once.
    pub parallelism: usize,
    /// Messages of a publishing connection, or connections, in a second; `None`: no limit.
    pub rate_per_s: Option<f64>,
    /// How long messages are due.
    pub seconds: f64,
    /// Messages of all connections together.
    pub messages: u64,
    /// Payload of a message in bytes.
    pub bytes: usize,
    /// How connections are under TLS; `None`: they are not.
    pub tls: Option<Security>,
    /// File of the sink's certificate.
    pub pem: PathBuf,
}

impl Mode {
    fn from_name(name: &str) -> Option<Self> {
        let modes = [
            Self::Sink,
            Self::Send,
            Self::Blast,
            Self::Connect,
            Self::Receive,
            Self::Publish,
            Self::Subscribe,
        ];
        modes.into_iter().find(|mode| mode.name() == name)
    }

    /// Its name on the command line and in the output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sink => "sink",
            Self::Send => "send",
            Self::Blast => "blast",
            Self::Connect => "connect",
            Self::Receive => "receive",
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
        }
    }

    const fn takes(self) -> &'static [&'static str] {
        match self {
            Self::Sink => &["port", "fan-out", "tls", "pem"],
            Self::Send | Self::Receive => {
                &["port", "connections", "rate-per-s", "seconds", "bytes"]
            }
            Self::Blast => &["port", "connections", "messages", "bytes"],
            Self::Publish => &["port", "connections", "seconds", "bytes"],
            Self::Subscribe => &["port", "connections", "bytes"],
            Self::Connect => &["port", "connections", "rate-per-s", "parallelism", "tls", "pem"],
        }
    }

    const fn needs_rate(self) -> bool {
        matches!(self, Self::Send | Self::Receive)
    }

    const fn needs_time(self) -> bool {
        self.needs_rate() || matches!(self, Self::Publish)
    }
}

impl Options {
    /// The process's own command line; `None` asks for the usage.
    ///
    /// # Errors
    /// What was found and, where it is short, what is allowed.
    pub fn from_arguments() -> Result<Option<Self>> {
        Self::parse(Parser::from_env())
    }

    fn parse(mut parser: Parser) -> Result<Option<Self>> {
        let mode = match parser.next()? {
            None | Some(Arg::Long("help")) => return Ok(None),
            Some(Arg::Value(name)) => match name.to_str().and_then(Mode::from_name) {
                Some(mode) => mode,
                None => {
                    bail!("found mode {name:?}, --help names those that are allowed")
                }
            },
            Some(other) => return Err(other.unexpected().into()),
        };
        let mut options = Self::new(mode);
        while let Some(argument) = parser.next()? {
            let name = match argument {
                Arg::Long("help") => return Ok(None),
                Arg::Long(name) if mode.takes().contains(&name) => name.to_owned(),
                other => return Err(other.unexpected().into()),
            };
            options.take(&name, &mut parser)?;
        }
        options.check()?;
        Ok(Some(options))
    }

    fn new(mode: Mode) -> Self {
        Self {
            mode,
            port: 0,
            fan_out: false,
            connections: 0,
            parallelism: 500,
            rate_per_s: None,
            seconds: 0.0,
            messages: 0,
            bytes: 100,
            tls: None,
            pem: PathBuf::new(),
        }
    }

    fn take(&mut self, name: &str, parser: &mut Parser) -> Result<()> {
        match name {
            "port" => self.port = parser.value()?.parse()?,
            "fan-out" => self.fan_out = true,
            "connections" => self.connections = parser.value()?.parse()?,
            "parallelism" => self.parallelism = parser.value()?.parse()?,
            "rate-per-s" => self.rate_per_s = Some(parser.value()?.parse()?),
            "seconds" => self.seconds = parser.value()?.parse()?,
            "pem" => self.pem = parser.value()?.into(),
            "tls" => {
                let word = parser.value()?.to_string_lossy().into_owned();
                let allowed = "allowed are psk-1.2, psk-1.3, certificate";
                let wrong = || anyhow!("found --tls {word}, {allowed}");
                self.tls = Some(Security::from_name(&word).ok_or_else(wrong)?);
            }
            "messages" => self.messages = parser.value()?.parse()?,
            _ => self.bytes = parser.value()?.parse()?,
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.mode == Mode::Sink {
            return Ok(());
        }
        let given = [
            ("--port", self.port > 0),
            ("--connections", self.connections > 0),
            ("--parallelism", self.parallelism > 0),
            ("--rate-per-s", self.rate_per_s.map_or(!self.mode.needs_rate(), |rate| rate > 0.0)),
            ("--seconds", self.seconds > 0.0 || !self.mode.needs_time()),
            ("--messages", self.messages > 0 || self.mode != Mode::Blast),
        ];
        match given.iter().find(|(_, holds)| !holds) {
            Some((option, _)) => bail!("{} needs {option} above 0", self.mode.name()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Option<Options>> {
        Options::parse(Parser::from_args(arguments.split_whitespace()))
    }

    #[test]
    fn each_mode_takes_its_own_options_and_no_others() -> Result<()> {
        let options = parse("send --port 1 --connections 2 --rate-per-s 3 --seconds 4")?;
        let found = options.map(|options| (options.mode, options.connections, options.bytes));
        assert_eq!(found, Some((Mode::Send, 2, 100)));
        assert!(parse("sink --connections 1").is_err());
        assert!(parse("blast --port 1 --connections 2 --seconds 4").is_err());
        assert!(parse("mosquitto").is_err());
        Ok(())
    }

    #[test]
    fn what_a_mode_needs_is_asked_for() -> Result<()> {
        let error = parse("blast --port 1 --connections 2").err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("blast needs --messages above 0"));
        assert!(parse("connect --port 1 --connections 2")?.is_some());
        assert!(parse("send --help")?.is_none());
        Ok(())
    }
}
