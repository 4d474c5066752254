//! What the engine is told on its command line.

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
                       speak in the time of a reference clock, which is asked over UDP; the key of
                       the run is in PUBSTORM_CLOCK_KEY (default: the time of this host)
  --clock              be the reference clock of a run
  --listen HOST:PORT   where that answers (default 127.0.0.1:0, a free port)
  --sink               be a peer that answers and throws everything away, to calibrate against
  --version            print the version
  --help               print this text";

/// What the process is.
pub enum Role {
    /// One agent.
    Agent(Part),
    /// The reference clock.
    Clock {
        /// Where it answers, as host and port.
        listen: String,
    },
    /// The peer for calibration.
    Sink,
}

/// What an agent plays, for how long without a word, and in whose time.
pub struct Part {
    /// Its share of the clients.
    pub shard: Shard,
    /// Which of those that play this share in turn.
    pub incarnation: u32,
    /// How long it goes on without a word.
    pub lease: Lease,
    /// Host and port of the reference clock; `None`: its host's clock is that.
    pub reference: Option<String>,
}

/// What to be; `None` where the arguments asked for a text only.
///
/// # Errors
/// Words for what is no argument, or no value of one.
pub fn read() -> Result<Option<Role>> {
    let (shard, lease) = (Shard::WHOLE, Lease::new(None));
    let mut part = Part { shard, incarnation: 0, lease, reference: None };
    let (mut clock, mut sink, mut listen) = (false, false, None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("shard") => {
                part.shard =
                    text(&mut parser)?.parse().map_err(anyhow::Error::msg).context("--shard")?;
            }
            lexopt::Arg::Long("incarnation") => {
                part.incarnation = incarnation(&text(&mut parser)?)?;
            }
            lexopt::Arg::Long("lease") => {
                part.lease =
                    text(&mut parser)?.parse().map_err(anyhow::Error::msg).context("--lease")?;
            }
            lexopt::Arg::Long("reference") => part.reference = Some(text(&mut parser)?),
            lexopt::Arg::Long("clock") => clock = true,
            lexopt::Arg::Long("listen") => listen = Some(text(&mut parser)?),
            lexopt::Arg::Long("sink") => sink = true,
            lexopt::Arg::Long("help") => return pipes::write_text(USAGE).map(|()| None),
            lexopt::Arg::Long("version") => {
                let version = concat!("pubstorm-engine ", env!("CARGO_PKG_VERSION"));
                return pipes::write_text(version).map(|()| None);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Some(if clock {
        Role::Clock { listen: listen.unwrap_or_else(|| "127.0.0.1:0".to_owned()) }
    } else if sink {
        Role::Sink
    } else {
        Role::Agent(part)
    }))
}

fn text(parser: &mut lexopt::Parser) -> Result<String> {
    Ok(parser.value()?.to_string_lossy().into_owned())
}

fn incarnation(text: &str) -> Result<u32> {
    let found = text.parse().ok().filter(|found| *found < INCARNATIONS);
    found.with_context(|| {
        format!("--incarnation: found '{text}', allowed are 0 to {}", INCARNATIONS - 1)
    })
}
