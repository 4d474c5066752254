//! Connections of a machine in virtual time, which the simulator makes.

use super::Halt;
use super::link::LinkedWire;
use super::quic::QuicConnection;

/// A connection in a simulated network, with the meaning of the functions of [`super::Channel`].
pub trait SimulatedConnection {
    /// Puts the connected socket under a filter that behaves as TLS; nothing is sent yet.
    fn secure(self: Box<Self>) -> Box<dyn SimulatedConnection>;

    /// Returns `true` without a filter.
    fn is_plain(&self) -> bool;

    /// Returns `true` once the handshake of the filter has ended.
    fn is_secure(&self) -> bool;

    /// Lets its events have another index.
    fn rename(&mut self, index: usize);

    /// Continues the handshake, if there is one.
    ///
    /// # Errors
    /// The reason why it has stopped.
    fn handshake(&mut self) -> Result<(), Halt>;

    /// Notes that the socket has bytes again.
    fn wake(&mut self, ended: bool);

    /// Reads bytes that have arrived.
    ///
    /// # Errors
    /// The reason why it has stopped.
    fn read(&mut self, buffer: &mut [u8], connecting: bool) -> Result<usize, Halt>;

    /// Writes as many bytes as possible.
    ///
    /// # Errors
    /// The reason why it has stopped.
    fn write(&mut self, bytes: &[u8], connecting: bool) -> Result<usize, Halt>;

    /// Returns `true` once if reading waited for room to write.
    fn takes_reading(&mut self) -> bool;

    /// Sends the end of TLS, if there is room.
    fn finish(&mut self);

    /// The connection of a hub; `None` for other connections.
    fn quic(&self) -> Option<&QuicConnection> {
        None
    }

    /// The socket with its link.
    fn wire(&self) -> &dyn LinkedWire;

    /// The socket with its link.
    fn wire_mut(&mut self) -> &mut dyn LinkedWire;
}
