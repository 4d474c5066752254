//! Parts of latencies: for each range of latencies, the sums of what happened to these messages
//! before they were sent. The rest of a latency is after the send. Delays add up.

use serde::{Deserialize, Serialize};

use crate::record::histogram::Histogram;
use crate::record::sent_at::{SentAt, WaitCause};

/// Buckets of a histogram in one cell, as a power of two: a cell is 6 to 12 % wide.
const CELL_BITS: u32 = 4;
/// Causes of waits.
const WAITS: usize = 3;
/// Lateness of the agent, then the waits.
const PARTS: usize = 1 + WAITS;

/// Time that messages waited before they were sent, by their latency. Each cell holds the buckets
/// of a histogram from 16 times its index on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<StoredCell>", into = "Vec<StoredCell>")]
pub struct Delays {
    cells: Vec<[u64; PARTS]>,
}

/// Waits of messages, in nanoseconds, by cause.
pub type Waits = [u64; WAITS];

/// JSON form of a cell: its index, then sums in nanoseconds: lateness of the agent; waits for the
/// window, for the socket and for the connection. Cells of zeros are left out.
type StoredCell = (u32, u64, u64, u64, u64);

impl Delays {
    /// Adds a message with this latency that was scheduled at `intended_ns`.
    #[inline]
    pub fn record(&mut self, latency_ns: i64, intended_ns: u64, sent: SentAt) {
        let (Ok(latency_ns), Ok(lateness_ns)) =
            (u64::try_from(latency_ns), u64::try_from(sent.lateness_ns(intended_ns)))
        else {
            return;
        };
        let cell = self.cell(latency_ns);
        let (wait, waited_ns) = sent.waited(intended_ns).unwrap_or((WaitCause::Window, 0));
        add(&mut cell[0], lateness_ns - waited_ns);
        add(&mut cell[wait as usize], waited_ns);
    }

    /// Adds messages with about this latency: their lateness, which contains their waits.
    pub(crate) fn add_cell(&mut self, latency_ns: u64, lateness_ns: u64, waits: &Waits) {
        let [agent_ns, sums_ns @ ..] = self.cell(latency_ns);
        let own_ns = waits.iter().fold(lateness_ns, |rest_ns, ns| rest_ns.saturating_sub(*ns));
        add(agent_ns, own_ns);
        sums_ns.iter_mut().zip(waits).for_each(|(sum_ns, &wait_ns)| add(sum_ns, wait_ns));
    }

    /// The cell of a latency.
    #[inline]
    fn cell(&mut self, latency_ns: u64) -> &mut [u64; PARTS] {
        let index = Histogram::index(latency_ns) >> CELL_BITS;
        if index >= self.cells.len() {
            self.cells.resize(index + 1, [0; PARTS]);
        }
        &mut self.cells[index]
    }

    /// Adds another delays.
    pub fn add(&mut self, other: &Self) {
        if other.cells.len() > self.cells.len() {
            self.cells.resize(other.cells.len(), [0; PARTS]);
        }
        for (mine, theirs) in self.cells.iter_mut().zip(&other.cells) {
            mine.iter_mut().zip(theirs).for_each(|(mine, &theirs)| add(mine, theirs));
        }
    }
}

/// Adds the wait of a message.
#[inline]
pub(crate) const fn add_wait(waits: &mut Waits, intended_ns: u64, sent: SentAt) {
    if let Some((wait, waited_ns)) = sent.waited(intended_ns) {
        add(&mut waits[wait as usize - 1], waited_ns);
    }
}

/// Adds a time to a sum. The times of stamps that a peer has made up may exceed 64 bits together.
#[inline]
const fn add(sum_ns: &mut u64, ns: u64) {
    *sum_ns = sum_ns.saturating_add(ns);
}

impl From<Vec<StoredCell>> for Delays {
    fn from(stored: Vec<StoredCell>) -> Self {
        let mut delays = Self::default();
        let last = (Histogram::index(u64::MAX) >> CELL_BITS) as u32;
        for (index, agent_ns, window_ns, socket_ns, connection_ns) in stored {
            let index = index.min(last) as usize;
            if index >= delays.cells.len() {
                delays.cells.resize(index + 1, [0; PARTS]);
            }
            let sums = [agent_ns, window_ns, socket_ns, connection_ns];
            delays.cells[index].iter_mut().zip(sums).for_each(|(mine, sum)| add(mine, sum));
        }
        delays
    }
}

impl From<Delays> for Vec<StoredCell> {
    fn from(delays: Delays) -> Self {
        let filled = delays.cells.iter().enumerate().filter(|(_, cell)| **cell != [0; PARTS]);
        filled.map(|(index, &[a, b, c, d])| (index as u32, a, b, c, d)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_summed_by_cause_for_each_range_of_latencies() {
        let mut delays = Delays::default();
        // Sent on time, late by its agent, after a wait of three quarters, and by a wrong clock.
        delays.record(10_000, 5_000, SentAt::plain(5_000));
        delays.record(10_010, 5_000, SentAt::plain(5_300));
        delays.record(10_020, 5_000, SentAt::after(WaitCause::Socket, 9_000, 5_000, 8_000));
        delays.record(1 << 60, 5_000, SentAt::after(WaitCause::Window, 9_000, 5_000, 9_000));
        delays.record(-5, 5_000, SentAt::plain(5_300));
        delays.record(10_000, 5_000, SentAt::plain(4_000));
        let json = serde_json::to_string(&delays).unwrap();
        assert_eq!(json, "[[57,1300,0,3000,0],[303,0,4000,0,0]]");
        assert_eq!(serde_json::from_str::<Delays>(&json).unwrap(), delays);
        let mut sum = delays.clone();
        sum.add(&delays);
        let json = serde_json::to_string(&sum).unwrap();
        assert_eq!(json, "[[57,2600,0,6000,0],[303,0,8000,0,0]]");
    }
}
