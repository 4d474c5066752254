//! UDP sockets of a hub: a few for each source address, with many datagrams in one system call.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use agent::clock;
use bytes::BytesMut;
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use plan::Reason;
use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};

use crate::transport::tcp;

/// Sockets for each source address: a broker with several threads shares out connections by their
/// addresses.
pub const SOCKETS_PER_SOURCE: u32 = 8;
/// Buffers of the kernel for each socket, in bytes, up to `net.core.rmem_max` and `wmem_max`.
const KERNEL_BUFFER: usize = 4 * 1024 * 1024;
/// Bytes of a datagram at most, or of several that the kernel joins.
const DATAGRAMS_BYTES: usize = 64 * 1024;
/// Batches that a socket reads before clients have a time slice again.
const BATCHES: usize = 8;

/// A datagram that has arrived.
pub struct Datagram {
    /// Sender.
    pub from: SocketAddr,
    /// Address that it was sent to.
    pub to: Option<IpAddr>,
    /// Notice of congestion.
    pub ecn: Option<EcnCodepoint>,
    /// Content.
    pub bytes: BytesMut,
}

/// Number of a socket of a hub.
pub type SocketIndex = u16;

/// UDP sockets, and their clock.
pub trait DatagramSockets {
    /// The present, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// The socket number `turn` of those with a source address, towards a target.
    ///
    /// # Errors
    /// The reason to count.
    fn socket(
        &mut self,
        source: Option<IpAddr>,
        target: SocketAddr,
        turn: u32,
    ) -> Result<SocketIndex, Reason>;

    /// Datagrams that one call can send.
    fn segments_max(&self, socket: SocketIndex) -> usize;

    /// Sends datagrams of equal size.
    ///
    /// # Errors
    /// `WouldBlock`: the socket has no room, and is writable later. The kernel's: nothing was sent.
    fn send(&mut self, socket: SocketIndex, transmit: &Transmit, bytes: &[u8]) -> io::Result<()>;

    /// Hands on datagrams that have arrived. Returns `true` if more of them may wait.
    fn receive(&mut self, socket: SocketIndex, take: &mut dyn FnMut(Datagram)) -> bool;
}

/// Sockets of the kernel.
pub struct UdpSockets {
    registry: Registry,
    /// Token of the first socket.
    first_token: usize,
    sockets: Vec<OpenSocket>,
    /// Room for one batch.
    buffers: Vec<Vec<u8>>,
}

struct OpenSocket {
    key: SocketKey,
    socket: UdpSocket,
    state: UdpSocketState,
}

/// Properties by which a client finds its socket.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SocketKey {
    source: Option<IpAddr>,
    is_ipv4: bool,
    turn: u32,
}

impl UdpSockets {
    /// No sockets yet; their tokens begin with `first_token`.
    pub const fn new(registry: Registry, first_token: usize) -> Self {
        Self { registry, first_token, sockets: Vec::new(), buffers: Vec::new() }
    }

    fn open(&self, key: SocketKey) -> io::Result<OpenSocket> {
        let domain = if key.is_ipv4 { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        // A kernel that allows less takes its limit.
        let _ = socket.set_recv_buffer_size(KERNEL_BUFFER);
        let _ = socket.set_send_buffer_size(KERNEL_BUFFER);
        let any = if key.is_ipv4 {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        } else {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        };
        socket.bind(&SocketAddr::new(key.source.unwrap_or(any), 0).into())?;
        let state = UdpSocketState::new((&socket).into())?;
        let mut socket = UdpSocket::from_std(socket.into());
        let token = Token(self.first_token + self.sockets.len());
        self.registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(OpenSocket { key, socket, state })
    }
}

impl DatagramSockets for UdpSockets {
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn socket(
        &mut self,
        source: Option<IpAddr>,
        target: SocketAddr,
        turn: u32,
    ) -> Result<SocketIndex, Reason> {
        let key = SocketKey { source, is_ipv4: target.is_ipv4(), turn };
        if let Some(index) = self.sockets.iter().position(|open| open.key == key) {
            return Ok(index as SocketIndex);
        }
        let open = self.open(key).map_err(|error| match error.kind() {
            ErrorKind::AddrNotAvailable | ErrorKind::InvalidInput if source.is_some() => {
                Reason::BadSource
            }
            _ => tcp::reason(&error, true),
        })?;
        self.sockets.push(open);
        Ok((self.sockets.len() - 1) as SocketIndex)
    }

    fn segments_max(&self, socket: SocketIndex) -> usize {
        self.sockets[usize::from(socket)].state.max_gso_segments()
    }

    fn send(&mut self, socket: SocketIndex, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let open = &self.sockets[usize::from(socket)];
        let datagrams = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: bytes,
            segment_size: transmit.segment_size,
            src_ip: None,
        };
        open.state.try_send((&open.socket).into(), &datagrams)
    }

    fn receive(&mut self, socket: SocketIndex, take: &mut dyn FnMut(Datagram)) -> bool {
        let open = &self.sockets[usize::from(socket)];
        self.buffers.resize_with(BATCH_SIZE, || vec![0; DATAGRAMS_BYTES]);
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        for _ in 0..BATCHES {
            let mut slices: Vec<_> = self.buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            let read = open.state.recv((&open.socket).into(), &mut slices, &mut metas);
            drop(slices);
            let Ok(count) = read else {
                // Errors of earlier datagrams concern one of many connections: its timers find it.
                return !read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            };
            for (buffer, meta) in self.buffers.iter().zip(&metas[..count]) {
                for bytes in buffer[..meta.len].chunks(meta.stride.max(1)) {
                    let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
                    take(Datagram { from: meta.addr, to: meta.dst_ip, ecn, bytes: bytes.into() });
                }
            }
        }
        true
    }
}
