//! Exchanges with the reference clock over UDP: a question, an answer, four instants, as in NTP
//! (RFC 5905, section 8). [`reference`] answers beside the controller; [`follower`] asks in an
//! agent of another host.

pub mod follower;
mod packet;
pub mod reference;

use std::env::{self, VarError};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::memcmp;
use openssl::pkey::{PKey, Private};
use openssl::sign::Signer;

use crate::clock;
use crate::hint::Hint;

/// The variable with the key of the run.
const KEY: &str = "PUBSTORM_CLOCK_KEY";
/// The variable with a skew of the host's clock, for tests.
const SKEW: &str = "PUBSTORM_CLOCK_SKEW";
const KEY_BYTES: usize = 32;
const MAC_BYTES: usize = 16;

/// Failure of the reference clock.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// A missing or invalid key.
    #[error("{KEY}: found {found}, needed are 64 hexadecimal digits")]
    Key {
        /// Kind of the value found, without a digit of it.
        found: &'static str,
    },
    /// An invalid skew.
    #[error("{SKEW}: found '{found}', allowed is OFFSET_NS[,PPB], two whole numbers")]
    Skew {
        /// Value found.
        found: String,
    },
    /// An address that is invalid, or unusable on this host.
    #[error("{option} {address}: {error}")]
    Address {
        /// Option with the address.
        option: &'static str,
        /// Host and port.
        address: String,
        /// Error of the kernel or the resolver.
        error: io::Error,
    },
    /// The reference clock has not answered.
    #[error("no answer from the reference clock at {address} (UDP)")]
    NoAnswer {
        /// Host and port.
        address: String,
    },
    /// The key cannot be used.
    #[error("cannot sign exchanges: {0}")]
    Sign(#[from] ErrorStack),
}

impl Hint for ExchangeError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Key { .. } => {
                Some("the controller gives each run a key and sends it to its agents")
            }
            Self::Skew { .. } => Some("it is for tests: unset it"),
            Self::Address { .. } => Some("check the host's name and address"),
            Self::NoAnswer { .. } => Some(
                "allow UDP from this host to that port, and the answers back: firewalls, security \
                 groups, network policies; both sides need the same key",
            ),
            Self::Sign(_) => None,
        }
    }
}

/// Locked while a packet is made or read.
static SIGNING: Mutex<()> = Mutex::new(());

fn signing() -> MutexGuard<'static, ()> {
    SIGNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks signing before exit: OpenSSL's atexit handler frees its globals while the thread may
/// still use them.
pub fn end() {
    std::mem::forget(signing());
}

/// Secret key of the agents of a run.
struct ClockKey(PKey<Private>);

/// Authentication code of a packet, prepared before the packet is complete.
struct Seal<'a>(Signer<'a>);

impl ClockKey {
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

/// Makes the host's clock wrong by the skew in the environment, for tests.
///
/// # Errors
/// [`ExchangeError::Skew`].
pub fn inject_clock_skew() -> Result<(), ExchangeError> {
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
