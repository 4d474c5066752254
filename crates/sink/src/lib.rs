//! The sink: a peer that answers MQTT 3.1, 3.1.1 and 5 and discards every message. Once clients
//! have subscribed, it forwards each message to all of them at QoS 0, whatever their filters. It
//! keeps no topic, session or retained message, so it is no broker. It listens on loopback only. A
//! peer that begins with a request of HTTP gets a WebSocket. All its peers speak one version.

mod wire;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use agent::error::AgentError;
use agent::pipes;
use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use mqtt::{
    Ack, ConnAck, DecodeError, DecodedPacket, EncodeError, Packet, Publish, QoS, SubAck, Version,
    decode,
};
use nix::sys::socket::{Backlog, listen};

use wire::PeerWire;

const LISTENER: Token = Token(usize::MAX - 1);
const STDIN: Token = Token(usize::MAX - 2);
const READ_BYTES: usize = 64 * 1024;
/// Reads of one peer in a time slice.
const SLICE_READS: usize = 4;
/// A peer with more than this unsent gets no further messages, and its own wait, until it has read
/// some.
const UNSENT_BYTES_MAX: usize = 4 << 20;

/// Totals of a sink.
#[derive(Clone, Copy, Debug, Default)]
pub struct SinkCounts {
    /// CONNECT packets.
    pub connections: u64,
    /// Filters in SUBSCRIBE packets.
    pub filters: u64,
    /// Messages received, by QoS.
    pub messages: [u64; 3],
    /// Bytes received.
    pub bytes: u64,
    /// Messages forwarded, times their receivers.
    pub deliveries: u64,
}

/// Listens on a port of loopback (0: a free one), writes the port as one line of JSON to stdout,
/// and serves until stdin ends. From then on it serves until `grace` has passed without news, or
/// all peers have left. `secure` makes the stream of a connection.
///
/// # Errors
/// The kernel's, when no port, poll or thread is left.
pub fn run<S: Read + Write>(
    port: u16,
    grace: Duration,
    secure: impl Fn(TcpStream) -> io::Result<S>,
) -> Result<SinkCounts, AgentError> {
    let mut sink = Sink::new(port, secure)?;
    let port = sink.listener.local_addr()?.port();
    let version = env!("CARGO_PKG_VERSION");
    pipes::write_line(&serde_json::json!({"kind": "ready", "port": port, "version": version}))?;
    let waker = Arc::new(Waker::new(sink.poll.registry(), STDIN)?);
    // Dropping the waker would lose a pending wake-up: this clone lives as long as the poll.
    let wakes = Arc::clone(&waker);
    pipes::read_lines(|_| true, move || drop(wakes.wake()))?;
    let mut events = Events::with_capacity(1024);
    while sink.turn(&mut events, None)? {}
    while sink.open() > 0 && !grace.is_zero() {
        sink.turn(&mut events, Some(grace))?;
        if events.is_empty() && sink.again.is_empty() {
            break;
        }
    }
    Ok(sink.counts)
}

struct Sink<F, S> {
    poll: Poll,
    listener: TcpListener,
    secure: F,
    /// At the number of their token.
    peers: Vec<Option<SinkPeer<S>>>,
    /// Tokens that are free.
    free: Vec<usize>,
    /// Tokens of the peers that have subscribed.
    subscribers: Vec<usize>,
    /// Tokens of the peers with bytes for another time slice.
    again: Vec<usize>,
    buffer: Vec<u8>,
    counts: SinkCounts,
}

struct SinkPeer<S> {
    stream: S,
    wire: PeerWire,
    version: Version,
    /// The front of a packet whose rest has not arrived.
    partial: Vec<u8>,
    /// Bytes that the socket did not take.
    unsent: Vec<u8>,
    subscribed: bool,
    reads_again: bool,
}

