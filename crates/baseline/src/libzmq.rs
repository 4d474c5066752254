//! Publisher and readers around libzmq, after its own `remote_thr`. The publisher is one PUB socket
//! with default options that sends one message again and again. The readers are raw connections
//! with the bytes of a ZMTP handshake and a subscription to everything; they discard what they
//! read.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use agent::pipes;
use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::meter::{ClientCounts, Meter};
use crate::{Load, PayloadOptions, above_0};

const READY_LINE: &str = r#"{"kind":"ready"}"#;
/// Messages between two looks at the clock.
const BLOCK: u64 = 1000;

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

/// Options of `publish`.
#[derive(Args)]
pub struct PublishOptions {
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    payload: PayloadOptions,
    /// Time to send in
    #[arg(long, value_name = "S", value_parser = above_0::<f64>)]
    seconds: f64,
}

/// Options of `subscribe`.
#[derive(Args)]
pub struct SubscribeOptions {
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    payload: PayloadOptions,
}

/// Listens, says so, waits for a line, sends for the time asked, prints the counts and the cost,
/// and stays until stdin ends.
pub fn publish(options: &PublishOptions) -> Result<()> {
    let context = zmq::Context::new();
    let socket = context.socket(zmq::PUB)?;
    socket.set_linger(0)?;
    socket.bind(&format!("tcp://127.0.0.1:{}", options.load.port))?;
    pipes::write_text(READY_LINE)?;
    io::stdin().read_line(&mut String::new())?;
    // Subscriptions that have arrived reach the socket here.
    socket.get_events()?;
    let payload = vec![b'.'; options.payload.bytes];
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
    let bytes = messages * options.payload.bytes as u64;
    let counts = ClientCounts { connections: options.load.connections, messages, bytes };
    pipes::write_text(&counts.to_line("publish", cost))?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// Connects and subscribes, says so, reads until the publisher has gone, prints the counts.
pub fn subscribe(options: &SubscribeOptions) -> Result<()> {
    let connect = |_| reader(options.load.port).context("cannot subscribe");
    let mut streams = (0..options.load.connections).map(connect).collect::<Result<Vec<_>>>()?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for (index, stream) in streams.iter().enumerate() {
        stream.set_nonblocking(true)?;
        epoll.add(stream, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
    }
    pipes::write_text(READY_LINE)?;
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
    let messages = bytes / (HEAD_BYTES + options.payload.bytes as u64);
    let counts = ClientCounts { connections: streams.len(), messages, bytes };
    Ok(pipes::write_text(&counts.to_line("subscribe", meter.cost()?))?)
}

/// A connection whose subscription has been read by the publisher.
fn reader(port: u16) -> Result<TcpStream> {
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
