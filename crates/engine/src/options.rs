//! The command line: what the process is, and what it plays.

use agent::lease::Lease;
use agent::pipes;
use anyhow::{Context, Result};
use plan::{INCARNATIONS, Shard};

const USAGE: &str = "\
Usage: pubstorm-engine [--shard INDEX/COUNT] [--incarnation K] [--lease SECONDS]
                       [--reference HOST:PORT]
       pubstorm-engine --clock [--listen HOST:PORT]
       pubstorm-engine --sink

Reads a plan (one line of JSON), then commands, from stdin; writes snapshots to stdout.
The formats are those of contract/ in Pubstorm's repository.

Options:
  --shard INDEX/COUNT  which share of the clients to play (default 0/1)
  --incarnation K      which of the agents that play this share in turn it is; the next one starts
                       when one is lost (default 0)
  --lease SECONDS      end when stdin says nothing for so long (default: wait for ever)
  --reference HOST:PORT
                       whose time to speak in: that of a reference clock, asked over UDP; the key
                       of the run is in PUBSTORM_CLOCK_KEY (default: the time of this host)
  --clock              be the reference clock of the run
  --listen HOST:PORT   where it answers (default 127.0.0.1:0, a free port)
  --sink               be a peer that answers and throws everything away, to calibrate against
  --version            print the version
  --help               print this text";

/// What the process is.
pub enum Role {
    /// It plays a share of a plan.
    Agent(Part),
    /// It answers those who ask for the time.
    Clock {
        /// Host and port.
        listen: String,
    },
    /// It is a peer that does nothing.
    Sink,
}

/// What an agent plays, for how long without a word, and in whose time.
pub struct Part {
    /// Its share of the clients.
    pub shard: Shard,
    /// Which of those that play this share in turn it is.
    pub incarnation: u32,
    /// How long it goes on unheard.
    pub lease: Lease,
    /// Host and port of the reference clock; `None`: the clock of its host.
    pub reference: Option<String>,
}

/// What to be; `None` where the arguments asked for a text only.
pub fn role() -> Result<Option<Role>> {
    let (mut is_clock, mut is_sink) = (false, false);
    let mut listen = "127.0.0.1:0".to_owned();
    let lease = Lease::new(None);
    let mut part = Part { shard: Shard::WHOLE, incarnation: 0, lease, reference: None };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("shard") => part.shard = parsed(&mut parser, "--shard")?,
            lexopt::Arg::Long("incarnation") => {
                part.incarnation = incarnation(&text(&mut parser)?)?;
            }
            lexopt::Arg::Long("lease") => part.lease = parsed(&mut parser, "--lease")?,
            lexopt::Arg::Long("reference") => part.reference = Some(text(&mut parser)?),
            lexopt::Arg::Long("clock") => is_clock = true,
            lexopt::Arg::Long("listen") => listen = text(&mut parser)?,
            lexopt::Arg::Long("sink") => is_sink = true,
            lexopt::Arg::Long("help") => return pipes::write_text(USAGE).map(|()| None),
            lexopt::Arg::Long("version") => {
                let version = concat!("pubstorm-engine ", env!("CARGO_PKG_VERSION"));
                return pipes::write_text(version).map(|()| None);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Some(match (is_clock, is_sink) {
        (true, _) => Role::Clock { listen },
        (false, true) => Role::Sink,
        (false, false) => Role::Agent(part),
    }))
}

fn incarnation(text: &str) -> Result<u32> {
    let found = text.parse().ok().filter(|found| *found < INCARNATIONS);
    found.with_context(|| {
        format!("--incarnation: found '{text}', allowed are 0 to {}", INCARNATIONS - 1)
    })
}

fn parsed<T: std::str::FromStr<Err = String>>(
    parser: &mut lexopt::Parser,
    option: &'static str,
) -> Result<T> {
    text(parser)?.parse().map_err(anyhow::Error::msg).context(option)
}

fn text(parser: &mut lexopt::Parser) -> Result<String> {
    Ok(parser.value()?.to_string_lossy().into_owned())
}
