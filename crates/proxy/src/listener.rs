//! A listening socket that can refuse and listen again. Between the two the socket stays bound, so
//! that no other socket of the host can take the port.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use mio::net::TcpListener;
use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown, SockFlag, SockType, SockaddrStorage, bind, listen,
    setsockopt, shutdown, socket, sockopt,
};

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 128;

/// Listens on a port that the kernel chooses.
///
/// # Errors
/// The kernel's: no descriptor, no port, no such address.
pub fn open(address: IpAddr) -> io::Result<TcpListener> {
    // A port that the kernel chose is given back when a socket stops to listen; one that was
    // asked for is not. So a first socket finds a port and a second one asks for it.
    let finder = bound(SocketAddr::new(address, 0))?;
    let found = TcpListener::from_std(finder.into());
    let listener = bound(found.local_addr()?)?;
    drop(found);
    let listener = TcpListener::from_std(listener.into());
    resume(&listener)?;
    Ok(listener)
}

/// Refuses connections from now on, also those that wait to be accepted.
///
/// # Errors
/// The kernel's.
pub fn refuse(listener: &TcpListener) -> io::Result<()> {
    Ok(shutdown(listener.as_raw_fd(), Shutdown::Read)?)
}

/// Listens again on the same port; does nothing if the socket listens.
///
/// # Errors
/// The kernel's.
pub fn resume(listener: &TcpListener) -> io::Result<()> {
    Ok(listen(&listener.as_fd(), Backlog::new(BACKLOG)?)?)
}

fn bound(address: SocketAddr) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let descriptor = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&descriptor, sockopt::ReuseAddr, &true)?;
    bind(descriptor.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(descriptor)
}
