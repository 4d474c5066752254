//! Stamp of a message: the run, the stream, the place in the stream, the scheduled and actual send
//! times, and the wait before the latter. The stamp is the first bytes of a binary payload; in a
//! payload of text the stamp stands anywhere, as text. A text of the user's own without a stamp has
//! it beside itself, in a user property of MQTT 5.

use memchr::memmem;

use crate::record::sent_at::SentAt;
use crate::schedule::random::Random;

/// Length of a stamp in bytes; smaller payloads have no stamp.
pub const STAMP_BYTES: usize = 32;
/// Length of a stamp with a number behind it, in bytes.
pub const NUMBERED_BYTES: usize = STAMP_BYTES + 8;
/// Length of the correlation data of a request in bytes: a stamp and its check.
const CORRELATION_BYTES: usize = STAMP_BYTES + 8;
/// Purpose of the check in correlation data.
const CHECK: u64 = 0xc0de;
/// Length of a stamp as text in bytes: the marker, and six bits in each character.
pub const STAMP_TEXT_BYTES: usize = MARKER.len() + (STAMP_BYTES * 8).div_ceil(6);

/// Places of a stream for one incarnation of its publisher; the next incarnation begins behind
/// these places.
pub const INCARNATION_PLACES: u32 = 1 << 26;
/// Largest number of incarnations of an agent: later places would collide with earlier places.
pub const INCARNATIONS: u32 = 32;

/// Name of the user property that carries the stamp of a message whose payload does not.
pub const STAMP_PROPERTY: &str = "pubstorm";

/// Largest number of publications of a plan; the highest bit of the index marks answers.
pub const PUBLICATIONS_MAX: usize = ANSWERS as usize - 1;

/// Mark of answers in the index of a publication.
const ANSWERS: u16 = 1 << 15;
/// First bytes of a stamp in a text.
const MARKER: &[u8; 5] = b"~pst~";
/// Base 64 for URLs (RFC 4648, section 5): JSON escapes none of these characters.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// The value of each digit; 255 for all other bytes.
const VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut value = 0;
    while value < DIGITS.len() {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};

/// Messages whose order is checked: messages of one client, one publication and one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    /// Index of the publication over all populations of the plan.
    pub publication: u16,
    /// Index of the value of the topic's range.
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
    /// Place in the stream, from 0. The next incarnations of the publisher begin at multiples of
    /// [`INCARNATION_PLACES`].
    pub sequence: u32,
    /// Scheduled time of the message, in nanoseconds of the reference clock.
    pub intended_ns: u64,
    /// Time of the write to the socket's buffer by the reference clock, and the wait before.
    pub sent: SentAt,
}

impl StreamId {
    /// The id as one number.
    #[must_use]
    pub fn key(self) -> u64 {
        u64::from(self.publication) << 48 | u64::from(self.variant) << 32 | u64::from(self.client)
    }

    /// The stream of the answers to the messages of this stream.
    #[must_use]
    pub const fn of_answers(self) -> Self {
        Self { publication: self.publication | ANSWERS, ..self }
    }

    /// The stream of the requests, if this one is a stream of answers.
    #[must_use]
    #[inline]
    pub const fn of_requests(self) -> Option<Self> {
        if self.publication & ANSWERS == 0 {
            return None;
        }
        Some(Self { publication: self.publication & !ANSWERS, ..self })
    }
}

impl Stamp {
    /// Actual send time, in nanoseconds of the reference clock.
    #[must_use]
    #[inline]
    pub const fn actual_ns(&self) -> u64 {
        self.sent.actual_ns(self.intended_ns)
    }

