//! The machine under the engine: opens and registers sockets, reads the clock and waits. The loop
//! and its clients reach the kernel through this file and their channels only. The simulator puts
//! a machine in virtual time in its place.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::rc::Rc;

use agent::clock;
use agent::wait::Wait;
use mio::{Events, Interest, Token, Waker};
use plan::Reason;

use crate::transport::link::ClientLink;
use crate::transport::quic::hub::Hub;
use crate::transport::quic::security::QuicIdentity;
use crate::transport::quic::sockets::{DatagramSockets, SocketIndex, UdpSockets};
use crate::transport::quic::{QuicConnection, SharedHub};
use crate::transport::tcp::{self, Ready, TcpRoute};
use crate::transport::{Channel, SimulatedConnection};

/// Events taken from the kernel at once.
const EVENTS: usize = 1024;
/// Token of the first socket of QUIC: beyond all clients and silent connections.
const QUIC_TOKENS: usize = 1 << 48;

/// The machine that an engine runs on.
pub enum Host {
    /// The real one.
    Machine(Machine),
    /// A simulated one.
    Simulated(Box<dyn SimulatedMachine>),
}

/// A machine in virtual time.
pub trait SimulatedMachine {
    /// The present, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Begins a connection of a client; it is writable once it is open or has failed.
    ///
    /// # Errors
    /// The reason to count.
    fn open(
        &self,
        route: &TcpRoute,
        client: u32,
        link: Option<Box<ClientLink>>,
    ) -> Result<Box<dyn SimulatedConnection>, Reason>;

    /// Begins a connection of a client over QUIC; it is writable once it is open or has failed.
    ///
    /// # Errors
    /// The reason to count.
    fn open_quic(
        &self,
        route: &TcpRoute,
        client: u32,
        identity: QuicIdentity<'_>,
    ) -> Result<Box<dyn SimulatedConnection>, Reason>;

    /// Returns `true` while the last bytes of clients that have left are under way.
    fn lingers(&self) -> bool;

    /// Appends the events of sockets, of which there is one or the time has come.
    fn wait(&mut self, until_ns: u64, ready: &mut Vec<Ready>);
}

/// The kernel's poll, timer and clock.
pub struct Machine {
    wait: Wait,
    events: Events,
    /// Connections over QUIC, once there is one.
    hub: OnceCell<SharedHub>,
}

impl Host {
    /// The real machine, and a waker that ends its wait.
    ///
    /// # Errors
    /// The kernel's, when it has no descriptors left for the poll and the timer.
    pub fn machine() -> io::Result<(Self, Waker)> {
        let (wait, waker) = Wait::new()?;
        let events = Events::with_capacity(EVENTS);
        let machine = Machine { wait, events, hub: OnceCell::new() };
        Ok((Self::Machine(machine), waker))
    }

    /// Returns `true` for the real machine. Virtual time has no threads for work beside the loop,
    /// and no process whose use of the machine counts.
    pub const fn is_real(&self) -> bool {
        matches!(self, Self::Machine(_))
    }

