//! Connections of clients behind one type: bytes in and out without waiting, and errors as reasons
//! to count.

pub mod channel;
pub mod silent;
pub mod tcp;
pub mod tls;
pub mod websocket;

pub use self::channel::{Channel, Halt};
pub use self::silent::Silent;
pub use self::websocket::{Framing, WebSocket};

/// A connection as a client's protocol uses it. (As in `client.rs`.)
#[cfg(not(any(debug_assertions, test)))]
const _: () = assert!(size_of::<Stream>() <= 16);

/// A connection.
pub enum Stream {
    /// TCP, alone or under TLS.
    Direct(Channel),
    /// A WebSocket above it.
    WebSocket(Box<WebSocket>),
}

impl Stream {
    /// Continues the handshakes, if there are any.
    pub fn handshake(&mut self, framing: &mut Framing) -> Result<(), Halt> {
        match self {
            Self::Direct(channel) => channel.handshake(),
            Self::WebSocket(websocket) => websocket.handshake(framing),
        }
    }

    /// Returns `true` if the connection may have a handshake after that of TCP.
    pub fn has_handshake(&self) -> bool {
        match self {
            Self::Direct(channel) => !channel.is_plain(),
            Self::WebSocket(_) => true,
        }
    }

    /// Notes that the socket has bytes again. `ended`: the peer has closed its side.
    #[inline]
    pub fn wake(&mut self, ended: bool) {
        match self {
            Self::Direct(channel) => channel.wake(ended),
            Self::WebSocket(websocket) => websocket.wake(ended),
        }
    }

    /// Reads bytes that have arrived; none if what has arrived is not for the client's protocol.
    /// `connecting`: the peer has not accepted the client yet.
    #[inline]
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        connecting: bool,
        framing: &mut Framing,
    ) -> Result<usize, Halt> {
        match self {
            Self::Direct(channel) => channel.read(buffer, connecting),
            Self::WebSocket(websocket) => websocket.read(buffer, connecting, framing),
        }
    }

    /// Writes as many bytes as possible. After [`Halt::Later`] the next write must begin with the
    /// same bytes.
    #[inline]
    pub fn write(
        &mut self,
        bytes: &[u8],
        connecting: bool,
        framing: &mut Framing,
    ) -> Result<usize, Halt> {
        match self {
            Self::Direct(channel) => channel.write(bytes, connecting),
            Self::WebSocket(websocket) => websocket.write(bytes, connecting, framing),
        }
    }

    /// Instant of the transport's own timer, in nanoseconds; `u64::MAX` if it has none.
    #[inline]
    pub const fn deadline(&self) -> u64 {
        match self {
            // The kernel has the timers of TCP.
            Self::Direct(_) | Self::WebSocket(_) => u64::MAX,
        }
    }

    /// Handles the transport's own timer.
    #[inline]
    pub const fn timeout(&mut self) -> Result<(), Halt> {
        match self {
            Self::Direct(_) | Self::WebSocket(_) => Ok(()),
        }
    }

    /// Writes what the transport itself has to send and had no room for.
    pub fn write_own(&mut self) {
        if let Self::WebSocket(websocket) = self {
            websocket.write_own();
        }
    }

    /// Returns `true` once if reading waited for room to write.
    pub fn takes_reading(&mut self) -> bool {
        self.channel_mut().takes_reading()
    }

    /// Makes the close of the socket a reset: the kernel discards what it has not sent.
    pub fn reset_on_close(&self) {
        self.channel().reset_on_close();
    }

    /// Lets the kernel delay its acknowledgements from now on.
    pub fn delay_acks(&self) {
        self.channel().delay_acks();
    }

    /// Sends the ends of WebSocket and TLS, if there is room.
    pub fn finish(&mut self, framing: &mut Framing) {
        if let Self::WebSocket(websocket) = self {
            websocket.close(framing);
        }
        self.channel_mut().finish();
    }

    const fn channel(&self) -> &Channel {
        match self {
            Self::Direct(channel) => channel,
            Self::WebSocket(websocket) => websocket.channel(),
        }
    }

    const fn channel_mut(&mut self) -> &mut Channel {
        match self {
            Self::Direct(channel) => channel,
            Self::WebSocket(websocket) => websocket.channel_mut(),
        }
    }
}
