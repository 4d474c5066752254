//! Ports of servers that tests start.

use std::net::{Ipv4Addr, TcpStream};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports of outgoing connections, so none of them can take the port of a server that is
/// not running yet or that starts again.
const FIRST_PORT: u16 = 5000;
const PORTS: u16 = 5000;

static TRIED: AtomicU16 = AtomicU16::new(0);

/// Returns a port of loopback on which nothing listens. Other processes of tests begin elsewhere.
///
/// The port is looked at by a connection, not by a listener: a process that another test is
/// starting would have that listener until its exec.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn free_port() -> u16 {
    let begin = (process::id() * 37 % u32::from(PORTS)) as u16;
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        assert!(tried < PORTS, "no port from {FIRST_PORT} on is free");
        let port = FIRST_PORT + (begin + tried) % PORTS;
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            return port;
        }
    }
}
