//! The simulated machine as the engine uses it: a handle on the network that all agents and their
//! broker share.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{
    ClientLink, Ready, SimulatedConnection, SimulatedMachine, TcpRoute, reason_of_socket_error,
};
use plan::Reason;

use super::connection::PlainConnection;
use super::network::Network;
use super::socket::Socket;

/// The machine of one agent.
pub struct AgentMachine {
    network: Rc<RefCell<Network>>,
    agent: usize,
}

impl AgentMachine {
    /// The machine of agent `agent` of the network.
    pub const fn new(network: Rc<RefCell<Network>>, agent: usize) -> Self {
        Self { network, agent }
    }
}

impl SimulatedMachine for AgentMachine {
    fn now_ns(&self) -> u64 {
        self.network.borrow().now_ns
    }

    fn open(
        &self,
        route: &TcpRoute,
        client: u32,
        link: Option<Box<ClientLink>>,
    ) -> Result<Box<dyn SimulatedConnection>, Reason> {
        let network = Rc::clone(&self.network);
        let opened = network.borrow_mut().open(self.agent, client, route);
        let connection = opened.map_err(|error| reason_of_socket_error(&error, true))?;
        Ok(Box::new(PlainConnection::new(Socket::new(network, connection), link)))
    }

    fn wait(&mut self, until_ns: u64, ready: &mut Vec<Ready>) {
        self.network.borrow_mut().wait(self.agent, until_ns, ready);
    }
}
