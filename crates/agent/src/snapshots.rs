//! Snapshots on their way to the controller. They wait in a bounded place. While it is full, the
//! loop takes no further one, and its counters keep what the next one will have.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use plan::{SECOND_NS, Snapshot};

/// Snapshots that wait before the loop keeps its counters. Those of a stage's end come on top.
const WAITING_MAX: usize = 8;
/// Age of an unread snapshot, in nanoseconds, from which the controller is silent.
const SILENT_NS: u64 = 60 * SECOND_NS;

/// The end of the loop.
pub struct Snapshots(Arc<SnapshotQueue>);

/// The end of the writer: the snapshots in their order, until the loop ends.
pub struct Unread(Arc<SnapshotQueue>);

#[derive(Default)]
struct SnapshotQueue {
    state: Mutex<QueuedSnapshots>,
    has_changed: Condvar,
}

#[derive(Default)]
struct QueuedSnapshots {
    waiting: VecDeque<Snapshot>,
    /// End of the interval of the snapshot that is being written, in nanoseconds.
    written_ns: Option<u64>,
    has_ended: bool,
}

impl Snapshots {
    /// An empty place, with its other end.
    #[must_use]
    pub fn new() -> (Self, Unread) {
        let place = Arc::new(SnapshotQueue::default());
        (Self(Arc::clone(&place)), Unread(place))
    }

    /// Adds a snapshot after those that wait.
    pub fn send(&self, snapshot: Snapshot) {
        self.0.state().waiting.push_back(snapshot);
        self.0.has_changed.notify_one();
    }

    /// Returns `true` if a snapshot of another interval may be sent.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.0.state().waiting.len() < WAITING_MAX
    }

    /// Returns `true` if the controller has read nothing for a minute although there was something
    /// to read.
    #[must_use]
    pub fn is_silent(&self, now_ns: u64) -> bool {
        let state = self.0.state();
        let oldest_ns = state.written_ns.or_else(|| state.waiting.front().map(|s| s.to_ns));
        oldest_ns.is_some_and(|oldest_ns| now_ns.saturating_sub(oldest_ns) >= SILENT_NS)
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        self.0.state().has_ended = true;
        self.0.has_changed.notify_one();
    }
}

impl Unread {
    /// The next snapshot, if one waits. The one before has been written.
    pub fn try_next(&mut self) -> Option<Snapshot> {
        self.0.state().take()
    }
}

impl Iterator for Unread {
    type Item = Snapshot;

    /// Waits for the next snapshot. The one before has been written.
    fn next(&mut self) -> Option<Snapshot> {
        let mut state = self.0.state();
        state.written_ns = None;
        let is_idle = |state: &mut QueuedSnapshots| state.waiting.is_empty() && !state.has_ended;
        let waited = self.0.has_changed.wait_while(state, is_idle);
        waited.unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl SnapshotQueue {
    fn state(&self) -> MutexGuard<'_, QueuedSnapshots> {
        // Each change is one step, so that a panic leaves no half of one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueuedSnapshots {
    fn take(&mut self) -> Option<Snapshot> {
        let snapshot = self.waiting.pop_front();
        self.written_ns = snapshot.as_ref().map(|snapshot| snapshot.to_ns);
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::{SnapshotHead, Tally};

    fn snapshot(now_ns: u64) -> Snapshot {
        let moment =
            SnapshotHead { agent: 0, stage: None, settled: false, now_ns, ledger_pairs: 0 };
        Tally::new(1, 1, 0).snapshot(&moment)
    }

    #[test]
    fn the_place_has_room_again_once_a_snapshot_is_taken() {
        let (snapshots, mut unread) = Snapshots::new();
        for n in 0..WAITING_MAX as u64 {
            assert!(snapshots.has_room());
            snapshots.send(snapshot(n));
        }
        assert!(!snapshots.has_room());
        assert_eq!(unread.next().map(|s| s.to_ns), Some(0));
        assert!(snapshots.has_room());
        drop(snapshots);
        assert_eq!(unread.map(|s| s.to_ns).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_controller_is_silent_a_minute_after_the_oldest_snapshot_that_it_has_not_read() {
        let (snapshots, mut unread) = Snapshots::new();
        assert!(!snapshots.is_silent(u64::MAX), "nothing waits");
        snapshots.send(snapshot(5));
        snapshots.send(snapshot(9));
        assert!(!snapshots.is_silent(5 + SILENT_NS - 1));
        assert!(snapshots.is_silent(5 + SILENT_NS));
        unread.next();
        assert!(snapshots.is_silent(5 + SILENT_NS), "it is still being written");
        unread.next();
        assert!(!snapshots.is_silent(5 + SILENT_NS));
        assert!(snapshots.is_silent(9 + SILENT_NS));
        assert!(unread.try_next().is_none());
        assert!(!snapshots.is_silent(u64::MAX), "all is read");
    }
}
