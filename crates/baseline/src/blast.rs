//! Publishers without a pace: blocks of many messages in one write each, connection by connection,
//! as fast as the sink takes them.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};

use agent::pipes;
use anyhow::Result;
use clap::Args;
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};

use crate::meter::{ClientCounts, Meter};
use crate::pool::{EVENTS, PoolRamp};
use crate::secure::SecureStream;
use crate::{Load, PayloadOptions, above_0, wire};

/// Bytes of one write at most.
const BLOCK_BYTES: usize = 64 * 1024;

/// Options of `blast`.
#[derive(Args)]
pub struct BlastOptions {
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    payload: PayloadOptions,
    /// Messages of all connections together
    #[arg(long, value_name = "N", value_parser = above_0::<u64>)]
    messages: u64,
}

/// Progress of one connection.
struct BlastFlow {
    /// Whole messages, all alike.
    block: Vec<u8>,
    /// Bytes sent so far.
    sent: u64,
    /// Bytes to send in all.
    bytes: u64,
}

/// Connects, sends all messages, prints the counts and the cost of the sending.
pub fn run(options: &BlastOptions) -> Result<()> {
    let mut pool = PoolRamp::new(&options.load).open()?;
    let mut flows: Vec<BlastFlow> =
        (0..options.load.connections).map(|c| BlastFlow::new(options, c)).collect();
    let bytes = flows.iter().map(|flow| flow.bytes).sum();
    let counts =
        ClientCounts { connections: pool.streams.len(), messages: options.messages, bytes };
    let mut events = vec![EpollEvent::empty(); EVENTS];
    let mut writable: VecDeque<usize> = (0..flows.len()).collect();
    let mut unfinished = flows.iter().filter(|flow| !flow.is_over()).count();
    let meter = Meter::start()?;
    while unfinished > 0 {
        // One block for each in turn; a full socket returns with its next event.
        for _ in 0..writable.len() {
            let Some(client) = writable.pop_front() else { break };
            let flow = &mut flows[client];
            if flow.is_over() {
                continue;
            }
            let takes_more = flow.write(&mut pool.streams[client])?;
            unfinished -= usize::from(flow.is_over());
            if takes_more {
                writable.push_back(client);
            }
        }
        if writable.is_empty() && unfinished > 0 {
            let count = pool.wait(&mut events, EpollTimeout::NONE)?;
            let ready =
                events[..count].iter().filter(|e| e.events().contains(EpollFlags::EPOLLOUT));
            writable.extend(ready.map(|event| event.data() as usize));
        }
    }
    Ok(pipes::write_text(&counts.to_line("blast", meter.cost()?))?)
}

impl BlastFlow {
    /// The share of client `client`: the first ones send one message more where it does not divide.
    fn new(options: &BlastOptions, client: usize) -> Self {
        let (messages, clients) = (options.messages, options.load.connections as u64);
        let share = messages / clients + u64::from((client as u64) < messages % clients);
        let message = wire::publish(&wire::topic(client), options.payload.bytes);
        let block = message.repeat((BLOCK_BYTES / message.len()).max(1));
        Self { block, sent: 0, bytes: share * message.len() as u64 }
    }

    fn is_over(&self) -> bool {
        self.sent == self.bytes
    }

    /// Writes up to the end of the block; says whether the socket may take more.
    fn write(&mut self, stream: &mut SecureStream) -> Result<bool> {
        let from = (self.sent % self.block.len() as u64) as usize;
        let rest = &self.block[from..];
        let len = (rest.len() as u64).min(self.bytes - self.sent) as usize;
        match stream.write(&rest[..len]) {
            Ok(count) => {
                self.sent += count as u64;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
