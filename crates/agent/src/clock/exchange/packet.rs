//! The packets of an exchange. A question and its answer have the same size, so that an attacker
//! cannot amplify traffic with the reference clock. Both are signed with the key of the run.

use std::ops::Range;

use openssl::error::ErrorStack;

use super::{ClockKey, MAC_BYTES};

/// Bytes of a question and of an answer.
pub const BYTES: usize = CONTENT_BYTES + MAC_BYTES;
/// Random number that identifies a question.
pub type Nonce = [u8; 16];

const CONTENT_BYTES: usize = 40;
const VERSION: u8 = 1;
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;
const NONCE: Range<usize> = 8..24;
const CAME: Range<usize> = 24..32;
const LEFT: Range<usize> = 32..40;

/// A question, ready to be sent.
pub fn question(key: &ClockKey, nonce: &Nonce) -> Result<[u8; BYTES], ErrorStack> {
    let mut packet = empty(QUESTION, nonce);
    let code = key.seal()?.close(&packet[..CONTENT_BYTES])?;
    packet[CONTENT_BYTES..].copy_from_slice(&code);
    Ok(packet)
}

/// The nonce of a question; `None`: these bytes are none.
pub fn read_question(key: &ClockKey, bytes: &[u8]) -> Option<Nonce> {
    content(key, QUESTION, bytes)?[NONCE].try_into().ok()
}

/// An answer, ready to be sent: when the question came, and what `now_ns` says at the last moment.
pub fn answer(
    key: &ClockKey,
    nonce: &Nonce,
    came_ns: i64,
    now_ns: impl FnOnce() -> i64,
) -> Result<[u8; BYTES], ErrorStack> {
    let mut packet = empty(ANSWER, nonce);
    packet[CAME].copy_from_slice(&came_ns.to_be_bytes());
    let seal = key.seal()?;
    packet[LEFT].copy_from_slice(&now_ns().to_be_bytes());
    let code = seal.close(&packet[..CONTENT_BYTES])?;
    packet[CONTENT_BYTES..].copy_from_slice(&code);
    Ok(packet)
}

/// Instants at which the question with this nonce came and its answer left; `None` if these bytes
/// are no answer to the question.
pub fn read_answer(key: &ClockKey, nonce: &Nonce, bytes: &[u8]) -> Option<(i64, i64)> {
    let content = content(key, ANSWER, bytes)?;
    let instant = |place: Range<usize>| content[place].try_into().ok().map(i64::from_be_bytes);
    if content[NONCE] == *nonce { Some((instant(CAME)?, instant(LEFT)?)) } else { None }
}

fn empty(kind: u8, nonce: &Nonce) -> [u8; BYTES] {
    let mut packet = [0; BYTES];
    packet[0] = VERSION;
    packet[1] = kind;
    packet[NONCE].copy_from_slice(nonce);
    packet
}

fn content(key: &ClockKey, kind: u8, bytes: &[u8]) -> Option<[u8; CONTENT_BYTES]> {
    let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
    let (content, code) = bytes.split_first_chunk::<CONTENT_BYTES>()?;
    let is_meant = content[..2] == [VERSION, kind];
    (is_meant && key.holds(content, code.try_into().ok()?)).then_some(*content)
}

#[cfg(test)]
mod tests {
    use openssl::pkey::PKey;

    use super::*;

    fn key(byte: u8) -> ClockKey {
        ClockKey(PKey::hmac(&[byte; 32]).unwrap())
    }

    #[test]
    fn a_question_is_read_and_answered() {
        let key = key(7);
        let nonce = [9; 16];
        let question = question(&key, &nonce).unwrap();
        assert_eq!(read_question(&key, &question), Some(nonce));
        let answer = answer(&key, &nonce, -5, || i64::MAX).unwrap();
        assert_eq!(read_answer(&key, &nonce, &answer), Some((-5, i64::MAX)));
        assert_eq!(question.len(), answer.len());
    }

    #[test]
    fn what_is_of_another_key_kind_nonce_or_length_is_refused() {
        let (ours, other) = (key(7), key(8));
        let nonce = [9; 16];
        let question = question(&ours, &nonce).unwrap();
        assert_eq!(read_question(&other, &question), None);
        assert_eq!(read_answer(&ours, &nonce, &question), None);
        let answer = answer(&ours, &nonce, 1, || 2).unwrap();
        assert_eq!(read_answer(&ours, &[8; 16], &answer), None);
        assert_eq!(read_answer(&other, &nonce, &answer), None);
        assert_eq!(read_question(&ours, &answer), None);
        assert_eq!(read_answer(&ours, &nonce, &answer[1..]), None);
        assert_eq!(read_answer(&ours, &nonce, &[&answer[..], &[0]].concat()), None);
    }

    #[test]
    fn no_bit_of_an_answer_can_be_changed() {
        let key = key(7);
        let nonce = [9; 16];
        let answer = answer(&key, &nonce, 1, || 2).unwrap();
        for bit in 0..8 * BYTES {
            let mut changed = answer;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_answer(&key, &nonce, &changed), None, "bit {bit}");
        }
    }
}
