//! Commands of a connection: all traffic besides messages [37/ZMTP, Commands], with the commands of
//! PLAIN [24/ZMTP-PLAIN].

use crate::{
    ZmtpError,
    frame::{self, FrameKind},
};

/// The longest context of PING and PONG, in bytes [37/ZMTP, Connection Heartbeating].
pub const CONTEXT_MAX: usize = 16;

/// First bytes of an ERROR of libzmq with PLAIN. The source of libzmq has `"\x05ERROR"`, and C++
/// reads the E as a digit of the escape. The byte cannot be the size of a name if fewer bytes
/// follow.
const ERROR_OF_LIBZMQ: &[u8] = b"\x5eRROR";

/// The body of a command frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZmtpCommand<'a> {
    /// The sender has completed the handshake.
    Ready(Metadata<'a>),
    /// The sender refuses the connection, with a reason for the log.
    Error {
        /// At most 255 bytes.
        reason: &'a [u8],
    },
    /// Adds one subscription to messages that begin with the prefix.
    Subscribe(&'a [u8]),
    /// Removes one subscription to the prefix.
    Cancel(&'a [u8]),
    /// Request for a PONG.
    Ping {
        /// Silence after which the peer may close the connection, in tenths of a second; 0: never.
        ttl_ds: u16,
        /// Bytes that PONG returns, at most [`CONTEXT_MAX`] bytes.
        context: &'a [u8],
    },
    /// The answer to PING.
    Pong {
        /// The context of the PING.
        context: &'a [u8],
    },
    /// PLAIN: credentials of the client.
    Hello {
        /// At most 255 bytes.
        username: &'a [u8],
        /// At most 255 bytes.
        password: &'a [u8],
    },
    /// PLAIN: the server accepts the credentials.
    Welcome,
    /// PLAIN: properties of the client.
    Initiate(Metadata<'a>),
    /// A command that this crate does not use.
    Other,
}

/// Names and values that describe a peer [37/ZMTP, Connection Metadata]; well-formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata<'a> {
    bytes: &'a [u8],
}

impl Metadata<'static> {
    /// Metadata of a SUB socket.
    pub const SUB: Self = Self { bytes: b"\x0bSocket-Type\0\0\0\x03SUB" };
    /// Metadata of a PUB socket.
    pub const PUB: Self = Self { bytes: b"\x0bSocket-Type\0\0\0\x03PUB" };
}

impl<'a> Metadata<'a> {
    /// Each property: its name and its value.
    pub fn properties(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || property(&mut rest))
    }

    /// Value of a property. Names are compared without regard to case.
    #[must_use]
    pub fn property(&self, wanted: &str) -> Option<&'a [u8]> {
        let is = |name: &[u8]| name.eq_ignore_ascii_case(wanted.as_bytes());
        self.properties().find(|(name, _)| is(name)).map(|(_, value)| value)
    }

    /// Socket type of the peer; `None` if the metadata has no socket type.
    #[must_use]
    pub fn socket_type(&self) -> Option<&'a [u8]> {
        self.property("Socket-Type")
    }

    fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            property(&mut rest)?;
        }
        Some(Self { bytes })
    }
}

impl<'a> ZmtpCommand<'a> {
    /// Decodes the body of a command frame.
    ///
    /// # Errors
    /// [`ZmtpError::Malformed`].
    pub fn decode(body: &'a [u8]) -> Result<Self, ZmtpError> {
        if let Some(data) = body.strip_prefix(ERROR_OF_LIBZMQ)
            && body.len() <= usize::from(body[0])
        {
            return error(data).ok_or(ZmtpError::Malformed("ERROR"));
        }
        let mut rest = body;
        let name = match short_field(&mut rest) {
            None | Some([]) => return Err(ZmtpError::Malformed("nameless")),
            Some(name) => name,
        };
        let (called, command) = match name {
            b"READY" => ("READY", Metadata::decode(rest).map(Self::Ready)),
            b"ERROR" => ("ERROR", error(rest)),
            b"SUBSCRIBE" => ("SUBSCRIBE", Some(Self::Subscribe(rest))),
            b"CANCEL" => ("CANCEL", Some(Self::Cancel(rest))),
            b"PING" => ("PING", ping(rest)),
            b"PONG" => ("PONG", context(rest).map(|context| Self::Pong { context })),
            b"HELLO" => ("HELLO", hello(rest)),
            b"WELCOME" => ("WELCOME", rest.is_empty().then_some(Self::Welcome)),
            b"INITIATE" => ("INITIATE", Metadata::decode(rest).map(Self::Initiate)),
            _ => ("unknown", Some(Self::Other)),
        };
        command.ok_or(ZmtpError::Malformed(called))
    }

