//! Raw connections to the sink: opened without waiting, greeted with prebuilt bytes, then handed
//! to the modes as plain sockets in one epoll. It keeps no state that a mode does not need.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use agent::pipes;
use anyhow::{Context, Result, bail};
use clap::Args;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, connect, setsockopt, socket, sockopt,
};
use openssl::ssl::SslContext;

use crate::meter::{ClientCounts, Meter};
use crate::secure::{SecureStream, TlsOptions};
use crate::wire::{self, first};
use crate::{Load, above_0};

/// Events taken from the kernel at once.
pub const EVENTS: usize = 1024;
/// Longest wait for the sink to answer anything.
const PATIENCE_MS: u16 = 5000;
/// Connections under way at once where an option does not set their number.
const PARALLELISM: usize = 500;

/// Options of `connect`.
#[derive(Args)]
pub struct PoolOptions {
    #[command(flatten)]
    load: Load,
    /// Connections begun in a second [default: no limit]
    #[arg(long, value_name = "R", value_parser = above_0::<f64>)]
    rate_per_s: Option<f64>,
    /// Connections under way at once
    #[arg(long, value_name = "N", default_value_t = PARALLELISM, value_parser = above_0::<usize>)]
    parallelism: usize,
    #[command(flatten)]
    tls: TlsOptions,
}

/// Connections that stand, watched for bytes and for space, edge-triggered.
pub struct Pool {
    /// Event data is the index into `streams`.
    pub epoll: Epoll,
    /// The connections.
    pub streams: Vec<SecureStream>,
}

/// Connections to open, and their rate.
pub struct PoolRamp<'a> {
    /// Port of the sink.
    pub port: u16,
    /// Number of connections.
    pub connections: usize,
    /// Connections under way at once.
    pub parallelism: usize,
    /// Connections begun in a second; `None`: as parallelism allows.
    pub rate_per_s: Option<f64>,
    /// TLS of the connections, if they have it.
    pub tls: Option<SslContext>,
    /// SUBSCRIBE of a connection; none if empty.
    pub subscribe: &'a dyn Fn(usize) -> Vec<u8>,
}

/// Next step of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextStep {
    Tcp,
    Handshake,
    ConnAck,
    SubAck,
    Nothing,
}

/// Opens all connections, prints the counts and the cost of connecting, then closes all.
///
/// # Errors
/// Those of [`PoolRamp::open`] and stdout.
pub fn run(options: &PoolOptions) -> Result<()> {
    let PoolOptions { rate_per_s, parallelism, .. } = *options;
    let tls = options.tls.client()?;
    let ramp = PoolRamp { rate_per_s, parallelism, tls, ..PoolRamp::new(&options.load) };
    let meter = Meter::start()?;
    let pool = ramp.open()?;
    let cost = meter.cost()?;
    let counts = ClientCounts { connections: pool.streams.len(), messages: 0, bytes: 0 };
    Ok(pipes::write_text(&counts.to_line("connect", cost))?)
}

