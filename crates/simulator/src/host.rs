//! The simulated machine as the engine uses it: a handle on the network that all agents and their
//! broker share.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{
    ClientLink, Hub, QuicConnection, QuicIdentity, Ready, SharedHub, SimulatedConnection,
    SimulatedMachine, TcpRoute, reason_of_socket_error,
};
use plan::Reason;

use super::connection::PlainConnection;
use super::network::Network;
use super::socket::Socket;
use super::stream::{SimulatedSockets, SimulatedStream};

/// The machine of one agent.
pub struct AgentMachine {
    network: Rc<RefCell<Network>>,
    hub: SharedHub,
    agent: usize,
}

impl AgentMachine {
    /// The machine of agent `agent` of the network.
    pub fn new(network: Rc<RefCell<Network>>, agent: usize) -> Self {
        let sockets = SimulatedSockets::new(Rc::clone(&network), agent);
        let hub = Hub::new(Box::new(sockets), Some([agent as u8; 32]));
        Self { network, hub: Rc::new(RefCell::new(hub)), agent }
    }

    /// Connections over QUIC of the agent.
    pub fn hub(&self) -> SharedHub {
        Rc::clone(&self.hub)
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

    fn open_quic(
        &self,
        route: &TcpRoute,
        client: u32,
        identity: QuicIdentity<'_>,
    ) -> Result<Box<dyn SimulatedConnection>, Reason> {
        let begun = self.network.borrow_mut().begin_quic();
        let index = begun.map_err(|error| reason_of_socket_error(&error, true))?;
        let opened = self.hub.borrow_mut().open(route, client, identity);
        let quic = opened.map(|handle| QuicConnection::new(self.hub(), handle));
        let quic = quic.inspect_err(|_| self.network.borrow_mut().close_quic(index))?;
        let network = Rc::clone(&self.network);
        Ok(Box::new(SimulatedStream::new(network, (index, (self.agent, client)), quic)))
    }

    fn lingers(&self) -> bool {
        self.hub.borrow().lingers()
    }

    fn wait(&mut self, until_ns: u64, ready: &mut Vec<Ready>) {
        let mut hub = self.hub.borrow_mut();
        let until_ns = hub.begin_wait().min(until_ns);
        self.network.borrow_mut().wait(self.agent, until_ns, ready);
        let news = self.network.borrow_mut().take_datagram_news(self.agent);
        for (socket, has_room) in news {
            hub.wake(socket, true, has_room);
        }
        hub.end_wait(ready);
    }
}
