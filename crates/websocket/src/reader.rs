//! Reads frames that arrive in pieces of any size, without keeping a byte of them.

use std::ops::Range;

use crate::frame::{
    CONTROL_MAX, EIGHT_BYTES, FIN, FrameError, MASK, OPCODE, Opcode, RESERVED, TWO_BYTES, mask,
    rotated,
};

/// Position in the peer's frames. `MASKED`: the peer is a client, whose payloads are masked
/// [6455, 5.1].
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameReader<const MASKED: bool> {
    /// Bytes of the payload that have not arrived; while the length arrives, the length so far.
    left: u32,
    /// Key for the next byte of the payload.
    key: [u8; 4],
    /// First byte of the frame.
    first: u8,
    stage: NextByte,
    /// More frames of a message follow.
    is_open: bool,
}

/// The next byte of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NextByte {
    /// The first one.
    #[default]
    First,
    /// The mask bit and a short length.
    Length,
    /// A byte of a longer length; the number of bytes left.
    Longer(u8),
    /// A byte of the masking key; the number of bytes left.
    Key(u8),
    /// A byte of the payload.
    Payload,
}

/// A part of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadPiece {
    /// Kind of the frame.
    pub opcode: Opcode,
    /// Place of the part in the bytes.
    pub range: Range<usize>,
    /// The payload ends with this part.
    pub ends: bool,
}

impl<const MASKED: bool> FrameReader<MASKED> {
    /// Reads up to the end of the first payload in `bytes`, or of its part there, and unmasks that
    /// part. `None`: all bytes belong to a header.
    ///
    /// # Errors
    /// [`FrameError`], as soon as the faulty byte has arrived.
    #[inline]
    pub fn next(&mut self, bytes: &mut [u8]) -> Result<Option<PayloadPiece>, FrameError> {
        let mut start = 0;
        while self.stage != NextByte::Payload {
            let Some(&byte) = bytes.get(start) else { return Ok(None) };
            self.header(byte)?;
            start += 1;
        }
        let count = (bytes.len() - start).min(self.left as usize);
        if count == 0 && self.left > 0 {
            return Ok(None);
        }
        let range = start..start + count;
        if MASKED {
            mask(&mut bytes[range.clone()], self.key);
            self.key = rotated(self.key, count);
        }
        self.left -= count as u32;
        let opcode = self.opcode()?;
        let ends = self.left == 0;
        if ends {
            self.stage = NextByte::First;
            if !opcode.is_control() {
                self.is_open = self.first & FIN == 0;
            }
        }
        Ok(Some(PayloadPiece { opcode, range, ends }))
    }

    fn header(&mut self, byte: u8) -> Result<(), FrameError> {
        self.stage = match self.stage {
            NextByte::First => {
                self.first = byte;
                self.check()?;
                NextByte::Length
            }
            NextByte::Length => self.length(byte)?,
            NextByte::Longer(count) => {
                let longer = self.left.checked_mul(256).ok_or(FrameError::TooLong)?;
                self.left = longer | u32::from(byte);
                if count > 1 { NextByte::Longer(count - 1) } else { Self::behind_length() }
            }
            NextByte::Key(count) => {
                self.key = rotated(self.key, 1);
                self.key[3] = byte;
                if count > 1 { NextByte::Key(count - 1) } else { NextByte::Payload }
            }
            NextByte::Payload => NextByte::Payload,
        };
        Ok(())
    }

    fn check(&self) -> Result<(), FrameError> {
        if self.first & RESERVED != 0 {
            return Err(FrameError::Extension);
        }
        match self.opcode()? {
            Opcode::Text => Err(FrameError::Text),
            Opcode::Binary if self.is_open => Err(FrameError::Order),
            Opcode::Continuation if !self.is_open => Err(FrameError::Order),
            opcode if opcode.is_control() && self.first & FIN == 0 => Err(FrameError::Control),
            _ => Ok(()),
        }
    }

    fn length(&mut self, byte: u8) -> Result<NextByte, FrameError> {
        if (byte & MASK != 0) != MASKED {
            return Err(FrameError::Mask);
        }
        let length = byte & !MASK;
        if self.opcode()?.is_control() && usize::from(length) > CONTROL_MAX {
            return Err(FrameError::Control);
        }
        self.left = 0;
        Ok(match length {
            TWO_BYTES => NextByte::Longer(2),
            EIGHT_BYTES => NextByte::Longer(8),
            length => {
                self.left = u32::from(length);
                Self::behind_length()
            }
        })
    }

    const fn behind_length() -> NextByte {
        if MASKED { NextByte::Key(4) } else { NextByte::Payload }
    }

    fn opcode(&self) -> Result<Opcode, FrameError> {
        let number = self.first & OPCODE;
        Opcode::of(number).ok_or(FrameError::Opcode(number))
    }
}
