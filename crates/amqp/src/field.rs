//! Fields of methods and headers: numbers, short and long strings, and tables (4.2.5 of AMQP 0-9-1,
//! with the types that RabbitMQ writes).

use crate::error::AmqpError;
use crate::limits::DEPTH_MAX;

/// Fields of a table, encoded; without their length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table<'a>(pub &'a [u8]);

/// Fields of a method or of a header that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
    /// Name of the method or header, for errors.
    name: &'static str,
}

impl<'a> FieldReader<'a> {
    pub(crate) const fn new(rest: &'a [u8], name: &'static str) -> Self {
        Self { rest, name }
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], AmqpError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(self.malformed())?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], AmqpError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(self.malformed())?;
        self.rest = rest;
        Ok(*array)
    }

    #[inline]
    pub(crate) fn octet(&mut self) -> Result<u8, AmqpError> {
        self.array().map(u8::from_be_bytes)
    }

    #[inline]
    pub(crate) fn short(&mut self) -> Result<u16, AmqpError> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn long(&mut self) -> Result<u32, AmqpError> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn longlong(&mut self) -> Result<u64, AmqpError> {
        self.array().map(u64::from_be_bytes)
    }

    #[inline]
    pub(crate) fn shortstr(&mut self) -> Result<&'a [u8], AmqpError> {
        let len = self.octet()?;
        self.take(len.into())
    }

    /// A short string that people read.
    pub(crate) fn text(&mut self) -> Result<&'a str, AmqpError> {
        str::from_utf8(self.shortstr()?).map_err(|_| self.malformed())
    }

    pub(crate) fn longstr(&mut self) -> Result<&'a [u8], AmqpError> {
        let len = self.long()?;
        self.take(len as usize)
    }

    pub(crate) fn table(&mut self) -> Result<Table<'a>, AmqpError> {
        let table = Table(self.longstr()?);
        table.check(0)?;
        Ok(table)
    }

    /// Ends the reading: nothing may be left.
    #[inline]
    pub(crate) const fn end(self) -> Result<(), AmqpError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed()) }
    }

    const fn malformed(&self) -> AmqpError {
        AmqpError::Malformed(self.name)
    }

    /// Skips the value of a field of a table.
    fn skip_value(&mut self, depth: u8) -> Result<(), AmqpError> {
        match self.octet()? {
            b't' | b'b' | b'B' => self.take(1),
            b's' | b'u' => self.take(2),
            b'I' | b'i' | b'f' => self.take(4),
            b'D' => self.take(5),
            b'l' | b'L' | b'd' | b'T' => self.take(8),
            b'S' | b'x' => self.longstr(),
            b'V' => self.take(0),
            b'F' => {
                let inner = Table(self.longstr()?);
                return inner.check(depth + 1);
            }
            b'A' => {
                if depth >= DEPTH_MAX {
                    return Err(AmqpError::TooDeep);
                }
                let mut inner = FieldReader::new(self.longstr()?, self.name);
                while !inner.rest.is_empty() {
                    inner.skip_value(depth + 1)?;
                }
                return Ok(());
            }
            _ => return Err(self.malformed()),
        }
        .map(drop)
    }
}

impl Table<'_> {
    /// Checks the grammar of the table, in its tables too.
    fn check(self, depth: u8) -> Result<(), AmqpError> {
        if depth > DEPTH_MAX {
            return Err(AmqpError::TooDeep);
        }
        let mut fields = FieldReader::new(self.0, "table");
        while !fields.rest.is_empty() {
            fields.shortstr()?;
            fields.skip_value(depth)?;
        }
        Ok(())
    }
}

/// Appends the length of the fields that `write` appends behind it, and the fields.
pub fn push_table(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    set_length(start, out);
}

/// Appends a field of a table that is a text. The name has up to 255 bytes.
pub fn push_text(name: &[u8], out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    push_name(name, b'S', out);
    push_table(out, write);
}

/// Appends a field of a table that is a number.
pub fn push_number(name: &[u8], value: i64, out: &mut Vec<u8>) {
    push_name(name, b'l', out);
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a field of a table that is `true` or `false`.
pub fn push_flag(name: &[u8], value: bool, out: &mut Vec<u8>) {
    push_name(name, b't', out);
    out.push(value.into());
}

/// Appends a field of a table that is a table.
pub fn push_inner(name: &[u8], out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    push_name(name, b'F', out);
    push_table(out, write);
}

fn push_name(name: &[u8], kind: u8, out: &mut Vec<u8>) {
    push_short(name, out);
    out.push(kind);
}

/// Appends a short string. What is above 255 bytes is left out.
#[inline]
pub(crate) fn push_short(text: &[u8], out: &mut Vec<u8>) {
    let text = &text[..text.len().min(u8::MAX.into())];
    out.push(text.len() as u8);
    out.extend_from_slice(text);
}

/// Sets the 4 bytes at `start` to the number of bytes behind them.
#[inline]
pub(crate) fn set_length(start: usize, out: &mut [u8]) {
    let len = out.len() - start - 4;
    out[start..start + 4].copy_from_slice(&(len as u32).to_be_bytes());
}
