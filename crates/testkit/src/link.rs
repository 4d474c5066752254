//! One direction of a simulated connection: bytes in order, late, in pieces of any size, and cut
//! off anywhere.

use std::collections::VecDeque;

use crate::Rng;

/// A byte pipe with a fixed latency.
#[derive(Debug)]
pub struct Pipe {
    latency_ns: u64,
    /// When each byte arrives, in order.
    bytes: VecDeque<(u64, u8)>,
}

impl Pipe {
    /// An empty pipe.
    #[must_use]
    pub const fn new(latency_ns: u64) -> Self {
        Self { latency_ns, bytes: VecDeque::new() }
    }

    /// Whether nothing is on its way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Puts bytes on their way at `now_ns`.
    pub fn send(&mut self, now_ns: u64, bytes: &[u8]) {
        let due_ns = now_ns + self.latency_ns;
        self.bytes.extend(bytes.iter().map(|&byte| (due_ns, byte)));
    }

    /// Some of the bytes that are due at `now_ns`, as a socket read would give them: at least one,
    /// if there is one.
    pub fn receive(&mut self, now_ns: u64, rng: &mut Rng) -> Vec<u8> {
        let due = self.bytes.iter().take_while(|&&(due_ns, _)| due_ns <= now_ns).count();
        if due == 0 {
            return Vec::new();
        }
        let len = if rng.chance(50) { due } else { 1 + rng.below(due) };
        self.bytes.drain(..len).map(|(_, byte)| byte).collect()
    }

    /// The connection breaks: some of what is on its way still arrives, the rest never.
    pub fn cut(&mut self, rng: &mut Rng) -> Vec<u8> {
        let len = rng.below(self.bytes.len() + 1);
        let arriving = self.bytes.drain(..len).map(|(_, byte)| byte).collect();
        self.bytes.clear();
        arriving
    }
}
