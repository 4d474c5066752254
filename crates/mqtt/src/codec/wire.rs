//! Data representations of the standard (1.5), in both directions: integers, strings and lengths.

use super::{DecodeError, EncodeError, PacketId, PacketType};

/// The largest remaining length of a packet, in bytes (2.2.3).
pub const LEN_MAX: usize = 268_435_455;

/// The body of one packet, read from front to back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) const fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// Bytes that have not been read.
    #[inline]
    pub(super) const fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Takes all bytes that have not been read, as the last field.
    #[inline]
    pub(super) const fn take_rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    pub(super) const fn is_empty(self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        let (&value, rest) = self.rest.split_first().ok_or(DecodeError::TooShort)?;
        self.rest = rest;
        Ok(value)
    }

    #[inline]
    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        let (&value, rest) = self.rest.split_first_chunk().ok_or(DecodeError::TooShort)?;
        self.rest = rest;
        Ok(u16::from_be_bytes(value))
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        let (&value, rest) = self.rest.split_first_chunk().ok_or(DecodeError::TooShort)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(value))
    }

    /// A variable byte integer of MQTT 5, in as few bytes as possible `[MQTT5-1.5.5-1]`.
    #[inline]
    pub(super) fn variable(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0;
        for index in 0..4 {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                let is_shortest = index == 0 || byte != 0;
                return if is_shortest { Ok(value) } else { Err(DecodeError::BadVariableInteger) };
            }
        }
        Err(DecodeError::BadVariableInteger)
    }

    /// The next `len` bytes.
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::TooShort)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(super) fn packet_id(&mut self) -> Result<PacketId, DecodeError> {
        match self.u16()? {
            0 => Err(DecodeError::ZeroPacketId),
            packet_id => Ok(packet_id),
        }
    }

    /// A binary field with its length in front.
    #[inline]
    pub(super) fn field(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = usize::from(self.u16()?);
        self.take(len)
    }

    /// Reads a UTF-8 field that may contain U+0000, for callers that check the characters
    /// themselves.
    #[inline]
    pub(super) fn utf8(&mut self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.field()?).map_err(|_| DecodeError::NotUtf8)
    }

    /// A UTF-8 field without U+0000.
    pub(super) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let text = self.utf8()?;
        if text.as_bytes().contains(&0) { Err(DecodeError::NulInString) } else { Ok(text) }
    }

    /// Checks that no bytes are left.
    #[inline]
    pub(super) fn finish(self) -> Result<(), DecodeError> {
        match u32::try_from(self.rest.len()) {
            Ok(0) => Ok(()),
            left => Err(DecodeError::TrailingBytes(left.unwrap_or(u32::MAX))),
        }
    }
}

/// Appends a field with its length in front.
pub(super) fn write_field(out: &mut Vec<u8>, field: &[u8]) -> Result<(), EncodeError> {
    let len = u16::try_from(field.len()).map_err(|_| EncodeError::FieldTooLong(field.len()))?;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(field);
    Ok(())
}

pub(super) fn write_packet_id(out: &mut Vec<u8>, packet_id: PacketId) -> Result<(), EncodeError> {
    if packet_id == 0 {
        return Err(EncodeError::ZeroPacketId);
    }
    out.extend_from_slice(&packet_id.to_be_bytes());
    Ok(())
}

/// Appends a packet whose length is unknown until its body is written. The function then moves the
/// body by the 1 to 4 bytes of its length, so the hot path does not use this function. An error
/// leaves `out` unchanged.
pub(super) fn write_packet(
    packet_type: PacketType,
    out: &mut Vec<u8>,
    write_body: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.push(packet_type.first_byte());
    let written = write_body(out).and_then(|()| insert_len(out, start + 1));
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn insert_len(out: &mut Vec<u8>, body_start: usize) -> Result<(), EncodeError> {
    let mut len_bytes = [0; 4];
    let len_len = write_len(&mut len_bytes, out.len() - body_start)?;
    out.extend_from_slice(&len_bytes[..len_len]);
    out[body_start..].rotate_right(len_len);
    Ok(())
}

/// Appends a variable byte integer.
#[inline]
pub(super) fn write_variable(out: &mut Vec<u8>, value: usize) -> Result<(), EncodeError> {
    let mut bytes = [0; 4];
    let len = write_len(&mut bytes, value)?;
    out.extend_from_slice(&bytes[..len]);
    Ok(())
}

/// Writes a remaining length and returns the number of bytes written.
#[inline]
pub(super) fn write_len(bytes: &mut [u8; 4], len: usize) -> Result<usize, EncodeError> {
    if len > LEN_MAX {
        return Err(EncodeError::PacketTooLong(len));
    }
    let mut rest = len;
    let mut used = 0;
    loop {
        let low = (rest & 0x7f) as u8;
        rest >>= 7;
        bytes[used] = if rest == 0 { low } else { low | 0x80 };
        used += 1;
        if rest == 0 {
            return Ok(used);
        }
    }
}
