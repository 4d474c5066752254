//! The network's part of QUIC: sockets of clients, datagrams on their way, and the streams between
//! the server and the broker.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;
use testkit::QuicAnswer;

use super::{ClientSocket, FIRST_PORT, NO_ROOM_NS, QUIC_LINES, QuicLine, QuicSide};
use crate::network::{Network, NetworkEvent};
use crate::output::Output;
use crate::spoken::Spoken;
use crate::weather::{DatagramWeather, OpeningOutcome};

/// Place of the identifier of a server in a first packet, and the length that clients choose
/// [9000, 17.2].
const IDENTIFIER: std::ops::Range<usize> = 6..26;

impl Network {
    /// Begins a connection of a client: the next datagram that is sent is its first.
    pub fn begin_quic(&mut self) -> io::Result<usize> {
        self.spend();
        let opening = self.weather.opening(self.now_ns, &mut self.quic.rng);
        if opening == OpeningOutcome::NoPorts {
            return Err(Errno::EADDRNOTAVAIL.into());
        }
        let number = self.quic.lines.len();
        self.quic.opening.push_back(number);
        self.quic.lines.push(QuicLine {
            opening,
            socket: usize::MAX,
            is_accepted: false,
            is_closed: false,
            has_ended: false,
            unsent: Vec::new(),
            ends: false,
            unread: 0,
            stalled_until_ns: 0,
            is_scheduled: false,
        });
        Ok(QUIC_LINES + number)
    }

    /// Connections that the server has seen at another address.
    pub const fn migrations_total(&self) -> u64 {
        self.quic.server.migrations_total
    }

    /// A client has closed a connection.
    pub fn close_quic(&mut self, index: usize) {
        self.quic.line(index).is_closed = true;
        self.quic.opening.retain(|&number| QUIC_LINES + number != index);
    }

    /// A client has read bytes of the broker.
    pub fn note_read_quic(&mut self, index: usize, client: (usize, u32), bytes: &[u8]) {
        let line = self.quic.line(index);
        line.unread = line.unread.saturating_sub(bytes.len());
        self.wire.received(index, client, bytes, self.now_ns);
    }

    /// The socket of an agent towards a target, as `socket(2)`.
    pub fn datagram_socket(
        &mut self,
        agent: usize,
        source: Option<IpAddr>,
        (target, turn): (SocketAddr, u32),
    ) -> io::Result<u16> {
        let is_own = |socket: &ClientSocket| {
            socket.agent == agent
                && (socket.source, socket.target, socket.turn) == (source, target, turn)
        };
        let found = self.quic.sockets.iter().position(is_own);
        // A hub asks for the socket of the connection that has just begun, or of one that migrates.
        let begun = self.quic.lines.last_mut();
        if let Some(line) = begun.filter(|line| line.socket == usize::MAX) {
            line.socket = found.unwrap_or(self.quic.sockets.len());
        }
        if let Some(found) = found {
            return Ok(found as u16);
        }
        self.take_descriptor(agent)?;
        let address = self.quic.next_address(source);
        self.quic.sockets.push(ClientSocket {
            agent,
            source,
            target,
            turn,
            address,
            earlier: Vec::new(),
            inbox: VecDeque::new(),
            has_news: false,
            full_until_ns: 0,
        });
        Ok((self.quic.sockets.len() - 1) as u16)
    }

    /// As `sendmsg(2)`.
    pub fn send_datagrams<'a>(
        &mut self,
        socket: u16,
        to: SocketAddr,
        datagrams: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> io::Result<()> {
        self.spend();
        let Some(bytes) = datagrams.clone().next() else { return Ok(()) };
        let QuicSide { sockets, rng, weather, opening, lines, numbers, .. } = &mut self.quic;
        let from = &mut sockets[usize::from(socket)];
        let is_own = |&number: &usize| lines[number].socket == usize::from(socket);
        if let Some(identifier) = first_identifier(bytes)
            && !numbers.contains_key(identifier)
            && let Some(at) = opening.iter().position(is_own)
            && let Some(number) = opening.remove(at)
        {
            numbers.insert(identifier.to_vec(), number);
            if lines[number].opening == OpeningOutcome::Unreachable {
                return Err(Errno::EHOSTUNREACH.into());
            }
        }
        if from.full_until_ns > self.now_ns {
            return Err(ErrorKind::WouldBlock.into());
        }
        if rng.chance(weather.full) {
            from.full_until_ns = self.now_ns + NO_ROOM_NS;
            let at_ns = from.full_until_ns;
            self.weather.note("no room for a datagram");
            self.schedule(at_ns, NetworkEvent::Room(usize::from(socket)));
            return Err(ErrorKind::WouldBlock.into());
        }
        let from = from.address;
        datagrams.for_each(|bytes| self.carry(from, to, bytes));
        Ok(())
    }

