//! Subscribers of ZeroMQ that read what `feed` sends: epoll and one `read` for what has come, in
//! which the frames are found and the place of each message is read, nothing more.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use agent::pipes;
use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use zmtp::{Mechanism, ZmtpEvent, ZmtpSession};

use crate::feed::FeedOptions;
use crate::meter::{ClientCounts, Meter};
use crate::pool::EVENTS;

const READ_BYTES: usize = 64 * 1024;
/// Bytes in front of the body of a short frame.
const HEADER_BYTES: usize = 2;
/// Range of the sequence number in a stamp.
const SEQUENCE: std::ops::Range<usize> = 4..8;

struct DrainPeer {
    stream: TcpStream,
    /// The front of a frame whose rest has not arrived.
    partial: Vec<u8>,
    messages: u64,
    /// Messages whose place is not that after the one before.
    strays: u64,
}

/// Connects and subscribes, says so, reads until all has come; prints the counts and the cost of
/// the reading.
pub fn run(options: &FeedOptions) -> Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let mut peers = Vec::new();
    for index in 0..options.load.connections {
        let stream = subscribe(options.load.port)?;
        stream.set_nonblocking(true)?;
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        epoll.add(&stream, EpollEvent::new(flags, index as u64))?;
        peers.push(DrainPeer { stream, partial: Vec::new(), messages: 0, strays: 0 });
    }
    pipes::write_text(r#"{"kind":"ready"}"#)?;
    let mut events = vec![EpollEvent::empty(); EVENTS];
    let mut buffer = vec![0; READ_BYTES];
    let (mut bytes, mut messages) = (0, 0);
    let meter = Meter::start()?;
    while messages < options.messages * options.load.connections as u64 {
        let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        for event in &events[..count] {
            let peer = &mut peers[event.data() as usize];
            let before = peer.messages;
            bytes += peer.read_all(&mut buffer)?;
            messages += peer.messages - before;
        }
    }
    let cost = meter.cost()?;
    let strays: u64 = peers.iter().map(|peer| peer.strays).sum();
    if strays > 0 {
        bail!("found {strays} messages out of their place");
    }
    let counts = ClientCounts { connections: peers.len(), messages, bytes };
    Ok(pipes::write_text(&counts.to_line("drain", cost))?)
}

/// A connection whose subscription to everything the publisher has read.
fn subscribe(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot connect")?;
    stream.set_nodelay(true)?;
    let (mut session, mut out, mut unread) = (ZmtpSession::new(), Vec::new(), Vec::new());
    session.connect(&Mechanism::Null, &mut out);
    let mut buffer = [0; 256];
    let mut asked = false;
    loop {
        stream.write_all(&out)?;
        out.clear();
        let count = stream.read(&mut buffer)?;
        unread.extend_from_slice(&buffer[..count]);
        loop {
            let step = session.handle(&unread, &Mechanism::Null, &mut out)?;
            let len = step.len;
            match step.event {
                ZmtpEvent::Incomplete if count == 0 => bail!("the publisher closed the connection"),
                ZmtpEvent::Incomplete => break,
                ZmtpEvent::Pong => return Ok(stream),
                _ => {}
            }
            unread.drain(..len);
            if session.is_connected() && !asked {
                asked = true;
                session.subscribe(b"", &mut out);
                session.ping(&mut out);
            }
        }
    }
}

impl DrainPeer {
    /// Empties the socket; a short read has done so.
    fn read_all(&mut self, buffer: &mut [u8]) -> Result<u64> {
        let mut bytes = 0;
        loop {
            match self.stream.read(buffer) {
                Ok(0) => bail!("the publisher closed a connection"),
                Ok(count) => {
                    bytes += count as u64;
                    self.take(&buffer[..count]);
                    if count < buffer.len() {
                        return Ok(bytes);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(bytes),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let mut partial = std::mem::take(&mut self.partial);
        let bytes = if partial.is_empty() {
            bytes
        } else {
            partial.extend_from_slice(bytes);
            &partial
        };
        let mut rest = bytes;
        while let [0, size, ..] = *rest {
            let end = HEADER_BYTES + usize::from(size);
            let Some(body) = rest.get(HEADER_BYTES..end) else { break };
            let place = body.get(SEQUENCE).and_then(<[u8]>::first_chunk);
            let expected = self.messages as u32;
            self.strays +=
                u64::from(place.map(|place| u32::from_le_bytes(*place)) != Some(expected));
            self.messages += 1;
            rest = &rest[end..];
        }
        self.partial = rest.to_vec();
    }
}
