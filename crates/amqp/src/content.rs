//! Headers of messages: size of the body, and properties (4.2.6.1 of AMQP 0-9-1). The crate writes
//! `delivery-mode` and `headers`, and reads past the others.

use crate::error::AmqpError;
use crate::field::{FieldReader, Table};
use crate::frame::{AmqpFrameKind, push_frame};

/// Class of messages.
const BASIC: u16 = 60;
/// Flag of the property `headers`.
const HEADERS: u16 = 1 << 13;
/// Flag of the property `delivery-mode`.
const DELIVERY_MODE: u16 = 1 << 12;
/// Flag of more flags behind these.
const MORE: u16 = 1;
/// Bit of no property.
const UNUSED: u16 = 1 << 1;
/// Delivery mode of a message that the broker stores on disk.
const PERSISTENT: u8 = 2;

/// Header of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentHeader<'a> {
    /// Bytes of the body.
    pub body_bytes: u64,
    /// `true` if the broker stores the message on disk.
    pub is_persistent: bool,
    /// Headers of the publisher; `None` if there are none.
    pub headers: Option<Table<'a>>,
}

/// Decodes the payload of a header frame.
///
/// # Errors
/// [`AmqpError`] if the bytes are no header of a message.
#[inline]
pub fn decode_header(payload: &[u8]) -> Result<ContentHeader<'_>, AmqpError> {
    let mut fields = FieldReader::new(payload, "header of a message");
    let (class, weight) = (fields.short()?, fields.short()?);
    let mut header = ContentHeader { body_bytes: fields.longlong()?, ..ContentHeader::default() };
    let flags = fields.short()?;
    if class != BASIC || weight != 0 || flags & (MORE | UNUSED) != 0 {
        return Err(AmqpError::Malformed("header of a message"));
    }
    if flags != 0 {
        read_properties(flags, &mut fields, &mut header)?;
    }
    fields.end()?;
    Ok(header)
}

/// Reads properties in the order of their flags, from the highest bit on.
fn read_properties<'a>(
    flags: u16,
    fields: &mut FieldReader<'a>,
    header: &mut ContentHeader<'a>,
) -> Result<(), AmqpError> {
    for bit in (2..16).rev().filter(|bit| flags & 1 << bit != 0) {
        match bit {
            13 => header.headers = Some(fields.table()?),
            12 => header.is_persistent = fields.octet()? == PERSISTENT,
            11 => drop(fields.octet()?),
            6 => drop(fields.longlong()?),
            _ => drop(fields.shortstr()?),
        }
    }
    Ok(())
}

/// Appends the header frame of a message.
#[inline]
pub fn push_header(channel: u16, header: &ContentHeader<'_>, out: &mut Vec<u8>) {
    push_frame(AmqpFrameKind::Header, channel, out, |out| {
        out.extend_from_slice(&BASIC.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&header.body_bytes.to_be_bytes());
        let mode = if header.is_persistent { DELIVERY_MODE } else { 0 };
        let flags = mode | if header.headers.is_some() { HEADERS } else { 0 };
        out.extend_from_slice(&flags.to_be_bytes());
        if let Some(Table(fields)) = header.headers {
            out.extend_from_slice(&(fields.len() as u32).to_be_bytes());
            out.extend_from_slice(fields);
        }
        if header.is_persistent {
            out.push(PERSISTENT);
        }
    });
}
