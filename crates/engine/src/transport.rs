//! Connections of clients behind one type: bytes in and out without waiting, and errors as reasons
//! to count.

pub mod link;
pub mod proxy_header;
pub mod quic;
pub mod silent;
pub mod simulated;
pub mod tcp;
pub mod tls;
pub mod websocket;

use std::io::{self, ErrorKind, Read, Write};

use mio::net::TcpStream;
use openssl::error::ErrorStack;
use openssl::ssl::{Error, ErrorCode, Ssl, SslStream};
use plan::Reason;

use self::link::{ClientLink, LinkFigures, LinkedWire, TimedSocket};
use self::quic::QuicConnection;
pub use self::silent::Silent;
pub use self::simulated::SimulatedConnection;
pub use self::websocket::{Framing, WebSocket};

/// Reason codes of OpenSSL from here to 255 more are the alerts that the peer sent.
const ALERTS: std::ops::Range<i32> = 1000..1256;
/// Library code of OpenSSL for errors of the kernel, and the mask of the error number.
const SYSTEM_LIBRARY: i32 = 2;
const SYSTEM_NUMBER: std::ffi::c_ulong = 0x7fff_ffff;
/// The alert for protocols of ALPN that the peer does not speak [RFC 7301, 3.2].
const NO_APPLICATION_PROTOCOL: i32 = 1120;
/// Reason code of OpenSSL for a certificate that failed verification.
const VERIFY_FAILED: i32 = 134;
/// Reason code of OpenSSL for a connection that ended without close_notify.
const UNEXPECTED_EOF: i32 = 294;
// OpenSSL's results of a verification, see `man X509_STORE_CTX_get_error`.
const NOT_YET_VALID: i32 = 9;
const HAS_EXPIRED: i32 = 10;
const HOSTNAME_MISMATCH: i32 = 62;
const IP_ADDRESS_MISMATCH: i32 = 64;

/// A connection as a client's protocol uses it. (As in `client.rs`.)
#[cfg(not(any(debug_assertions, test)))]
const _: () = assert!(size_of::<Stream>() <= 16);

/// Memory of a client under TLS on our side of OpenSSL: a box with two pointers and flags, and the
/// socket with its link in OpenSSL's care. The bench measures OpenSSL's own. (As in `client.rs`.)
#[cfg(not(any(debug_assertions, test)))]
const _: () = assert!(size_of::<Secured>() <= 24 && size_of::<Wire<TcpStream>>() <= 16);

/// A connection.
pub enum Stream {
    /// TCP, alone or under TLS, or QUIC.
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
    pub fn deadline(&self) -> u64 {
        self.channel().wire().deadline_ns()
    }

    /// Handles the transport's own timer, or room for bytes: passes on what has passed the link.
    pub fn pass_on(&mut self) {
        self.channel_mut().wire_mut().pass_on();
    }

    /// Passes all bytes on that are in the link: nothing follows them.
    pub fn flush_link(&mut self) {
        self.channel_mut().wire_mut().flush_link();
    }

    /// Instant, in nanoseconds, at which the last byte leaves the link; `None` if none is in it.
    pub fn sends_until_ns(&self) -> Option<u64> {
        self.channel().wire().sends_until_ns()
    }

