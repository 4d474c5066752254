//! A simulated network in virtual time that jumps from event to event. A connection is two byte
//! pipes with limited room.
//!
//! News are reported as epoll's edges are: once for each change, with the whole state of the socket
//! at the time of the wait. The end of a stream is reported once, with the edge that brings it.

mod faults;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, ErrorKind};

use nix::errno::Errno;
use testkit::Rng;

use super::carrier::CarrierProgram;
use super::datagrams::{QUIC_LINES, QuicSide};
use super::output::{Arrival, Output, Pipe};
use super::peer::Peer;
use super::spoken::Spoken;
use super::weather::{OpeningOutcome, Weather};
use super::wire::WireRecord;
use engine::{Ready, TcpRoute};

/// Longest time of a call into the kernel.
const CALL_NS: usize = 2_000;

/// All connections of all agents, and the broker that they lead to.
pub struct Network {
    /// Current time.
    pub now_ns: u64,
    /// Faults that may happen.
    pub weather: Weather,
    /// The other end of every connection.
    pub peer: Peer,
    /// Record of all connections.
    pub wire: WireRecord,
    /// Most bytes that an agent has read between two waits.
    pub read_most: usize,
    /// Pieces of bytes that have arrived at clients.
    pub pieces_total: u64,
    /// Connections over QUIC.
    pub quic: QuicSide,
    rng: Rng,
    events: BinaryHeap<Reverse<(u64, u64, NetworkEvent)>>,
    scheduled_total: u64,
    connections: Vec<NetworkConnection>,
    machines: Vec<MachineState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkEvent {
    /// An attempt to connect succeeds or fails.
    Opened(usize),
    /// Bytes arrive at the broker.
    Up(usize),
    /// Bytes arrive at the client.
    Down(usize),
    /// A reset arrives at the client; it waits for no bytes.
    Reset(usize),
    /// A fault happens.
    Fault(usize),
    /// A datagram arrives.
    Datagram(usize),
    /// A socket for datagrams has room again.
    Room(usize),
    /// The broker reads from a stream of QUIC.
    QuicRead(usize),
    /// The broker writes on a stream of QUIC.
    QuicWrite(usize),
    /// The server of QUIC has a timer.
    QuicTimer,
    /// The broker checks for clients that have been silent for too long.
    KeepAlive,
    /// The program that carries messages publishes some.
    Carrier,
}

/// The machine of one agent.
#[derive(Default)]
struct MachineState {
    descriptors: usize,
    descriptors_max: usize,
    /// Connections with news.
    news: Vec<usize>,
    woken: bool,
    waits_total: u64,
    /// Bytes read since the last wait.
    read: usize,
}

struct NetworkConnection {
    agent: usize,
    client: u32,
    spoken: Spoken,
    opening: OpeningOutcome,
    state: SocketState,
    latency_ns: u64,
    up: Pipe,
    down: Pipe,
    /// Bytes that have arrived at the client and are not read.
    receive: VecDeque<u8>,
    receive_max: usize,
    /// The end of the stream has arrived behind it.
    ended: bool,
    /// True if a write found too little room, so that new room is reported.
    wants_room: bool,
    has_news: bool,
    /// A filter is above it, and notes the bytes of the protocol.
    is_secured: bool,
    /// The broker does nothing on this connection before this instant.
    stalled_until_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SocketState {
    Opening,
    Open,
    /// Failed; the error is reported once.
    Failed(Option<Errno>),
    /// Closed by the client.
    Closed,
}

impl Network {
    /// A network that begins at `now_ns` with this weather.
    pub fn new(seed: u64, agents: usize, now_ns: u64, weather: Weather, peer: Peer) -> Self {
        let descriptors_max = weather.descriptors_max;
        let machine = || MachineState { descriptors_max, ..MachineState::default() };
        let quic = QuicSide::new(seed, weather.datagrams);
        let mut network = Self {
            now_ns,
            quic,
            weather,
            peer,
            wire: WireRecord::default(),
            read_most: 0,
            pieces_total: 0,
            rng: Rng::new(seed),
            events: BinaryHeap::new(),
            scheduled_total: 0,
            connections: Vec::new(),
            machines: (0..agents).map(|_| machine()).collect(),
        };
        for fault in 0..network.weather.faults.len() {
            let at_ns = network.now_ns + network.weather.faults[fault].0;
            network.schedule(at_ns, NetworkEvent::Fault(fault));
        }
        network.schedule(now_ns, NetworkEvent::KeepAlive);
        network
    }

