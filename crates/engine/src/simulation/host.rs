//! The simulated machine as the engine uses it: handles on the network that all agents and their
//! broker share.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use plan::Reason;

use super::network::Network;
use crate::host::Ready;
use crate::transport::tcp::{self, Route};

/// The machine of one agent.
pub struct Host {
    network: Rc<RefCell<Network>>,
    agent: usize,
}

/// One end of a simulated connection; dropped, it closes.
pub struct Socket {
    network: Rc<RefCell<Network>>,
    connection: usize,
}

impl Host {
    /// The machine of agent `agent` of the network.
    pub const fn new(network: Rc<RefCell<Network>>, agent: usize) -> Self {
        Self { network, agent }
    }

    /// The present.
    pub fn now_ns(&self) -> u64 {
        self.network.borrow().now_ns
    }

    /// Begins a connection.
    pub fn open(&self, route: &Route, client: u32) -> Result<Socket, Reason> {
        let network = Rc::clone(&self.network);
        let opened = network.borrow_mut().open(self.agent, client, route.receive_buffer);
        let connection = opened.map_err(|error| tcp::reason(&error, true))?;
        Ok(Socket { network, connection })
    }

    /// Replaces `ready` by the news of this agent's sockets. The time has come already.
    pub fn wait(&self, until_ns: u64, ready: &mut Vec<Ready>) {
        self.network.borrow_mut().wait(self.agent, until_ns, ready);
    }
}

impl Socket {
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

    /// As `read(2)`.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.network.borrow_mut().read(self.connection, buffer)
    }

    /// As `write(2)`.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.network.borrow_mut().write(self.connection, bytes)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.network.borrow_mut().close(self.connection);
    }
}
