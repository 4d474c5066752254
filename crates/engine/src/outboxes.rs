//! Answers of QoS 1 and 2 that are in flight or wait: the topic and the correlation data of a
//! request are in no other place, so each answer is kept until the broker has acknowledged it.
//! Buffers are used again.

use std::collections::VecDeque;

use plan::{Responds, Stamp};
use rustc_hash::FxHashMap;

use crate::seam::{Answer, Response, Token};

/// Answers of a client that wait at most; further ones are not sent.
pub const WAITING_MAX: usize = 10_000;
/// Bytes of topics and correlation data that are kept of a client at most. They are the peer's.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Unused buffers that are kept at most.
const SPARE_MAX: usize = 1024;
/// Largest unused buffer that is kept, in bytes.
const SPARE_BYTES_MAX: usize = 1024;

/// Answers of all clients of this agent that have had some.
#[derive(Default)]
pub struct Outboxes {
    of_clients: FxHashMap<u32, Outbox>,
    /// Unused buffers.
    spare: Vec<Vec<u8>>,
}

/// Answers of one client.
#[derive(Default)]
struct Outbox {
    /// Answers so far, which is the number of the next one.
    total: u64,
    /// Answers that are sent and not acknowledged, in the order of their numbers.
    in_flight: VecDeque<Kept>,
    /// Answers that are not sent, the oldest first.
    waiting: VecDeque<Kept>,
    /// Bytes of topics and correlation data of all of these.
    bytes: usize,
}

/// An answer.
struct Kept {
    /// Number among the answers of its client.
    number: u64,
    /// Instant of the request, in nanoseconds.
    received_ns: u64,
    stamp: Option<Stamp>,
    /// Topic, then correlation data.
    bytes: Vec<u8>,
    topic_bytes: usize,
    is_correlated: bool,
}

impl Kept {
    fn answer(&self, responds: Responds) -> Answer<'_> {
        let (topic, correlation) = self.bytes.split_at(self.topic_bytes);
        let topic = std::str::from_utf8(topic).expect("the topic was a string");
        let response = Response { topic, correlation: self.is_correlated.then_some(correlation) };
        Answer { responds, response, stamp: self.stamp }
    }
}

impl Outboxes {
    /// Adds an answer to those of a client that wait. Returns `false` if too many wait, or if they
    /// take too many bytes.
    pub fn push(&mut self, client: u32, answer: &Answer<'_>, received_ns: u64) -> bool {
        let outbox = self.of_clients.entry(client).or_default();
        let Response { topic, correlation } = answer.response;
        let total = outbox.bytes + topic.len() + correlation.map_or(0, <[u8]>::len);
        if outbox.waiting.len() >= WAITING_MAX || total > BYTES_MAX {
            return false;
        }
        outbox.bytes = total;
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(topic.as_bytes());
        bytes.extend_from_slice(correlation.unwrap_or_default());
        outbox.waiting.push_back(Kept {
            number: outbox.total,
            received_ns,
            stamp: answer.stamp,
            bytes,
            topic_bytes: topic.len(),
            is_correlated: correlation.is_some(),
        });
        outbox.total += 1;
        true
    }

    /// The oldest answer of a client that waits, and its token.
    pub fn waiting(&self, client: u32, responds: Responds) -> Option<(Answer<'_>, Token)> {
        let kept = self.of_clients.get(&client)?.waiting.front()?;
        Some((kept.answer(responds), Token::of_answer(kept.number, kept.received_ns)))
    }

    /// Takes the oldest answer of a client that waits: it is in flight, or given up.
    pub fn take(&mut self, client: u32, is_sent: bool) {
        let Some(outbox) = self.of_clients.get_mut(&client) else { return };
        let Some(kept) = outbox.waiting.pop_front() else { return };
        if is_sent {
            outbox.in_flight.push_back(kept);
        } else {
            outbox.bytes -= recycle(&mut self.spare, kept);
        }
    }

