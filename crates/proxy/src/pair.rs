//! A connection through the proxy: the socket of the peer that connected (near), that to the
//! target (far), and the flows between them. It knows neither links nor the poll's tokens.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};

use mio::net::TcpStream;
use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};

use crate::flow::{Flow, Turn};

/// Which way bytes go, and at whose socket they come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From the peer that connected.
    Out,
    /// To it.
    In,
}

/// Two sockets and what goes between them.
pub struct Pair {
    /// Index of its link.
    pub link: usize,
    /// Whether it waited while its link was stalled.
    waited: bool,
    near: TcpStream,
    /// `None`: not begun.
    far: Option<TcpStream>,
    /// Whether the far side stands.
    pub is_connected: bool,
    flows: [Flow; 2],
    /// Instants at which its flows are to be moved, in nanoseconds; 0: none.
    pub timers_ns: [u64; 2],
}

impl Pair {
    /// A connection that was just accepted; `waited`: while its link was stalled.
    pub fn new(link: usize, near: TcpStream, waited: bool) -> Self {
        Self {
            link,
            waited,
            near,
            far: None,
            is_connected: false,
            flows: Default::default(),
            timers_ns: [0; 2],
        }
    }

    /// The socket of the peer that connected.
    pub const fn near(&mut self) -> &mut TcpStream {
        &mut self.near
    }

    /// Begins the connection to the target, and gives its socket to be registered.
    ///
    /// # Errors
    /// The kernel's; `ConnectionAborted` where the peer has hung up before anybody served it: over
    /// a cut cable its connection would never have come to be, and what it sent is void.
    pub fn open_far(&mut self, target: SocketAddr) -> io::Result<Option<&mut TcpStream>> {
        if self.far.is_some() {
            return Ok(None);
        }
        if self.waited && self.flow(Way::Out).is_closing() {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        self.near.set_nodelay(true)?;
        Ok(Some(self.far.insert(TcpStream::connect(target)?)))
    }

    /// Whether the far side stands; found out where it was not known.
    ///
    /// # Errors
    /// Why the target did not take the connection.
    pub fn connect(&mut self) -> io::Result<bool> {
        let Some(far) = &self.far else { return Ok(false) };
        if !self.is_connected {
            if let Some(error) = far.take_error()? {
                return Err(error);
            }
            match far.peer_addr() {
                Ok(_) => far.set_nodelay(true)?,
                Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
                Err(error) => return Err(error),
            }
            self.is_connected = true;
        }
        Ok(true)
    }

    /// Moves what can be moved one way. `true`: there is more, but others come first.
    ///
    /// # Errors
    /// Of either socket.
    pub fn pump(
        &mut self,
        way: Way,
        delay_ns: u64,
        now_ns: impl Fn() -> u64,
        buffer: &mut [u8],
    ) -> io::Result<bool> {
        let Some(far) = &mut self.far else { return Ok(false) };
        let flow = &mut self.flows[way as usize];
        let (from, to) = match way {
            Way::Out => (&mut self.near, far),
            Way::In => (far, &mut self.near),
        };
        let turn = flow.pump((from, to), delay_ns, now_ns, buffer)?;
        if turn == Turn::Ends {
            to.shutdown(Shutdown::Write)?;
            flow.ended();
        }
        Ok(turn == Turn::More)
    }

    /// One of its flows.
    pub const fn flow(&self, way: Way) -> &Flow {
        &self.flows[way as usize]
    }

    /// The source of a flow has said that nothing more comes.
    pub const fn closing(&mut self, way: Way) {
        self.flows[way as usize].closing();
    }

    /// Whether both ends have ended, and all was handed on.
    pub fn is_over(&self) -> bool {
        self.flows.iter().all(Flow::is_over)
    }

    /// Ends both connections with a reset: what is under way is lost, and both peers are told.
    pub fn reset(self) {
        let at_once = linger { l_onoff: 1, l_linger: 0 };
        for stream in std::iter::once(self.near).chain(self.far) {
            // Where it fails, the end is an orderly one.
            let _ = setsockopt(&stream, sockopt::Linger, &at_once);
        }
    }
}
