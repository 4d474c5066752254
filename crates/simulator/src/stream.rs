//! A client's end of a connection over QUIC in the simulated network: the engine's own hub over
//! simulated sockets, and a record of the bytes.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use bytes::BytesMut;
use engine::{
    Datagram, DatagramSockets, Halt, LinkedWire, QuicConnection, SimulatedConnection, SocketIndex,
    reason_of_socket_error,
};
use plan::Reason;
use quinn_proto::Transmit;

use super::network::Network;
use super::wire::AgentClient;

/// Datagrams that one call can send.
const SEGMENTS: usize = 4;

/// The sockets of an agent.
pub struct SimulatedSockets {
    network: Rc<RefCell<Network>>,
    agent: usize,
}

/// A connection; dropped, it closes.
pub struct SimulatedStream {
    network: Rc<RefCell<Network>>,
    /// Number of the connection in the network.
    index: usize,
    client: AgentClient,
    quic: QuicConnection,
}

impl SimulatedSockets {
    /// No sockets yet.
    pub const fn new(network: Rc<RefCell<Network>>, agent: usize) -> Self {
        Self { network, agent }
    }
}

impl DatagramSockets for SimulatedSockets {
    fn now_ns(&self) -> u64 {
        self.network.borrow().now_ns
    }

    fn socket(
        &mut self,
        source: Option<IpAddr>,
        target: SocketAddr,
        turn: u32,
    ) -> Result<SocketIndex, Reason> {
        let mut network = self.network.borrow_mut();
        let socket = network.datagram_socket(self.agent, source, (target, turn));
        socket.map_err(|error| reason_of_socket_error(&error, true))
    }

    fn segments_max(&self, _: SocketIndex) -> usize {
        SEGMENTS
    }

    fn send(&mut self, socket: SocketIndex, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let mut network = self.network.borrow_mut();
        let size = transmit.segment_size.unwrap_or(bytes.len());
        network.send_datagrams(socket, transmit.destination, bytes.chunks(size))
    }

    fn receive(&mut self, socket: SocketIndex, take: &mut dyn FnMut(Datagram)) -> bool {
        loop {
            let next = self.network.borrow_mut().receive_datagram(socket);
            let Some((from, bytes)) = next else { return false };
            take(Datagram { from, to: None, ecn: None, bytes: BytesMut::from(&bytes[..]) });
        }
    }
}

impl Drop for SimulatedSockets {
    fn drop(&mut self) {
        self.network.borrow_mut().close_datagram_sockets(self.agent);
    }
}

impl SimulatedStream {
    /// A connection of the hub.
    pub const fn new(
        network: Rc<RefCell<Network>>,
        (index, client): (usize, AgentClient),
        quic: QuicConnection,
    ) -> Self {
        Self { network, index, client, quic }
    }
}

impl SimulatedConnection for SimulatedStream {
    fn secure(self: Box<Self>) -> Box<dyn SimulatedConnection> {
        self
    }

    fn is_plain(&self) -> bool {
        false
    }

    fn is_secure(&self) -> bool {
        self.quic.is_secure()
    }

    fn rename(&mut self, index: usize) {
        self.quic.silence(index);
    }

    fn handshake(&mut self) -> Result<(), Halt> {
        self.quic.handshake()
    }

    fn wake(&mut self, _: bool) {}

    fn read(&mut self, buffer: &mut [u8], connecting: bool) -> Result<usize, Halt> {
        let count = self.quic.read(buffer, connecting)?;
        let mut network = self.network.borrow_mut();
        network.note_read_quic(self.index, self.client, &buffer[..count]);
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8], connecting: bool) -> Result<usize, Halt> {
        let count = self.quic.write(bytes, connecting)?;
        self.network.borrow_mut().wire.sent(self.index, self.client, &bytes[..count]);
        Ok(count)
    }

    fn takes_reading(&mut self) -> bool {
        false
    }

    fn finish(&mut self) {
        self.quic.finish();
    }

    fn quic(&self) -> Option<&QuicConnection> {
        Some(&self.quic)
    }

    fn wire(&self) -> &dyn LinkedWire {
        &self.quic
    }

    fn wire_mut(&mut self) -> &mut dyn LinkedWire {
        &mut self.quic
    }
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        self.network.borrow_mut().close_quic(self.index);
    }
}
