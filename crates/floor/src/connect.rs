//! Connections and nothing else: socket, connect, CONNECT, CONNACK, through one epoll.

use anyhow::Result;

use crate::meter::{Counts, Meter};
use crate::options::Options;
use crate::pool::Ramp;
use crate::print_line;

/// Connects all, prints the counts and the cost of connecting, then closes all.
pub fn run(options: &Options) -> Result<()> {
    let tls = options.tls.map(|tls| tls.client(&options.pem)).transpose()?;
    let ramp = Ramp { rate_per_s: options.rate_per_s, tls, ..Ramp::new(options) };
    let meter = Meter::start()?;
    let pool = ramp.open()?;
    let cost = meter.cost()?;
    let counts = Counts { connections: pool.streams.len(), messages: 0, bytes: 0 };
    print_line(&counts.to_line(options, cost))
}
