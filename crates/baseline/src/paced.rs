//! Paced publishers: each message is one `send` on its connection. `send` has many publishers: the
//! least that 1000 devices with 20 messages a second each can cost. `receive` has one publisher and
//! subscribers that read with epoll and one `read` at a time, and count bytes only.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use agent::pipes;
use anyhow::{Result, bail};
use clap::Args;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use crate::meter::{ClientCounts, Meter};
use crate::pool::{EVENTS, PoolRamp, send_whole};
use crate::secure::SecureStream;
use crate::{Load, PayloadOptions, above_0, wire};

const READ_BYTES: usize = 64 * 1024;
/// Longest wait for the last deliveries.
const DRAIN: Duration = Duration::from_secs(5);

/// Options of `send` and `receive`.
#[derive(Args)]
pub struct PacedOptions {
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    payload: PayloadOptions,
    /// Messages of each publishing connection in a second
    #[arg(long, value_name = "R", value_parser = above_0::<f64>)]
    rate_per_s: f64,
    /// Time in which messages are scheduled
    #[arg(long, value_name = "S", value_parser = above_0::<f64>)]
    seconds: f64,
}

/// Connects, sends for the time asked, prints the counts and the cost of the sending.
pub fn send(options: &PacedOptions) -> Result<()> {
    let mut pool = PoolRamp::new(&options.load).open()?;
    let messages: Vec<Vec<u8>> = (0..options.load.connections)
        .map(|client| wire::publish(&wire::topic(client), options.payload.bytes))
        .collect();
    let mut counts = ClientCounts { connections: pool.streams.len(), messages: 0, bytes: 0 };
    let mut events = [EpollEvent::empty(); 64];
    let meter = Meter::start()?;
    let rate_per_s = options.rate_per_s * options.load.connections as f64;
    let mut schedule = EvenSchedule::new(rate_per_s, options.seconds);
    while !schedule.is_over() {
        for number in schedule.take_due() {
            let client = (number % options.load.connections as u64) as usize;
            send_whole(&mut pool.streams[client], &messages[client])?;
            counts.messages += 1;
            counts.bytes += messages[client].len() as u64;
        }
        pool.wait(&mut events, schedule.wait_ms().into())?;
    }
    Ok(pipes::write_text(&counts.to_line("send", meter.cost()?))?)
}

/// Connects and subscribes, publishes and reads for the time asked and until all has come; prints
/// the counts and the cost of publishing and reading.
pub fn receive(options: &PacedOptions) -> Result<()> {
    let publisher = options.load.connections;
    let filter = wire::topic(publisher);
    let subscribe = |client: usize| {
        if client == publisher { Vec::new() } else { wire::subscribe(&filter) }
    };
    let ramp = PoolRamp {
        connections: publisher + 1,
        subscribe: &subscribe,
        ..PoolRamp::new(&options.load)
    };
    let mut pool = ramp.open()?;
    let message = wire::publish(&wire::topic(publisher), options.payload.bytes);
    let delivered_bytes = (message.len() * options.load.connections) as u64;
    let mut events = vec![EpollEvent::empty(); EVENTS];
    let mut buffer = vec![0; READ_BYTES];
    let (mut sent, mut bytes, mut over_since) = (0, 0, None);
    let meter = Meter::start()?;
    let mut schedule = EvenSchedule::new(options.rate_per_s, options.seconds);
    while !schedule.is_over() || bytes < sent * delivered_bytes {
        for _ in schedule.take_due() {
            send_whole(&mut pool.streams[publisher], &message)?;
            sent += 1;
        }
        let count = pool.wait(&mut events, schedule.wait_ms().into())?;
        for event in &events[..count] {
            if event.events().contains(EpollFlags::EPOLLIN) {
                bytes += read_all(&mut pool.streams[event.data() as usize], &mut buffer)?;
            }
        }
        if schedule.is_over() && over_since.get_or_insert_with(Instant::now).elapsed() > DRAIN {
            bail!("found {bytes} bytes delivered of {}", sent * delivered_bytes);
        }
    }
    let cost = meter.cost()?;
    let messages = bytes / message.len() as u64;
    let counts = ClientCounts { connections: pool.streams.len(), messages, bytes };
    Ok(pipes::write_text(&counts.to_line("receive", cost))?)
}

/// Empties a socket; a short read has done so.
fn read_all(stream: &mut SecureStream, buffer: &mut [u8]) -> Result<u64> {
    let mut bytes = 0;
    loop {
        match stream.read(buffer) {
            Ok(0) => bail!("the sink closed a connection"),
            Ok(count) => {
                bytes += count as u64;
                if count < buffer.len() {
                    return Ok(bytes);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(bytes),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Messages due at equal distances from `start` on.
struct EvenSchedule {
    start: Instant,
    rate_per_s: f64,
    messages: u64,
    taken: u64,
}

impl EvenSchedule {
    /// `rate_per_s` messages a second over all connections, for `seconds`, beginning now.
    fn new(rate_per_s: f64, seconds: f64) -> Self {
        let messages = (rate_per_s * seconds).round() as u64;
        Self { start: Instant::now(), rate_per_s, messages, taken: 0 }
    }

    /// Takes all messages that are due; their numbers.
    fn take_due(&mut self) -> std::ops::Range<u64> {
        let due = (self.start.elapsed().as_secs_f64() * self.rate_per_s) as u64 + 1;
        let before = self.taken;
        self.taken = due.min(self.messages).max(before);
        before..self.taken
    }

    /// Returns `true` once every message has been taken.
    const fn is_over(&self) -> bool {
        self.taken == self.messages
    }

    /// Time until the next message is due, in whole milliseconds, at least 1.
    fn wait_ms(&self) -> u16 {
        let due = Duration::from_secs_f64(self.taken as f64 / self.rate_per_s);
        let wait_ms = due.saturating_sub(self.start.elapsed()).as_micros().div_ceil(1000);
        wait_ms.clamp(1, 1000) as u16
    }
}