/// Results of one read.
struct ReadOutcome<'a> {
    /// For the peer itself.
    replies: Vec<u8>,
    /// Answers of the wire, which are in no frame.
    own: Vec<u8>,
    /// For all that have subscribed.
    forwards: Vec<u8>,
    /// Messages among these.
    forwarded: u64,
    /// Some peer has subscribed.
    fans_out: bool,
    subscribed: bool,
    version: Version,
    counts: &'a mut SinkCounts,
}

impl<F: Fn(TcpStream) -> io::Result<S>, S: Read + Write> Sink<F, S> {
    fn new(port: u16, secure: F) -> Result<Self, AgentError> {
        let poll = Poll::new()?;
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let mut listener = TcpListener::bind(address).map_err(AgentError::of("cannot listen"))?;
        // The libraries' queue of 128 drops connections of a fast ramp, which try again after 1 s.
        listen(&listener, Backlog::MAXCONN).map_err(io::Error::from)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            listener,
            secure,
            peers: Vec::new(),
            free: Vec::new(),
            subscribers: Vec::new(),
            again: Vec::new(),
            buffer: vec![0; READ_BYTES],
            counts: SinkCounts::default(),
        })
    }

    /// Number of connections.
    fn open(&self) -> usize {
        self.peers.len() - self.free.len()
    }

    /// Waits once, at most for `patience`, and serves every peer with news; `false`: stdin has
    /// ended.
    fn turn(&mut self, events: &mut Events, patience: Option<Duration>) -> io::Result<bool> {
        let timeout = if self.again.is_empty() { patience } else { Some(Duration::ZERO) };
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let again = std::mem::take(&mut self.again);
        let mut ended = false;
        for event in &*events {
            match event.token() {
                STDIN => ended = true,
                LISTENER => self.accept()?,
                Token(index) => self.handle(index, event.is_writable()),
            }
        }
        for index in again {
            if let Some(Some(peer)) = self.peers.get_mut(index) {
                peer.reads_again = false;
                self.handle(index, false);
            }
        }
        Ok(!ended)
    }

    /// Takes every connection that waits; one that the kernel has no descriptor for is left.
    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            let stream = TcpStream::from(stream);
            stream.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or_else(|| {
                self.peers.push(None);
                self.peers.len() - 1
            });
            let interest = Interest::READABLE | Interest::WRITABLE;
            let mut source = SourceFd(&stream.as_raw_fd());
            self.poll.registry().register(&mut source, Token(index), interest)?;
            let stream = (self.secure)(stream)?;
            let (partial, unsent) = (Vec::new(), Vec::new());
            let (subscribed, reads_again) = (false, false);
            let (wire, version) = (PeerWire::default(), Version::default());
            self.peers[index] =
                Some(SinkPeer { stream, wire, version, partial, unsent, subscribed, reads_again });
        }
        Ok(())
    }

    fn handle(&mut self, index: usize, writable: bool) {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        if writable && peer.flush().is_err() {
            return self.close(index);
        }
        for _ in 0..SLICE_READS {
            // A peer that sends without reading would fill the memory with answers.
            let is_full = self.peers[index].as_ref().is_none_or(SinkPeer::is_full);
            if is_full || !self.read_once(index) {
                return;
            }
        }
        if let Some(peer) = &mut self.peers[index]
            && !std::mem::replace(&mut peer.reads_again, true)
        {
            self.again.push(index);
        }
    }

    /// Reads from a peer once, answers, and forwards its messages; `false`: nothing is left to
    /// read.
    fn read_once(&mut self, index: usize) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return false };
        let mut answers = ReadOutcome {
            replies: Vec::new(),
            own: Vec::new(),
            forwards: Vec::new(),
            forwarded: 0,
            fans_out: !self.subscribers.is_empty(),
            subscribed: false,
            version: peer.version,
            counts: &mut self.counts,
        };
        let read = peer.read(&mut self.buffer, &mut answers);
        let written = peer.send(&answers.own).and_then(|()| peer.write(&answers.replies));
        let goes_on = read.and_then(|count| written.map(|()| count > 0));
        let ReadOutcome { forwards, forwarded, subscribed, version, .. } = answers;
        peer.version = version;
        if goes_on.is_ok() && subscribed && !peer.subscribed {
            peer.subscribed = true;
            self.subscribers.push(index);
        }
        if goes_on.is_err() {
            self.close(index);
        }
        self.forward(&forwards, forwarded);
        goes_on.unwrap_or(false)
    }

    fn forward(&mut self, messages: &[u8], count: u64) {
        if count == 0 {
            return;
        }
        let mut closed = Vec::new();
        for &index in &self.subscribers {
            let Some(peer) = &mut self.peers[index] else { continue };
            if peer.is_full() {
                continue;
            }
            match peer.write(messages) {
                Ok(()) => self.counts.deliveries += count,
                Err(_) => closed.push(index),
            }
        }
        closed.into_iter().for_each(|index| self.close(index));
    }

    /// Dropping the stream takes it out of the poll.
    fn close(&mut self, index: usize) {
        if self.peers[index].take().is_some_and(|peer| peer.subscribed) {
            self.subscribers.retain(|&subscriber| subscriber != index);
        }
        self.free.push(index);
    }
}

