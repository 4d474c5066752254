//! Payloads of edge nodes and hosts. A message within another one has its length before it.

use crate::read::{
    ALIAS, BD_SEQ, BODY, BOOLEAN_VALUE, DATATYPE, DOUBLE_VALUE, FLOAT_VALUE, INT_VALUE, LONG_VALUE,
    METRIC_TIMESTAMP, METRICS, NAME, REBIRTH, SEQ, TIMESTAMP, WireType,
};

/// Data types of metrics.
const INT32: u64 = 3;
const INT64: u64 = 4;
const FLOAT: u64 = 9;
const DOUBLE: u64 = 10;
const BOOLEAN: u64 = 11;

/// The metrics of an edge node, or of one of its devices. The kinds of values take turns: double,
/// integer, boolean and float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSet {
    /// Alias of the first metric; the others follow.
    pub first_alias: u64,
    /// Number of metrics.
    pub count: u32,
}

impl MetricSet {
    /// The metrics of a device by its place among those of its node, or of a node without devices.
    /// All aliases of a node differ (tck-id-payloads-alias-uniqueness).
    #[must_use]
    pub const fn of_device(place: u32, count: u32) -> Self {
        Self { first_alias: place as u64 * count as u64, count }
    }
}

/// Appends a birth at an instant, in milliseconds since 1970. `bd_seq`: number of the connection,
/// in births of edge nodes, which also have the metric that asks for a rebirth. It has no alias
/// (tck-id-operational-behavior-data-commands-rebirth-name-aliases).
pub fn write_birth(
    timestamp_ms: u64,
    seq: u8,
    bd_seq: Option<u8>,
    metrics: MetricSet,
    out: &mut Vec<u8>,
) {
    write_number(TIMESTAMP, timestamp_ms, out);
    if let Some(bd_seq) = bd_seq {
        write_bd_seq(bd_seq, timestamp_ms, out);
        write_nested(METRICS, out, |out| {
            write_bytes(NAME, REBIRTH.as_bytes(), out);
            write_number(METRIC_TIMESTAMP, timestamp_ms, out);
            write_number(DATATYPE, BOOLEAN, out);
            write_number(BOOLEAN_VALUE, 0, out);
        });
    }
    for place in 0..metrics.count {
        write_nested(METRICS, out, |out| {
            let name = format!("metrics/{place}");
            write_bytes(NAME, name.as_bytes(), out);
            write_number(ALIAS, metrics.first_alias + u64::from(place), out);
            write_number(METRIC_TIMESTAMP, timestamp_ms, out);
            write_number(DATATYPE, datatype(place), out);
            write_value(place, timestamp_ms, out);
        });
    }
    write_number(SEQ, seq.into(), out);
}

/// Appends the death of an edge node: the number of the connection alone
/// (tck-id-topics-ndeath-payload). `body`: bytes beside it; empty: none.
pub fn write_death(timestamp_ms: u64, bd_seq: u8, body: &[u8], out: &mut Vec<u8>) {
    write_number(TIMESTAMP, timestamp_ms, out);
    write_bd_seq(bd_seq, timestamp_ms, out);
    if !body.is_empty() {
        write_bytes(BODY, body, out);
    }
}

/// Appends the death of a device whose node lives: no metrics (tck-id-topics-ddeath-seq-num).
pub fn write_device_death(timestamp_ms: u64, seq: u8, out: &mut Vec<u8>) {
    write_number(TIMESTAMP, timestamp_ms, out);
    write_number(SEQ, seq.into(), out);
}

/// Appends data: the next `changed` metrics of message `number`, by their aliases
/// (tck-id-payloads-alias-data-cmd-requirement). The body is at the end.
pub fn write_data(
    (timestamp_ms, seq): (u64, u8),
    metrics: MetricSet,
    (changed, number): (u32, u64),
    body: &[u8],
    out: &mut Vec<u8>,
) {
    write_number(TIMESTAMP, timestamp_ms, out);
    let count = u64::from(metrics.count.max(1));
    let first = number.wrapping_mul(changed.into()) % count;
    for place in (first..first + u64::from(changed)).map(|place| (place % count) as u32) {
        write_nested(METRICS, out, |out| {
            write_number(ALIAS, metrics.first_alias + u64::from(place), out);
            write_number(METRIC_TIMESTAMP, timestamp_ms, out);
            write_value(place, number, out);
        });
    }
    write_number(SEQ, seq.into(), out);
    write_bytes(BODY, body, out);
}

/// Appends the command that asks an edge node for its births.
pub fn write_rebirth(timestamp_ms: u64, out: &mut Vec<u8>) {
    write_number(TIMESTAMP, timestamp_ms, out);
    write_nested(METRICS, out, |out| {
        write_bytes(NAME, REBIRTH.as_bytes(), out);
        write_number(METRIC_TIMESTAMP, timestamp_ms, out);
        write_number(DATATYPE, BOOLEAN, out);
        write_number(BOOLEAN_VALUE, 1, out);
    });
}

fn write_bd_seq(bd_seq: u8, timestamp_ms: u64, out: &mut Vec<u8>) {
    write_nested(METRICS, out, |out| {
        write_bytes(NAME, BD_SEQ.as_bytes(), out);
        write_number(METRIC_TIMESTAMP, timestamp_ms, out);
        write_number(DATATYPE, INT64, out);
        write_number(LONG_VALUE, bd_seq.into(), out);
    });
}

/// Data type of a metric by its place.
const fn datatype(place: u32) -> u64 {
    match place % 4 {
        0 => DOUBLE,
        1 => INT32,
        2 => BOOLEAN,
        _ => FLOAT,
    }
}

/// Appends the value of a metric, which differs from message to message.
fn write_value(place: u32, number: u64, out: &mut Vec<u8>) {
    let value = number.wrapping_add(place.into());
    match place % 4 {
        0 => {
            write_key(DOUBLE_VALUE, WireType::Fixed64, out);
            out.extend_from_slice(&((value % 100_000) as f64 / 8.0).to_le_bytes());
        }
        1 => write_number(INT_VALUE, value % 100_000, out),
        2 => write_number(BOOLEAN_VALUE, value % 2, out),
        _ => {
            write_key(FLOAT_VALUE, WireType::Fixed32, out);
            out.extend_from_slice(&((value % 100_000) as f32 / 8.0).to_le_bytes());
        }
    }
}

fn write_key(field: u64, wire_type: WireType, out: &mut Vec<u8>) {
    write_varint(field << 3 | wire_type as u64, out);
}

fn write_number(field: u64, number: u64, out: &mut Vec<u8>) {
    write_key(field, WireType::Varint, out);
    write_varint(number, out);
}

fn write_bytes(field: u64, bytes: &[u8], out: &mut Vec<u8>) {
    write_key(field, WireType::Bytes, out);
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends a message within another one. Those of this file are below 128 bytes: their length is
/// one byte.
fn write_nested(field: u64, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    write_key(field, WireType::Bytes, out);
    let start = out.len();
    out.push(0);
    write(out);
    let length = out.len() - start - 1;
    debug_assert!(length < 128, "a metric of this file has {length} bytes");
    out[start] = length as u8;
}

fn write_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
