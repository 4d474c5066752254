//! TCP alone or under TLS behind one type: bytes in and out without waiting, and errors as reasons
//! to count.

use std::io::{self, ErrorKind, Read, Write};

use openssl::error::ErrorStack;
use openssl::ssl::{Error, ErrorCode, Ssl, SslStream};
use plan::Reason;

use super::tcp::{self, Socket};

/// Reason codes of OpenSSL from here to 255 more are the alerts that the peer sent.
const ALERTS: std::ops::Range<i32> = 1000..1256;
/// Library code of OpenSSL for errors of the kernel, and the mask of the error number.
const SYSTEM_LIBRARY: i32 = 2;
const SYSTEM_NUMBER: std::ffi::c_ulong = 0x7fff_ffff;
/// Reason code of OpenSSL for a certificate that failed verification.
const VERIFY_FAILED: i32 = 134;
/// Reason code of OpenSSL for a connection that ended without close_notify.
const UNEXPECTED_EOF: i32 = 294;
// OpenSSL's results of a verification, see `man X509_STORE_CTX_get_error`.
const NOT_YET_VALID: i32 = 9;
const HAS_EXPIRED: i32 = 10;
const HOSTNAME_MISMATCH: i32 = 62;
const IP_ADDRESS_MISMATCH: i32 = 64;

/// Memory of a client under TLS on our side of OpenSSL: a box with two pointers and a flag, and the
/// socket in OpenSSL's care. OpenSSL's own is measured in the bench. (As in `client.rs`.)
#[cfg(not(any(debug_assertions, test)))]
const _: () = assert!(size_of::<Secured>() <= 24 && size_of::<Wire>() <= 8);

/// A connection of bytes.
pub enum Channel {
    /// TCP alone.
    Plain(Wire),
    /// Under TLS.
    Tls(Box<Secured>),
    /// Under a filter that behaves as TLS.
    #[cfg(test)]
    Simulated(Box<crate::simulation::Secured>),
}

/// A connection under TLS.
pub struct Secured {
    stream: SslStream<Wire>,
    /// Reading waits for space to write.
    reads_when_writable: bool,
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
pub struct Wire {
    socket: Socket,
    empty: bool,
    /// The broker has closed its side: only reading on finds it.
    ended: bool,
}

impl Channel {
    /// TCP alone over a socket that connects.
    pub const fn new(socket: Socket) -> Self {
        Self::Plain(Wire { socket, empty: false, ended: false })
    }

    /// Puts a connected socket under TLS; nothing is sent yet.
    pub fn secure(wire: Wire, mut ssl: Ssl) -> Result<Self, ErrorStack> {
        ssl.set_connect_state();
        let stream = SslStream::new(ssl, wire)?;
        Ok(Self::Tls(Box::new(Secured { stream, reads_when_writable: false })))
    }

    /// Puts a connected simulated socket under a filter.
    #[cfg(test)]
    pub fn secure_simulated(wire: Wire) -> Self {
        Self::Simulated(Box::new(crate::simulation::Secured::new(wire)))
    }

    /// Continues the handshake, if there is one.
    pub fn handshake(&mut self) -> Result<(), Halt> {
        #[cfg(test)]
        if let Self::Simulated(secured) = self {
            secured.wire_mut().empty = false;
            return secured.handshake();
        }
        let Self::Tls(tls) = self else { return Ok(()) };
        tls.stream.get_mut().empty = false;
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
    pub fn wake(&mut self, ended: bool) {
        let wire = self.wire_mut();
        wire.empty = false;
        wire.ended |= ended;
    }

    /// Reads bytes that have arrived. `connecting`: the peer has not accepted the client yet.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8], connecting: bool) -> Result<usize, Halt> {
        match self {
            Self::Plain(wire) => loop {
                match wire.read(buffer) {
                    Ok(0) => return Err(lost(&ErrorKind::UnexpectedEof.into(), connecting)),
                    Ok(count) => return Ok(count),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(Halt::Later),
                    Err(error) => return Err(lost(&error, connecting)),
                }
            },
            Self::Tls(tls) => tls.read(buffer, connecting),
            #[cfg(test)]
            Self::Simulated(secured) => secured.read(buffer, connecting),
        }
    }

