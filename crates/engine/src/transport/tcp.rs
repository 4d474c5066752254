//! TCP sockets of clients: opened without waiting, bound to a source address, with errors as
//! reasons to count.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use mio::net::TcpStream;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use plan::Reason;
use socket2::SockRef;

/// A socket that something has happened to. As with epoll's edges, each event comes once.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Index of its client in this agent; beyond the clients, of a silent connection.
    pub client: usize,
    /// There may be bytes, or their end.
    pub readable: bool,
    /// There may be room for bytes, or the connection has failed.
    pub writable: bool,
    /// The peer has closed its side.
    pub ended: bool,
}

/// Addresses and options of a client's socket.
#[derive(Clone, Copy)]
pub struct TcpRoute {
    /// Address of the target.
    pub target: SocketAddr,
    /// Source address; `None`: the kernel's choice.
    pub source: Option<IpAddr>,
    /// Receive buffer in bytes, for clients that exert back-pressure.
    pub receive_buffer: Option<usize>,
}

/// Begins a connection. The socket is writable once it is connected or has failed.
///
/// # Errors
/// The reason to count.
pub fn open(route: &TcpRoute) -> Result<TcpStream, Reason> {
    let count = |errno: Errno| reason(&errno.into(), true);
    let descriptor = prepare(route).map_err(count)?;
    if let Some(source) = route.source {
        let address = SockaddrStorage::from(SocketAddr::new(source, 0));
        bind(descriptor.as_raw_fd(), &address).map_err(|errno| match errno {
            Errno::EADDRNOTAVAIL | Errno::EINVAL | Errno::EAFNOSUPPORT => Reason::BadSource,
            other => count(other),
        })?;
    }
    match connect(descriptor.as_raw_fd(), &SockaddrStorage::from(route.target)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(TcpStream::from_std(descriptor.into())),
        Err(errno) => Err(count(errno)),
    }
}

/// Makes the close of a socket a reset (`SO_LINGER` with a time of 0, see `man 7 socket`).
pub fn reset_on_close(stream: &TcpStream) {
    let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    // A socket that is gone already needs no reset.
    let _ = setsockopt(stream, sockopt::Linger, &at_once);
}

/// Lets the kernel delay its acknowledgements from now on, until the kernel ends the delay
/// (`TCP_QUICKACK`, see `man 7 tcp`).
pub fn delay_acks(stream: &TcpStream) {
    // A socket that is gone already acknowledges nothing.
    let _ = SockRef::from(stream).set_tcp_quickack(false);
}

fn prepare(route: &TcpRoute) -> nix::Result<OwnedFd> {
    let family = if route.target.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let descriptor = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&descriptor, sockopt::TcpNoDelay, &true)?;
    if let Some(bytes) = route.receive_buffer {
        setsockopt(&descriptor, sockopt::RcvBuf, &bytes)?;
    }
    if route.source.is_some() {
        // Without this the port is taken for every destination, not for this target alone.
        setsockopt(&descriptor, sockopt::IpBindAddressNoPort, &true)?;
    }
    Ok(descriptor)
}

/// The reason for an error of a socket, before (`connecting`) or after the broker accepted it.
pub fn reason(error: &io::Error, connecting: bool) -> Reason {
    let errno = error.raw_os_error().map(Errno::from_raw);
    match errno {
        Some(Errno::EMFILE | Errno::ENFILE) => return Reason::NoDescriptors,
        Some(Errno::EADDRNOTAVAIL) => return Reason::NoPorts,
        Some(Errno::ENOMEM | Errno::ENOBUFS) => return Reason::NoMemory,
        _ => {}
    }
    match (error.kind(), connecting) {
        (ErrorKind::ConnectionRefused, _) => Reason::ConnectRefused,
        (ErrorKind::ConnectionReset | ErrorKind::BrokenPipe, true) => Reason::ConnectReset,
        (ErrorKind::ConnectionReset | ErrorKind::BrokenPipe, false) => Reason::ResetByBroker,
        (ErrorKind::UnexpectedEof, true) => Reason::ConnectClosed,
        (ErrorKind::UnexpectedEof, false) => Reason::ClosedByBroker,
        (ErrorKind::TimedOut, true) => Reason::ConnectTimeout,
        (ErrorKind::TimedOut, false) => Reason::PathTimeout,
        (ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable, _) => {
            Reason::ConnectUnreachable
        }
        _ => Reason::SocketError,
    }
}
