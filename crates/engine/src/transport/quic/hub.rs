//! The hub of all connections of an agent over QUIC: routes datagrams of a few UDP sockets to
//! connections, drives the connections and has their timers, and reports news by the index of the
//! client.

mod early;
#[cfg(test)]
mod link;
mod migration;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use plan::{Reason, SECOND_NS};
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    EndpointEvent, Event, ReadError, StreamEvent, StreamId, Transmit, VarInt, WriteError,
};

use self::early::EarlyData;
use self::migration::Migration;
use super::reasons;
use super::security::QuicIdentity;
use super::sockets::{Datagram, DatagramSockets, SOCKETS_PER_SOURCE, SocketIndex};
use crate::schedule::wheel::Wheel;
use crate::transport::Halt;
use crate::transport::tcp::{self, Ready, TcpRoute};

/// Longest wait for the acknowledgement of the last bytes of a client, in nanoseconds.
const LINGER_NS: u64 = 2 * SECOND_NS;
/// Code with which a client leaves, and with which it aborts.
const LEFT: VarInt = VarInt::from_u32(0);
const ABORTED: VarInt = VarInt::from_u32(1);

/// All connections of an agent.
pub struct Hub {
    endpoint: Endpoint,
    sockets: Box<dyn DatagramSockets>,
    /// By handle.
    connections: Vec<Option<Box<Held>>>,
    /// A timer for each connection.
    wheel: Wheel,
    /// Connections that have something to send or to report.
    moved: Vec<ConnectionHandle>,
    /// Sockets without room, with the datagrams that wait for it.
    blocked: Vec<(SocketIndex, Transmit, Vec<u8>)>,
    /// Sockets with more datagrams than a time slice has.
    unread: Vec<SocketIndex>,
    /// Connections whose client has left, and whose last bytes are under way.
    lingering: usize,
    /// Bytes of datagrams that are sent.
    buffer: Vec<u8>,
    /// The start of the hub, as QUIC has it and in nanoseconds.
    origin: (Instant, u64),
}

/// A connection, and the client that has it.
struct Held {
    connection: Connection,
    stream: Option<StreamId>,
    /// Index of the client's events.
    client: usize,
    socket: SocketIndex,
    /// The source of the socket, and its number among those of the source.
    place: (Option<IpAddr>, u32),
    migration: Migration,
    early: EarlyData,
    end: Option<ConnectionError>,
    /// Error of the socket in the handshake.
    unsent: Option<Reason>,
    life: StreamState,
    /// The peer has all bytes of a stream that has ended, or wants no more of them.
    is_delivered: bool,
    /// The connection waits in [`Hub::moved`].
    is_listed: bool,
    /// There are bytes, or their end, and the client does not have this news.
    readable: bool,
    /// There is room, or the connection is open, and the client does not have this news.
    writable: bool,
}

/// StreamState of a connection after its client has ended the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamState {
    /// A client uses the connection.
    Used,
    /// The client has ended the stream and still has the connection.
    Finished,
    /// The client aborts: it discards what is not sent.
    Aborted,
    /// The client has left; the connection closes once the peer has all bytes, at this instant at
    /// the latest, in nanoseconds.
    Lingering(u64),
    /// The client has vanished: nothing is sent.
    Silent,
}

impl Hub {
    /// A hub without connections.
    pub fn new(sockets: Box<dyn DatagramSockets>, seed: Option<[u8; 32]>) -> Self {
        let endpoint = Endpoint::new(EndpointConfig::default().into(), None, false, seed);
        let origin_ns = sockets.now_ns();
        let wheel = Wheel::new(0, origin_ns);
        Self {
            endpoint,
            sockets,
            connections: Vec::new(),
            wheel,
            moved: Vec::new(),
            blocked: Vec::new(),
            unread: Vec::new(),
            lingering: 0,
            buffer: Vec::new(),
            origin: (Instant::now(), origin_ns),
        }
    }