    /// The present, in nanoseconds of the reference clock; it never runs backwards.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match self {
            Self::Machine(_) => clock::now_ns(),
            Self::Simulated(machine) => machine.now_ns(),
        }
    }

    /// Begins a connection of a client, over its link or not; it is writable once it is open or has
    /// failed.
    ///
    /// # Errors
    /// The reason to count.
    pub fn open(
        &self,
        route: &TcpRoute,
        client: u32,
        link: Option<Box<ClientLink>>,
    ) -> Result<Channel, Reason> {
        match self {
            Self::Machine(machine) => machine.open(route, client, link),
            Self::Simulated(machine) => {
                let connection = machine.open(route, client, link)?;
                Ok(Channel::Simulated(Box::new(connection)))
            }
        }
    }

    /// Begins a connection of a client over QUIC; it is writable once it is open or has failed.
    ///
    /// # Errors
    /// The reason to count.
    pub fn open_quic(
        &self,
        route: &TcpRoute,
        client: u32,
        identity: QuicIdentity<'_>,
    ) -> Result<Channel, Reason> {
        let machine = match self {
            Self::Machine(machine) => machine,
            Self::Simulated(machine) => {
                let connection = machine.open_quic(route, client, identity)?;
                return Ok(Channel::Simulated(Box::new(connection)));
            }
        };
        let hub = machine.hub().map_err(|error| tcp::reason(&error, true))?;
        let handle = hub.borrow_mut().open(route, client, identity)?;
        Ok(Channel::Quic(Box::new(QuicConnection::new(Rc::clone(hub), handle))))
    }

    /// Returns `true` while the last bytes of clients that have left are under way.
    pub fn lingers(&self) -> bool {
        match self {
            Self::Machine(machine) => machine.hub.get().is_some_and(|hub| hub.borrow().lingers()),
            Self::Simulated(machine) => machine.lingers(),
        }
    }

    /// Lets the news of a socket have another index. Only bytes and the end of the stream are news.
    ///
    /// # Errors
    /// The kernel's, if it has no memory for this.
    pub fn rename(&self, channel: &mut Channel, index: usize) -> io::Result<()> {
        match channel {
            Channel::Simulated(connection) => connection.rename(index),
            Channel::Quic(quic) => quic.silence(index),
            Channel::Plain(_) | Channel::Tls(_) => {}
        }
        if let (Self::Machine(machine), Some(stream)) = (self, channel.tcp_mut()) {
            machine.wait.registry().reregister(stream, Token(index), Interest::READABLE)?;
        }
        Ok(())
    }

    /// Waits for news of sockets, a waker or an instant, and replaces `ready` by the news.
    ///
    /// # Errors
    /// The poll's, after which no wait can succeed.
    pub fn wait(&mut self, until_ns: u64, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        match self {
            Self::Machine(machine) => machine.wait(until_ns, ready),
            Self::Simulated(machine) => {
                machine.wait(until_ns, ready);
                Ok(())
            }
        }
    }
}

impl Machine {
    fn open(
        &self,
        route: &TcpRoute,
        client: u32,
        link: Option<Box<ClientLink>>,
    ) -> Result<Channel, Reason> {
        let mut stream = tcp::open(route)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered =
            self.wait.registry().register(&mut stream, Token(client as usize), interest);
        registered.map(|()| Channel::new(stream, link)).map_err(|error| tcp::reason(&error, true))
    }

    fn wait(&mut self, until_ns: u64, ready: &mut Vec<Ready>) -> io::Result<()> {
        let mut hub = self.hub.get().map(|hub| hub.borrow_mut());
        let until_ns = hub.as_mut().map_or(until_ns, |hub| hub.begin_wait().min(until_ns));
        for event in self.wait.until(until_ns, &mut self.events)? {
            let (index, readable, writable) =
                (event.token().0, event.is_readable(), event.is_writable());
            match &mut hub {
                Some(hub) if index >= QUIC_TOKENS => {
                    hub.wake((index - QUIC_TOKENS) as SocketIndex, readable, writable);
                }
                _ => {
                    let ended = event.is_read_closed();
                    ready.push(Ready { client: index, readable, writable, ended });
                }
            }
        }
        if let Some(hub) = &mut hub {
            hub.end_wait(ready);
        }
        Ok(())
    }

    fn hub(&self) -> io::Result<&SharedHub> {
        if let Some(hub) = self.hub.get() {
            return Ok(hub);
        }
        let registry = self.wait.registry().try_clone()?;
        let sockets: Box<dyn DatagramSockets> = Box::new(UdpSockets::new(registry, QUIC_TOKENS));
        let hub = Hub::new(sockets, None);
        Ok(self.hub.get_or_init(|| Rc::new(RefCell::new(hub))))
    }
}