    /// As `recvmsg(2)`.
    pub fn receive_datagram(&mut self, socket: u16) -> Option<(SocketAddr, Vec<u8>)> {
        self.quic.sockets[usize::from(socket)].inbox.pop_front()
    }

    /// Takes the sockets of an agent with news, and says which have room again.
    pub fn take_datagram_news(&mut self, agent: usize) -> Vec<(u16, bool)> {
        let mut news = Vec::new();
        for (at, socket) in self.quic.sockets.iter_mut().enumerate() {
            if socket.agent == agent && std::mem::take(&mut socket.has_news) {
                news.push((at as u16, socket.full_until_ns <= self.now_ns));
            }
        }
        news
    }

    /// Puts a datagram on its way: once, twice or never.
    fn carry(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let DatagramWeather { lost, doubled, .. } = self.quic.weather;
        if self.quic.rng.chance(lost) {
            return self.weather.note("datagram lost");
        }
        let copies = if self.quic.rng.chance(doubled) { 2 } else { 1 };
        for copy in 0..copies {
            if copy > 0 {
                self.weather.note("datagram twice");
            }
            let at_ns = self.now_ns + self.weather.latency_ns(&mut self.quic.rng);
            let number = self.quic.datagrams_total;
            self.quic.datagrams_total += 1;
            self.quic.under_way.insert(number, (from, to, bytes.to_vec()));
            self.schedule(at_ns, NetworkEvent::Datagram(number));
        }
    }

    /// A datagram arrives.
    pub fn arrive_datagram(&mut self, number: usize) {
        if self.quic.under_way.keys().next() < Some(&number) {
            self.weather.note("datagram out of order");
        }
        let Some((from, to, bytes)) = self.quic.under_way.remove(&number) else { return };
        let found = self.quic.sockets.iter_mut().find(|socket| socket.is_at(to));
        if let Some(socket) = found {
            socket.inbox.push_back((from, bytes));
            socket.has_news = true;
            return;
        }
        if to.port() >= FIRST_PORT {
            return self.weather.note("datagram for an address of the past");
        }
        let QuicSide { server, numbers, lines, .. } = &mut self.quic;
        let mut refused = false;
        server.receive(self.now_ns, from, &bytes, |identifier| {
            let Some(&number) = numbers.get(identifier) else { return QuicAnswer::Ignore };
            match lines[number].opening {
                OpeningOutcome::Accepted => QuicAnswer::Accept(number),
                OpeningOutcome::Refused => {
                    refused = true;
                    QuicAnswer::Refuse
                }
                _ => QuicAnswer::Ignore,
            }
        });
        if refused {
            self.weather.note("QUIC refused");
        }
        self.serve_quic();
    }

    /// The server handles what has happened, and its timers.
    pub fn serve_quic(&mut self) {
        loop {
            self.quic.server.drive(self.now_ns);
            let Some(number) = self.quic.server.moved.pop_front() else { break };
            self.look_at(QUIC_LINES + number);
        }
        while let Some((to, bytes)) = self.quic.server.outgoing.pop_front() {
            let found = self.quic.sockets.iter().find(|socket| socket.is_at(to));
            let from = found.map_or(to, |socket| socket.target);
            self.carry(from, to, &bytes);
        }
        let next_ns = self.quic.server.next_ns();
        if next_ns < self.quic.timer_ns || self.quic.timer_ns <= self.now_ns {
            self.quic.timer_ns = next_ns;
            if next_ns < u64::MAX {
                self.schedule(next_ns, NetworkEvent::QuicTimer);
            }
        }
    }