    /// Begins a connection of a client.
    ///
    /// # Errors
    /// The reason to count.
    pub fn open(
        &mut self,
        route: &TcpRoute,
        client: u32,
        identity: QuicIdentity<'_>,
    ) -> Result<ConnectionHandle, Reason> {
        let turn = client % SOCKETS_PER_SOURCE;
        let socket = self.sockets.socket(route.source, route.target, turn)?;
        let now = self.now();
        let QuicIdentity { config, name } = identity;
        let opened = self.endpoint.connect(now, config, route.target, &name);
        let (handle, connection) = opened.map_err(|_| Reason::QuicFailed)?;
        let mut held = Held {
            connection,
            stream: None,
            client: client as usize,
            socket,
            place: (route.source, turn),
            migration: Migration::Settled,
            early: EarlyData::None,
            end: None,
            unsent: None,
            life: StreamState::Used,
            is_delivered: false,
            is_listed: false,
            readable: false,
            writable: false,
        };
        if self.connections.len() <= handle.0 {
            self.connections.resize_with(handle.0 + 1, || None);
            self.wheel.reach(handle.0 + 1);
        }
        let is_early = held.begin_early();
        self.connections[handle.0] = Some(Box::new(held));
        if is_early {
            // The offer of the session goes with the first bytes of the client.
            self.list(handle);
        } else {
            self.drive(handle);
        }
        Ok(handle)
    }

    /// Returns `true` while bytes of clients that have left are under way.
    pub const fn lingers(&self) -> bool {
        self.lingering > 0
    }

    /// Sends what connections have to send, and returns the next instant at which the hub has
    /// work, in nanoseconds.
    pub fn begin_wait(&mut self) -> u64 {
        let mut moved = std::mem::take(&mut self.moved);
        let mut has_news = false;
        for handle in moved.drain(..) {
            let Some(held) = &mut self.connections[handle.0] else { continue };
            held.is_listed = false;
            self.drive(handle);
            has_news |= self.held(handle).is_some_and(|held| held.readable | held.writable);
        }
        // A drive lists connections with news.
        moved.append(&mut self.moved);
        self.moved = moved;
        if has_news || !self.unread.is_empty() {
            return 0;
        }
        self.wheel.next_ns().unwrap_or(u64::MAX)
    }

    /// Handles a socket to which something has happened.
    pub fn wake(&mut self, socket: SocketIndex, readable: bool, writable: bool) {
        if writable {
            self.unblock(socket);
        }
        if readable && !self.unread.contains(&socket) {
            self.unread.push(socket);
        }
    }

    /// Handles datagrams that have arrived and timers, and appends the events of clients.
    pub fn end_wait(&mut self, ready: &mut Vec<Ready>) {
        for socket in std::mem::take(&mut self.unread) {
            if self.receive(socket) {
                self.unread.push(socket);
            }
        }
        let now_ns = self.sockets.now_ns();
        let mut due = Vec::new();
        self.wheel.advance(now_ns, &mut due);
        for index in due {
            self.fire(ConnectionHandle(index as usize), now_ns);
        }
        self.report(ready);
    }

    /// Succeeds once the stream is open.
    pub fn handshake(&self, handle: ConnectionHandle) -> Result<(), Halt> {
        let held = self.held(handle).ok_or(Halt::Later)?;
        match held.stream {
            _ if let Some(lost) = held.lost(true) => Err(Halt::Lost(lost)),
            Some(_) => Ok(()),
            None => Err(Halt::Later),
        }
    }

    /// Reads bytes of the stream that have arrived.
    pub fn read(
        &mut self,
        handle: ConnectionHandle,
        buffer: &mut [u8],
        connecting: bool,
    ) -> Result<usize, Halt> {
        let held = self.held_mut(handle).ok_or(Halt::Later)?;
        let Some(id) = held.stream else { return Err(held.halt(connecting)) };
        let mut count = 0;
        let mut stream = held.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Err(held.finished(connecting)) };
        let end = loop {
            match chunks.next(buffer.len() - count) {
                Ok(Some(chunk)) => {
                    buffer[count..][..chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                    count += chunk.bytes.len();
                    if count == buffer.len() {
                        break None;
                    }
                }
                Ok(None) => break Some(None),
                Err(error) => break Some(Some(error)),
            }
        };
        let must_send = chunks.finalize().should_transmit();
        let outcome = match end {
            _ if count > 0 => Ok(count),
            None | Some(Some(ReadError::Blocked)) => Err(held.halt(connecting)),
            Some(None) => Err(held.finished(connecting)),
            Some(Some(ReadError::Reset(_))) => Err(Halt::Lost(reset(connecting))),
        };
        if must_send {
            self.list(handle);
        }
        outcome
    }

