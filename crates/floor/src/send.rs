//! Paced publishers: each message is one `send` on its connection. The least that 1000 devices
//! with 20 messages a second each can cost.

use anyhow::Result;
use nix::sys::epoll::EpollEvent;

use crate::meter::{Counts, Meter};
use crate::options::Options;
use crate::paced::Schedule;
use crate::pool::{Ramp, send_whole};
use crate::{print_line, wire};

/// Connects, sends for the time asked, prints the counts and the cost of the sending.
pub fn run(options: &Options) -> Result<()> {
    let mut pool = Ramp::new(options).open()?;
    let messages: Vec<Vec<u8>> = (0..options.connections)
        .map(|client| wire::publish(&wire::topic(client), options.bytes))
        .collect();
    let mut counts = Counts { connections: pool.streams.len(), messages: 0, bytes: 0 };
    let mut events = [EpollEvent::empty(); 64];
    let meter = Meter::start()?;
    let rate_per_s = options.rate_per_s.unwrap_or_default() * options.connections as f64;
    let mut schedule = Schedule::new(rate_per_s, options.seconds);
    while !schedule.is_over() {
        for number in schedule.take_due() {
            let client = (number % options.connections as u64) as usize;
            send_whole(&mut pool.streams[client], &messages[client])?;
            counts.messages += 1;
            counts.bytes += messages[client].len() as u64;
        }
        pool.wait(&mut events, schedule.wait_ms().into())?;
    }
    print_line(&counts.to_line(options, meter.cost()?))
}