impl<S: Read + Write> SinkPeer<S> {
    /// Reads once and answers; 0: nothing is left to read.
    fn read(&mut self, buffer: &mut [u8], answers: &mut ReadOutcome<'_>) -> io::Result<usize> {
        let count = match self.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            other => other?,
        };
        let payload = self.wire.take(&mut buffer[..count], &mut answers.own)?;
        let bytes = &buffer[..payload];
        answers.counts.bytes += payload as u64;
        if self.partial.is_empty() {
            let taken = answers.take(bytes)?;
            self.partial.extend_from_slice(&bytes[taken..]);
        } else {
            self.partial.extend_from_slice(bytes);
            let taken = answers.take(&self.partial)?;
            self.partial.drain(..taken);
        }
        Ok(count)
    }

    /// Writes packets, in one frame if there are frames.
    fn write(&mut self, packets: &[u8]) -> io::Result<()> {
        match self.wire.framed(packets) {
            Some(frame) => self.send(&frame),
            None => self.send(packets),
        }
    }

    /// Sends now or, after what is still unsent, later.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return Ok(());
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.unsent.extend_from_slice(rest);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    const fn is_full(&self) -> bool {
        self.unsent.len() >= UNSENT_BYTES_MAX
    }

    fn flush(&mut self) -> io::Result<()> {
        let unsent = std::mem::take(&mut self.unsent);
        self.send(&unsent)
    }
}