    /// Events in the link since the last call; `None` without a link.
    pub fn take_link_figures(&mut self) -> Option<LinkFigures> {
        self.channel_mut().wire_mut().take_figures()
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

    /// Returns `true` if the first bytes of a connection that begins go in 0-RTT.
    pub fn has_early_data(&self) -> bool {
        self.channel().quic().is_some_and(|quic| quic.handshake().is_ok() && !quic.is_secure())
    }

    /// Returns what the peer of QUIC has done with data in 0-RTT; `None` if there were none, or the
    /// handshake is under way.
    pub fn early_accepted(&self) -> Option<bool> {
        self.channel().quic().and_then(QuicConnection::early_accepted)
    }

    /// Changes a connection of QUIC to another port. Returns `true` if it has changed.
    pub fn migrate(&self) -> bool {
        self.channel().quic().is_some_and(QuicConnection::migrate)
    }

    /// Returns `true` if the connection has another port, to which the peer has sent nothing.
    pub fn is_migrating(&self) -> bool {
        self.channel().quic().is_some_and(QuicConnection::is_migrating)
    }

    /// Returns `true` once after the peer has sent something to the port of a migration.
    pub fn takes_followed(&self) -> bool {
        self.channel().quic().is_some_and(QuicConnection::takes_followed)
    }

    /// Code and text with which the peer has closed the connection, if the transport has them.
    pub fn last_words(&self) -> Option<String> {
        self.channel().quic()?.last_words()
    }

    /// Sends the ends of WebSocket and TLS, if there is room.
    pub fn finish(&mut self, framing: &mut Framing) {
        if let Self::WebSocket(websocket) = self {
            websocket.close(framing);
        }
        self.channel_mut().finish();
        self.flush_link();
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

/// A connection of bytes.
pub enum Channel {
    /// TCP alone.
    Plain(Wire<TcpStream>),
    /// Under TLS.
    Tls(Box<Secured>),
    /// A stream of QUIC.
    Quic(Box<QuicConnection>),
    /// Of a simulated machine; a fat pointer would make each client larger.
    Simulated(Box<Box<dyn SimulatedConnection>>),
}

/// A connection under TLS.
pub struct Secured {
    stream: SslStream<Wire<TcpStream>>,
    /// Reading waits for space to write.
    reads_when_writable: bool,
    /// The handshake has been counted.
    is_counted: bool,
    /// TLS has failed: the session cannot be resumed.
    is_broken: bool,
}

/// Reason why an operation has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The operation continues when the socket is ready.
    Later,
    /// The connection has failed.
    Lost(Reason),
}

/// A socket. After a short read, the next read answers WouldBlock without a system call.
pub struct Wire<S> {
    socket: S,
    empty: bool,
    /// The broker has closed its side: only reading on finds it.
    ended: bool,
    /// The link between the socket and the client, if there is one.
    link: Option<Box<ClientLink>>,
}

impl Channel {
    /// TCP alone over a socket that connects.
    pub const fn new(socket: TcpStream, link: Option<Box<ClientLink>>) -> Self {
        Self::Plain(Wire::new(socket, link))
    }

    /// Puts a connected socket under TLS; nothing is sent yet.
    pub fn secure(wire: Wire<TcpStream>, mut ssl: Ssl) -> Result<Self, ErrorStack> {
        ssl.set_connect_state();
        let stream = SslStream::new(ssl, wire)?;
        let (reads_when_writable, is_counted, is_broken) = (false, false, false);
        Ok(Self::Tls(Box::new(Secured { stream, reads_when_writable, is_counted, is_broken })))
    }

    /// Continues the handshake, if there is one.
    pub fn handshake(&mut self) -> Result<(), Halt> {
        let tls = match self {
            Self::Plain(wire) => return wire.open(),
            Self::Tls(tls) => tls,
            Self::Quic(quic) => return quic.handshake(),
            Self::Simulated(connection) => return connection.handshake(),
        };
        tls.stream.get_mut().open()?;
        tls.stream.get_mut().wake(false);
        let Err(error) = tls.stream.do_handshake() else { return Ok(()) };
        Err(match halt(&error, true) {
            Halt::Lost(Reason::CertificateUntrusted) => Halt::Lost(unverified(&tls.stream)),
            // A broker that closes here has refused the connection.
            Halt::Lost(Reason::ConnectReset | Reason::ConnectClosed) => {
                Halt::Lost(Reason::TlsRefused)
            }
            other => other,
        })
    }

    /// Notes that the socket has bytes again. `ended`: the peer has closed its side.
    #[inline]
    pub fn wake(&mut self, ended: bool) {
        match self {
            Self::Plain(wire) => wire.wake(ended),
            Self::Tls(tls) => tls.stream.get_mut().wake(ended),
            // The hub has the news itself.
            Self::Quic(_) => {}
            Self::Simulated(connection) => connection.wake(ended),
        }
    }

    /// Reads bytes that have arrived. `connecting`: the peer has not accepted the client yet.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8], connecting: bool) -> Result<usize, Halt> {
        match self {
            Self::Plain(wire) => wire.receive(buffer, connecting),
            Self::Tls(tls) => tls.read(buffer, connecting),
            Self::Quic(quic) => quic.read(buffer, connecting),
            Self::Simulated(connection) => connection.read(buffer, connecting),
        }
    }

    /// Writes as many bytes as possible. After [`Halt::Later`] the next write must begin with the
    /// same bytes.
    #[inline(always)]
    pub fn write(&mut self, bytes: &[u8], connecting: bool) -> Result<usize, Halt> {
        match self {
            Self::Plain(wire) => wire.send(bytes, connecting),
            Self::Tls(tls) => tls.write(bytes, connecting),
            Self::Quic(quic) => quic.write(bytes, connecting),
            Self::Simulated(connection) => connection.write(bytes, connecting),
        }
    }

    /// Returns `true` for TCP alone, which has no handshake of its own.
    pub fn is_plain(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(_) | Self::Quic(_) => false,
            Self::Simulated(connection) => connection.is_plain(),
        }
    }

