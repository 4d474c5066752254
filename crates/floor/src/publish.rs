//! The least that a publisher of libzmq can be, after `remote_thr` of its own: one PUB socket with
//! default options, one message again and again, as fast as libzmq takes it.

use std::io;
use std::time::{Duration, Instant};

use anyhow::Result;
use zmq::Context;

use crate::meter::{Counts, Meter};
use crate::options::Options;
use crate::print_line;

/// Messages between two looks at the clock.
const BLOCK: u64 = 1000;

/// Listens, says so, waits for a line, sends for the time asked, prints the counts and the cost.
pub fn run(options: &Options) -> Result<()> {
    let context = Context::new();
    let socket = context.socket(zmq::PUB)?;
    socket.set_linger(0)?;
    socket.bind(&format!("tcp://127.0.0.1:{}", options.port))?;
    print_line("{\"kind\":\"ready\"}")?;
    io::stdin().read_line(&mut String::new())?;
    // Subscriptions that have arrived reach the socket here.
    socket.get_events()?;
    let payload = vec![b'.'; options.bytes];
    let mut messages = 0;
    let meter = Meter::start()?;
    let end = Instant::now() + Duration::from_secs_f64(options.seconds);
    while Instant::now() < end {
        for _ in 0..BLOCK {
            socket.send(payload.as_slice(), 0)?;
        }
        messages += BLOCK;
    }
    let cost = meter.cost()?;
    let bytes = messages * options.bytes as u64;
    print_line(&Counts { connections: options.connections, messages, bytes }.to_line(options, cost))
}
