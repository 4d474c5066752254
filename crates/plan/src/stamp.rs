//! What a stamped payload says about itself in its first bytes: the run, the stream, the place in
//! the stream, and when the message was due and sent. It knows nothing of the rest of the payload.

/// Bytes of a stamp; smaller payloads go unstamped.
pub const STAMP_BYTES: usize = 32;

/// Messages whose order is kept: those of one client, one publication, one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    /// Index of the publication over all populations of the plan.
    pub publication: u16,
    /// Which value of the topic's range.
    pub variant: u16,
    /// Publishing client, as its index over all agents.
    pub client: u32,
}

/// The stamp of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The plan's run tag.
    pub run_tag: u32,
    /// The message's stream.
    pub stream: StreamId,
    /// Place in the stream, from 0.
    pub sequence: u32,
    /// When the message was due, in nanoseconds of the reference clock.
    pub intended_ns: u64,
    /// When it was written to the socket's buffer, in nanoseconds of the reference clock.
    pub actual_ns: u64,
}

impl StreamId {
    /// The id as one number.
    #[must_use]
    pub fn key(self) -> u64 {
        u64::from(self.publication) << 48 | u64::from(self.variant) << 32 | u64::from(self.client)
    }
}

impl Stamp {
    /// The stamp as bytes, little-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[0..4].copy_from_slice(&self.run_tag.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.stream.key().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.intended_ns.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.actual_ns.to_le_bytes());
        bytes
    }

    /// The stamp at the start of a payload; `None` where the payload is too short.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; STAMP_BYTES] = payload.first_chunk()?;
        let word = |at: usize| -> u64 {
            let chunk = bytes[at..].first_chunk().expect("a stamp has 32 bytes");
            u64::from_le_bytes(*chunk)
        };
        let (head, key) = (word(0), word(8));
        Some(Self {
            run_tag: head as u32,
            sequence: (head >> 32) as u32,
            stream: StreamId {
                publication: (key >> 48) as u16,
                variant: (key >> 32) as u16,
                client: key as u32,
            },
            intended_ns: word(16),
            actual_ns: word(24),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back() {
        let stamp = Stamp {
            run_tag: 0xdead_beef,
            stream: StreamId { publication: 3, variant: 65_535, client: u32::MAX - 1 },
            sequence: 17,
            intended_ns: u64::MAX - 5,
            actual_ns: 12,
        };
        let mut payload = stamp.to_bytes().to_vec();
        payload.extend_from_slice(b"the rest");
        assert_eq!(Stamp::read(&payload), Some(stamp));
        assert_eq!(Stamp::read(&payload[..31]), None);
    }
}
