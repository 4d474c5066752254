//! A link of UDP in virtual time, with a server of QUIC at its end. The link delays, reorders and
//! loses datagrams as a seed says.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, mem};

use bytes::BytesMut;
use plan::Reason;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    EndpointEvent, Event, ServerConfig, StreamEvent, StreamId, Transmit, TransportConfig, VarInt,
};
use rustls::crypto::ring;
use testkit::Rng;

use super::super::sockets::{Datagram, DatagramSockets, SOCKETS_PER_SOURCE, SocketIndex};
use super::Hub;
use crate::transport::tcp::Ready;

/// Address of the server.
pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 14567);
const FIRST_PORT: u16 = 40_000;
const MS: u64 = 1_000_000;

/// Behaviour of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Returns what it has received, and ends its side after the client's.
    Echo,
    /// Closes each connection with this code once it has received something.
    Close(u32),
    /// Refuses each connection.
    Refuse,
}

/// Faults of the link.
#[derive(Clone, Copy)]
pub struct Faults {
    /// Datagrams that are lost, in percent.
    pub lost: usize,
    /// Longest delay in each direction, in milliseconds; the shortest is 1.
    pub delay_ms: usize,
}

/// Datagrams under way, and the clock.
pub struct UdpLink {
    pub now_ns: u64,
    pub faults: Faults,
    /// All datagrams of the socket with this number are lost.
    pub cut: Option<SocketIndex>,
    /// Datagrams that each socket of the clients has sent.
    pub sent: [usize; SOCKETS_PER_SOURCE as usize],
    rng: Rng,
    /// By instant and number: destination, source, content.
    under_way: BTreeMap<(u64, usize), (SocketAddr, SocketAddr, Vec<u8>)>,
    number: usize,
}

/// The sockets of the clients' side.
struct LinkSockets(Rc<RefCell<UdpLink>>);

/// Both ends of a link.
pub struct World {
    pub link: Rc<RefCell<UdpLink>>,
    pub hub: Hub,
    pub server: QuicServer,
    /// Events of clients since they were last taken.
    pub ready: Vec<Ready>,
}

/// A server of QUIC.
pub struct QuicServer {
    endpoint: Endpoint,
    behaviour: Behaviour,
    origin: Instant,
    connections: BTreeMap<usize, Served>,
    /// Ends of connections that the clients, or time, brought.
    pub ends: Vec<ConnectionError>,
}

struct Served {
    connection: Connection,
    remote: SocketAddr,
    /// Bytes that have not gone back.
    unsent: Vec<u8>,
    stream: Option<StreamId>,
    is_finished: bool,
}

impl World {
    /// A hub, and a server with a certificate and a key.
    pub fn new(
        seed: u64,
        faults: Faults,
        behaviour: Behaviour,
        (tls, idle_s): (rustls::ServerConfig, u64),
    ) -> Self {
        let link = Rc::new(RefCell::new(UdpLink {
            now_ns: 1,
            faults,
            cut: None,
            sent: [0; SOCKETS_PER_SOURCE as usize],
            rng: Rng::new(seed),
            under_way: BTreeMap::new(),
            number: 0,
        }));
        let hub = Hub::new(Box::new(LinkSockets(Rc::clone(&link))), Some([seed as u8; 32]));
        let server = QuicServer::new(seed, behaviour, tls, idle_s);
        Self { link, hub, server, ready: Vec::new() }
    }

    /// Lets time pass up to the next event. Returns `false` if none comes before `until_ns`.
    pub fn turn(&mut self, until_ns: u64) -> bool {
        let hub_ns = self.hub.begin_wait();
        self.server.drive(&self.link);
        let first = self.link.borrow().under_way.keys().next().map_or(u64::MAX, |key| key.0);
        let next_ns = hub_ns.min(first).min(self.server.next_ns());
        let now_ns = next_ns.max(self.link.borrow().now_ns);
        if now_ns > until_ns {
            self.link.borrow_mut().now_ns = until_ns;
            return false;
        }
        self.link.borrow_mut().now_ns = now_ns;
        self.server.receive(&self.link);
        self.server.drive(&self.link);
        for socket in 0..SOCKETS_PER_SOURCE as SocketIndex {
            self.hub.wake(socket, true, false);
        }
        self.hub.end_wait(&mut self.ready);
        true
    }