    /// The stamp as bytes, little-endian.
    #[must_use]
    #[inline]
    pub fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[0..4].copy_from_slice(&self.run_tag.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.stream.key().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.intended_ns.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sent.word().to_le_bytes());
        bytes
    }

    /// The stamp as bytes, and a number behind it.
    #[must_use]
    pub fn to_numbered(self, number: u64) -> [u8; NUMBERED_BYTES] {
        let mut bytes = [0; NUMBERED_BYTES];
        bytes[..STAMP_BYTES].copy_from_slice(&self.to_bytes());
        bytes[STAMP_BYTES..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    /// Reads a stamp and the number behind it; `None` if the bytes have another length.
    #[must_use]
    pub fn of_numbered(bytes: &[u8]) -> Option<(Self, u64)> {
        let bytes: &[u8; NUMBERED_BYTES] = bytes.try_into().ok()?;
        let number = bytes[STAMP_BYTES..].first_chunk().expect("eight bytes follow the stamp");
        Some((Self::read(bytes)?, u64::from_le_bytes(*number)))
    }

    /// Reads the stamp at the start of a payload; `None` if the payload is too short.
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
            sent: SentAt::of_word(word(24)),
        })
    }

    /// The stamp as correlation data: its bytes, and a check that reveals changed ones.
    #[must_use]
    pub fn to_correlation(self) -> [u8; CORRELATION_BYTES] {
        let stamp = self.to_bytes();
        let mut bytes = [0; CORRELATION_BYTES];
        bytes[..STAMP_BYTES].copy_from_slice(&stamp);
        bytes[STAMP_BYTES..].copy_from_slice(&check_of(&stamp));
        bytes
    }

    /// Reads correlation data; `None` if they are not those of a stamp.
    #[must_use]
    pub fn of_correlation(data: &[u8]) -> Option<Self> {
        let (stamp, check) = data.split_first_chunk::<STAMP_BYTES>()?;
        if *check == check_of(stamp) { Self::read(stamp) } else { None }
    }

    /// The stamp as text: the marker, then base 64 without padding.
    #[must_use]
    pub fn to_text(self) -> [u8; STAMP_TEXT_BYTES] {
        let mut text = [0; STAMP_TEXT_BYTES];
        let (marker, digits) = text.split_at_mut(MARKER.len());
        marker.copy_from_slice(MARKER);
        for (bytes, digits) in self.to_bytes().chunks(3).zip(digits.chunks_mut(4)) {
            let bits = bytes
                .iter()
                .enumerate()
                .fold(0, |bits, (i, byte)| bits | u32::from(*byte) << (16 - 8 * i));
            for (i, digit) in digits.iter_mut().enumerate() {
                *digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            }
        }
        text
    }

    /// Finds the first stamp in a text; `None` if the text has no stamp.
    #[must_use]
    pub fn find(text: &[u8]) -> Option<Self> {
        Self::of_text(&text[memmem::find(text, MARKER)?..])
    }

    /// Reads the stamp at the start of a text; `None` if the text does not begin with a stamp.
    #[must_use]
    pub fn of_text(text: &[u8]) -> Option<Self> {
        let digits = text.strip_prefix(MARKER)?.get(..STAMP_TEXT_BYTES - MARKER.len())?;
        let mut bytes = [0; STAMP_BYTES];
        for (digits, bytes) in digits.chunks(4).zip(bytes.chunks_mut(3)) {
            let mut bits = 0;
            for (i, digit) in digits.iter().enumerate() {
                let value = Some(VALUES[usize::from(*digit)]).filter(|&value| value != u8::MAX)?;
                bits |= u32::from(value) << (18 - 6 * i);
            }
            bytes.copy_from_slice(&bits.to_be_bytes()[1..=bytes.len()]);
        }
        Self::read(&bytes)
    }
}

/// Check of the bytes of a stamp.
fn check_of(stamp: &[u8; STAMP_BYTES]) -> [u8; 8] {
    let (words, _) = stamp.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words.fold(Random::new(0, CHECK), Random::of).bits().to_le_bytes()
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
            sent: SentAt::of_word(12),
        };
        let mut payload = stamp.to_bytes().to_vec();
        payload.extend_from_slice(b"the rest");
        assert_eq!(Stamp::read(&payload), Some(stamp));
        assert_eq!(Stamp::read(&payload[..31]), None);
    }

    #[test]
    fn correlation_data_with_any_other_byte_are_no_stamp() {
        let stamp = Stamp {
            run_tag: 1,
            stream: StreamId { publication: 2, variant: 3, client: 4 },
            sequence: 5,
            intended_ns: 6,
            sent: SentAt::of_word(7),
        };
        let data = stamp.to_correlation();
        assert_eq!(Stamp::of_correlation(&data), Some(stamp));
        for at in 0..data.len() {
            let mut changed = data;
            changed[at] ^= 1;
            assert_eq!(Stamp::of_correlation(&changed), None, "byte {at}");
            assert_eq!(Stamp::of_correlation(&data[..at]), None, "{at} bytes");
        }
        assert_eq!(Stamp::of_correlation(&[&data[..], b"."].concat()), None);
    }

    #[test]
    fn streams_of_answers_lead_back_to_their_requests() {
        let last = PUBLICATIONS_MAX as u16 - 1;
        for publication in [0, 1, last] {
            let requests = StreamId { publication, variant: 7, client: 9 };
            assert_eq!(requests.of_requests(), None);
            assert_eq!(requests.of_answers().of_requests(), Some(requests));
            assert_ne!(requests.of_answers().key(), requests.key());
        }
    }

    #[test]
    fn a_stamp_is_found_in_a_text() {
        for word in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            let stream = StreamId { publication: 3, variant: 65_535, client: u32::MAX - 1 };
            let (run_tag, sequence, intended_ns) = (0xdead_beef, 17, u64::MAX - 5);
            let sent = SentAt::of_word(word);
            let stamp = Stamp { run_tag, stream, sequence, intended_ns, sent };
            let text = stamp.to_text();
            assert!(text.iter().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(byte)));
            let payload = [b"{\"at\": \"", &text[..], b"\", \"n\": 1}"].concat();
            assert_eq!(Stamp::find(&payload), Some(stamp));
            assert_eq!(Stamp::of_text(&text), Some(stamp));
            assert_eq!(Stamp::of_text(&payload), None);
            assert_eq!(Stamp::find(&text[..STAMP_TEXT_BYTES - 1]), None);
            let mut wrong = text;
            wrong[20] = b'"';
            assert_eq!(Stamp::find(&wrong), None);
        }
        assert_eq!(Stamp::find(b""), None);
    }
}
