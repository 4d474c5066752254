//! The greeting: the first 64 bytes of each side [37/ZMTP, Version Negotiation].

use std::fmt;

use crate::ZmtpError;

/// Bytes of a greeting.
pub const LEN: usize = 64;

const VERSION: [u8; 2] = [3, 1];
/// Where the signature ends and the version begins.
const SIGNATURE_END: usize = 10;
const MECHANISM: std::ops::Range<usize> = 12..32;
const AS_SERVER: usize = 32;

/// What a peer says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The first half of its version, at least 3.
    pub major: u8,
    /// The second half.
    pub minor: u8,
    /// How it wants the connection secured.
    pub mechanism: Name,
    /// Whether it is the server of the handshake. libzmq leaves it 0 for PLAIN too, so nothing is
    /// made of it.
    pub as_server: bool,
}

/// The name of a security mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `NULL`
    Null,
    /// `PLAIN`
    Plain,
    /// `CURVE`
    Curve,
    /// `GSSAPI`
    Gssapi,
    /// Any other.
    Other,
}

impl Greeting {
    /// What this side says.
    #[must_use]
    pub const fn new(mechanism: Name, as_server: bool) -> Self {
        Self { major: VERSION[0], minor: VERSION[1], mechanism, as_server }
    }

    /// Whether the peer knows SUBSCRIBE, PING and PONG, which are new in 3.1.
    #[must_use]
    pub const fn is_3_1(&self) -> bool {
        self.major > VERSION[0] || self.minor >= VERSION[1]
    }

    /// Appends the greeting. The padding of the signature is zero.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; LEN];
        bytes[0] = 0xff;
        bytes[SIGNATURE_END - 1] = 0x7f;
        bytes[SIGNATURE_END..MECHANISM.start].copy_from_slice(&[self.major, self.minor]);
        let name = self.mechanism.as_str().as_bytes();
        bytes[MECHANISM][..name.len()].copy_from_slice(name);
        bytes[AS_SERVER] = u8::from(self.as_server);
        out.extend_from_slice(&bytes);
    }

    /// Decodes the greeting at the front of `bytes`; `None` as long as some of it is missing.
    ///
    /// # Errors
    /// [`ZmtpError::NotZmtp`] and [`ZmtpError::OldVersion`], each as soon as the bytes that say so
    /// are there: such a peer may be waiting for this side.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, ZmtpError> {
        let signed = [(0, 0xff), (SIGNATURE_END - 1, 0x7f)];
        if signed.iter().any(|&(at, byte)| bytes.get(at).is_some_and(|&found| found != byte)) {
            return Err(ZmtpError::NotZmtp);
        }
        match bytes.get(SIGNATURE_END) {
            Some(&major) if major < VERSION[0] => return Err(ZmtpError::OldVersion(major)),
            _ if bytes.len() < LEN => return Ok(None),
            _ => {}
        }
        Ok(Some(Self {
            major: bytes[SIGNATURE_END],
            minor: bytes[SIGNATURE_END + 1],
            mechanism: Name::from_padded(&bytes[MECHANISM]),
            as_server: bytes[AS_SERVER] & 1 == 1,
        }))
    }
}

impl Name {
    const ALL: [Self; 4] = [Self::Null, Self::Plain, Self::Curve, Self::Gssapi];

    /// The name as the greeting has it, without the zeros behind it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Plain => "PLAIN",
            Self::Curve => "CURVE",
            Self::Gssapi => "GSSAPI",
            Self::Other => "OTHER",
        }
    }

    fn from_padded(field: &[u8]) -> Self {
        let is = |name: &Self| {
            let (front, padding) = field.split_at(name.as_str().len());
            front == name.as_str().as_bytes() && padding.iter().all(|&byte| byte == 0)
        };
        Self::ALL.into_iter().find(is).unwrap_or(Self::Other)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Other { "of another name" } else { self.as_str() })
    }
}

#[cfg(test)]
mod tests;