    /// Lets time pass until `done`, for 60 s at most. Returns `true` if it is done.
    pub fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let until_ns = self.link.borrow().now_ns + 60_000 * MS;
        loop {
            if done(self) {
                return true;
            }
            if !self.turn(until_ns) {
                return done(self);
            }
        }
    }
}

impl UdpLink {
    fn send(&mut self, (from, to): (SocketAddr, SocketAddr), bytes: &[u8]) {
        let port = if from == SERVER { to.port() } else { from.port() };
        if to == SERVER {
            self.sent[usize::from(from.port() - FIRST_PORT)] += 1;
        }
        let is_cut = self.cut.is_some_and(|socket| FIRST_PORT + socket == port);
        let is_lost = self.rng.chance(self.faults.lost);
        let delay_ns = (1 + self.rng.below(self.faults.delay_ms) as u64) * MS;
        if !is_cut && !is_lost {
            self.number += 1;
            let key = (self.now_ns + delay_ns, self.number);
            self.under_way.insert(key, (to, from, bytes.to_vec()));
        }
    }

    fn take(&mut self, to: impl Fn(SocketAddr) -> bool) -> Option<(SocketAddr, Vec<u8>)> {
        let mut due = self.under_way.range(..=(self.now_ns, usize::MAX));
        let key = *due.find(|(_, datagram)| to(datagram.0))?.0;
        self.under_way.remove(&key).map(|(_, from, bytes)| (from, bytes))
    }
}

impl DatagramSockets for LinkSockets {
    fn now_ns(&self) -> u64 {
        self.0.borrow().now_ns
    }

    fn socket(
        &mut self,
        _: Option<IpAddr>,
        _: SocketAddr,
        turn: u32,
    ) -> Result<SocketIndex, Reason> {
        Ok(turn as SocketIndex)
    }

    fn segments_max(&self, _: SocketIndex) -> usize {
        4
    }

    fn send(&mut self, socket: SocketIndex, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let from = SocketAddr::new(SERVER.ip(), FIRST_PORT + socket);
        let mut link = self.0.borrow_mut();
        for datagram in bytes.chunks(transmit.segment_size.unwrap_or(bytes.len())) {
            link.send((from, transmit.destination), datagram);
        }
        Ok(())
    }

    fn receive(&mut self, socket: SocketIndex, take: &mut dyn FnMut(Datagram)) -> bool {
        let own = SocketAddr::new(SERVER.ip(), FIRST_PORT + socket);
        loop {
            let next = self.0.borrow_mut().take(|to| to == own);
            let Some((from, bytes)) = next else { return false };
            take(Datagram { from, to: None, ecn: None, bytes: BytesMut::from(&bytes[..]) });
        }
    }
}

impl QuicServer {
    fn new(seed: u64, behaviour: Behaviour, tls: rustls::ServerConfig, idle_s: u64) -> Self {
        let crypto = QuicServerConfig::try_from(tls).unwrap();
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        let mut transport = TransportConfig::default();
        transport.max_concurrent_bidi_streams(VarInt::from_u32(1)).mtu_discovery_config(None);
        let idle = Duration::from_secs(idle_s).try_into().unwrap();
        transport.max_idle_timeout((idle_s > 0).then_some(idle));
        config.transport_config(Arc::new(transport));
        let seed = Some([!seed as u8; 32]);
        let endpoint =
            Endpoint::new(EndpointConfig::default().into(), Some(config.into()), false, seed);
        let connections = BTreeMap::new();
        Self { endpoint, behaviour, origin: Instant::now(), connections, ends: Vec::new() }
    }

    fn instant(&self, link: &RefCell<UdpLink>) -> Instant {
        self.origin + Duration::from_nanos(link.borrow().now_ns)
    }

    fn next_ns(&mut self) -> u64 {
        let timeouts = self.connections.values_mut().filter_map(|s| s.connection.poll_timeout());
        let next = timeouts.min().map(|at| at.saturating_duration_since(self.origin));
        next.map_or(u64::MAX, |since| since.as_nanos() as u64)
    }

