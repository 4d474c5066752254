//! The client's end of a connection in the simulated network, with the calls of the kernel.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;

use engine::TimedSocket;

use super::network::Network;

/// One end of a simulated connection; dropped, it closes.
pub struct Socket {
    network: Rc<RefCell<Network>>,
    connection: usize,
}

impl Socket {
    /// The client's end of a connection of the network.
    pub const fn new(network: Rc<RefCell<Network>>, connection: usize) -> Self {
        Self { network, connection }
    }

    /// Lets its news have another index.
    pub fn rename(&self, index: usize) {
        self.network.borrow_mut().rename(self.connection, index);
    }

    /// Leaves it to a filter to note the bytes of its protocol.
    pub fn secure(&self) {
        self.network.borrow_mut().secure(self.connection);
    }

    /// Notes bytes that a filter has read.
    pub fn note_read(&self, bytes: &[u8]) {
        self.network.borrow_mut().note_read(self.connection, bytes);
    }

    /// Notes bytes that a filter has written.
    pub fn note_written(&self, bytes: &[u8]) {
        self.network.borrow_mut().note_written(self.connection, bytes);
    }

    /// Counts a kind of trouble that a filter has seen.
    pub fn note(&self, kind: &'static str) {
        self.network.borrow_mut().weather.note(kind);
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.network.borrow_mut().read(self.connection, buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.network.borrow_mut().write(self.connection, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TimedSocket for Socket {
    fn now_ns(&self) -> u64 {
        self.network.borrow().now_ns
    }

    fn is_connected(&self) -> bool {
        self.network.borrow().is_connected(self.connection)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.network.borrow_mut().close(self.connection);
    }
}
