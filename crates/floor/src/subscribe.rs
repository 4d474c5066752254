//! Raw readers for a publisher of ZeroMQ: connections with the bytes of a ZMTP handshake and a
//! subscription to everything, whose messages are read in large pieces and thrown away.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::meter::{Counts, Meter};
use crate::options::Options;
use crate::print_line;

const GREETING_BYTES: usize = 64;
const READ_BYTES: usize = 256 * 1024;
/// A command READY of a SUB socket (ZeroMQ RFC 23): flags, size, name, and the socket's type.
const READY: &[u8] = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB";
/// A subscription to everything, as a message of one byte.
const SUBSCRIBE: &[u8] = b"\x00\x01\x01";
/// Asks for an answer, which comes when the subscription has been read.
const PING: &[u8] = b"\x04\x07\x04PING\x00\x00";
const PONG: &[u8] = b"\x04\x05\x04PONG";
/// Bytes of a short message before its payload.
const HEAD_BYTES: u64 = 2;

/// Connects and subscribes, says so, reads until the publisher has gone, prints the counts.
pub fn run(options: &Options) -> Result<()> {
    let connect = |_| subscribe(options.port).context("cannot subscribe");
    let mut streams = (0..options.connections).map(connect).collect::<Result<Vec<_>>>()?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for (index, stream) in streams.iter().enumerate() {
        stream.set_nonblocking(true)?;
        epoll.add(stream, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
    }
    print_line("{\"kind\":\"ready\"}")?;
    let (mut bytes, mut open) = (0, streams.len());
    let mut buffer = vec![0; READ_BYTES];
    let mut events = [EpollEvent::empty(); 64];
    let meter = Meter::start()?;
    while open > 0 {
        let count = epoll.wait(&mut events, EpollTimeout::NONE)?;
        for event in &events[..count] {
            let stream = &mut streams[event.data() as usize];
            match stream.read(&mut buffer) {
                Ok(count) if count > 0 => bytes += count as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // However it ends, the publisher has gone.
                Ok(_) | Err(_) => {
                    epoll.delete(&*stream)?;
                    open -= 1;
                }
            }
        }
    }
    let messages = bytes / (HEAD_BYTES + options.bytes as u64);
    let counts = Counts { connections: streams.len(), messages, bytes };
    print_line(&counts.to_line(options, meter.cost()?))
}

/// A connection whose subscription has been read by the publisher.
fn subscribe(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let mut greeting = [0; GREETING_BYTES];
    greeting[0] = 0xff;
    greeting[9..12].copy_from_slice(&[0x7f, 3, 1]);
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting)?;
    stream.read_exact(&mut greeting)?;
    stream.write_all(READY)?;
    read_command(&mut stream)?;
    stream.write_all(&[SUBSCRIBE, PING].concat())?;
    if read_command(&mut stream)? != PONG {
        bail!("found another answer to PING than PONG");
    }
    Ok(stream)
}

/// The next short command, with its flags and its size.
fn read_command(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut head = [0; HEAD_BYTES as usize];
    stream.read_exact(&mut head)?;
    let mut command = head.to_vec();
    command.resize(head.len() + usize::from(head[1]), 0);
    stream.read_exact(&mut command[head.len()..])?;
    Ok(command)
}
