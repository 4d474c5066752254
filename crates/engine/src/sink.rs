//! The null sink: the peer that calibration measures the engine against. It answers what must be
//! answered and throws every message away; where clients have subscribed it hands each message on
//! to all of them at QoS 0, whatever their filters. It knows no topic, session or retained message,
//! so it is no broker. It listens on loopback only and ends with its stdin.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use anyhow::{Context, Result};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use mqtt::{ConnAck, Decoded, EncodeError, Packet, Publish, QoS, SubAck, Version, decode};

use crate::pipes;

const LISTENER: Token = Token(usize::MAX - 1);
const STDIN: Token = Token(usize::MAX - 2);
const READ_BYTES: usize = 64 * 1024;
/// Reads from one peer in one turn of the loop, before the other peers have theirs.
const TURN_READS: usize = 4;
/// A subscriber with more than this unsent gets no further messages until it has read some.
const UNSENT_BYTES_MAX: usize = 4 << 20;

/// Says which port it listens on, as one line of JSON, and serves until stdin ends.
///
/// # Errors
/// The kernel's, when there is no port, poll or thread left.
pub fn run() -> Result<()> {
    let mut sink = Sink::new()?;
    let port = sink.listener.local_addr()?.port();
    let version = env!("CARGO_PKG_VERSION");
    pipes::write_line(&serde_json::json!({"kind": "ready", "port": port, "version": version}))?;
    let waker = Arc::new(Waker::new(sink.poll.registry(), STDIN)?);
    // A waker that is dropped takes back that it woke: this one lives as long as the poll.
    let wakes = Arc::clone(&waker);
    let wait = move || {
        // However stdin ends, there is nobody left to serve.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = wakes.wake();
    };
    Builder::new().name("stdin".into()).spawn(wait)?;
    sink.serve()
}

struct Sink {
    poll: Poll,
    listener: TcpListener,
    /// At the number of their token.
    peers: Vec<Option<Peer>>,
    /// Tokens that are free.
    free: Vec<usize>,
    /// Tokens of the peers that have subscribed.
    subscribers: Vec<usize>,
    /// Tokens of the peers whose reading continues in the next turn.
    again: Vec<usize>,
    buffer: Vec<u8>,
}

struct Peer {
    stream: TcpStream,
    /// The front of a packet whose rest has not arrived.
    partial: Vec<u8>,
    /// What the socket did not take.
    unsent: Vec<u8>,
    subscribed: bool,
    reads_again: bool,
}

/// What comes of the bytes of one read.
#[derive(Default)]
struct Answers {
    /// For the peer itself.
    replies: Vec<u8>,
    /// For all that have subscribed.
    forwards: Vec<u8>,
    /// Whether anybody has subscribed.
    fans_out: bool,
    subscribed: bool,
}

impl Sink {
    fn new() -> Result<Self> {
        let poll = Poll::new()?;
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let mut listener = TcpListener::bind(address).context("cannot listen")?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let buffer = vec![0; READ_BYTES];
        let (peers, free, subscribers, again) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(Self { poll, listener, peers, free, subscribers, again, buffer })
    }

    fn serve(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        while self.turn(&mut events)? {}
        Ok(())
    }