    /// An answer in flight, by its number.
    pub fn in_flight(&self, client: u32, number: u64, responds: Responds) -> Option<Answer<'_>> {
        let outbox = self.of_clients.get(&client)?;
        Some(outbox.in_flight[outbox.place(number)?].answer(responds))
    }

    /// Ends the flight of an answer.
    pub fn acknowledged(&mut self, client: u32, number: u64) {
        let Some(outbox) = self.of_clients.get_mut(&client) else { return };
        let place = outbox.place(number);
        if let Some(kept) = place.and_then(|place| outbox.in_flight.remove(place)) {
            outbox.bytes -= recycle(&mut self.spare, kept);
        }
    }

    /// Gives up the answers of a client that are in flight.
    pub fn forget_in_flight(&mut self, client: u32) {
        if let Some(outbox) = self.of_clients.get_mut(&client) {
            let kept = outbox.in_flight.drain(..);
            outbox.bytes -= kept.map(|kept| recycle(&mut self.spare, kept)).sum::<usize>();
        }
    }

    /// Gives up the answers of a client that wait. Returns their number.
    pub fn forget_waiting(&mut self, client: u32) -> u64 {
        let Some(outbox) = self.of_clients.get_mut(&client) else { return 0 };
        let count = outbox.waiting.len() as u64;
        let kept = outbox.waiting.drain(..);
        outbox.bytes -= kept.map(|kept| recycle(&mut self.spare, kept)).sum::<usize>();
        count
    }
}

impl Outbox {
    /// Place of an answer in flight.
    fn place(&self, number: u64) -> Option<usize> {
        self.in_flight.binary_search_by_key(&number, |kept| kept.number).ok()
    }
}

/// Takes the buffer of an answer back. Returns the number of bytes in the buffer.
fn recycle(spare: &mut Vec<Vec<u8>>, kept: Kept) -> usize {
    let mut bytes = kept.bytes;
    let count = bytes.len();
    if spare.len() < SPARE_MAX && bytes.capacity() <= SPARE_BYTES_MAX {
        bytes.clear();
        spare.push(bytes);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONDS: Responds = Responds { qos: 1, bytes: 40 };

    fn push(outboxes: &mut Outboxes, client: u32, topic: &str) -> bool {
        let response = Response { topic, correlation: Some(b"c") };
        outboxes.push(client, &Answer { responds: RESPONDS, response, stamp: None }, 5)
    }

    #[test]
    fn an_answer_is_kept_until_it_is_acknowledged() {
        let mut outboxes = Outboxes::default();
        for topic in ["a", "b", "c"] {
            assert!(push(&mut outboxes, 7, topic));
        }
        let mut numbers = Vec::new();
        while let Some((_, token)) = outboxes.waiting(7, RESPONDS) {
            numbers.push(token.answer().unwrap());
            outboxes.take(7, true);
        }
        assert_eq!(numbers, [0, 1, 2]);
        outboxes.acknowledged(7, 1);
        let topic =
            |n| outboxes.in_flight(7, n, RESPONDS).map(|answer| answer.response.topic.to_owned());
        assert_eq!([topic(0), topic(1), topic(2)], [Some("a".into()), None, Some("c".into())]);
        assert!(outboxes.in_flight(8, 0, RESPONDS).is_none());
        outboxes.forget_in_flight(7);
        assert!(outboxes.in_flight(7, 0, RESPONDS).is_none());
        assert_eq!(outboxes.spare.len(), 3);
    }

    #[test]
    fn answers_that_wait_are_bounded() {
        let mut outboxes = Outboxes::default();
        (0..WAITING_MAX).for_each(|_| assert!(push(&mut outboxes, 1, "t")));
        assert!(!push(&mut outboxes, 1, "t"));
        assert!(push(&mut outboxes, 2, "t"), "each client has room of its own");
        assert_eq!(outboxes.forget_waiting(1), WAITING_MAX as u64);
        assert!(push(&mut outboxes, 1, "t"));
        assert_eq!(outboxes.spare.len(), SPARE_MAX - 1);
    }

    #[test]
    fn bytes_of_the_peer_are_bounded_whether_answers_wait_or_are_in_flight() {
        let mut outboxes = Outboxes::default();
        let topic = "t".repeat(65_000);
        let fill = |outboxes: &mut Outboxes| {
            let mut pushed = 0;
            while push(outboxes, 1, &topic) {
                outboxes.take(1, pushed % 2 == 0);
                pushed += 1;
            }
            pushed
        };
        let most = BYTES_MAX / (topic.len() + 1);
        // Every second answer is not sent, and so not kept.
        assert_eq!(fill(&mut outboxes), 2 * most - 1);
        assert!(push(&mut outboxes, 2, &topic), "each client has room of its own");
        outboxes.acknowledged(1, 0);
        assert_eq!(fill(&mut outboxes), 1);
        outboxes.forget_in_flight(1);
        assert_eq!(fill(&mut outboxes), 2 * most - 1);
        assert_eq!(outboxes.spare.len(), 0, "no large buffer is kept");
    }
}
