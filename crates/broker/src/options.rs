//! The command line of the broker: turns arguments and variables into `BrokerOptions` that cannot
//! be wrong.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;

use agent::error::AgentError;
use clap::Parser;
use log::LevelFilter;
use redis::ConnectionInfo;

use crate::quic::QuicOptions;

/// pubstorm-broker: the MQTT broker that comes with Pubstorm (MQTT 3.1.1 and 5 on one port).
#[derive(Debug, Parser)]
#[command(version, after_help = NOTES)]
pub struct BrokerOptions {
    /// IP address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub listen: IpAddr,
    /// TCP port; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 1883)]
    pub port: u16,
    /// Port of MQTT over WebSocket, at every path; 0 takes a free one [default: none]
    #[arg(long, value_name = "N")]
    pub websocket_port: Option<u16>,
    /// UDP port of MQTT over QUIC; 0 takes a free one [default: none]
    #[arg(long, value_name = "N", requires_all = ["quic_certificate", "quic_key"])]
    quic_port: Option<u16>,
    /// File of the certificate chain for QUIC (PEM)
    #[arg(long, value_name = "FILE", requires = "quic_port")]
    quic_certificate: Option<PathBuf>,
    /// File of the private key for QUIC (PEM)
    #[arg(long, value_name = "FILE", requires = "quic_port")]
    quic_key: Option<PathBuf>,
    /// Seconds without a packet after which a connection of QUIC ends; 0 is never
    #[arg(long, value_name = "S", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(..=86_400))]
    quic_idle_timeout: u32,
    /// Ignores the packets of a client that has changed its address on an open connection of QUIC
    #[arg(long, requires = "quic_port")]
    quic_no_migration: bool,
    /// Sessions held at once, connected or kept for their clients; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_connections: u32,
    /// Messages queued per session beyond the window, connected or not
    #[arg(long, value_name = "N", default_value = "100000")]
    pub max_queued: NonZeroU32,
    /// Unacknowledged QoS 1 and 2 messages towards one client
    #[arg(long, value_name = "N", default_value = "1000")]
    pub max_inflight: NonZeroU16,
    /// Largest MQTT packet taken or sent, in bytes
    #[arg(long, value_name = "BYTES", default_value = "16777216")]
    pub max_packet_size: NonZeroU32,
    /// Lets in only users of this Redis, redis://[[USER]:PASSWORD@]HOST:PORT/DB, with the rights
    /// that it names [default: everybody may do everything]
    #[arg(long = "auth", value_name = "URL")]
    auth_url: Option<String>,
    /// Port of the metrics for Prometheus, at http://ADDR:N/metrics; 0 takes a free one
    /// [default: none]
    #[arg(long, value_name = "N")]
    pub metrics_port: Option<u16>,
    /// Ends when stdin does, and with the parent process
    #[arg(long)]
    pub follow_stdin: bool,
    /// Least level of log lines on stderr: off, error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub log: LevelFilter,
    /// The Redis that knows users and rights; `None`: everybody may do everything.
    #[arg(skip)]
    pub auth: Option<ConnectionInfo>,
    /// A user whom Redis need not know.
    #[arg(skip)]
    pub trusted: Option<Trusted>,
}

/// A user who may do everything.
#[derive(Clone, Debug)]
pub struct Trusted {
    name: String,
    password: String,
}

impl Trusted {
    /// Returns `true` for the name and the password of this user.
    pub fn is(&self, name: &str, password: &[u8]) -> bool {
        self.name == name && self.password.as_bytes() == password
    }
}

impl BrokerOptions {
    /// Settings of the listener for QUIC; `None` without one.
    pub fn quic(&self) -> Option<QuicOptions> {
        Some(QuicOptions {
            address: SocketAddr::new(self.listen, self.quic_port?),
            certificate: self.quic_certificate.clone()?,
            key: self.quic_key.clone()?,
            idle_timeout_s: self.quic_idle_timeout,
            migrates: !self.quic_no_migration,
        })
    }