    /// Descriptors of sockets that an agent has not closed.
    pub fn descriptors(&self, agent: usize) -> usize {
        self.machines[agent].descriptors
    }

    /// Connections that were begun.
    pub fn connections_total(&self) -> usize {
        self.connections.len()
    }

    /// Returns `true` if bytes of the broker are on their way to clients, or wait for them.
    pub fn has_unread(&self) -> bool {
        let mut open = self.connections.iter().filter(|c| c.state == SocketState::Open);
        open.any(|c| !c.receive.is_empty() || c.down.bytes > 0) || self.quic.has_unread()
    }

    /// Number of waits of an agent.
    pub fn waits_total(&self, agent: usize) -> u64 {
        self.machines[agent].waits_total
    }

    /// Ends the wait of an agent, as a waker does.
    pub fn wake(&mut self, agent: usize) {
        self.machines[agent].woken = true;
    }

    /// Returns `true` if a wait of this agent ends at once.
    pub fn has_news(&self, agent: usize) -> bool {
        let machine = &self.machines[agent];
        machine.woken || !machine.news.is_empty() || self.quic.has_news(agent)
    }

    /// Advances the time to `until_ns`, or to earlier news of any agent.
    pub fn advance(&mut self, until_ns: u64) {
        while let Some(&Reverse((at_ns, ..))) = self.events.peek() {
            if at_ns > until_ns.max(self.now_ns) {
                break;
            }
            let Some(Reverse((_, _, event))) = self.events.pop() else { return };
            self.now_ns = self.now_ns.max(at_ns);
            self.happen(event);
            if (0..self.machines.len()).any(|agent| self.has_news(agent)) {
                return;
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
    }

    /// As `socket(2)` and `connect(2)`.
    pub fn open(&mut self, agent: usize, client: u32, route: &TcpRoute) -> io::Result<usize> {
        self.spend();
        self.take_descriptor(agent)?;
        let opening = self.weather.opening(self.now_ns, &mut self.rng);
        if opening == OpeningOutcome::NoPorts {
            self.machines[agent].descriptors -= 1;
            return Err(Errno::EADDRNOTAVAIL.into());
        }
        let latency_ns = self.weather.latency_ns(&mut self.rng);
        let rooms = self.weather.rooms(&mut self.rng);
        let (connection, spoken) = (self.connections.len(), Spoken::at(route.target.port()));
        self.wire.begin(connection, spoken);
        self.connections.push(NetworkConnection {
            agent,
            client,
            spoken,
            opening,
            state: SocketState::Opening,
            latency_ns,
            up: Pipe { room_max: rooms.0, ..Pipe::default() },
            down: Pipe::default(),
            receive: VecDeque::new(),
            receive_max: route.receive_buffer.unwrap_or(rooms.1),
            ended: false,
            wants_room: false,
            has_news: false,
            is_secured: false,
            stalled_until_ns: 0,
        });
        if opening != OpeningOutcome::Silence {
            self.schedule(self.now_ns + 2 * latency_ns, NetworkEvent::Opened(connection));
        }
        Ok(connection)
    }

    /// Takes a descriptor for a socket of an agent.
    pub fn take_descriptor(&mut self, agent: usize) -> io::Result<()> {
        let machine = &mut self.machines[agent];
        if machine.descriptors >= machine.descriptors_max {
            self.weather.note("descriptors ran out");
            return Err(Errno::EMFILE.into());
        }
        machine.descriptors += 1;
        Ok(())
    }

    /// Closes the sockets for datagrams of an agent.
    pub fn close_datagram_sockets(&mut self, agent: usize) {
        self.machines[agent].descriptors -= self.quic.close_sockets(agent);
    }

    /// As `epoll_ctl(2)` with another index: what has happened is news again.
    pub fn rename(&mut self, index: usize, client: usize) {
        self.connections[index].client = client as u32;
        self.news(index);
    }

    /// As `epoll_wait(2)` once it returns.
    pub fn wait(&mut self, agent: usize, until_ns: u64, ready: &mut Vec<Ready>) {
        self.spend();
        let machine = &mut self.machines[agent];
        machine.waits_total += 1;
        machine.read = 0;
        self.wire.turns_total += 1;
        let has_news = !machine.news.is_empty() || self.quic.has_news(agent);
        let is_due = machine.woken || has_news || until_ns <= self.now_ns;
        assert!(is_due, "an agent waits until its time has come");
        machine.woken = false;
        let count = machine.news.len().min(1 + self.rng.below(16));
        for _ in 0..count {
            let machine = &mut self.machines[agent];
            let connection = machine.news.swap_remove(self.rng.below(machine.news.len()));
            ready.extend(self.connections[connection].take_news());
        }
    }

    /// As `read(2)`.
    pub fn read(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<usize> {
        self.spend();
        if self.rng.chance(1) {
            return Err(ErrorKind::Interrupted.into());
        }
        let now_ns = self.now_ns;
        let connection = &mut self.connections[index];
        let count = connection.receive.len().min(buffer.len());
        if count > 0 {
            for (to, from) in buffer.iter_mut().zip(connection.receive.drain(..count)) {
                *to = from;
            }
            let agent = connection.agent;
            self.machines[agent].read += count;
            self.read_most = self.read_most.max(self.machines[agent].read);
            if !self.connections[index].is_secured {
                self.note_read(index, &buffer[..count]);
            }
            self.schedule_down(index, now_ns + self.connections[index].latency_ns);
            return Ok(count);
        }
        match &mut connection.state {
            SocketState::Failed(error) => error.take().map_or(Ok(0), |error| Err(error.into())),
            _ if connection.ended => Ok(0),
            _ => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Returns `true` once a connection is established.
    pub fn is_connected(&self, index: usize) -> bool {
        matches!(self.connections[index].state, SocketState::Open)
    }

    /// As `write(2)`.
    pub fn write(&mut self, index: usize, bytes: &[u8]) -> io::Result<usize> {
        self.spend();
        if self.rng.chance(1) {
            return Err(ErrorKind::Interrupted.into());
        }
        let connection = &mut self.connections[index];
        match &mut connection.state {
            SocketState::Open => {}
            SocketState::Opening => return Err(ErrorKind::WouldBlock.into()),
            SocketState::Failed(error) => return Err(error.take().unwrap_or(Errno::EPIPE).into()),
            SocketState::Closed => unreachable!("a closed socket is gone"),
        }
        let count = connection.up.room().min(bytes.len());
        // As with SOCK_NOSPACE, only the report of room ends the wish: a later write may be short.
        connection.wants_room |= count < bytes.len();
        if count == 0 {
            self.weather.note("no room to write");
            return Err(ErrorKind::WouldBlock.into());
        }
        if count < bytes.len() {
            self.weather.note("short write");
        }
        let arrives_ns = self.now_ns + connection.latency_ns;
        connection.up.push(arrives_ns, Arrival::Bytes(bytes[..count].to_vec()));
        if !connection.is_secured {
            self.note_written(index, &bytes[..count]);
        }
        self.schedule_up(index, 0);
        Ok(count)
    }

    /// Leaves it to a filter to note the bytes of the protocol.
    pub fn secure(&mut self, index: usize) {
        self.connections[index].is_secured = true;
    }

    /// Notes bytes of the protocol that a client has read.
    pub fn note_read(&mut self, index: usize, bytes: &[u8]) {
        let NetworkConnection { agent, client, .. } = self.connections[index];
        self.wire.received(index, (agent, client), bytes, self.now_ns);
    }

    /// Notes bytes of the protocol that a client has written.
    pub fn note_written(&mut self, index: usize, bytes: &[u8]) {
        let NetworkConnection { agent, client, .. } = self.connections[index];
        self.wire.sent(index, (agent, client), bytes);
    }

    /// As `close(2)`: what was written still goes, unless something is left unread.
    pub fn close(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let was = std::mem::replace(&mut connection.state, SocketState::Closed);
        self.machines[connection.agent].descriptors -= 1;
        let has_news = std::mem::take(&mut connection.has_news);
        if has_news {
            self.machines[connection.agent].news.retain(|&other| other != index);
        }
        if was == SocketState::Open {
            if !connection.receive.is_empty() {
                self.weather.note("closed with bytes unread");
            }
            let arrives_ns = self.now_ns + connection.latency_ns;
            connection.up.push(arrives_ns, Arrival::End);
            self.schedule_up(index, 0);
        }
    }

    /// A call into the kernel takes its time.
    pub fn spend(&mut self) {
        self.now_ns += self.rng.below(CALL_NS) as u64;
    }

    /// Lets an event happen at an instant.
    pub fn schedule(&mut self, at_ns: u64, event: NetworkEvent) {
        self.scheduled_total += 1;
        self.events.push(Reverse((at_ns.max(self.now_ns), self.scheduled_total, event)));
    }

    fn schedule_up(&mut self, index: usize, from_ns: u64) {
        let from_ns = from_ns.max(self.connections[index].stalled_until_ns);
        if let Some(at_ns) = self.connections[index].up.next_ns() {
            self.schedule(at_ns.max(from_ns), NetworkEvent::Up(index));
        }
    }

    fn schedule_down(&mut self, index: usize, from_ns: u64) {
        if let Some(at_ns) = self.connections[index].down.next_ns() {
            self.schedule(at_ns.max(from_ns), NetworkEvent::Down(index));
        }
    }

    fn news(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let is_closed = connection.state == SocketState::Closed;
        if !is_closed && !std::mem::replace(&mut connection.has_news, true) {
            self.machines[connection.agent].news.push(index);
        }
    }

    fn happen(&mut self, event: NetworkEvent) {
        match event {
            NetworkEvent::Opened(index) => self.opened(index),
            NetworkEvent::Up(index) => self.arrive_up(index),
            NetworkEvent::Down(index) => self.arrive_down(index),
            NetworkEvent::Reset(index) => self.arrive_reset(index),
            NetworkEvent::Fault(index) => self.go_wrong(index),
            NetworkEvent::Datagram(number) => self.arrive_datagram(number),
            NetworkEvent::Room(socket) => self.quic.give_room(socket),
            NetworkEvent::QuicRead(index) => self.read_quic(index),
            NetworkEvent::QuicWrite(index) => self.write_on_quic(index),
            NetworkEvent::QuicTimer => self.serve_quic(),
            NetworkEvent::KeepAlive => {
                self.peer.expire(self.now_ns);
                self.take_output();
                let at_ns = self.now_ns + self.weather.keep_alive_check_ns;
                self.schedule(at_ns, NetworkEvent::KeepAlive);
            }
            NetworkEvent::Carrier => {
                self.peer.carry(self.now_ns);
                self.take_output();
            }
        }
    }

    fn opened(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.state != SocketState::Opening {
            return;
        }
        connection.state = match connection.opening {
            OpeningOutcome::Refused => SocketState::Failed(Some(Errno::ECONNREFUSED)),
            OpeningOutcome::Unreachable => SocketState::Failed(Some(Errno::EHOSTUNREACH)),
            _ => SocketState::Open,
        };
        if connection.state == SocketState::Open {
            let manner = self.weather.manner(&mut self.rng);
            self.peer.accept(index, manner, connection.spoken, self.now_ns);
            self.take_output();
        }
        self.news(index);
    }

    /// Something arrives at the broker, which takes it as fast as it reads.
    fn arrive_up(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.up.is_scheduled = false;
        if connection.stalled_until_ns > self.now_ns {
            return self.schedule_up(index, 0);
        }
        let most = self.weather.gulp(&mut self.rng);
        let Some(arrival) = connection.up.pop(most) else { return };
        let has_room = connection.up.room() * 3 >= connection.up.room_max;
        let gets_room = connection.wants_room && has_room;
        match arrival {
            Arrival::Bytes(bytes) if self.peer.has(index) => {
                self.peer.receive(index, &bytes, self.now_ns);
            }
            Arrival::Bytes(_) if connection.state == SocketState::Open => {
                // Bytes for a socket that the broker has closed.
                let at_ns = self.now_ns + connection.latency_ns;
                self.schedule(at_ns, NetworkEvent::Reset(index));
            }
            Arrival::Bytes(_) => {}
            Arrival::End => self.peer.gone(index, self.now_ns),
        }
        if gets_room {
            self.connections[index].wants_room = false;
            self.news(index);
        }
        self.take_output();
        let next_ns = self.now_ns + self.weather.gulp_ns;
        self.schedule_up(index, next_ns);
    }

    /// Something arrives at the client, as far as it has room.
    fn arrive_down(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.down.is_scheduled = false;
        if connection.state != SocketState::Open || connection.ended {
            return;
        }
        let room = connection.receive_max.saturating_sub(connection.receive.len());
        let piece = if self.rng.chance(20) { 1 + self.rng.below(200) } else { usize::MAX };
        match connection.down.pop(room.min(piece)) {
            Some(Arrival::Bytes(bytes)) => {
                connection.receive.extend(bytes);
                self.pieces_total += 1;
            }
            Some(Arrival::End) => connection.ended = true,
            None if connection.down.items.is_empty() => return,
            // A client that has no room asks for more when it reads.
            None => return self.weather.note("no room to receive"),
        }
        if connection.ended && !connection.receive.is_empty() {
            self.weather.note("end behind bytes");
        }
        self.news(index);
        self.schedule_down(index, 0);
    }

    fn arrive_reset(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.state == SocketState::Open {
            connection.state = SocketState::Failed(Some(Errno::ECONNRESET));
            (connection.up.items, connection.down.items) = (VecDeque::new(), VecDeque::new());
            self.news(index);
        }
    }

    /// Hands what the broker has written to the pipes.
    pub fn take_output(&mut self) {
        if let Some(at_ns) = self.peer.carrier.as_mut().and_then(CarrierProgram::next_ns) {
            self.schedule(at_ns, NetworkEvent::Carrier);
        }
        while let Some((index, output)) = self.peer.output.pop_front() {
            if index >= QUIC_LINES {
                self.take_quic_output(index, output);
                continue;
            }
            let connection = &mut self.connections[index];
            let arrives_ns = self.now_ns.max(connection.stalled_until_ns) + connection.latency_ns;
            match output {
                Output::Bytes(bytes) => {
                    connection.down.push(arrives_ns, Arrival::Bytes(bytes));
                    if connection.down.bytes > self.peer.nats.pending_max() {
                        self.peer.slow(index);
                    }
                }
                Output::End => connection.down.push(arrives_ns, Arrival::End),
                Output::Reset => self.schedule(arrives_ns, NetworkEvent::Reset(index)),
            }
            self.schedule_down(index, 0);
        }
    }
}

impl NetworkConnection {
    /// The state of the socket for an edge; `None`: there is nothing to report.
    fn take_news(&mut self) -> Option<Ready> {
        self.has_news = false;
        let failed = matches!(self.state, SocketState::Failed(_));
        let is_open = self.state == SocketState::Open;
        let has_room = self.up.room() * 3 >= self.up.room_max;
        self.wants_room |= is_open && !has_room;
        let ready = Ready {
            client: self.client as usize,
            readable: failed || is_open && (self.ended || !self.receive.is_empty()),
            writable: failed || is_open && has_room,
            ended: failed || is_open && self.ended,
        };
        (ready.readable || ready.writable).then_some(ready)
    }
}