    /// Port of this side of the connection; 0 in a simulated network.
    pub fn own_port(&self) -> u16 {
        self.tcp().and_then(|stream| stream.local_addr().ok()).map_or(0, |own| own.port())
    }

    /// Returns `true` once if reading waited for room to write.
    pub fn takes_reading(&mut self) -> bool {
        match self {
            Self::Plain(_) | Self::Quic(_) => false,
            Self::Tls(tls) => std::mem::take(&mut tls.reads_when_writable),
            Self::Simulated(connection) => connection.takes_reading(),
        }
    }

    /// Makes the close of the socket a reset: kernel or hub discards what it has not sent.
    pub fn reset_on_close(&self) {
        self.quic().inspect(|quic| quic.abort());
        // A simulated close and a reset differ in nothing but the DISCONNECT.
        self.tcp().inspect(|stream| tcp::reset_on_close(stream));
    }

    /// Lets the kernel delay its acknowledgements from now on.
    pub fn delay_acks(&self) {
        // A simulated network has no acknowledgements.
        self.tcp().inspect(|stream| tcp::delay_acks(stream));
    }

    /// Sends close_notify, if there is room.
    pub fn finish(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Tls(tls) => {
                let _ = tls.stream.shutdown();
            }
            Self::Quic(quic) => quic.finish(),
            Self::Simulated(connection) => connection.finish(),
        }
    }

    fn wire(&self) -> &dyn LinkedWire {
        match self {
            Self::Plain(wire) => wire,
            Self::Tls(tls) => tls.stream.get_ref(),
            Self::Quic(quic) => quic.as_ref(),
            Self::Simulated(connection) => connection.wire(),
        }
    }

    fn wire_mut(&mut self) -> &mut dyn LinkedWire {
        match self {
            Self::Plain(wire) => wire,
            Self::Tls(tls) => tls.stream.get_mut(),
            Self::Quic(quic) => quic.as_mut(),
            Self::Simulated(connection) => connection.wire_mut(),
        }
    }

    fn quic(&self) -> Option<&QuicConnection> {
        match self {
            Self::Quic(quic) => Some(quic),
            Self::Simulated(connection) => connection.quic(),
            Self::Plain(_) | Self::Tls(_) => None,
        }
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(wire) => Some(&wire.socket),
            Self::Tls(tls) => Some(&tls.stream.get_ref().socket),
            Self::Quic(_) | Self::Simulated(_) => None,
        }
    }

    fn secured(&self) -> Option<&Secured> {
        if let Self::Tls(tls) = self { Some(tls) } else { None }
    }

    fn secured_mut(&mut self) -> Option<&mut Secured> {
        if let Self::Tls(tls) = self { Some(tls) } else { None }
    }

    /// The kernel's socket under the connection, if there is one.
    pub fn tcp_mut(&mut self) -> Option<&mut TcpStream> {
        match self {
            Self::Plain(wire) => Some(&mut wire.socket),
            Self::Tls(tls) => Some(&mut tls.stream.get_mut().socket),
            Self::Quic(_) | Self::Simulated(_) => None,
        }
    }
}

impl<S> Wire<S> {
    /// A socket that connects, over a link or not.
    pub const fn new(socket: S, link: Option<Box<ClientLink>>) -> Self {
        Self { socket, empty: false, ended: false, link }
    }

    /// The socket.
    pub const fn socket(&self) -> &S {
        &self.socket
    }
}

impl<S: TimedSocket> Wire<S> {
    /// Notes that the socket has bytes again, or that the peer has closed its side.
    #[inline]
    pub fn wake(&mut self, ended: bool) {
        self.empty = false;
        self.ended |= ended;
        if self.link.is_some() {
            self.pull();
        }
    }