    /// Takes `--auth` apart, and the two variables that hold secrets, which other users of the host
    /// could read on a command line. An option wins over its variable; an empty variable is none.
    ///
    /// # Errors
    /// An address or a user of the wrong form. The message does not repeat it: it may hold a
    /// password.
    pub fn with_secrets(
        mut self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, AgentError> {
        let text = |name| Some(variable(name)?.to_string_lossy().into_owned());
        let text = |name| text(name).filter(|text| !text.is_empty());
        if let Some(url) = self.auth_url.take().or_else(|| text(AUTH)) {
            let found = url.parse().map_err(|error| {
                AgentError::Arguments(format!("--auth: no address such as {AUTH_FORM}: {error}"))
            })?;
            self.auth = Some(found);
        }
        if let Some(user) = text(TRUSTED) {
            let wrong =
                || AgentError::Arguments(format!("{TRUSTED}: no user such as NAME:PASSWORD"));
            let (name, password) = user.split_once(':').ok_or_else(wrong)?;
            self.trusted = Some(Trusted { name: name.into(), password: password.into() });
        }
        Ok(self)
    }
}

const AUTH: &str = "PUBSTORM_BROKER_AUTH";
const TRUSTED: &str = "PUBSTORM_BROKER_TRUSTED";
const AUTH_FORM: &str = "redis://[[USER]:PASSWORD@]HOST:PORT/DB";

const NOTES: &str = "\
Once it accepts clients it prints one line of JSON on stdout:
  {\"kind\":\"ready\",\"port\":1883,\"pid\":4711,\"version\":\"...\"}
With --metrics-port the line has \"metrics_port\" too, with --websocket-port \"websocket_port\",
with --quic-port \"quic_port\".

Users are hashes: mqtt_user:NAME has the field password, mqtt_acl:NAME a field for each topic
filter, with 1 (subscribe), 2 (publish) or 3 (both). They are read once, when a client logs in.
PUBSTORM_BROKER_AUTH stands for --auth and keeps a password out of the list of processes;
PUBSTORM_BROKER_TRUSTED=NAME:PASSWORD is one more user, who may do everything.

It keeps everything in memory, writes no file, and ends with 0 on SIGTERM or SIGINT.";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<BrokerOptions, AgentError> {
        parse_with(line, |_| None)
    }

    fn parse_with(
        line: &str,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<BrokerOptions, AgentError> {
        let words = std::iter::once("pubstorm-broker").chain(line.split_whitespace());
        BrokerOptions::try_parse_from(words)?.with_secrets(variable)
    }

    #[test]
    fn each_option_sets_its_own_field() {
        let line = "--listen ::1 --port 0 --max-connections 7 --max-queued 8 --max-inflight 9 \
                    --max-packet-size 10 --auth redis://127.0.0.1:6400/3 --metrics-port 11 \
                    --websocket-port 12 --follow-stdin --log debug --quic-port 13 \
                    --quic-certificate c.pem --quic-key k.pem --quic-idle-timeout 14 \
                    --quic-no-migration";
        let found = parse(line).unwrap();
        assert_eq!((found.listen, found.port), ("::1".parse().unwrap(), 0));
        assert_eq!((found.max_connections, found.max_queued.get()), (7, 8));
        assert_eq!((found.max_inflight.get(), found.max_packet_size.get()), (9, 10));
        assert_eq!(found.auth.as_ref().unwrap().addr().to_string(), "127.0.0.1:6400");
        assert_eq!((found.metrics_port, found.follow_stdin), (Some(11), true));
        assert_eq!(found.websocket_port, Some(12));
        let quic = found.quic().unwrap();
        assert_eq!((quic.address.port(), quic.idle_timeout_s, quic.migrates), (13, 14, false));
        assert_eq!((quic.certificate, quic.key), ("c.pem".into(), "k.pem".into()));
        assert_eq!(found.log, LevelFilter::Debug);
    }

    #[test]
    fn variables_hold_secrets_and_an_option_wins() {
        let variable = |name: &str| match name {
            AUTH => Some("redis://:secret@127.0.0.1:1/0".into()),
            TRUSTED => Some("observer:a:b".into()),
            _ => None,
        };
        let found = |line| {
            let options = parse_with(line, variable).unwrap();
            (options.auth.unwrap().addr().to_string(), options.trusted.unwrap())
        };
        let (auth, trusted) = found("");
        assert_eq!(auth, "127.0.0.1:1");
        assert!(trusted.is("observer", b"a:b") && !trusted.is("observer", b"a"));
        assert_eq!(found("--auth redis://h:2").0, "h:2");
        let empty = parse_with("", |_| Some("".into())).unwrap();
        assert!(empty.auth.is_none() && empty.trusted.is_none());
    }

    #[test]
    fn impossible_values_and_unknown_options_are_refused() {
        for line in [
            "--port 65536",
            "--max-inflight 0",
            "--max-queued",
            "--retain",
            "stray",
            "--quic-port 1",
            "--quic-key k.pem",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["--auth", "--auth 127.0.0.1", "--auth http://h", "--metrics-port -1"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse_with("", |name| (name == TRUSTED).then(|| "observer".into())).is_err());
    }

    #[test]
    fn an_error_does_not_repeat_the_address_of_redis() {
        let error = parse("--auth redis://:secret@host:port/0").unwrap_err().to_string();
        assert!(error.contains(AUTH_FORM) && !error.contains("secret"), "{error}");
    }

    #[test]
    fn the_help_names_the_variables_and_the_form_of_the_address() {
        let help = <BrokerOptions as clap::CommandFactory>::command().render_help().to_string();
        for text in [AUTH, TRUSTED, AUTH_FORM] {
            assert!(help.contains(text), "{text}");
        }
    }
}
