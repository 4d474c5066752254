//! Bytes that one direction of a connection has read and not yet written: bytes in order, each with
//! the instant from which the byte may leave.

use std::collections::VecDeque;

/// Largest number of held bytes, except for the last read; a full queue stops the reading. A
/// delayed direction carries at most this many bytes in its delay.
pub const HELD_BYTES_MAX: usize = 512 << 10;
/// Bytes that become due within this time leave together, so that the chunks are bounded too.
const TICK_NS: u64 = 100_000;
/// Memory that an empty queue keeps, in bytes.
const KEPT_BYTES: usize = 64 << 10;

/// Bytes on their way.
#[derive(Debug, Default)]
pub struct Queue {
    bytes: VecDeque<u8>,
    chunks: VecDeque<Chunk>,
    /// Instant from which the end of the stream may follow, in nanoseconds.
    end_ns: Option<u64>,
}

#[derive(Debug)]
struct Chunk {
    due_ns: u64,
    len: usize,
}

impl Queue {
    /// Adds bytes that may leave at `due_ns`, but never before earlier bytes.
    pub fn push(&mut self, due_ns: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let due_ns = self.after_the_last(due_ns);
        match self.chunks.back_mut() {
            Some(last) if last.due_ns == due_ns => last.len += bytes.len(),
            _ => self.chunks.push_back(Chunk { due_ns, len: bytes.len() }),
        }
        self.bytes.extend(bytes);
    }

    /// Adds the end of the stream, the last entry.
    pub fn end(&mut self, due_ns: u64) {
        self.end_ns = Some(self.after_the_last(due_ns));
    }

    /// Returns the contiguous bytes that may leave now; empty if there are none.
    pub fn due(&self, now_ns: u64) -> &[u8] {
        let due = self.chunks.iter().take_while(|chunk| chunk.due_ns <= now_ns);
        let len = due.map(|chunk| chunk.len).sum();
        let (front, _) = self.bytes.as_slices();
        &front[..front.len().min(len)]
    }

    /// Removes bytes that have left.
    pub fn consume(&mut self, count: usize) {
        self.bytes.drain(..count);
        let mut rest = count;
        while let Some(chunk) = self.chunks.front_mut() {
            if chunk.len > rest {
                chunk.len -= rest;
                return;
            }
            rest -= chunk.len;
            self.chunks.pop_front();
        }
        self.bytes.shrink_to(KEPT_BYTES);
        self.chunks.shrink_to(KEPT_BYTES / size_of::<Chunk>());
    }

    /// Returns `true` if no bytes are held.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns `true` if the source may be read. Without a delay a waiting byte stops the reading,
    /// so that the buffers of the kernel hold the rest.
    pub fn has_room(&self, is_delayed: bool) -> bool {
        self.bytes.is_empty() || (is_delayed && self.bytes.len() < HELD_BYTES_MAX)
    }

    /// Returns `true` once the end of the stream has been added.
    pub const fn is_ended(&self) -> bool {
        self.end_ns.is_some()
    }

    /// Returns `true` once all bytes have left and the end of the stream may follow.
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.bytes.is_empty() && self.end_ns.is_some_and(|end_ns| end_ns <= now_ns)
    }

    /// Returns the instant of the next byte or of the end, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.chunks.front().map(|chunk| chunk.due_ns).or(self.end_ns)
    }

    fn after_the_last(&self, due_ns: u64) -> u64 {
        let last_ns = self.chunks.back().map_or(0, |chunk| chunk.due_ns);
        due_ns.next_multiple_of(TICK_NS).max(last_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::{HELD_BYTES_MAX, Queue, TICK_NS};

    const MS: u64 = 1_000_000;

    #[test]
    fn bytes_leave_when_they_are_due_and_in_order() {
        let mut queue = Queue::default();
        queue.push(5 * MS, b"one");
        queue.push(7 * MS, b"two");
        assert_eq!(queue.due(5 * MS - 1), b"");
        assert_eq!(queue.due(5 * MS), b"one");
        assert_eq!(queue.due(7 * MS), b"onetwo");
        queue.consume(4);
        assert_eq!((queue.next_ns(), queue.due(7 * MS)), (Some(7 * MS), &b"wo"[..]));
        queue.consume(2);
        assert_eq!((queue.next_ns(), queue.is_empty()), (None, true));
    }

    #[test]
    fn a_shorter_delay_lets_nothing_overtake() {
        let mut queue = Queue::default();
        queue.push(9 * MS, b"slow");
        queue.push(0, b"fast");
        queue.end(0);
        assert_eq!(queue.due(9 * MS - 1), b"");
        assert!(!queue.is_over(9 * MS - 1));
        assert_eq!(queue.due(9 * MS), b"slowfast");
        queue.consume(8);
        assert!(queue.is_over(9 * MS));
    }

    #[test]
    fn the_end_comes_after_all_bytes_and_is_delayed_too() {
        let mut queue = Queue::default();
        queue.push(MS, b"last");
        queue.end(2 * MS);
        assert!(queue.is_ended());
        assert!(!queue.is_over(2 * MS), "bytes are still there");
        queue.consume(4);
        assert_eq!(queue.next_ns(), Some(2 * MS));
        assert!(!queue.is_over(2 * MS - 1));
        assert!(queue.is_over(2 * MS));
    }

    #[test]
    fn what_is_held_is_bounded_in_bytes_and_in_chunks() {
        let mut queue = Queue::default();
        assert!(queue.has_room(false) && queue.has_room(true));
        for byte in 0..=255 {
            queue.push(u64::from(byte), &[byte]);
        }
        assert_eq!(queue.chunks.len(), 2, "due at 0, and within one tick");
        assert_eq!(queue.next_ns(), Some(0));
        assert!(!queue.has_room(false) && queue.has_room(true));
        queue.push(TICK_NS, &vec![0; HELD_BYTES_MAX]);
        assert!(!queue.has_room(true));
        queue.consume(256 + HELD_BYTES_MAX);
        assert!(queue.has_room(true));
        assert!(queue.bytes.capacity() < HELD_BYTES_MAX);
    }
}
