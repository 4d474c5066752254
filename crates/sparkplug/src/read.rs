//! Reads payloads. Fields that this crate has no use for are passed over; every length is checked
//! against the bytes of the payload.

/// Name of the metric with the number of a connection (tck-id-topics-nbirth-bdseq-included).
pub const BD_SEQ: &str = "bdSeq";
/// Name of the metric that asks an edge node for its births
/// (tck-id-operational-behavior-data-commands-rebirth-name).
pub const REBIRTH: &str = "Node Control/Rebirth";

/// Fields of a payload.
pub const TIMESTAMP: u64 = 1;
pub const METRICS: u64 = 2;
pub const SEQ: u64 = 3;
pub const BODY: u64 = 5;
/// Fields of a metric.
pub const NAME: u64 = 1;
pub const ALIAS: u64 = 2;
pub const METRIC_TIMESTAMP: u64 = 3;
pub const DATATYPE: u64 = 4;
pub const INT_VALUE: u64 = 10;
pub const LONG_VALUE: u64 = 11;
pub const FLOAT_VALUE: u64 = 12;
pub const DOUBLE_VALUE: u64 = 13;
pub const BOOLEAN_VALUE: u64 = 14;

/// Form of a field on the wire. Groups, which are obsolete, are none of Sparkplug's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireType {
    /// A number of 1 to 10 bytes.
    Varint = 0,
    /// Eight bytes.
    Fixed64 = 1,
    /// A length, and bytes.
    Bytes = 2,
    /// Four bytes.
    Fixed32 = 5,
}

/// Bytes that are no payload of Sparkplug B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SparkplugError {
    /// The bytes end within a field.
    #[error("the payload ends within a field")]
    Short,
    /// A number of more than 64 bits.
    #[error("found a number of more than 64 bits")]
    LongNumber,
    /// A field of another form.
    #[error("found a field of wire type {0}, allowed are 0, 1, 2 and 5")]
    WireType(u8),
}

/// Parts of a payload that edge nodes and hosts act on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SparkplugPayload<'a> {
    /// Instant in milliseconds since 1970.
    pub timestamp_ms: Option<u64>,
    /// Sequence number; a valid one is below 256.
    pub seq: Option<u64>,
    /// Number of the connection.
    pub bd_seq: Option<u64>,
    /// `true` if the payload asks for a rebirth.
    pub is_rebirth: bool,
    /// Number of metrics.
    pub metrics: u32,
    /// Bytes beside the metrics; empty if there are none.
    pub body: &'a [u8],
}

/// Value of a field.
enum PayloadField<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// Reads a payload.
///
/// # Errors
/// [`SparkplugError`] if the bytes are no message of Protocol Buffers.
pub fn decode_sparkplug(mut bytes: &[u8]) -> Result<SparkplugPayload<'_>, SparkplugError> {
    let mut payload = SparkplugPayload::default();
    while !bytes.is_empty() {
        match take_field(&mut bytes)? {
            (TIMESTAMP, PayloadField::Number(ms)) => payload.timestamp_ms = Some(ms),
            (SEQ, PayloadField::Number(seq)) => payload.seq = Some(seq),
            (BODY, PayloadField::Bytes(body)) => payload.body = body,
            (METRICS, PayloadField::Bytes(metric)) => {
                payload.metrics += 1;
                read_metric(metric, &mut payload)?;
            }
            _ => {}
        }
    }
    Ok(payload)
}

/// The body of a payload that ends with one of this length; `None` for other payloads.
#[must_use]
pub fn body_at_end(payload: &[u8], length: u8) -> Option<&[u8]> {
    let (front, body) = payload.split_at_checked(payload.len().checked_sub(length.into())?)?;
    let key = (BODY << 3) as u8 | WireType::Bytes as u8;
    front.ends_with(&[key, length]).then_some(body)
}

fn read_metric(mut bytes: &[u8], payload: &mut SparkplugPayload<'_>) -> Result<(), SparkplugError> {
    let (mut name, mut number, mut is_true) = (&[][..], None, false);
    while !bytes.is_empty() {
        match take_field(&mut bytes)? {
            (NAME, PayloadField::Bytes(text)) => name = text,
            (LONG_VALUE | INT_VALUE, PayloadField::Number(value)) => number = Some(value),
            (BOOLEAN_VALUE, PayloadField::Number(value)) => is_true = value != 0,
            _ => {}
        }
    }
    if name == BD_SEQ.as_bytes() {
        payload.bd_seq = number;
    } else if name == REBIRTH.as_bytes() {
        payload.is_rebirth = is_true;
    }
    Ok(())
}