impl<'a> PoolRamp<'a> {
    /// Opens all connections of a mode as fast as parallelism allows, without subscriptions.
    pub fn new(load: &Load) -> PoolRamp<'a> {
        PoolRamp {
            port: load.port,
            connections: load.connections,
            parallelism: PARALLELISM,
            rate_per_s: None,
            tls: None,
            subscribe: &|_| Vec::new(),
        }
    }

    /// Opens all connections and waits until each is answered.
    ///
    /// # Errors
    /// The first connection that fails, or the sink's silence.
    pub fn open(&self) -> Result<Pool> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut pool = Pool { epoll, streams: Vec::with_capacity(self.connections) };
        let mut awaits: Vec<NextStep> = Vec::with_capacity(self.connections);
        let mut events = vec![EpollEvent::empty(); EVENTS];
        let (start, mut standing) = (Instant::now(), 0);
        while standing < self.connections {
            while self.may_begin(start, awaits.len(), standing) {
                pool.begin(self.port)?;
                awaits.push(NextStep::Tcp);
            }
            let timeout = if self.rate_per_s.is_some() { 1 } else { PATIENCE_MS };
            let count = pool.wait(&mut events, timeout.into())?;
            if count == 0 && self.rate_per_s.is_none() {
                bail!("the sink did not answer for {PATIENCE_MS} ms");
            }
            for event in &events[..count] {
                let index = event.data() as usize;
                if awaits[index] != NextStep::Nothing {
                    awaits[index] = self.step(&mut pool, index, awaits[index])?;
                    standing += usize::from(awaits[index] == NextStep::Nothing);
                }
            }
        }
        Ok(pool)
    }

    fn may_begin(&self, start: Instant, begun: usize, standing: usize) -> bool {
        let due = |rate: f64| start.elapsed() >= Duration::from_secs_f64(begun as f64 / rate);
        begun < self.connections
            && begun - standing < self.parallelism
            && self.rate_per_s.is_none_or(due)
    }

    /// Continues a connection that has an event.
    fn step(&self, pool: &mut Pool, index: usize, awaits: NextStep) -> Result<NextStep> {
        if let (NextStep::Tcp, Some(context)) = (awaits, &self.tls) {
            pool.secure(index, context)?;
        }
        let stream = &mut pool.streams[index];
        if matches!(awaits, NextStep::Tcp | NextStep::Handshake) {
            if !stream.handshake()? {
                return Ok(NextStep::Handshake);
            }
            send_whole(stream, &wire::connect(index)).context("cannot connect")?;
            return Ok(NextStep::ConnAck);
        }
        let mut answer = [0; 16];
        let count = match stream.read(&mut answer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(awaits),
            other => other.context("the sink does not answer")?,
        };
        match (awaits, &answer[..count]) {
            (NextStep::ConnAck, [first::CONNACK, 2, 0, 0]) => {
                let subscribe = (self.subscribe)(index);
                if subscribe.is_empty() {
                    return Ok(NextStep::Nothing);
                }
                send_whole(stream, &subscribe)?;
                Ok(NextStep::SubAck)
            }
            (NextStep::SubAck, [first::SUBACK, 3, 0, 1, 0]) => Ok(NextStep::Nothing),
            (_, found) => bail!("found the answer {found:02x?}"),
        }
    }
}

impl Pool {
    fn begin(&mut self, port: u16) -> Result<()> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None)
            .context("cannot open a socket")?;
        setsockopt(&socket, sockopt::TcpNoDelay, &true)?;
        let target = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        match connect(socket.as_raw_fd(), &target) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(errno) => return Err(errno).context("cannot connect"),
        }
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        let event = EpollEvent::new(flags, self.streams.len() as u64);
        self.epoll.add(&socket, event)?;
        self.streams.push(SecureStream::Plain(TcpStream::from(socket)));
        Ok(())
    }

    /// Puts a connection that stands under TLS, with the same descriptor.
    fn secure(&mut self, index: usize, context: &SslContext) -> Result<()> {
        let last = self.streams.len() - 1;
        let stream = match self.streams.swap_remove(index) {
            SecureStream::Plain(socket) => SecureStream::connect(socket, context, index)?,
            secured @ SecureStream::Tls(_) => secured,
        };
        self.streams.push(stream);
        self.streams.swap(index, last);
        Ok(())
    }

    /// Waits for events; 0 after the timeout.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, events: &mut [EpollEvent], timeout: EpollTimeout) -> Result<usize> {
        match self.epoll.wait(events, timeout) {
            Err(Errno::EINTR) => Ok(0),
            other => Ok(other?),
        }
    }
}

/// Sends a packet in one call.
///
/// # Errors
/// The kernel's, or that it took only a part.
pub fn send_whole(stream: &mut SecureStream, bytes: &[u8]) -> Result<()> {
    if stream.write(bytes)? < bytes.len() {
        bail!("the socket took a part of a packet only: the sink is too slow for this mode");
    }
    Ok(())
}
