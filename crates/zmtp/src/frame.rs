//! Frames: flags, size and body [37/ZMTP, Framing]. The codec reads the flags and does not
//! interpret the body.

use crate::{BODY_MAX, ZmtpError};

/// Bit 0: more frames of the same message follow.
pub(crate) const MORE: u8 = 0b001;
/// Bit 1: the size has eight bytes, not one.
pub(crate) const LONG: u8 = 0b010;
/// Bit 2: the body is a command.
pub(crate) const COMMAND: u8 = 0b100;

/// The longest body whose size fits one byte.
const SHORT_MAX: usize = 255;
const SHORT_HEADER: usize = 2;
const LONG_HEADER: usize = 9;

/// One frame with a borrowed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Kind of the body.
    pub kind: FrameKind,
    /// Bytes of the body.
    pub body: &'a [u8],
}

/// Kind of the body of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The last frame of a message, or its only one.
    Last,
    /// A frame of a message; more follow.
    More,
    /// A command, which is always a single frame.
    Command,
}

/// Content of the front of a byte buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedFrame<'a> {
    /// A whole frame of `len` bytes with its header.
    Frame {
        /// The frame.
        frame: Frame<'a>,
        /// Bytes of the frame, header included.
        len: usize,
    },
    /// Part of a frame.
    Incomplete {
        /// Bytes to collect before decoding again; more than now.
        needed: usize,
    },
}

/// Decodes the frame at the front of `bytes`.
///
/// # Errors
/// [`ZmtpError::ReservedFlags`], [`ZmtpError::MoreOnCommand`], [`ZmtpError::FrameTooLong`], each as
/// soon as the faulty bytes have arrived.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<DecodedFrame<'_>, ZmtpError> {
    let Some(&flags) = bytes.first() else {
        return Ok(DecodedFrame::Incomplete { needed: SHORT_HEADER });
    };
    let kind = kind(flags)?;
    let (start, size) = if flags & LONG == 0 {
        let Some(&size) = bytes.get(1) else {
            return Ok(DecodedFrame::Incomplete { needed: SHORT_HEADER });
        };
        (SHORT_HEADER, usize::from(size))
    } else {
        let Some(size) = bytes.get(1..).and_then(<[u8]>::first_chunk) else {
            return Ok(DecodedFrame::Incomplete { needed: LONG_HEADER });
        };
        (LONG_HEADER, long_size(*size)?)
    };
    let len = start + size;
    match bytes.get(start..len) {
        Some(body) => Ok(DecodedFrame::Frame { frame: Frame { kind, body }, len }),
        None => Ok(DecodedFrame::Incomplete { needed: len }),
    }
}

/// Appends the header of a frame with a body of `size` bytes; the caller appends the body.
#[inline]
pub fn encode_header(kind: FrameKind, size: usize, out: &mut Vec<u8>) {
    let flags = match kind {
        FrameKind::Last => 0,
        FrameKind::More => MORE,
        FrameKind::Command => COMMAND,
    };
    match u8::try_from(size) {
        Ok(size) => out.extend_from_slice(&[flags, size]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend_from_slice(&(size as u64).to_be_bytes());
        }
    }
}

/// Appends a frame.
#[inline]
pub fn encode(kind: FrameKind, body: &[u8], out: &mut Vec<u8>) {
    encode_header(kind, body.len(), out);
    out.extend_from_slice(body);
}

/// Bytes of a frame with a body of `size` bytes.
#[must_use]
#[inline]
pub const fn encoded_len(size: usize) -> usize {
    size + if size <= SHORT_MAX { SHORT_HEADER } else { LONG_HEADER }
}

#[inline]
fn kind(flags: u8) -> Result<FrameKind, ZmtpError> {
    match flags & !LONG {
        0 => Ok(FrameKind::Last),
        MORE => Ok(FrameKind::More),
        COMMAND => Ok(FrameKind::Command),
        _ if flags > (MORE | LONG | COMMAND) => Err(ZmtpError::ReservedFlags(flags)),
        _ => Err(ZmtpError::MoreOnCommand),
    }
}

/// Reads a size of eight bytes in network order. The protocol also allows a size that fits one
/// byte.
#[inline]
fn long_size(size: [u8; 8]) -> Result<usize, ZmtpError> {
    let size = u64::from_be_bytes(size);
    match usize::try_from(size) {
        Ok(size) if size <= BODY_MAX => Ok(size),
        _ => Err(ZmtpError::FrameTooLong(size)),
    }
}

#[cfg(test)]
mod tests;
