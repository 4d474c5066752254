//! Exchanges with the reference clock over UDP: a question, an answer, four instants, as in NTP
//! (RFC 5905, section 8). [`reference`] answers beside the conductor; [`follower`] asks in an
//! engine of another host. What the instants mean for the clock is none of its business.

pub mod follower;
mod packet;
pub mod reference;

use std::env::{self, VarError};
use std::io;

use agent::clock;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::memcmp;
use openssl::pkey::{PKey, Private};
use openssl::sign::Signer;

/// The variable with the key of the run.
const KEY: &str = "PUBSTORM_CLOCK_KEY";
/// The variable that says how wrong the host's clock is to be read.
const SKEW: &str = "PUBSTORM_CLOCK_SKEW";
const KEY_BYTES: usize = 32;
const MAC_BYTES: usize = 16;

/// Why there is no clock to follow or to be.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// No key, or none that is one.
    #[error("{KEY}: found {found}, needed are 64 hexadecimal digits")]
    Key {
        /// What there is instead, without a digit of it.
        found: &'static str,
    },
    /// A skew that is none.
    #[error("{SKEW}: found '{found}', allowed is OFFSET_NS[,PPB], two whole numbers")]
    Skew {
        /// What there is instead.
        found: String,
    },
    /// An address that is none, or cannot be used here.
    #[error("{option} {address}: {error}")]
    Address {
        /// The option that names it.
        option: &'static str,
        /// Host and port.
        address: String,
        /// The kernel's or the resolver's word.
        error: io::Error,
    },
    /// Nobody has answered.
    #[error("no answer from the reference clock at {address} (UDP)")]
    NoAnswer {
        /// Host and port.
        address: String,
    },
    /// The key cannot be used.
    #[error("cannot sign exchanges: {0}")]
    Sign(#[from] ErrorStack),
}

impl ExchangeError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Key { .. } => "the conductor makes a key for each run and hands it to its agents",
            Self::Skew { .. } => "it is for tests: unset it",
            Self::Address { .. } => "check the host's name and address",
            Self::NoAnswer { .. } => {
                "allow UDP from this host to that port, and the answers back: firewalls, security \
                 groups, network policies; both sides need the same key"
            }
            Self::Sign(_) => "pubstorm-engine --help tells what it reads",
        }
    }
}

/// What the agents of a run have in common and nobody else has.
struct Key(PKey<Private>);

/// The code of a packet in the making, so that little is left to do once it is complete.
struct Seal<'a>(Signer<'a>);

impl Key {
    fn from_environment() -> Result<Self, ExchangeError> {
        let text = match env::var(KEY) {
            Ok(text) => text,
            Err(VarError::NotPresent) => return Err(ExchangeError::Key { found: "none" }),
            Err(VarError::NotUnicode(_)) => return Err(ExchangeError::Key { found: "no text" }),
        };
        let digits = text.as_bytes();
        let byte = |pair: &[u8]| {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8)
        };
        let bytes: Option<Vec<u8>> = digits.chunks_exact(2).map(byte).collect();
        match bytes {
            Some(bytes) if digits.len() == 2 * KEY_BYTES => Ok(Self(PKey::hmac(&bytes)?)),
            _ => Err(ExchangeError::Key { found: "something else" }),
        }
    }

    fn seal(&self) -> Result<Seal<'_>, ErrorStack> {
        Signer::new(MessageDigest::sha256(), &self.0).map(Seal)
    }

    fn holds(&self, content: &[u8], code: &[u8; MAC_BYTES]) -> bool {
        let made = self.seal().and_then(|seal| seal.close(content));
        made.is_ok_and(|made| memcmp::eq(&made, code))
    }
}

impl Seal<'_> {
    /// HMAC-SHA256 of the content, its first half (RFC 2104, section 5).
    fn close(mut self, content: &[u8]) -> Result<[u8; MAC_BYTES], ErrorStack> {
        let mut whole = [0; 2 * MAC_BYTES];
        self.0.sign_oneshot(&mut whole, content)?;
        let mut code = [0; MAC_BYTES];
        code.copy_from_slice(&whole[..MAC_BYTES]);
        Ok(code)
    }
}

/// Reads the host's clock wrongly where the environment asks for it.
///
/// # Errors
/// [`ExchangeError::Skew`].
pub fn misread_clock() -> Result<(), ExchangeError> {
    let Some(found) = env::var_os(SKEW) else { return Ok(()) };
    let found = found.to_string_lossy().into_owned();
    let (offset, rate) = found.split_once(',').unwrap_or((&found, "0"));
    match (offset.parse(), rate.parse::<i64>()) {
        (Ok(offset_ns), Ok(rate_ppb)) if rate_ppb.abs() < 100_000_000 => {
            clock::misread(offset_ns, rate_ppb);
            Ok(())
        }
        _ => Err(ExchangeError::Skew { found }),
    }
}