    /// Writes as many bytes as possible. After [`Halt::Later`] the next write must begin with the
    /// same bytes.
    #[inline]
    pub fn write(&mut self, bytes: &[u8], connecting: bool) -> Result<usize, Halt> {
        match self {
            Self::Plain(wire) => loop {
                match wire.write(bytes) {
                    Ok(count) => return Ok(count),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::WouldBlock | ErrorKind::NotConnected
                        ) =>
                    {
                        return Err(Halt::Later);
                    }
                    Err(error) => return Err(lost(&error, connecting)),
                }
            },
            Self::Tls(tls) => tls.write(bytes, connecting),
            #[cfg(test)]
            Self::Simulated(secured) => secured.write(bytes, connecting),
        }
    }

    /// Returns `true` for TCP alone, which has no handshake of its own.
    pub const fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Returns `true` once if reading waited for room to write.
    pub fn takes_reading(&mut self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => std::mem::take(&mut tls.reads_when_writable),
            #[cfg(test)]
            Self::Simulated(secured) => std::mem::take(&mut secured.reads_when_writable),
        }
    }

    /// Makes the close of the socket a reset: the kernel discards what it has not sent.
    pub fn reset_on_close(&self) {
        self.wire().socket.reset_on_close();
    }

    /// The socket under the connection.
    pub fn socket_mut(&mut self) -> &mut Socket {
        &mut self.wire_mut().socket
    }

    /// Lets the kernel delay its acknowledgements from now on.
    pub fn delay_acks(&self) {
        self.wire().socket.delay_acks();
    }

    /// Sends close_notify, if there is room.
    pub fn finish(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Tls(tls) => {
                let _ = tls.stream.shutdown();
            }
            #[cfg(test)]
            Self::Simulated(secured) => secured.finish(),
        }
    }

    fn wire(&self) -> &Wire {
        match self {
            Self::Plain(wire) => wire,
            Self::Tls(tls) => tls.stream.get_ref(),
            #[cfg(test)]
            Self::Simulated(secured) => secured.wire(),
        }
    }

    fn wire_mut(&mut self) -> &mut Wire {
        match self {
            Self::Plain(wire) => wire,
            Self::Tls(tls) => tls.stream.get_mut(),
            #[cfg(test)]
            Self::Simulated(secured) => secured.wire_mut(),
        }
    }
}

#[cfg(test)]
impl Wire {
    /// The simulated socket.
    pub fn simulated(&self) -> &crate::simulation::Socket {
        match &self.socket {
            Socket::Simulated(socket) => socket,
            Socket::Tcp(_) => unreachable!("a filter is above simulated sockets only"),
        }
    }
}

impl Secured {
    fn read(&mut self, buffer: &mut [u8], connecting: bool) -> Result<usize, Halt> {
        self.stream.ssl_read(buffer).map_err(|error| {
            self.reads_when_writable = error.code() == ErrorCode::WANT_WRITE;
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

impl Read for Wire {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.empty {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.socket.read(buffer)?;
        self.empty = !self.ended && (1..buffer.len()).contains(&count);
        Ok(count)
    }
}

impl Write for Wire {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
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
            None if codes().any(|code| ALERTS.contains(&code.reason_code())) => {
                Halt::Lost(Reason::TlsRefused)
            }
            None => Halt::Lost(Reason::TlsFailed),
        },
    }
}

/// Reason why the broker's certificate failed verification.
fn unverified(stream: &SslStream<Wire>) -> Reason {
    match stream.ssl().verify_result().as_raw() {
        NOT_YET_VALID | HAS_EXPIRED => Reason::CertificateExpired,
        HOSTNAME_MISMATCH | IP_ADDRESS_MISMATCH => Reason::CertificateName,
        _ => Reason::CertificateUntrusted,
    }
}