impl ReadOutcome<'_> {
    /// Takes all whole packets; how many bytes they have.
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let invalid = |_| io::Error::from(ErrorKind::InvalidData);
        let mut taken = 0;
        while let DecodedPacket::Packet { packet, len } =
            self.decode(&bytes[taken..]).map_err(invalid)?
        {
            self.answer(&packet).map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
            taken += len;
        }
        Ok(taken)
    }

    /// Decodes in the version of the last CONNECT.
    fn decode<'b>(&mut self, bytes: &'b [u8]) -> Result<DecodedPacket<'b>, DecodeError> {
        self.version = Version::of_connect(bytes).unwrap_or(self.version);
        decode(self.version, bytes)
    }

    fn answer(&mut self, packet: &Packet<'_>) -> Result<(), EncodeError> {
        let reply = match packet {
            Packet::Connect(_) => {
                self.counts.connections += 1;
                Packet::ConnAck(ConnAck { session_present: false, code: 0, ..ConnAck::default() })
            }
            Packet::Publish(publish) => {
                self.counts.messages[publish.qos as usize] += 1;
                if self.fans_out {
                    self.forward(publish)?;
                }
                match publish.qos {
                    QoS::AtMostOnce => return Ok(()),
                    QoS::AtLeastOnce => Packet::PubAck(Ack::of(publish.packet_id)),
                    QoS::ExactlyOnce => Packet::PubRec(Ack::of(publish.packet_id)),
                }
            }
            Packet::PubRel(ack) => Packet::PubComp(Ack::of(ack.packet_id)),
            Packet::PingReq => Packet::PingResp,
            Packet::Subscribe(subscribe) => {
                self.subscribed = true;
                let codes: Vec<u8> =
                    subscribe.filters().map(|(_, options)| options.qos as u8).collect();
                self.counts.filters += codes.len() as u64;
                let packet_id = subscribe.packet_id;
                let suback = SubAck { packet_id, codes: &codes, ..SubAck::default() };
                return Packet::SubAck(suback).encode(self.version, &mut self.replies);
            }
            // DISCONNECT is followed by the end of the connection; nothing else is sent.
            _ => return Ok(()),
        };
        reply.encode(self.version, &mut self.replies)
    }

    fn forward(&mut self, publish: &Publish<'_>) -> Result<(), EncodeError> {
        let message = Publish { qos: QoS::AtMostOnce, packet_id: 0, dup: false, ..*publish };
        self.forwarded += 1;
        Packet::Publish(message).encode(self.version, &mut self.forwards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_peer_leaves_time_slices_to_the_others() {
        const TURNS: usize = 10;
        let mut sink = Sink::new(0, Ok).unwrap();
        sink.buffer = vec![0; 1000];
        let mut client = TcpStream::connect(sink.listener.local_addr().unwrap()).unwrap();
        let message = Publish { topic: "t", payload: &[b'.'; 100], ..Publish::default() };
        let mut packets = Vec::new();
        while packets.len() < TURNS * SLICE_READS * sink.buffer.len() {
            Packet::Publish(message).encode(Version::V311, &mut packets).unwrap();
        }
        Packet::PingReq.encode(Version::V311, &mut packets).unwrap();
        client.write_all(&packets).unwrap();
        // Closes the connection behind the answer to the ping.
        let answer = std::thread::spawn(move || {
            let mut answer = [0; 2];
            client.read_exact(&mut answer).map(|()| answer)
        });
        let mut events = Events::with_capacity(16);
        let mut turns = 0;
        while sink.free.is_empty() {
            assert!(sink.turn(&mut events, None).unwrap());
            turns += 1;
        }
        assert_eq!(answer.join().unwrap().unwrap(), [0xd0, 0]);
        assert!(turns > TURNS, "all read in {turns} turns");
    }

    #[test]
    fn a_peer_that_sends_without_reading_is_read_no_further() {
        let mut sink = Sink::new(0, Ok).unwrap();
        let mut client = TcpStream::connect(sink.listener.local_addr().unwrap()).unwrap();
        client.set_nonblocking(true).unwrap();
        let pings = [0xc0, 0].repeat(512 << 10);
        let mut events = Events::with_capacity(16);
        let (mut refused, mut written) = (0, 0);
        // The kernel takes nothing more once the sink reads no further.
        while refused < 100 {
            let count = client.write(&pings[written % 2..]);
            refused = if count.is_ok() { 0 } else { refused + 1 };
            written += count.unwrap_or(0);
            sink.turn(&mut events, Some(Duration::ZERO)).unwrap();
            let unsent = sink.peers.iter().flatten().map(|peer| peer.unsent.len()).sum::<usize>();
            assert!(unsent <= UNSENT_BYTES_MAX + READ_BYTES, "{unsent} bytes");
        }
        let sent = sink.counts.bytes;
        assert!(sent > UNSENT_BYTES_MAX as u64);
        // The sink reads on once the peer does.
        let mut answers = vec![0; 2 * UNSENT_BYTES_MAX];
        while sink.counts.bytes == sent {
            let _ = client.read(&mut answers);
            sink.turn(&mut events, Some(Duration::ZERO)).unwrap();
        }
    }
}