    /// Reads bytes that have arrived.
    ///
    /// # Errors
    /// The reason why it has stopped.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8], connecting: bool) -> Result<usize, Halt> {
        loop {
            match self.read(buffer) {
                Ok(0) => return Err(lost(&ErrorKind::UnexpectedEof.into(), connecting)),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(Halt::Later),
                Err(error) => return Err(lost(&error, connecting)),
            }
        }
    }

    /// Writes as many bytes as possible.
    ///
    /// # Errors
    /// The reason why it has stopped.
    #[inline]
    pub fn send(&mut self, bytes: &[u8], connecting: bool) -> Result<usize, Halt> {
        loop {
            match self.write(bytes).map_err(|error| (error.kind(), error)) {
                Ok(count) => return Ok(count),
                Err((ErrorKind::Interrupted, _)) => {}
                Err((ErrorKind::WouldBlock | ErrorKind::NotConnected, _)) => {
                    return Err(Halt::Later);
                }
                Err((_, error)) => return Err(lost(&error, connecting)),
            }
        }
    }
}

impl Secured {
    fn read(&mut self, buffer: &mut [u8], connecting: bool) -> Result<usize, Halt> {
        self.stream.ssl_read(buffer).map_err(|error| {
            self.reads_when_writable = error.code() == ErrorCode::WANT_WRITE;
            self.is_broken |= error.code() == ErrorCode::SSL;
            halt(&error, connecting)
        })
    }

    fn write(&mut self, bytes: &[u8], connecting: bool) -> Result<usize, Halt> {
        self.stream.ssl_write(bytes).map_err(|error| match halt(&error, connecting) {
            // With TLS 1.3 a broker refuses a certificate after the handshake has ended here. Its
            // alert has come before the reset.
            Halt::Lost(Reason::ConnectReset) => match self.read(&mut [0], connecting) {
                Err(refused @ Halt::Lost(Reason::TlsRefused)) => refused,
                _ => Halt::Lost(Reason::ConnectReset),
            },
            other => other,
        })
    }
}

impl<S: Read> Wire<S> {
    #[inline]
    fn read_socket(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.empty {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.socket.read(buffer)?;
        self.empty = !self.ended && (1..buffer.len()).contains(&count);
        Ok(count)
    }
}

impl<S: TimedSocket> Read for Wire<S> {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.link.is_some() { self.read_link(buffer) } else { self.read_socket(buffer) }
    }
}

impl<S: TimedSocket> Write for Wire<S> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.link.is_some() { self.write_link(bytes) } else { self.socket.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lost(error: &io::Error, connecting: bool) -> Halt {
    Halt::Lost(tcp::reason(error, connecting))
}

/// Meaning of an OpenSSL error for the connection.
fn halt(error: &Error, connecting: bool) -> Halt {
    let end = || lost(&ErrorKind::UnexpectedEof.into(), connecting);
    let codes = || error.ssl_error().into_iter().flat_map(ErrorStack::errors);
    let system = || {
        let code = codes().find(|code| code.library_code() == SYSTEM_LIBRARY)?;
        Some(io::Error::from_raw_os_error((code.code() & SYSTEM_NUMBER) as i32))
    };
    match error.code() {
        ErrorCode::WANT_READ | ErrorCode::WANT_WRITE => Halt::Later,
        ErrorCode::ZERO_RETURN => end(),
        _ => match error.io_error() {
            Some(error) => lost(error, connecting),
            None if let Some(error) = system() => lost(&error, connecting),
            None if codes().next().is_none() => end(),
            None if codes().any(|code| code.reason_code() == UNEXPECTED_EOF) => end(),
            None if codes().any(|code| code.reason_code() == VERIFY_FAILED) => {
                Halt::Lost(Reason::CertificateUntrusted)
            }
            None if !connecting => Halt::Lost(Reason::TlsBroken),
            None if codes().any(|code| code.reason_code() == NO_APPLICATION_PROTOCOL) => {
                Halt::Lost(Reason::AlpnRefused)
            }
            None if codes().any(|code| ALERTS.contains(&code.reason_code())) => {
                Halt::Lost(Reason::TlsRefused)
            }
            None => Halt::Lost(Reason::TlsFailed),
        },
    }
}

/// Reason why the broker's certificate failed verification.
fn unverified(stream: &SslStream<Wire<TcpStream>>) -> Reason {
    match stream.ssl().verify_result().as_raw() {
        NOT_YET_VALID | HAS_EXPIRED => Reason::CertificateExpired,
        HOSTNAME_MISMATCH | IP_ADDRESS_MISMATCH => Reason::CertificateName,
        _ => Reason::CertificateUntrusted,
    }
}
