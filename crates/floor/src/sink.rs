//! The peer that does nothing: it answers what must be answered, all of one read in one write,
//! counts what arrives and throws it away. With fan-out it hands every message on to all that
//! subscribed, at QoS 0, whatever their filter. One thread, one epoll, no topics.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, listen, setsockopt, socket,
    sockopt,
};
use openssl::ssl::SslContext;

use crate::options::Options;
use crate::pool::EVENTS;
use crate::secure::Stream;
use crate::wire::{self, Packet, first};
use crate::{meter, print_line};

/// Longest queue of connections not yet accepted; the kernel cuts it to its own limit.
const BACKLOG: i32 = 4096;
/// Connections accepted before others have their turn.
const ACCEPT_TURN: usize = 64;
const READ_BYTES: usize = 64 * 1024;
/// After the end of stdin, how long a silent connection is waited for.
const GRACE_MS: u16 = 1000;
const LISTENER: u64 = u64::MAX;
const STDIN: u64 = u64::MAX - 1;

struct Sink {
    epoll: Epoll,
    listener: TcpListener,
    tls: Option<SslContext>,
    /// At the number of its descriptor.
    peers: Vec<Option<Peer>>,
    open: usize,
    /// Indices of the peers that subscribed.
    subscribers: Vec<usize>,
    fan_out: bool,
    answers: Answers,
}

struct Peer {
    stream: Stream,
    /// The front of a packet whose rest has not arrived.
    partial: Vec<u8>,
    /// What the socket did not take.
    unsent: Vec<u8>,
    subscribed: bool,
}

/// What comes of the bytes of one read.
#[derive(Default)]
struct Answers {
    /// For the peer itself.
    replies: Vec<u8>,
    /// For all that subscribed.
    forwards: Vec<u8>,
    forwarded: u64,
    fans_out: bool,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    connections: u64,
    filters: u64,
    /// By QoS.
    messages: [u64; 3],
    bytes: u64,
    deliveries: u64,
}

/// Serves until stdin ends and the last connection is closed; prints the port, then the counts.
pub fn run(options: &Options) -> Result<()> {
    let mut sink = Sink::new(options)?;
    let port = sink.listener.local_addr()?.port();
    print_line(&format!("{{\"kind\":\"ready\",\"port\":{port}}}"))?;
    sink.serve()?;
    print_line(&sink.answers.counts.to_line(meter::cpu_ns()?))
}

