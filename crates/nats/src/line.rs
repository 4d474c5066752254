//! Control lines: the end of a line, its fields, and the body that follows a line.

use crate::{
    NatsError,
    limits::{LINE_MAX, MESSAGE_MAX},
};

/// End of a control line and of a payload.
pub const END: &[u8] = b"\r\n";

/// Content of the front of a byte buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedOperation<T> {
    /// A whole operation.
    Whole {
        /// The operation.
        operation: T,
        /// Bytes of the operation, its payload included.
        len: usize,
    },
    /// Part of an operation: decode again with more bytes.
    Incomplete,
}

/// A control line at the front of a byte buffer.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    /// The line without its end.
    pub text: &'a [u8],
    /// Bytes of the line with its end.
    pub len: usize,
}

/// Headers and payload that follow a control line.
pub(crate) struct Body<'a> {
    pub headers: &'a [u8],
    pub payload: &'a [u8],
    /// Bytes of the operation from the start of its line.
    pub len: usize,
}

impl<'a> Line<'a> {
    /// Finds the line at the front of `bytes`; `None` if its end has not arrived. A line may also
    /// end with LF alone, as nats-server accepts it.
    #[inline]
    pub fn find(bytes: &'a [u8]) -> Result<Option<Self>, NatsError> {
        let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(LINE_MAX)]) else {
            let is_long = bytes.len() >= LINE_MAX;
            return if is_long { Err(NatsError::LineTooLong) } else { Ok(None) };
        };
        let text = &bytes[..end];
        Ok(Some(Self { text: text.strip_suffix(b"\r").unwrap_or(text), len: end + 1 }))
    }

    /// Splits the line into the name of its operation and the rest.
    #[inline]
    pub fn split(&self) -> (&'a [u8], &'a [u8]) {
        let end = self.text.iter().position(|byte| is_space(*byte)).unwrap_or(self.text.len());
        let (name, rest) = self.text.split_at(end);
        (name, rest.trim_ascii_start())
    }

    /// Finds the body of `sizes` that follows the line in `bytes`; `None` if it has not arrived.
    #[inline]
    pub fn body(
        &self,
        bytes: &'a [u8],
        sizes: (usize, usize),
        name: &'static str,
    ) -> Result<Option<Body<'a>>, NatsError> {
        let (headers, total) = sizes;
        if headers > total {
            return Err(NatsError::Malformed(name));
        }
        let end = self.len + total;
        let Some(found) = bytes.get(end..end + END.len()) else { return Ok(None) };
        if found != END {
            return Err(NatsError::Malformed(name));
        }
        let (headers, payload) = bytes[self.len..end].split_at(headers);
        Ok(Some(Body { headers, payload, len: end + END.len() }))
    }
}

/// Splits a rest of a line into its fields. The second value is the number of fields; fields after
/// the `N`-th are counted and not stored.
#[inline]
pub(crate) fn fields<const N: usize>(rest: &[u8]) -> ([&[u8]; N], usize) {
    let mut found = [&rest[..0]; N];
    let mut len = 0;
    for field in rest.split(|byte| is_space(*byte)).filter(|field| !field.is_empty()) {
        if let Some(place) = found.get_mut(len) {
            *place = field;
        }
        len += 1;
    }
    (found, len)
}

/// Number of decimal digits, at most `u64::MAX`.
#[inline]
pub(crate) fn number(digits: &[u8], name: &'static str) -> Result<u64, NatsError> {
    let digit = |total: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        total.checked_mul(10)?.checked_add(digit)
    };
    let total = digits.iter().try_fold(0, digit).filter(|_| !digits.is_empty());
    total.ok_or(NatsError::Malformed(name))
}

/// Number of bytes of a message.
#[inline]
pub(crate) fn size(digits: &[u8], name: &'static str) -> Result<usize, NatsError> {
    let size = number(digits, name)?;
    match usize::try_from(size) {
        Ok(size) if size <= MESSAGE_MAX => Ok(size),
        _ => Err(NatsError::MessageTooLong(size)),
    }
}

/// Appends a number in decimal digits.
#[inline]
pub(crate) fn push_number(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

#[inline]
const fn is_space(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}