    /// Writes as many bytes as the windows of the stream allow, and sends them.
    pub fn write(
        &mut self,
        handle: ConnectionHandle,
        bytes: &[u8],
        connecting: bool,
    ) -> Result<usize, Halt> {
        let held = self.held_mut(handle).ok_or(Halt::Later)?;
        let Some(id) = held.stream else { return Err(held.halt(connecting)) };
        if let Some(lost) = held.lost(connecting) {
            return Err(Halt::Lost(lost));
        }
        if held.resends() {
            return Err(Halt::Later);
        }
        match held.connection.send_stream(id).write(bytes) {
            Ok(count) => {
                held.note_written(&bytes[..count]);
                self.drive(handle);
                Ok(count)
            }
            // A peer that takes nothing more ends its side too, which a read finds.
            Err(WriteError::Blocked | WriteError::Stopped(_) | WriteError::ClosedStream) => {
                Err(Halt::Later)
            }
        }
    }

    /// Ends the stream. The peer gets all bytes before the connection closes.
    pub fn finish(&mut self, handle: ConnectionHandle) {
        let Some(held) = self.held_mut(handle) else { return };
        let Some(id) = held.stream else { return };
        // A stream that the peer has stopped needs no end, and rejected bytes go before the end.
        if held.life == StreamState::Used
            && (held.resends() || held.connection.send_stream(id).finish().is_ok())
        {
            held.life = StreamState::Finished;
        }
    }

    /// Makes the close of a connection discard what is not sent.
    pub fn abort(&mut self, handle: ConnectionHandle) {
        if let Some(held) = self.held_mut(handle) {
            held.life = StreamState::Aborted;
        }
    }

    /// Lets the events of a connection have another index, and sends nothing more.
    pub fn silence(&mut self, handle: ConnectionHandle, index: usize) {
        if let Some(held) = self.held_mut(handle) {
            held.client = index;
            held.life = StreamState::Silent;
        }
    }

    /// Code and text with which the peer has closed a connection.
    pub fn last_words(&self, handle: ConnectionHandle) -> Option<String> {
        reasons::words(self.held(handle)?.end.as_ref()?)
    }

    /// Takes a connection back from its client. It closes now, or once the peer has all bytes of a
    /// stream that has ended.
    pub fn release(&mut self, handle: ConnectionHandle) {
        let until_ns = self.sockets.now_ns() + LINGER_NS;
        let Some(held) = self.held_mut(handle) else { return };
        held.client = usize::MAX;
        match held.life {
            StreamState::Finished if held.end.is_none() => {
                held.life = StreamState::Lingering(until_ns);
                self.lingering += 1;
                self.drive(handle);
            }
            StreamState::Aborted => self.close(handle, ABORTED),
            _ => self.close(handle, LEFT),
        }
    }

    /// Closes a connection without a client, and forgets it.
    fn close(&mut self, handle: ConnectionHandle, code: VarInt) {
        let now = self.now();
        if let Some(held) = self.held_mut(handle)
            && held.end.is_none()
        {
            held.connection.close(now, code, Default::default());
            self.transmit(handle);
        }
        let held = self.connections[handle.0].take();
        self.lingering -= usize::from(held.is_some_and(|held| held.lingers()));
        self.wheel.cancel(handle.0 as u32);
        // Later packets of the peer meet no connection.
        self.endpoint.handle_event(handle, EndpointEvent::drained());
    }

    fn held(&self, handle: ConnectionHandle) -> Option<&Held> {
        self.connections.get(handle.0)?.as_deref()
    }

