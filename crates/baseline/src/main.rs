//! `pubstorm-baseline`: the raw-socket program that the benches compare the engine with. As a
//! client it does with plain epoll and prebuilt bytes what the engine does with a protocol, a
//! schedule and a ledger. As the sink it is the peer of both, and counts what really arrived.

mod blast;
mod drain;
mod feed;
mod libzmq;
mod meter;
mod paced;
mod pool;
mod secure;
mod wire;

use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use agent::hint::{ProgramEnd, Stop};
use agent::{pipes, process};
use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use sink::SinkCounts;

use secure::{SecureStream, TlsOptions};

/// Longest silence of connections for which the sink waits after the end of stdin.
const GRACE: Duration = Duration::from_secs(1);

/// Raw sockets that the benches compare the engine with.
#[derive(Parser)]
#[command(
    version,
    after_help = "The last line of output is a JSON object with counts and CPU time."
)]
struct BaselineOptions {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// The peer: answers, counts, discards; ends with its stdin
    Sink(SinkOptions),
    /// One send per message and connection, evenly paced
    Send(paced::PacedOptions),
    /// Messages as fast as possible, in writes of 64 KiB
    Blast(blast::BlastOptions),
    /// Socket, connect, CONNECT, CONNACK; keeps all connections until the end
    Connect(pool::PoolOptions),
    /// Subscribers that read what one more connection publishes
    Receive(paced::PacedOptions),
    /// A PUB socket of libzmq, which sends as fast as it can after a line on stdin
    Publish(libzmq::PublishOptions),
    /// Readers of such a socket, until it closes
    Subscribe(libzmq::SubscribeOptions),
    /// A publisher of ZeroMQ that sends 32 bytes a message, as fast as it can after a line on stdin
    Feed(feed::FeedOptions),
    /// Subscribers of ZeroMQ that read what `feed` sends
    Drain(feed::FeedOptions),
}

/// Connections of a mode.
#[derive(Args)]
struct Load {
    /// Port on 127.0.0.1
    #[arg(long, value_name = "N")]
    port: u16,
    /// Number of connections, without the publisher of `receive`
    #[arg(long, value_name = "N", value_parser = above_0::<usize>)]
    connections: usize,
}

/// Payload of a mode's messages.
#[derive(Args)]
struct PayloadOptions {
    /// Payload of a message in bytes
    #[arg(long, value_name = "N", default_value_t = 100)]
    bytes: usize,
}

/// Options of the sink.
#[derive(Args)]
struct SinkOptions {
    /// Port on 127.0.0.1; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    #[command(flatten)]
    tls: TlsOptions,
}

fn main() -> ExitCode {
    process::end_in_words(run())
}

fn run() -> Result<(), Stop> {
    let Some(BaselineOptions { mode }) = process::arguments()? else { return Ok(()) };
    process::raise_descriptors()?;
    let failed =
        |error| Stop { message: format!("{error:#}"), hint: None, end: ProgramEnd::Failure };
    play(mode).map_err(failed)
}

fn play(mode: Mode) -> Result<()> {
    match mode {
        Mode::Sink(options) => serve(&options),
        Mode::Send(options) => paced::send(&options),
        Mode::Blast(options) => blast::run(&options),
        Mode::Connect(options) => pool::run(&options),
        Mode::Receive(options) => paced::receive(&options),
        Mode::Publish(options) => libzmq::publish(&options),
        Mode::Subscribe(options) => libzmq::subscribe(&options),
        Mode::Feed(options) => feed::run(&options),
        Mode::Drain(options) => drain::run(&options),
    }
}

/// Serves as the sink, prints the port, then the counts.
fn serve(options: &SinkOptions) -> Result<()> {
    let context = options.tls.server()?;
    let secure = |stream| match &context {
        None => Ok(SecureStream::Plain(stream)),
        Some(context) => SecureStream::accept(stream, context),
    };
    let counts = sink::run(options.port, GRACE, secure)?;
    let SinkCounts { connections, filters, messages: [qos0, qos1, qos2], bytes, deliveries } =
        counts;
    let cpu_ns = meter::cpu_ns()?;
    Ok(pipes::write_text(&format!(
        "{{\"kind\":\"counts\",\"mode\":\"sink\",\"connections\":{connections},\
         \"filters\":{filters},\"messages_qos0\":{qos0},\"messages_qos1\":{qos1},\
         \"messages_qos2\":{qos2},\"bytes\":{bytes},\"deliveries\":{deliveries},\
         \"cpu_ns\":{cpu_ns}}}"
    ))?)
}

/// Reads a number above 0, as a parser of clap.
fn above_0<T: FromStr + PartialOrd + Default>(text: &str) -> Result<T, &'static str> {
    text.parse().ok().filter(|number| *number > T::default()).ok_or("allowed are numbers above 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(arguments: &str) -> bool {
        let words = std::iter::once("pubstorm-baseline").chain(arguments.split_whitespace());
        BaselineOptions::try_parse_from(words).is_ok()
    }

    #[test]
    fn each_mode_takes_its_own_options_and_needs_them() {
        assert!(accepts("send --port 1 --connections 2 --rate-per-s 3 --seconds 4"));
        assert!(accepts("connect --port 1 --connections 2"));
        assert!(accepts("sink --tls psk-1.2"));
        assert!(!accepts("sink --connections 1"));
        assert!(!accepts("blast --port 1 --connections 2 --messages 3 --seconds 4"));
        assert!(!accepts("blast --port 1 --connections 2"));
        assert!(!accepts("blast --port 1 --connections 2 --messages 0"));
        assert!(!accepts("send --port 1 --connections 2 --rate-per-s 0 --seconds 4"));
        assert!(!accepts("mosquitto"));
    }
}
