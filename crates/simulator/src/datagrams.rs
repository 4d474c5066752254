//! The part of the simulated network that carries QUIC: datagrams that are delayed, lost,
//! duplicated and reordered, addresses that change on the way, and a server that hands the stream
//! of each connection to the broker.

mod carried;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use testkit::{Rng, ScriptedQuicServer, unverified_tls};

use super::weather::{DatagramWeather, MS, OpeningOutcome};

/// Connections of QUIC have numbers from here on where connections of TCP have theirs.
pub const QUIC_LINES: usize = 1 << 32;
/// Port of the first socket.
const FIRST_PORT: u16 = 20_000;
/// Time until a socket without room has room again.
const NO_ROOM_NS: u64 = MS;

/// Clients' sockets, datagrams under way, and the server.
pub struct QuicSide {
    server: ScriptedQuicServer,
    rng: Rng,
    weather: DatagramWeather,
    /// By number.
    lines: Vec<QuicLine>,
    /// Numbers by the first identifier that the client has chosen for the server.
    numbers: BTreeMap<Vec<u8>, usize>,
    /// Connections whose first datagram is not sent yet, the oldest first.
    opening: VecDeque<usize>,
    sockets: Vec<ClientSocket>,
    /// Sender, receiver and content, by number.
    under_way: BTreeMap<usize, (SocketAddr, SocketAddr, Vec<u8>)>,
    datagrams_total: usize,
    next_port: u16,
    /// Instant of the server's next event, in nanoseconds.
    timer_ns: u64,
}

/// A connection as the network sees it.
struct QuicLine {
    opening: OpeningOutcome,
    /// Socket of its first datagram.
    socket: usize,
    /// The broker has accepted it.
    is_accepted: bool,
    /// The client has closed it.
    is_closed: bool,
    /// All bytes of the client are read.
    has_ended: bool,
    /// Bytes of the broker that the stream has no room for.
    unsent: Vec<u8>,
    /// The broker's side ends after them.
    ends: bool,
    /// Bytes of the broker that the client has not read.
    unread: usize,
    /// The broker does nothing on this connection before this instant.
    stalled_until_ns: u64,
    /// An event is scheduled for its next read.
    is_scheduled: bool,
}

/// A socket of an agent.
struct ClientSocket {
    agent: usize,
    source: Option<IpAddr>,
    target: SocketAddr,
    turn: u32,
    /// Address that the server sees.
    address: SocketAddr,
    /// Addresses that the server saw before, and that still lead to the socket.
    earlier: Vec<SocketAddr>,
    inbox: VecDeque<(SocketAddr, Vec<u8>)>,
    has_news: bool,
    /// No datagram has room before this instant.
    full_until_ns: u64,
}

impl QuicSide {
    /// A side without connections.
    pub fn new(seed: u64, weather: DatagramWeather) -> Self {
        let mut server =
            ScriptedQuicServer::new(seed, &unverified_tls(), weather.idle_s, weather.window);
        server.rejects_early = weather.rejects_early;
        Self {
            server,
            rng: Rng::new(seed ^ 0x9_01c5_1de5),
            weather,
            lines: Vec::new(),
            numbers: BTreeMap::new(),
            opening: VecDeque::new(),
            sockets: Vec::new(),
            under_way: BTreeMap::new(),
            datagrams_total: 0,
            next_port: FIRST_PORT,
            timer_ns: u64::MAX,
        }
    }

    /// Returns `true` if bytes of the broker are on their way to clients, or wait for them.
    pub fn has_unread(&self) -> bool {
        self.lines.iter().any(|line| !line.is_closed && line.unread > 0)
    }

    /// Returns `true` if an agent has a socket with news.
    pub fn has_news(&self, agent: usize) -> bool {
        self.sockets.iter().any(|socket| socket.agent == agent && socket.has_news)
    }

    /// Makes each connection stand still that chance chooses, up to `until_ns`. Returns which.
    pub fn stall(&mut self, per_cent: usize, until_ns: u64) -> Vec<usize> {
        let mut chosen = Vec::new();
        for (number, line) in self.lines.iter_mut().enumerate() {
            if self.rng.chance(per_cent) {
                line.stalled_until_ns = until_ns;
                chosen.push(QUIC_LINES + number);
            }
        }
        chosen
    }

    /// Closes the sockets of an agent. Returns their number.
    pub fn close_sockets(&mut self, agent: usize) -> usize {
        let mut own = 0;
        for socket in self.sockets.iter_mut().filter(|socket| socket.agent == agent) {
            (socket.agent, own) = (usize::MAX, own + 1);
        }
        own
    }

    /// A socket has room again.
    pub fn give_room(&mut self, socket: usize) {
        self.sockets[socket].has_news = true;
    }

    /// Addresses of clients change on their way: the server sees a new port. `keeps`: the old one
    /// leads to the client for as long as the run lasts, and no address changes in a handshake,
    /// which would then have no end [9000, 9].
    pub fn rebind(&mut self, per_cent: usize, keeps: bool) {
        for at in 0..self.sockets.len() {
            // A stream with data in 0-RTT is open before the handshake has ended.
            let shakes = |(number, line): (usize, &QuicLine)| {
                let is_open = line.is_accepted && !self.server.is_handshaking(number);
                line.socket == at && !is_open && !line.is_closed
            };
            let has_handshake = self.lines.iter().enumerate().any(shakes);
            if !self.rng.chance(per_cent) || keeps && has_handshake {
                continue;
            }
            let address = self.next_address(Some(self.sockets[at].address.ip()));
            let socket = &mut self.sockets[at];
            socket.earlier.push(std::mem::replace(&mut socket.address, address));
            if !keeps {
                socket.earlier.clear();
            }
        }
    }

    fn line(&mut self, index: usize) -> &mut QuicLine {
        &mut self.lines[index - QUIC_LINES]
    }

    fn next_address(&mut self, source: Option<IpAddr>) -> SocketAddr {
        self.next_port += 1;
        SocketAddr::new(source.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), self.next_port)
    }
}

impl ClientSocket {
    /// Returns `true` if datagrams for an address reach the socket.
    fn is_at(&self, address: SocketAddr) -> bool {
        self.agent != usize::MAX && (self.address == address || self.earlier.contains(&address))
    }
}