    fn receive(&mut self, link: &RefCell<UdpLink>) {
        let now = self.instant(link);
        loop {
            let next = link.borrow_mut().take(|to| to == SERVER);
            let Some((from, bytes)) = next else { return };
            let mut buffer = Vec::new();
            let bytes = BytesMut::from(&bytes[..]);
            match self.endpoint.handle(now, from, None, None, bytes, &mut buffer) {
                Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                    if let Some(served) = self.connections.get_mut(&handle.0) {
                        served.connection.handle_event(event);
                    }
                }
                Some(DatagramEvent::NewConnection(incoming)) => {
                    if self.behaviour == Behaviour::Refuse {
                        let transmit = self.endpoint.refuse(incoming, &mut buffer);
                        let bytes = &buffer[..transmit.size];
                        link.borrow_mut().send((SERVER, transmit.destination), bytes);
                        continue;
                    }
                    let accepted = self.endpoint.accept(incoming, now, &mut buffer, None);
                    if let Ok((handle, connection)) = accepted {
                        let served = Served::new(connection, from);
                        self.connections.insert(handle.0, served);
                    } else if let Err(error) = accepted
                        && let Some(transmit) = error.response
                    {
                        let bytes = &buffer[..transmit.size];
                        link.borrow_mut().send((SERVER, transmit.destination), bytes);
                    }
                }
                Some(DatagramEvent::Response(transmit)) => {
                    let bytes = &buffer[..transmit.size];
                    link.borrow_mut().send((SERVER, transmit.destination), bytes);
                }
                None => {}
            }
        }
    }

    /// Forgets all connections, as a server that starts again does.
    pub fn forget(&mut self) {
        for (index, _) in mem::take(&mut self.connections) {
            self.endpoint.handle_event(ConnectionHandle(index), EndpointEvent::drained());
        }
    }

    fn drive(&mut self, link: &RefCell<UdpLink>) {
        let now = self.instant(link);
        let Self { endpoint, connections, behaviour, ends, .. } = self;
        connections.retain(|&index, served| {
            let connection = &mut served.connection;
            if connection.poll_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
            served.serve(*behaviour, now, ends);
            let connection = &mut served.connection;
            let mut buffer = Vec::new();
            while let Some(transmit) = connection.poll_transmit(now, 1, &mut buffer) {
                let bytes = &buffer[..transmit.size];
                link.borrow_mut().send((SERVER, transmit.destination), bytes);
                buffer.clear();
            }
            let mut is_drained = false;
            while let Some(event) = connection.poll_endpoint_events() {
                is_drained |= event.is_drained();
                if let Some(answer) = endpoint.handle_event(ConnectionHandle(index), event) {
                    connection.handle_event(answer);
                }
            }
            !is_drained
        });
    }
}

impl Served {
    const fn new(connection: Connection, remote: SocketAddr) -> Self {
        Self { connection, remote, unsent: Vec::new(), stream: None, is_finished: false }
    }

    fn serve(&mut self, behaviour: Behaviour, now: Instant, ends: &mut Vec<ConnectionError>) {
        debug_assert!(self.remote.port() >= FIRST_PORT);
        while let Some(event) = self.connection.poll() {
            match event {
                Event::ConnectionLost { reason } => ends.push(reason),
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                    self.stream = self.connection.streams().accept(Dir::Bi);
                }
                _ => {}
            }
        }
        let Some(id) = self.stream else { return };
        if self.connection.is_closed() {
            return;
        }
        let mut stream = self.connection.recv_stream(id);
        if let Ok(mut chunks) = stream.read(true) {
            while let Ok(next) = chunks.next(usize::MAX) {
                let Some(chunk) = next else {
                    self.is_finished = true;
                    break;
                };
                self.unsent.extend_from_slice(&chunk.bytes);
            }
            let _ = chunks.finalize();
        }
        if let (Behaviour::Close(code), false) = (behaviour, self.unsent.is_empty()) {
            return self.connection.close(now, VarInt::from_u32(code), "enough".into());
        }
        // Nothing written is a frame without bytes.
        if !self.unsent.is_empty() {
            let unsent = mem::take(&mut self.unsent);
            let count = self.connection.send_stream(id).write(&unsent).unwrap_or(0);
            self.unsent = unsent[count..].to_vec();
        }
        if self.is_finished && self.unsent.is_empty() {
            let _ = self.connection.send_stream(id).finish();
        }
    }
}

/// A server's side of TLS with a certificate and a key, in PEM, and the name of a protocol.
pub fn tls(certificate: &[u8], key: &[u8], protocol: &str) -> rustls::ServerConfig {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let chain = CertificateDer::pem_slice_iter(certificate).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(key).unwrap();
    let mut config = rustls::ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    config
}
