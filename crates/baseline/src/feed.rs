//! A publisher of ZeroMQ without a queue: every subscriber gets the same stamped messages, in
//! writes of the size that libzmq has, as fast as the slowest of them takes them.

use std::io::{BufRead, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use agent::pipes;
use anyhow::{Context, Result, bail};
use clap::Args;
use nix::time::{ClockId, clock_gettime};
use plan::{SentAt, Stamp, StreamId};
use zmtp::Mechanism;
use zmtp::publisher::{PublisherEvent, PublisherSession, encode_message};

use crate::meter::{ClientCounts, Meter};
use crate::{Load, above_0};

/// Bytes that libzmq writes at once at most (`out_batch_size`).
const BLOCK_BYTES: usize = 8192;
/// Run tag of the benches' plans.
const RUN_TAG: u32 = 20_260_101;
const READ_BYTES: usize = 4096;
/// PINGs that a subscriber sends behind its subscription, each after the PONG before.
const PINGS: u32 = 2;

/// Options of `feed` and `drain`.
#[derive(Args)]
pub struct FeedOptions {
    /// The connections.
    #[command(flatten)]
    pub load: Load,
    /// Messages to each subscriber
    #[arg(long, value_name = "N", value_parser = above_0::<u64>)]
    pub messages: u64,
}

/// Waits for all subscribers and for a line on stdin, sends all messages to each; prints the port,
/// then the counts.
pub fn run(options: &FeedOptions) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.load.port))?;
    let port = listener.local_addr()?.port();
    pipes::write_text(&format!(r#"{{"kind":"ready","port":{port}}}"#))?;
    let accept = |_| accept(&listener);
    let mut streams = (0..options.load.connections).map(accept).collect::<Result<Vec<_>>>()?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    let meter = Meter::start()?;
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    for number in 0..options.messages {
        encode_message(b"", &stamp(number)?.to_bytes(), &mut block);
        if block.len() * 2 > BLOCK_BYTES || number + 1 == options.messages {
            streams.iter_mut().try_for_each(|stream| stream.write_all(&block))?;
            block.clear();
        }
    }
    let (messages, connections) = (options.messages, streams.len());
    let bytes = 0;
    pipes::write_text(
        &ClientCounts { connections, messages, bytes }.to_line("feed", meter.cost()?),
    )?;
    // Bytes on their way go with a connection that is closed too soon.
    for mut stream in streams {
        while stream.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
    }
    Ok(())
}

/// Takes one subscriber in: it is ready once it has its PONGs.
fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let (mut publisher, mut out) = (PublisherSession::new(), Vec::new());
    publisher.accept(&Mechanism::Null, &mut out);
    let mut buffer = [0; READ_BYTES];
    let mut unread = Vec::new();
    let (mut subscribed, mut pings) = (false, 0);
    loop {
        stream.write_all(&out)?;
        out.clear();
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            bail!("a subscriber closed its connection");
        }
        unread.extend_from_slice(&buffer[..count]);
        loop {
            let step = publisher.handle(&unread, &Mechanism::Null, &mut out);
            let step = step.context("a subscriber cannot be understood")?;
            let len = step.len;
            match step.event {
                PublisherEvent::Incomplete => break,
                PublisherEvent::Subscribed(_) => subscribed = true,
                PublisherEvent::Replied if subscribed => {
                    pings += 1;
                    if pings == PINGS {
                        stream.write_all(&out)?;
                        return Ok(stream);
                    }
                }
                _ => {}
            }
            unread.drain(..len);
        }
    }
}

/// The stamp of a message that is sent when it is due.
fn stamp(number: u64) -> Result<Stamp> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let now_ns = now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs();
    Ok(Stamp {
        run_tag: RUN_TAG,
        stream: StreamId { publication: 0, variant: 0, client: 0 },
        sequence: number as u32,
        intended_ns: now_ns,
        sent: SentAt::plain(now_ns),
    })
}