    fn held_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Held> {
        self.connections.get_mut(handle.0)?.as_deref_mut()
    }

    fn list(&mut self, handle: ConnectionHandle) {
        let Some(held) = self.connections[handle.0].as_deref_mut() else { return };
        if !std::mem::replace(&mut held.is_listed, true) {
            self.moved.push(handle);
        }
    }

    /// Handles datagrams of a socket. Returns `true` if more of them may wait.
    fn receive(&mut self, socket: SocketIndex) -> bool {
        let now = self.now();
        let Self { endpoint, sockets, connections, moved, buffer, .. } = self;
        let mut answers = Vec::new();
        let has_more = sockets.receive(socket, &mut |datagram: Datagram| {
            let Datagram { from, to, ecn, bytes } = datagram;
            buffer.clear();
            match endpoint.handle(now, from, to, ecn, bytes, buffer) {
                Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                    let Some(held) = connections[handle.0].as_deref_mut() else { return };
                    held.connection.handle_event(event);
                    held.note_arrival(socket);
                    if !std::mem::replace(&mut held.is_listed, true) {
                        moved.push(handle);
                    }
                }
                Some(DatagramEvent::Response(transmit)) => answers.push((transmit, buffer.clone())),
                // A hub has no server.
                Some(DatagramEvent::NewConnection(_)) | None => {}
            }
        });
        for (transmit, bytes) in answers {
            // A lost reset is as good as one that the network loses.
            let _ = sockets.send(socket, &transmit, &bytes);
        }
        has_more
    }

    /// Handles the timer of a connection.
    fn fire(&mut self, handle: ConnectionHandle, now_ns: u64) {
        let now = self.instant(now_ns);
        let Some(held) = self.held_mut(handle) else { return };
        if let StreamState::Lingering(until_ns) = held.life
            && until_ns <= now_ns
        {
            return self.close(handle, LEFT);
        }
        held.connection.handle_timeout(now);
        self.list(handle);
    }

    /// Takes the events of the connections that have moved, and appends those of clients.
    fn report(&mut self, ready: &mut Vec<Ready>) {
        for index in 0..self.moved.len() {
            let handle = self.moved[index];
            self.poll(handle);
            let Some(held) = self.held_mut(handle) else { continue };
            let readable = std::mem::take(&mut held.readable);
            let writable = std::mem::take(&mut held.writable);
            if held.client != usize::MAX && (readable | writable) {
                let ended = held.end.is_some();
                ready.push(Ready { client: held.client, readable, writable, ended });
            }
        }
    }

    /// Takes the events of a connection, sends what it has to send, and sets its timer.
    fn drive(&mut self, handle: ConnectionHandle) {
        self.poll(handle);
        self.transmit(handle);
        self.poll(handle);
        let Some(held) = self.held_mut(handle) else { return };
        if held.lingers() && (held.is_delivered || held.end.is_some()) {
            return self.close(handle, LEFT);
        }
        let own = held.connection.poll_timeout();
        let limit_ns =
            if let StreamState::Lingering(until_ns) = held.life { until_ns } else { u64::MAX };
        let has_news = held.readable | held.writable;
        let own_ns = own.map_or(u64::MAX, |at| self.nanoseconds(at));
        match own_ns.min(limit_ns) {
            u64::MAX => self.wheel.cancel(handle.0 as u32),
            at_ns => self.wheel.set(handle.0 as u32, at_ns),
        }
        if has_news {
            self.list(handle);
        }
    }

    /// Takes the events of a connection.
    fn poll(&mut self, handle: ConnectionHandle) {
        let Self { endpoint, connections, .. } = self;
        let Some(held) = connections[handle.0].as_deref_mut() else { return };
        while let Some(event) = held.connection.poll_endpoint_events() {
            // The handle is the client's until its release.
            if event.is_drained() {
                continue;
            }
            if let Some(answer) = endpoint.handle_event(handle, event) {
                held.connection.handle_event(answer);
            }
        }
        while let Some(event) = held.connection.poll() {
            held.note(event);
        }
    }

    /// Sends the datagrams of a connection, as far as its socket has room.
    fn transmit(&mut self, handle: ConnectionHandle) {
        let now = self.now();
        let Self { sockets, connections, blocked, buffer, .. } = self;
        let Some(held) = connections[handle.0].as_deref_mut() else { return };
        let segments = sockets.segments_max(held.socket).max(1);
        let mut is_blocked = blocked.iter().any(|(socket, ..)| *socket == held.socket);
        while !is_blocked {
            buffer.clear();
            let Some(transmit) = held.connection.poll_transmit(now, segments, buffer) else {
                break;
            };
            if held.life == StreamState::Silent {
                continue;
            }
            let bytes = &buffer[..transmit.size];
            match sockets.send(held.socket, &transmit, bytes) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    blocked.push((held.socket, transmit, bytes.to_vec()));
                    is_blocked = true;
                }
                Err(error) => held.note_unsent(&error),
            }
        }
        if is_blocked {
            self.list(handle);
        }
    }

    /// Sends what has waited for room in a socket.
    fn unblock(&mut self, socket: SocketIndex) {
        let Self { sockets, blocked, .. } = self;
        // A socket has one datagram here at most, and others wait for that one.
        blocked.retain(|(index, transmit, bytes)| {
            *index != socket
                || sockets
                    .send(socket, transmit, bytes)
                    .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        });
    }

    /// The present, as QUIC has it.
    fn now(&self) -> Instant {
        self.instant(self.sockets.now_ns())
    }

    fn instant(&self, at_ns: u64) -> Instant {
        let (origin, origin_ns) = self.origin;
        origin + Duration::from_nanos(at_ns.saturating_sub(origin_ns))
    }

    fn nanoseconds(&self, at: Instant) -> u64 {
        let (origin, origin_ns) = self.origin;
        let since = at.saturating_duration_since(origin).as_nanos();
        origin_ns.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

impl Held {
    /// Notes an event of the connection.
    fn note(&mut self, event: Event) {
        match event {
            Event::Connected => {
                self.end_early();
                self.open_stream();
            }
            Event::Stream(StreamEvent::Available { dir: Dir::Bi }) => {
                self.open_stream();
                self.resend_early();
            }
            Event::ConnectionLost { reason } => {
                self.end = Some(reason);
                self.readable = true;
                self.writable = true;
            }
            Event::Stream(StreamEvent::Readable { .. }) => self.readable = true,
            Event::Stream(StreamEvent::Writable { .. }) => {
                self.resend_early();
                self.writable = true;
            }
            Event::Stream(StreamEvent::Finished { .. } | StreamEvent::Stopped { .. }) => {
                self.is_delivered = true;
            }
            Event::Stream(StreamEvent::Opened { .. } | StreamEvent::Available { .. })
            | Event::HandshakeDataReady
            | Event::DatagramReceived
            | Event::DatagramsUnblocked => {}
        }
    }

    /// Notes that the network of this host refused a datagram.
    fn note_unsent(&mut self, error: &io::Error) {
        let reason = tcp::reason(error, true);
        if self.stream.is_none() && reason == Reason::ConnectUnreachable {
            self.unsent = Some(reason);
            self.writable = true;
        }
    }

    const fn lingers(&self) -> bool {
        matches!(self.life, StreamState::Lingering(_))
    }

    fn lost(&self, connecting: bool) -> Option<Reason> {
        self.unsent.or_else(|| Some(reasons::reason(self.end.as_ref()?, connecting)))
    }

    /// The reason why nothing more can be read for now.
    fn halt(&self, connecting: bool) -> Halt {
        self.lost(connecting).map_or(Halt::Later, Halt::Lost)
    }

    /// The reason after the end of the peer's side.
    fn finished(&self, connecting: bool) -> Halt {
        let closed = if connecting { Reason::ConnectClosed } else { Reason::ClosedByBroker };
        Halt::Lost(self.lost(connecting).unwrap_or(closed))
    }
}

const fn reset(connecting: bool) -> Reason {
    if connecting { Reason::ConnectReset } else { Reason::ResetByBroker }
}
