//! A client's connection, plain or under TLS: bytes in and out without waiting, and what went
//! wrong as a reason to count. It knows no MQTT and no plan.

use std::io::{self, ErrorKind, Read, Write};

use openssl::error::ErrorStack;
use openssl::ssl::{Error, ErrorCode, Ssl, SslStream};
use plan::Reason;

use crate::host::Socket;
use crate::socket;

/// Reason codes of OpenSSL from here to 255 more are the alerts that the peer sent.
const ALERTS: std::ops::Range<i32> = 1000..1256;
/// Where OpenSSL says that an error came from the kernel, and where its code has that number.
const SYSTEM_LIBRARY: i32 = 2;
const SYSTEM_NUMBER: std::ffi::c_ulong = 0x7fff_ffff;
/// OpenSSL's word for a certificate that did not stand up to verification.
const VERIFY_FAILED: i32 = 134;
/// OpenSSL's word for a connection that ended without close_notify.
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

/// A connection.
pub enum Stream {
    /// As it is.
    Plain(Socket),
    /// Under TLS.
    Tls(Box<Secured>),
}

/// A connection under TLS.
pub struct Secured {
    stream: SslStream<Wire>,
    /// Reading waits for space to write.
    reads_when_writable: bool,
}

/// Why an operation did not get on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// It goes on when the socket is ready.
    Later,
    /// The connection is to be given up.
    Lost(Reason),
}

/// The socket under TLS. A short read has emptied it, so that the next one need not ask the kernel.
struct Wire {
    socket: Socket,
    empty: bool,
    /// The broker has closed its side: only reading on finds it.
    ended: bool,
}

impl Stream {
    /// Puts a socket that stands under TLS; nothing is sent yet.
    pub fn secure(socket: Socket, mut ssl: Ssl) -> Result<Self, ErrorStack> {
        ssl.set_connect_state();
        let stream = SslStream::new(ssl, Wire { socket, empty: false, ended: false })?;
        Ok(Self::Tls(Box::new(Secured { stream, reads_when_writable: false })))
    }

    /// Goes on with the handshake, if there is one.
    pub fn handshake(&mut self) -> Result<(), Halt> {
        let Self::Tls(tls) = self else { return Ok(()) };
        tls.stream.get_mut().empty = false;
        let Err(error) = tls.stream.do_handshake() else { return Ok(()) };
        Err(match halt(&error, true) {
            Halt::Lost(Reason::CertificateUntrusted) => Halt::Lost(unverified(&tls.stream)),
            // A broker that closes instead of going on has refused.
            Halt::Lost(Reason::ConnectReset | Reason::ConnectClosed) => {
                Halt::Lost(Reason::TlsRefused)
            }
            other => other,
        })
    }

    /// The socket has bytes again; `ended` says that the broker has closed its side.
    pub fn wake(&mut self, ended: bool) {
        if let Self::Tls(tls) = self {
            let wire = tls.stream.get_mut();
            wire.empty = false;
            wire.ended |= ended;
        }
    }

    /// Reads what has come. `connecting`: the broker has not accepted the client yet.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8], connecting: bool) -> Result<usize, Halt> {
        match self {
            Self::Plain(socket) => loop {
                match socket.read(buffer) {
                    Ok(0) => return Err(lost(&ErrorKind::UnexpectedEof.into(), connecting)),
                    Ok(count) => return Ok(count),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(Halt::Later),
                    Err(error) => return Err(lost(&error, connecting)),
                }
            },
            Self::Tls(tls) => tls.read(buffer, connecting),
        }
    }

    /// Whether a read of `count` bytes into a buffer of `size` has emptied it.
    pub const fn is_empty_after(&self, count: usize, size: usize) -> bool {
        matches!(self, Self::Plain(_)) && count < size
    }

    /// Writes what goes. What halted with [`Halt::Later`] must be the front of the next write.
    #[inline]
    pub fn write(&mut self, bytes: &[u8], connecting: bool) -> Result<usize, Halt> {
        match self {
            Self::Plain(socket) => loop {
                match socket.write(bytes) {
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
        }
    }

    /// Takes the note that reading goes on now that there is space to write.
    pub fn takes_reading(&mut self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => std::mem::take(&mut tls.reads_when_writable),
        }
    }

    /// Makes the close of the socket a reset: the kernel discards what it has not sent.
    pub fn reset_on_close(&self) {
        match self {
            Self::Plain(socket) => socket.reset_on_close(),
            Self::Tls(tls) => tls.stream.get_ref().socket.reset_on_close(),
        }
    }

    /// Has the kernel delay its acknowledgements from now on.
    pub fn delay_acks(&self) {
        match self {
            Self::Plain(socket) => socket.delay_acks(),
            Self::Tls(tls) => tls.stream.get_ref().socket.delay_acks(),
        }
    }

    /// Tells the broker that nothing more comes: close_notify. What does not go is left.
    pub fn finish(&mut self) {
        if let Self::Tls(tls) = self {
            let _ = tls.stream.shutdown();
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
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lost(error: &io::Error, connecting: bool) -> Halt {
    Halt::Lost(socket::reason(error, connecting))
}

/// What an error of OpenSSL means to the connection.
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
            None if !connecting => Halt::Lost(Reason::ResetByBroker),
            None if codes().any(|code| ALERTS.contains(&code.reason_code())) => {
                Halt::Lost(Reason::TlsRefused)
            }
            None => Halt::Lost(Reason::TlsFailed),
        },
    }
}

/// What verification found wrong with the broker's certificate.
fn unverified(stream: &SslStream<Wire>) -> Reason {
    match stream.ssl().verify_result().as_raw() {
        NOT_YET_VALID | HAS_EXPIRED => Reason::CertificateExpired,
        HOSTNAME_MISMATCH | IP_ADDRESS_MISMATCH => Reason::CertificateName,
        _ => Reason::CertificateUntrusted,
    }
}
