//! The block of headers of a message: a first line with the version and an optional status, lines
//! of names and values, an empty line.

use crate::NatsError;

/// First line of a block without a status.
const VERSION: &[u8] = b"NATS/1.0";
const END: &[u8] = b"\r\n";

/// A borrowed block of headers. Decoding checks its first line and its end; the other lines are
/// read when they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a>(&'a [u8]);

impl<'a> Headers<'a> {
    /// No headers.
    pub const NONE: Self = Self(&[]);

    /// Wraps a block.
    ///
    /// # Errors
    /// [`NatsError::Malformed`] if the block does not begin with the version, or does not end with
    /// an empty line.
    pub fn decode(block: &'a [u8]) -> Result<Self, NatsError> {
        let is_block = block.starts_with(VERSION) && block.ends_with(b"\r\n\r\n");
        if is_block { Ok(Self(block)) } else { Err(NatsError::Malformed("headers")) }
    }

    /// The whole block; empty if there are no headers.
    #[must_use]
    #[inline]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Status of the first line; `None` if there is none. 503: the subject has no subscriber.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        let first = self.lines().next()?.strip_prefix(VERSION)?.trim_ascii_start();
        str::from_utf8(first.get(..3)?).ok()?.parse().ok()
    }

    /// Value of the first header with this name, in any case of its letters.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.iter().find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| v)
    }

    /// Names and values, in the order of the block.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.lines().skip(1).filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    fn lines(&self) -> impl Iterator<Item = &'a [u8]> {
        let lines = self.0.split(|byte| *byte == b'\n');
        lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line))
    }
}

/// Appends the first line of a block; headers and [`end`] follow.
#[inline]
pub fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(VERSION);
    out.extend_from_slice(END);
}

/// Appends a header. A name has neither a colon nor a line break, a value no line break.
#[inline]
pub fn push(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    for part in [name, b": ", value, END] {
        out.extend_from_slice(part);
    }
}

/// Appends the end of a block.
#[inline]
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(END);
}
