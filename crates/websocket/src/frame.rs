//! Frames [6455, 5.2]: their kinds, their headers and the mask of their payloads.

use std::ops::Deref;

/// Longest payload of a control frame, in bytes [6455, 5.5].
pub const CONTROL_MAX: usize = 125;
/// Longest header of a frame, in bytes.
pub const HEADER_MAX: usize = 14;

/// Bit of the last frame of a message.
pub(crate) const FIN: u8 = 0x80;
/// Bits that extensions use.
pub(crate) const RESERVED: u8 = 0x70;
/// Bits of the kind.
pub(crate) const OPCODE: u8 = 0x0f;
/// Bit of a masked payload, in the second byte.
pub(crate) const MASK: u8 = 0x80;
/// Values of the second byte: the length has two or eight bytes of its own.
pub(crate) const TWO_BYTES: u8 = 126;
pub(crate) const EIGHT_BYTES: u8 = 127;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A further part of a message.
    Continuation = 0,
    /// A message of text, or its first part.
    Text = 1,
    /// A message of bytes, or its first part.
    Binary = 2,
    /// The end of the connection.
    Close = 8,
    /// A question that a pong answers.
    Ping = 9,
    /// The answer to a ping.
    Pong = 10,
}

/// Bytes that are no frames of MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A kind that the standard reserves.
    #[error("found a frame of kind {0}, allowed are 0 to 2 and 8 to 10")]
    Opcode(u8),
    /// A bit of an extension, although no extension was offered.
    #[error("found bits of an extension")]
    Extension,
    /// A payload that is masked and must not be, or the other way.
    #[error("found a payload with the wrong mask bit")]
    Mask,
    /// A frame of text `[MQTT-6.0.0-1]`.
    #[error("found a frame of text, allowed are binary ones")]
    Text,
    /// A first part within a message, or a further part without a first one.
    #[error("found parts of messages in the wrong order")]
    Order,
    /// A control frame that is too long or in parts.
    #[error("found a control frame of more than {CONTROL_MAX} bytes, or in parts")]
    Control,
    /// A close frame of one byte.
    #[error("found a close frame of one byte, allowed are none, or two and a reason")]
    ShortClose,
    /// A close code that no frame may have.
    #[error("found close code {0}, allowed are 1000 to 4999 without 1004 to 1006 and 1015")]
    CloseCode(u16),
    /// A frame of 4 GiB or more.
    #[error("found a frame of 4 GiB or more")]
    TooLong,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameHeader {
    bytes: [u8; HEADER_MAX],
    len: u8,
}

impl Opcode {
    /// The kind of a number; `None` if the number is reserved.
    #[must_use]
    pub const fn of(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    /// Returns `true` for frames about the connection, not of a message.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self as u8 >= Self::Close as u8
    }
}

impl FrameHeader {
    /// Header of a whole message of `len` bytes, with a masking key if the payload is masked.
    #[must_use]
    #[inline]
    pub fn new(opcode: Opcode, len: u32, key: Option<[u8; 4]>) -> Self {
        let mut header = Self { bytes: [0; HEADER_MAX], len: 2 };
        let mask = if key.is_some() { MASK } else { 0 };
        header.bytes[0] = FIN | opcode as u8;
        if let Ok(short) = u8::try_from(len)
            && short < TWO_BYTES
        {
            header.bytes[1] = mask | short;
        } else if let Ok(short) = u16::try_from(len) {
            header.bytes[1] = mask | TWO_BYTES;
            header.append(short.to_be_bytes());
        } else {
            header.bytes[1] = mask | EIGHT_BYTES;
            header.append(u64::from(len).to_be_bytes());
        }
        if let Some(key) = key {
            header.append(key);
        }
        header
    }

    fn append<const N: usize>(&mut self, bytes: [u8; N]) {
        let at = usize::from(self.len);
        self.bytes[at..at + N].copy_from_slice(&bytes);
        self.len += N as u8;
    }
}

impl Deref for FrameHeader {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Masks a payload, or unmasks it.
#[inline]
pub fn mask(payload: &mut [u8], key: [u8; 4]) {
    let double = u32::from_ne_bytes(key);
    let double = u64::from(double) | (u64::from(double) << 32);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ double).to_ne_bytes();
    }
    rest.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
}

/// The key for the bytes of a payload behind its first `count` ones.
#[must_use]
#[inline]
pub const fn rotated(key: [u8; 4], count: usize) -> [u8; 4] {
    let mut key = key;
    key.rotate_left(count % 4);
    key
}