    /// Name of the command on the wire.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ready(_) => "READY",
            Self::Error { .. } => "ERROR",
            Self::Subscribe(_) => "SUBSCRIBE",
            Self::Cancel(_) => "CANCEL",
            Self::Ping { .. } => "PING",
            Self::Pong { .. } => "PONG",
            Self::Hello { .. } => "HELLO",
            Self::Welcome => "WELCOME",
            Self::Initiate(_) => "INITIATE",
            Self::Other => "unknown",
        }
    }

    /// Appends the command as a frame; [`ZmtpCommand::Other`] appends nothing.
    ///
    /// # Errors
    /// [`ZmtpError::FieldTooLong`]; the function then appends nothing.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), ZmtpError> {
        let name = self.name();
        match *self {
            Self::Ready(metadata) | Self::Initiate(metadata) => {
                write(name, &[metadata.bytes], out);
            }
            Self::Error { reason } => write(name, &[&[size(reason)?], reason], out),
            Self::Subscribe(prefix) | Self::Cancel(prefix) => write(name, &[prefix], out),
            Self::Ping { ttl_ds, context } => {
                write(name, &[&ttl_ds.to_be_bytes(), fitting(context, CONTEXT_MAX)?], out);
            }
            Self::Pong { context } => write(name, &[fitting(context, CONTEXT_MAX)?], out),
            Self::Hello { username, password } => {
                let sizes = [size(username)?, size(password)?];
                write(name, &[&sizes[..1], username, &sizes[1..], password], out);
            }
            Self::Welcome => write(name, &[], out),
            Self::Other => {}
        }
        Ok(())
    }
}

/// Appends a command frame: the name, then the parts of its data.
pub(crate) fn write(name: &str, parts: &[&[u8]], out: &mut Vec<u8>) {
    let len = 1 + name.len() + parts.iter().map(|part| part.len()).sum::<usize>();
    frame::encode_header(FrameKind::Command, len, out);
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

fn size(field: &[u8]) -> Result<u8, ZmtpError> {
    u8::try_from(field.len())
        .map_err(|_| ZmtpError::FieldTooLong { found: field.len(), allowed: usize::from(u8::MAX) })
}

fn fitting(field: &[u8], allowed: usize) -> Result<&[u8], ZmtpError> {
    if field.len() > allowed {
        return Err(ZmtpError::FieldTooLong { found: field.len(), allowed });
    }
    Ok(field)
}

/// Takes the next `len` bytes from the front.
fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (field, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(field)
}

/// Takes a field whose first byte is its size.
fn short_field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = take(rest, 1)?[0];
    take(rest, usize::from(size))
}

fn property<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let name = short_field(rest).filter(|name| !name.is_empty())?;
    let size = u32::from_be_bytes(*take(rest, 4)?.first_chunk()?);
    let value = take(rest, usize::try_from(size).ok()?)?;
    Some((name, value))
}

/// Reads an ERROR. Bytes behind the reason are ignored, as libzmq does.
fn error(mut data: &[u8]) -> Option<ZmtpCommand<'_>> {
    short_field(&mut data).map(|reason| ZmtpCommand::Error { reason })
}

fn ping(data: &[u8]) -> Option<ZmtpCommand<'_>> {
    let (ttl, rest) = data.split_first_chunk()?;
    Some(ZmtpCommand::Ping { ttl_ds: u16::from_be_bytes(*ttl), context: context(rest)? })
}

fn context(data: &[u8]) -> Option<&[u8]> {
    (data.len() <= CONTEXT_MAX).then_some(data)
}

fn hello(mut data: &[u8]) -> Option<ZmtpCommand<'_>> {
    let username = short_field(&mut data)?;
    let password = short_field(&mut data)?;
    data.is_empty().then_some(ZmtpCommand::Hello { username, password })
}

#[cfg(test)]
mod tests;
