//! A connection through the proxy: the socket of the peer that connected (near), that to the
//! target (far), and the flows between them.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};

use mio::net::TcpStream;
use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};

use crate::flow::{ByteFlow, Pumped};

/// Direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ByteWay {
    /// From the peer that connected.
    Out,
    /// To the peer that connected.
    In,
}

/// Two sockets and the flows between them.
pub struct SocketPair {
    /// Index of the link.
    pub link: usize,
    /// The connection waited while the link was stalled.
    waited: bool,
    near: TcpStream,
    /// `None`: the connection to the target has not begun.
    far: Option<TcpStream>,
    /// The connection to the target is open.
    pub is_connected: bool,
    flows: [ByteFlow; 2],
    /// Instants of the next work of both flows, in nanoseconds; 0: none.
    pub timers_ns: [u64; 2],
}

impl SocketPair {
    /// Creates a pair for an accepted connection; `waited`: it waited while the link was stalled.
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

    /// Returns the socket of the peer that connected.
    pub const fn near(&mut self) -> &mut TcpStream {
        &mut self.near
    }

    /// Begins the connection to the target; returns the socket to register.
    ///
    /// # Errors
    /// The kernel's; `ConnectionAborted` if the peer has closed its connection during the stall:
    /// over a cut cable the connection would not have existed, so its bytes are void.
    pub fn open_far(&mut self, target: SocketAddr) -> io::Result<Option<&mut TcpStream>> {
        if self.far.is_some() {
            return Ok(None);
        }
        if self.waited && self.flow(ByteWay::Out).is_closing() {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        self.near.set_nodelay(true)?;
        Ok(Some(self.far.insert(TcpStream::connect(target)?)))
    }

    /// Returns `true` once the connection to the target is open.
    ///
    /// # Errors
    /// The reason of a refused connection.
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

    /// Moves bytes in one direction; `true`: more bytes wait for the next time slice.
    ///
    /// # Errors
    /// Of either socket.
    pub fn pump(
        &mut self,
        way: ByteWay,
        delay_ns: u64,
        now_ns: impl Fn() -> u64,
        buffer: &mut [u8],
    ) -> io::Result<bool> {
        let Some(far) = &mut self.far else { return Ok(false) };
        let flow = &mut self.flows[way as usize];
        let (from, to) = match way {
            ByteWay::Out => (&mut self.near, far),
            ByteWay::In => (far, &mut self.near),
        };
        let pumped = flow.pump((from, to), delay_ns, now_ns, buffer)?;
        if pumped == Pumped::Ended {
            to.shutdown(Shutdown::Write)?;
            flow.ended();
        }
        Ok(pumped == Pumped::More)
    }

    /// Returns the flow of a direction.
    pub const fn flow(&self, way: ByteWay) -> &ByteFlow {
        &self.flows[way as usize]
    }

    /// Notes that the source of a flow has announced its end.
    pub const fn closing(&mut self, way: ByteWay) {
        self.flows[way as usize].closing();
    }

    /// Returns `true` once both streams have ended and all bytes were forwarded.
    pub fn is_over(&self) -> bool {
        self.flows.iter().all(ByteFlow::is_over)
    }

    /// Ends both connections with a reset; bytes in transit are lost.
    pub fn reset(self) {
        let at_once = linger { l_onoff: 1, l_linger: 0 };
        for stream in std::iter::once(self.near).chain(self.far) {
            // After a failure the connection closes without a reset.
            let _ = setsockopt(&stream, sockopt::Linger, &at_once);
        }
    }
}
