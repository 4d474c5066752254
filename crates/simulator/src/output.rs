//! Items on a simulated connection and their way, and actions of its other end.

use std::collections::VecDeque;

/// An item that arrives at an end.
#[derive(Debug)]
pub enum Arrival {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The end of the stream.
    End,
}

/// An action of the broker on a connection.
#[derive(Debug)]
pub enum Output {
    /// Writes bytes.
    Bytes(Vec<u8>),
    /// Closes it behind what it has written.
    End,
    /// Resets it.
    Reset,
}

/// One direction: what is on its way, and when it arrives.
#[derive(Default)]
pub struct Pipe {
    /// Items, each with its arrival in nanoseconds.
    pub items: VecDeque<(u64, Arrival)>,
    /// Bytes of all items.
    pub bytes: usize,
    /// Most bytes that a writer puts on the way.
    pub room_max: usize,
    /// An event is scheduled for its front.
    pub is_scheduled: bool,
}

impl Pipe {
    /// Bytes that still have room.
    pub fn room(&self) -> usize {
        self.room_max - self.bytes
    }

    /// Puts an item on the way.
    pub fn push(&mut self, arrives_ns: u64, arrival: Arrival) {
        if let Arrival::Bytes(bytes) = &arrival {
            self.bytes += bytes.len();
        }
        self.items.push_back((arrives_ns, arrival));
    }

    /// Arrival of the first item, unless an event is scheduled for it already.
    pub fn next_ns(&mut self) -> Option<u64> {
        let at_ns = self.items.front().filter(|_| !self.is_scheduled)?.0;
        self.is_scheduled = true;
        Some(at_ns)
    }

    /// The front, of bytes at most so many; `None`: there is none, or no room for it.
    pub fn pop(&mut self, most: usize) -> Option<Arrival> {
        if let Arrival::Bytes(bytes) = &mut self.items.front_mut()?.1
            && bytes.len() > most
        {
            let rest = bytes.split_off(most);
            let front = std::mem::replace(bytes, rest);
            self.bytes -= front.len();
            return Some(Arrival::Bytes(front)).filter(|_| most > 0);
        }
        let (_, arrival) = self.items.pop_front()?;
        if let Arrival::Bytes(bytes) = &arrival {
            self.bytes -= bytes.len();
        }
        Some(arrival)
    }
}
