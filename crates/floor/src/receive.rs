//! Subscribers that read what one more connection publishes: epoll and one `read` for what has
//! come, nothing looked at but the number of bytes.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::sys::epoll::{EpollEvent, EpollFlags};

use crate::meter::{Counts, Meter};
use crate::options::Options;
use crate::paced::Schedule;
use crate::pool::{EVENTS, Ramp, send_whole};
use crate::secure::Stream;
use crate::{print_line, wire};

const READ_BYTES: usize = 64 * 1024;
/// How long the last deliveries may take.
const DRAIN: Duration = Duration::from_secs(5);

/// Connects and subscribes, publishes and reads for the time asked and until all has come; prints
/// the counts and the cost of publishing and reading.
pub fn run(options: &Options) -> Result<()> {
    let publisher = options.connections;
    let filter = wire::topic(publisher);
    let subscribe = |client: usize| {
        if client == publisher { Vec::new() } else { wire::subscribe(&filter) }
    };
    let ramp = Ramp { connections: publisher + 1, subscribe: &subscribe, ..Ramp::new(options) };
    let mut pool = ramp.open()?;
    let message = wire::publish(&wire::topic(publisher), options.bytes);
    let delivered_bytes = (message.len() * options.connections) as u64;
    let mut events = vec![EpollEvent::empty(); EVENTS];
    let mut buffer = vec![0; READ_BYTES];
    let (mut sent, mut bytes, mut over_since) = (0, 0, None);
    let meter = Meter::start()?;
    let mut schedule = Schedule::new(options.rate_per_s.unwrap_or_default(), options.seconds);
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
    let counts = Counts { connections: pool.streams.len(), messages, bytes };
    print_line(&counts.to_line(options, cost))
}

/// Empties a socket; a short read has done so.
fn read_all(stream: &mut Stream, buffer: &mut [u8]) -> Result<u64> {
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
