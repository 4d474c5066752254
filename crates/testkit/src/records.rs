//! Records on a connection that may have them, as those of TLS: a byte of kind, two of length, and
//! the payload. Each end begins with a greeting.

use crate::Rng;

/// Bytes before the payload of a record.
pub const HEADER_BYTES: usize = 3;
/// Longest payload of a record [RFC 8446, 5.1].
pub const PAYLOAD_MAX: usize = 1 << 14;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// No byte follows on this connection.
    End = 0x15,
    /// Begins a direction.
    Greeting = 0x16,
    /// Bytes of the protocol above.
    Data = 0x17,
    /// Asks the client for a record of the same kind.
    Update = 0x18,
}

/// Records of a client, as its peer reads them.
#[derive(Debug, Default)]
pub enum RecordReader {
    /// Nothing has arrived.
    #[default]
    New,
    /// There are none.
    Absent,
    /// The front of a record, whose rest has not arrived.
    Open(Vec<u8>),
}

impl RecordKind {
    /// The kind and the length of the payload in a header; `None`: it is no record.
    #[must_use]
    pub fn of(header: [u8; HEADER_BYTES]) -> Option<(Self, usize)> {
        let [kind, length @ ..] = header;
        let kinds = [Self::End, Self::Greeting, Self::Data, Self::Update];
        let kind = kinds.into_iter().find(|known| *known as u8 == kind)?;
        Some((kind, usize::from(u16::from_be_bytes(length))))
    }

    /// Appends a record.
    pub fn append(self, payload: &[u8], out: &mut Vec<u8>) {
        out.push(self as u8);
        out.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        out.extend_from_slice(payload);
    }
}

impl RecordReader {
    /// Returns `true` if the connection has records.
    #[must_use]
    pub const fn are_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// Returns the data in bytes that have arrived, and `true` if a greeting is among them.
    pub fn take(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        if matches!(self, Self::New) {
            let is_greeting = bytes.first() == Some(&(RecordKind::Greeting as u8));
            *self = if is_greeting { Self::Open(Vec::new()) } else { Self::Absent };
        }
        let Self::Open(front) = self else { return (bytes.to_vec(), false) };
        front.extend_from_slice(bytes);
        let (mut data, mut greets, mut taken) = (Vec::new(), false, 0);
        while let Some(header) = front[taken..].first_chunk() {
            let (kind, length) = RecordKind::of(*header).expect("the client writes records");
            let Some(payload) = front[taken + HEADER_BYTES..].get(..length) else { break };
            match kind {
                RecordKind::Data => data.extend_from_slice(payload),
                RecordKind::Greeting => greets = true,
                RecordKind::Update | RecordKind::End => {}
            }
            taken += HEADER_BYTES + length;
        }
        front.drain(..taken);
        (data, greets)
    }
}

/// Bytes of a server in records of any sizes, with updates between them.
#[must_use]
pub fn in_records(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        if rng.chance(10) {
            RecordKind::Update.append(b"", &mut out);
        }
        let most = rest.len().min(PAYLOAD_MAX);
        let size = if rng.chance(70) { most } else { 1 + rng.below(most) };
        RecordKind::Data.append(&rest[..size], &mut out);
        rest = &rest[size..];
    }
    out
}