impl Sink {
    fn new(options: &Options) -> Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        let address = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, options.port));
        bind(socket.as_raw_fd(), &address).context("cannot bind")?;
        listen(&socket, Backlog::new(BACKLOG)?).context("cannot listen")?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        let answers = Answers { fans_out: options.fan_out, ..Answers::default() };
        Ok(Self {
            epoll,
            listener: TcpListener::from(socket),
            tls: options.tls.map(|tls| tls.server(&options.pem)).transpose()?,
            peers: Vec::new(),
            open: 0,
            subscribers: Vec::new(),
            fan_out: options.fan_out,
            answers,
        })
    }

    fn serve(&mut self) -> Result<()> {
        let stdin = std::io::stdin();
        self.epoll
            .add(&stdin, EpollEvent::new(EpollFlags::EPOLLIN, STDIN))
            .context("stdin must be a pipe")?;
        let mut events = vec![EpollEvent::empty(); EVENTS];
        let mut buffer = vec![0; READ_BYTES];
        let mut ending = false;
        while !ending || self.open > 0 {
            let timeout = if ending { EpollTimeout::from(GRACE_MS) } else { EpollTimeout::NONE };
            let count = match self.epoll.wait(&mut events, timeout) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            if ending && count == 0 {
                return Ok(());
            }
            for event in &events[..count] {
                match event.data() {
                    LISTENER => self.accept()?,
                    STDIN => {
                        if nix::unistd::read(stdin.as_fd(), &mut [0; 64])? == 0 {
                            self.epoll.delete(&stdin)?;
                            ending = true;
                        }
                    }
                    index => self.handle(index as usize, event.events(), &mut buffer)?,
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        for _ in 0..ACCEPT_TURN {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("cannot accept"),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let index = stream.as_raw_fd().unsigned_abs() as usize;
            self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
            if self.peers.len() <= index {
                self.peers.resize_with(index + 1, || None);
            }
            let stream = match &self.tls {
                None => Stream::Plain(stream),
                Some(context) => Stream::accept(stream, context)?,
            };
            let (partial, unsent) = (Vec::new(), Vec::new());
            self.peers[index] = Some(Peer { stream, partial, unsent, subscribed: false });
            self.open += 1;
        }
        Ok(())
    }

    fn handle(&mut self, index: usize, flags: EpollFlags, buffer: &mut [u8]) -> Result<()> {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return Ok(()) };
        let subscribed = peer.subscribed;
        let mut alive = !flags.contains(EpollFlags::EPOLLOUT) || peer.flush(&self.epoll, index)?;
        if alive && flags.intersects(!EpollFlags::EPOLLOUT) {
            alive = peer.read(buffer, &mut self.answers)?;
            if alive && !self.answers.replies.is_empty() {
                alive = peer.write(&self.answers.replies, &self.epoll, index)?;
            }
            self.answers.replies.clear();
        }
        if alive && peer.subscribed && !subscribed {
            self.subscribers.push(index);
        }
        if !alive {
            self.close(index);
        }
        if self.fan_out && self.answers.forwarded > 0 { self.forward() } else { Ok(()) }
    }

    fn forward(&mut self) -> Result<()> {
        let forwards = std::mem::take(&mut self.answers.forwards);
        let forwarded = std::mem::take(&mut self.answers.forwarded);
        let mut closed = Vec::new();
        for &index in &self.subscribers {
            let Some(peer) = &mut self.peers[index] else { continue };
            if peer.write(&forwards, &self.epoll, index)? {
                self.answers.counts.deliveries += forwarded;
            } else {
                closed.push(index);
            }
        }
        closed.into_iter().for_each(|index| self.close(index));
        self.answers.forwards = forwards;
        self.answers.forwards.clear();
        Ok(())
    }

    /// Closing the descriptor takes it out of the epoll.
    fn close(&mut self, index: usize) {
        if self.peers[index].take().is_some_and(|peer| peer.subscribed) {
            self.subscribers.retain(|&subscriber| subscriber != index);
        }
        self.open -= 1;
    }
}

impl Peer {
    /// Reads once; `false`: the connection has ended.
    fn read(&mut self, buffer: &mut [u8], answers: &mut Answers) -> Result<bool> {
        let count = match self.stream.read(buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error) => return Ok(error.kind() == ErrorKind::WouldBlock),
        };
        answers.counts.bytes += count as u64;
        if self.partial.is_empty() {
            let handled = answers.take(&buffer[..count], &mut self.subscribed)?;
            self.partial.extend_from_slice(&buffer[handled..count]);
        } else {
            self.partial.extend_from_slice(&buffer[..count]);
            let handled = answers.take(&self.partial, &mut self.subscribed)?;
            self.partial.drain(..handled);
        }
        Ok(true)
    }

    /// Writes now or, after what is still unsent, later; `false`: the connection has ended.
    fn write(&mut self, bytes: &[u8], epoll: &Epoll, index: usize) -> Result<bool> {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return Ok(true);
        }
        match self.stream.write(bytes) {
            Ok(count) if count == bytes.len() => return Ok(true),
            Ok(count) => self.unsent.extend_from_slice(&bytes[count..]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.unsent.extend_from_slice(bytes);
            }
            Err(_) => return Ok(false),
        }
        self.watch(epoll, index, EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT)?;
        Ok(true)
    }

    /// Writes what was left; `false`: the connection has ended.
    fn flush(&mut self, epoll: &Epoll, index: usize) -> Result<bool> {
        match self.stream.write(&self.unsent) {
            Ok(count) => drop(self.unsent.drain(..count)),
            Err(error) => return Ok(error.kind() == ErrorKind::WouldBlock),
        }
        if self.unsent.is_empty() {
            self.watch(epoll, index, EpollFlags::EPOLLIN)?;
        }
        Ok(true)
    }

    fn watch(&self, epoll: &Epoll, index: usize, flags: EpollFlags) -> Result<()> {
        Ok(epoll.modify(&self.stream, &mut EpollEvent::new(flags, index as u64))?)
    }
}