    /// Accepts a stream, reads from the stream and writes to it.
    fn look_at(&mut self, index: usize) {
        let number = index - QUIC_LINES;
        let (is_open, is_idle) = (
            self.quic.server.is_open(number),
            self.quic.server.end(number) == Some(&quinn_proto::ConnectionError::TimedOut),
        );
        if is_idle {
            self.weather.note("idle timeout");
        }
        if !is_open {
            return;
        }
        if !std::mem::replace(&mut self.quic.line(index).is_accepted, true) {
            let manner = self.weather.manner(&mut self.quic.rng);
            self.peer.accept(index, manner, Spoken::Mqtt, self.now_ns);
        }
        self.schedule_read(index, 0);
        self.write_quic(index);
        self.take_output();
    }

    fn schedule_read(&mut self, index: usize, from_ns: u64) {
        let line = self.quic.line(index);
        if !std::mem::replace(&mut line.is_scheduled, true) {
            let at_ns = from_ns.max(line.stalled_until_ns);
            self.schedule(at_ns, NetworkEvent::QuicRead(index));
        }
    }

    /// The broker reads from a stream, and then writes.
    pub fn read_quic(&mut self, index: usize) {
        let line = self.quic.line(index);
        line.is_scheduled = false;
        if line.stalled_until_ns > self.now_ns {
            return self.schedule_read(index, 0);
        }
        let most = self.weather.gulp(&mut self.quic.rng);
        let (bytes, has_ended) = self.quic.server.read(index - QUIC_LINES, most);
        if !bytes.is_empty() && self.peer.has(index) {
            self.peer.receive(index, &bytes, self.now_ns);
        }
        if has_ended {
            if !std::mem::replace(&mut self.quic.line(index).has_ended, true) {
                self.peer.gone(index, self.now_ns);
                self.quic.server.finish(index - QUIC_LINES);
            }
            if self.quic.server.end(index - QUIC_LINES).is_some() {
                self.quic.server.forget(index - QUIC_LINES);
            }
        } else if bytes.len() == most {
            self.schedule_read(index, self.now_ns + self.weather.gulp_ns);
        }
        self.take_output();
        self.write_quic(index);
        self.serve_quic();
    }

    /// The broker writes on a connection, or ends it.
    pub fn take_quic_output(&mut self, index: usize, output: Output) {
        let line = self.quic.line(index);
        match output {
            Output::Bytes(bytes) => {
                line.unread += bytes.len();
                line.unsent.extend(bytes);
            }
            Output::End => line.ends = true,
            Output::Reset => {
                line.unsent.clear();
                line.unread = 0;
                return self.reset_quic(index);
            }
        }
        let at_ns = line.stalled_until_ns;
        self.schedule(at_ns, NetworkEvent::QuicWrite(index));
    }

    fn reset_quic(&mut self, index: usize) {
        let number = index - QUIC_LINES;
        let server = &mut self.quic.server;
        match self.quic.rng.below(3) {
            0 => server.reset(number, 1),
            1 => server.close(self.now_ns, number, 7),
            _ => server.forget(number),
        }
        self.schedule(self.now_ns, NetworkEvent::QuicTimer);
    }

    /// The broker continues with writing.
    pub fn write_on_quic(&mut self, index: usize) {
        self.write_quic(index);
        self.serve_quic();
    }

    fn write_quic(&mut self, index: usize) {
        let now_ns = self.now_ns;
        let QuicSide { server, lines, .. } = &mut self.quic;
        let number = index - QUIC_LINES;
        let line = &mut lines[number];
        if line.stalled_until_ns > now_ns {
            return;
        }
        if !line.unsent.is_empty() {
            let count = server.write(number, &line.unsent);
            line.unsent.drain(..count);
        }
        if line.unsent.is_empty() && std::mem::take(&mut line.ends) {
            server.finish(number);
        }
        if !line.unsent.is_empty() {
            self.weather.note("stream blocked");
        }
    }
}

/// The identifier that a client has chosen for the server, in the first packet of a connection.
fn first_identifier(datagram: &[u8]) -> Option<&[u8]> {
    // quinn-proto varies the second bit where the server of the offered session allows it [9287].
    let is_initial = datagram[0] & 0xb0 == 0x80;
    let length = usize::from(*datagram.get(IDENTIFIER.start - 1)?);
    datagram.get(IDENTIFIER).filter(|_| is_initial && length == IDENTIFIER.len())
}