fn take_field<'a>(bytes: &mut &'a [u8]) -> Result<(u64, PayloadField<'a>), SparkplugError> {
    let key = take_varint(bytes)?;
    let value = match (key & 7) as u8 {
        0 => PayloadField::Number(take_varint(bytes)?),
        1 => take(bytes, 8).map(|_| PayloadField::Fixed)?,
        2 => {
            let length = take_varint(bytes)?;
            let length = usize::try_from(length).map_err(|_| SparkplugError::Short)?;
            PayloadField::Bytes(take(bytes, length)?)
        }
        5 => take(bytes, 4).map(|_| PayloadField::Fixed)?,
        other => return Err(SparkplugError::WireType(other)),
    };
    Ok((key >> 3, value))
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], SparkplugError> {
    let (front, rest) = bytes.split_at_checked(count).ok_or(SparkplugError::Short)?;
    *bytes = rest;
    Ok(front)
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, SparkplugError> {
    let mut number = 0;
    for (place, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if place == 9 && bits > 1 {
            return Err(SparkplugError::LongNumber);
        }
        number |= bits << (7 * place);
        if byte < 0x80 {
            *bytes = &bytes[place + 1..];
            return Ok(number);
        }
    }
    Err(if bytes.len() < 10 { SparkplugError::Short } else { SparkplugError::LongNumber })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::{
        MetricSet, write_birth, write_data, write_death, write_device_death, write_rebirth,
    };
    use proptest::prelude::*;

    const METRICS: MetricSet = MetricSet { first_alias: 40, count: 9 };

    #[test]
    fn what_is_written_is_read() {
        let mut birth = Vec::new();
        write_birth(1_700_000_000_123, 0, Some(7), METRICS, &mut birth);
        let read = decode_sparkplug(&birth).unwrap();
        let found = (read.timestamp_ms, read.seq, read.bd_seq, read.is_rebirth, read.metrics);
        assert_eq!(found, (Some(1_700_000_000_123), Some(0), Some(7), false, 11));
        let mut death = Vec::new();
        write_death(5, 255, &[], &mut death);
        let read = decode_sparkplug(&death).unwrap();
        assert_eq!((read.seq, read.bd_seq, read.metrics, read.body), (None, Some(255), 1, &[][..]));
        let mut death = Vec::new();
        write_device_death(5, 9, &mut death);
        let read = decode_sparkplug(&death).unwrap();
        assert_eq!((read.timestamp_ms, read.seq, read.bd_seq), (Some(5), Some(9), None));
        assert_eq!((read.metrics, read.body), (0, &[][..]));
        let mut rebirth = Vec::new();
        write_rebirth(5, &mut rebirth);
        assert!(decode_sparkplug(&rebirth).unwrap().is_rebirth);
    }

    #[test]
    fn bytes_that_are_no_payload_are_refused() {
        for (bytes, error) in [
            (&[0x08][..], SparkplugError::Short),
            (&[0x08, 0x80], SparkplugError::Short),
            (&[0x12, 5, 1], SparkplugError::Short),
            (&[0x12, 2, 0x0a, 9], SparkplugError::Short),
            (&[0x0b], SparkplugError::WireType(3)),
            (&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], SparkplugError::LongNumber),
            (&[0x12, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], SparkplugError::Short),
        ] {
            assert_eq!(decode_sparkplug(bytes), Err(error), "{bytes:02x?}");
        }
        assert_eq!(decode_sparkplug(&[]), Ok(SparkplugPayload::default()));
        // A field that is not known is passed over.
        let unknown = [0x22, 1, b'u', 0xfa, 1, 1, 0, 0x18, 9];
        assert_eq!(decode_sparkplug(&unknown).unwrap().seq, Some(9));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_sparkplug(&bytes);
        }

        #[test]
        fn data_have_their_changed_metrics_and_their_body_at_the_end(
            (timestamp_ms, seq) in (any::<u64>(), any::<u8>()),
            (changed, number) in (0_u32..9, any::<u64>()),
            body in prop::collection::vec(any::<u8>(), 1..60),
        ) {
            let mut out = Vec::new();
            write_data((timestamp_ms, seq), METRICS, (changed, number), &body, &mut out);
            let read = decode_sparkplug(&out).unwrap();
            prop_assert_eq!(read.timestamp_ms, Some(timestamp_ms));
            prop_assert_eq!((read.seq, read.metrics), (Some(seq.into()), changed));
            prop_assert_eq!(read.body, &body[..]);
            prop_assert_eq!(body_at_end(&out, body.len() as u8), Some(&body[..]));
            prop_assert_eq!(body_at_end(&out[1..body.len()], body.len() as u8), None);
        }
    }
}