impl Answers {
    /// Takes all whole packets; returns how many bytes they have.
    fn take(&mut self, bytes: &[u8], subscribed: &mut bool) -> Result<usize> {
        let mut handled = 0;
        while let Some(packet) = wire::next(&bytes[handled..])? {
            handled += packet.bytes.len();
            match packet.first {
                first if first & 0xf0 == first::PUBLISH => self.publish(&packet),
                first::CONNECT => {
                    self.counts.connections += 1;
                    self.replies.extend_from_slice(&[first::CONNACK, 2, 0, 0]);
                }
                first::SUBSCRIBE => {
                    *subscribed = true;
                    self.subscribe(packet.body);
                }
                first::PUBREL => self.acknowledge(first::PUBCOMP, packet.body),
                first::PINGREQ => self.replies.extend_from_slice(&[first::PINGRESP, 0]),
                // DISCONNECT is followed by the end of the connection; nothing else is sent.
                _ => {}
            }
        }
        Ok(handled)
    }

    fn publish(&mut self, packet: &Packet<'_>) {
        let qos = usize::from(packet.first >> 1 & 3).min(2);
        self.counts.messages[qos] += 1;
        let topic_end = 2 + length(packet.body);
        let packet_id = packet.body.get(topic_end..).unwrap_or_default();
        match qos {
            0 => {}
            1 => self.acknowledge(first::PUBACK, packet_id),
            _ => self.acknowledge(first::PUBREC, packet_id),
        }
        if !self.fans_out {
            return;
        }
        self.forwarded += 1;
        if qos == 0 {
            self.forwards.extend_from_slice(packet.bytes);
        } else if let (Some(topic), Some(payload)) =
            (packet.body.get(..topic_end), packet_id.get(2..))
        {
            let body = [topic, payload].concat();
            self.forwards.extend_from_slice(&wire::packet(first::PUBLISH, &body));
        }
    }

    /// Appends an answer with the packet id that `body` begins with.
    fn acknowledge(&mut self, first: u8, body: &[u8]) {
        if let Some(&[high, low]) = body.first_chunk() {
            self.replies.extend_from_slice(&[first, 2, high, low]);
        }
    }

    /// Grants every filter the QoS it asks for.
    fn subscribe(&mut self, body: &[u8]) {
        let mut answer = body.get(..2).unwrap_or_default().to_vec();
        let mut rest = body.get(2..).unwrap_or_default();
        while let Some(&qos) = rest.get(2 + length(rest)) {
            answer.push(qos);
            self.counts.filters += 1;
            rest = &rest[3 + length(rest)..];
        }
        self.replies.extend_from_slice(&wire::packet(first::SUBACK, &answer));
    }
}

impl Counts {
    fn to_line(&self, cpu_ns: i64) -> String {
        let Self { connections, filters, messages: [qos0, qos1, qos2], bytes, deliveries } = self;
        format!(
            "{{\"kind\":\"counts\",\"mode\":\"sink\",\"connections\":{connections},\
             \"filters\":{filters},\"messages_qos0\":{qos0},\"messages_qos1\":{qos1},\
             \"messages_qos2\":{qos2},\"bytes\":{bytes},\"deliveries\":{deliveries},\
             \"cpu_ns\":{cpu_ns}}}"
        )
    }
}

/// The length that a text begins with; 0 where there is none.
fn length(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |&length| usize::from(u16::from_be_bytes(length)))
}
