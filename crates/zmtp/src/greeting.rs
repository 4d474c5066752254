//! The greeting: the first 64 bytes of each side [37/ZMTP, Version Negotiation].

use crate::{Name, ZmtpError};

/// Length of a greeting, in bytes.
pub const LEN: usize = 64;

const VERSION: [u8; 2] = [3, 1];
/// Index at which the signature ends and the version begins.
const SIGNATURE_END: usize = 10;
const MECHANISM: std::ops::Range<usize> = 12..32;
const AS_SERVER: usize = 32;

/// Greeting of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Major version, at least 3.
    pub major: u8,
    /// Minor version.
    pub minor: u8,
    /// Security mechanism that the peer announces.
    pub mechanism: Name,
    /// True if the peer is the server of the handshake. The crate ignores the flag, because libzmq
    /// leaves it 0 for PLAIN too.
    pub as_server: bool,
}

impl Greeting {
    /// Greeting of this side.
    #[must_use]
    pub const fn new(mechanism: Name, as_server: bool) -> Self {
        Self { major: VERSION[0], minor: VERSION[1], mechanism, as_server }
    }

    /// Returns true if the peer supports SUBSCRIBE, PING and PONG, which are new in 3.1.
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

    /// Decodes the greeting at the front of `bytes`; `None` if the greeting is incomplete.
    ///
    /// # Errors
    /// [`ZmtpError::NotZmtp`] and [`ZmtpError::OldVersion`], each as soon as the faulty bytes have
    /// arrived. Such a peer may wait for this side and send no further bytes.
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

#[cfg(test)]
mod tests;
