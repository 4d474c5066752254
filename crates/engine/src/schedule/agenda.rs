//! Agenda: the next instant of each client of some populations. A new instant of a client replaces
//! the one before, without a search in the heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The next instants of all clients of this agent.
#[derive(Default)]
pub struct Agenda {
    /// Instant of each client of each population, in nanoseconds; 0: none.
    own_ns: Vec<Box<[u64]>>,
    /// Instants with population and local index. An instant that is not the client's own is void.
    heap: BinaryHeap<Reverse<(u64, u16, u32)>>,
}

/// The instant of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Index of the population.
    pub population: usize,
    /// Local index of the client in the population.
    pub local: u32,
    /// Instant, in nanoseconds.
    pub at_ns: u64,
}

impl Agenda {
    /// An agenda without instants, for these numbers of clients of the populations.
    pub fn new(clients: impl Iterator<Item = usize>) -> Self {
        let own_ns = clients.map(|clients| vec![0; clients].into()).collect();
        Self { own_ns, heap: BinaryHeap::new() }
    }

    /// Sets the instant of a client.
    pub fn set(&mut self, population: usize, local: u32, at_ns: u64) {
        self.own_ns[population][local as usize] = at_ns;
        self.heap.push(Reverse((at_ns, population as u16, local)));
    }

    /// Cancels the instant of a client.
    pub fn cancel(&mut self, population: usize, local: u32) {
        self.own_ns[population][local as usize] = 0;
    }

    /// Cancels the instants of all clients of a population.
    pub fn cancel_all(&mut self, population: usize) {
        self.own_ns[population].fill(0);
    }

    /// Earliest instant, which may be void, in nanoseconds; `None` if there is none.
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// Takes the next instant up to now.
    #[inline]
    pub fn next(&mut self, now_ns: u64) -> Option<Due> {
        while self.next_ns().is_some_and(|next_ns| next_ns <= now_ns) {
            let Reverse((at_ns, population, local)) = self.heap.pop()?;
            let population = usize::from(population);
            let own_ns = &mut self.own_ns[population][local as usize];
            if *own_ns == at_ns {
                *own_ns = 0;
                return Some(Due { population, local, at_ns });
            }
        }
        None
    }
}
