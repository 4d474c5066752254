//! Clients that play recorded clients again: client `c` plays recorded client `c % recorded`. The
//! clients beyond the recorded ones are clones, each later by a time of its own.

use std::sync::{Arc, OnceLock};

use crate::schedule::random::Random;

/// Separates these draws from draws of other purposes.
const PURPOSE: u64 = 7 << 40;

/// The clients of a population that play recorded ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clones {
    /// Recorded client that the first client plays.
    offset: u32,
    /// Number of recorded clients, at least 1.
    recorded: u32,
    random: Random,
    shift_ns: u64,
}

impl Clones {
    /// Clients of a population whose first client has number `first`. The recording begins with the
    /// client `recorded_first`, and a clone is later by up to `shift_ns` nanoseconds.
    pub(crate) fn new(
        (recorded_first, recorded): (u64, u32),
        first: u64,
        seed: u64,
        shift_ns: u64,
    ) -> Self {
        Self {
            offset: first.saturating_sub(recorded_first).try_into().unwrap_or(u32::MAX),
            recorded: recorded.max(1),
            random: Random::new(seed, PURPOSE),
            shift_ns,
        }
    }

    /// Number of recorded clients, at least 1.
    pub(crate) const fn recorded(&self) -> u32 {
        self.recorded
    }

    /// Place of a client (its index over all agents) among the clients of all shares of its
    /// population.
    const fn place(&self, client: u32) -> u64 {
        client as u64 + self.offset as u64
    }

    /// The recorded client that a client plays.
    pub(crate) const fn own(&self, client: u32) -> usize {
        (self.place(client) % self.recorded as u64) as usize
    }

    /// Time by which a client is later than the recorded client that it plays, in nanoseconds.
    pub(crate) const fn shift_ns(&self, client: u32) -> u64 {
        let place = self.place(client);
        let is_recorded = place < self.recorded as u64;
        if is_recorded { 0 } else { self.random.of(place).below(self.shift_ns) }
    }

    /// For each recorded client, `true` if one of these clients plays it.
    pub(crate) fn kept(&self, clients: impl Iterator<Item = u32>) -> Vec<bool> {
        let mut kept = vec![false; self.recorded as usize];
        clients.for_each(|client| kept[self.own(client)] = true);
        kept
    }
}

/// Content of a file that the plan names; empty until the agent has read the file.
#[derive(Debug)]
pub struct ReadOnce<T>(OnceLock<Arc<T>>);

impl<T> Clone for ReadOnce<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for ReadOnce<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> PartialEq for ReadOnce<T> {
    /// The name of the file says which content it is.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for ReadOnce<T> {}

impl<T> ReadOnce<T> {
    /// The content; `None` until the file is read.
    #[must_use]
    #[inline]
    pub fn get(&self) -> Option<&Arc<T>> {
        self.0.get()
    }

    /// Sets the content, once.
    pub fn set(&self, content: &Arc<T>) {
        self.0.get_or_init(|| Arc::clone(content));
    }
}