    /// Waits once and serves every peer with news; `false`: stdin has ended.
    fn turn(&mut self, events: &mut Events) -> Result<bool> {
        let timeout = (!self.again.is_empty()).then_some(Duration::ZERO);
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        let again = std::mem::take(&mut self.again);
        for event in &*events {
            match event.token() {
                STDIN => return Ok(false),
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
        Ok(true)
    }

    /// Takes every connection that waits; one that the kernel has no descriptor for is left.
    fn accept(&mut self) -> Result<()> {
        while let Ok((mut stream, _)) = self.listener.accept() {
            stream.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or_else(|| {
                self.peers.push(None);
                self.peers.len() - 1
            });
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(index), interest)?;
            let (partial, unsent) = (Vec::new(), Vec::new());
            let (subscribed, reads_again) = (false, false);
            self.peers[index] = Some(Peer { stream, partial, unsent, subscribed, reads_again });
        }
        Ok(())
    }

    fn handle(&mut self, index: usize, writable: bool) {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return };
        if writable && peer.flush().is_err() {
            return self.close(index);
        }
        for _ in 0..TURN_READS {
            if !self.read_once(index) {
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
        let mut answers = Answers { fans_out: !self.subscribers.is_empty(), ..Answers::default() };
        let read = peer.read(&mut self.buffer, &mut answers);
        let goes_on = read.and_then(|count| peer.write(&answers.replies).map(|()| count > 0));
        if goes_on.is_ok() && answers.subscribed && !peer.subscribed {
            peer.subscribed = true;
            self.subscribers.push(index);
        }
        if goes_on.is_err() {
            self.close(index);
        }
        self.forward(&answers.forwards);
        goes_on.unwrap_or(false)
    }

    fn forward(&mut self, messages: &[u8]) {
        if messages.is_empty() {
            return;
        }
        let mut closed = Vec::new();
        for &index in &self.subscribers {
            let Some(peer) = &mut self.peers[index] else { continue };
            if peer.unsent.len() < UNSENT_BYTES_MAX && peer.write(messages).is_err() {
                closed.push(index);
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

impl Peer {
    /// Reads once and answers; 0: nothing is left to read.
    fn read(&mut self, buffer: &mut [u8], answers: &mut Answers) -> io::Result<usize> {
        let count = match self.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            other => other?,
        };
        if self.partial.is_empty() {
            let taken = answers.take(&buffer[..count])?;
            self.partial.extend_from_slice(&buffer[taken..count]);
        } else {
            self.partial.extend_from_slice(&buffer[..count]);
            let taken = answers.take(&self.partial)?;
            self.partial.drain(..taken);
        }
        Ok(count)
    }

    /// Writes now or, after what is still unsent, later.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
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

    fn flush(&mut self) -> io::Result<()> {
        let unsent = std::mem::take(&mut self.unsent);
        self.write(&unsent)
    }
}

impl Answers {
    /// Takes all whole packets; how many bytes they have.
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let invalid = |_| io::Error::from(ErrorKind::InvalidData);
        let mut taken = 0;
        while let Decoded::Packet { packet, len } =
            decode(Version::V311, &bytes[taken..]).map_err(invalid)?
        {
            self.answer(&packet).map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
            taken += len;
        }
        Ok(taken)
    }

    fn answer(&mut self, packet: &Packet<'_>) -> Result<(), EncodeError> {
        let reply = match packet {
            Packet::Connect(_) => Packet::ConnAck(ConnAck { session_present: false, code: 0 }),
            Packet::Publish(publish) => {
                if self.fans_out {
                    self.forward(publish)?;
                }
                match publish.qos {
                    QoS::AtMostOnce => return Ok(()),
                    QoS::AtLeastOnce => Packet::PubAck { packet_id: publish.packet_id },
                    QoS::ExactlyOnce => Packet::PubRec { packet_id: publish.packet_id },
                }
            }
            Packet::PubRel { packet_id } => Packet::PubComp { packet_id: *packet_id },
            Packet::PingReq => Packet::PingResp,
            Packet::Subscribe(subscribe) => {
                self.subscribed = true;
                let codes: Vec<u8> = subscribe.filters().map(|(_, qos)| qos as u8).collect();
                let suback = SubAck { packet_id: subscribe.packet_id, codes: &codes };
                return Packet::SubAck(suback).encode(Version::V311, &mut self.replies);
            }
            // DISCONNECT is followed by the end of the connection; nothing else is sent.
            _ => return Ok(()),
        };
        reply.encode(Version::V311, &mut self.replies)
    }

    fn forward(&mut self, publish: &Publish<'_>) -> Result<(), EncodeError> {
        let message = Publish { qos: QoS::AtMostOnce, packet_id: 0, dup: false, ..*publish };
        Packet::Publish(message).encode(Version::V311, &mut self.forwards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net;

    #[test]
    fn a_flood_of_one_peer_leaves_the_others_their_turns() {
        const TURNS: usize = 10;
        let mut sink = Sink::new().unwrap();
        sink.buffer = vec![0; 1000];
        let mut client = net::TcpStream::connect(sink.listener.local_addr().unwrap()).unwrap();
        let message = Publish { topic: "t", payload: &[b'.'; 100], ..Publish::default() };
        let mut packets = Vec::new();
        while packets.len() < TURNS * TURN_READS * sink.buffer.len() {
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
            assert!(sink.turn(&mut events).unwrap());
            turns += 1;
        }
        assert_eq!(answer.join().unwrap().unwrap(), [0xd0, 0]);
        assert!(turns > TURNS, "all read in {turns} turns");
    }
}
