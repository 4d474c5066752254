//! The reference clock: a process beside the controller that answers questions of agents on other
//! hosts with the time of this one. It ends with its stdin.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread::Builder;

use plan::ReferenceHello;

use super::{ClockKey, ExchangeError, packet, signing};
use crate::error::AgentError;
use crate::{clock, pipes};

/// Says which port it listens on, as one line of JSON, and answers until stdin ends.
///
/// # Errors
/// [`ExchangeError`], and the kernel's, when it has no thread left.
pub fn run(listen: &str) -> Result<(), AgentError> {
    let key = ClockKey::from_environment()?;
    let refused = |error| {
        let address = listen.to_owned();
        ExchangeError::Address { option: "--listen", address, error }
    };
    let socket = UdpSocket::bind(listen).map_err(refused)?;
    pipes::write_line(&ReferenceHello { port: socket.local_addr().map_err(refused)?.port() })?;
    Builder::new().name("answers".into()).spawn(move || answer_all(&socket, &key))?;
    // However stdin ends, the run is over.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    Ok(())
}

fn answer_all(socket: &UdpSocket, key: &ClockKey) {
    // One byte more than a packet has, so that a longer one is not taken for one.
    let mut bytes = [0; packet::BYTES + 1];
    loop {
        // An error belongs to a single datagram: the agent that asked has ended.
        let Ok((length, from)) = socket.recv_from(&mut bytes) else { continue };
        answer(socket, key, &bytes[..length], from);
    }
}

fn answer(socket: &UdpSocket, key: &ClockKey, bytes: &[u8], from: SocketAddr) {
    let came_ns = clock::host_ns();
    let _signing = signing();
    let Some(nonce) = packet::read_question(key, bytes) else { return };
    if let Ok(packet) = packet::answer(key, &nonce, came_ns, clock::host_ns) {
        // An agent without an answer asks again.
        let _ = socket.send_to(&packet, from);
    }
}
