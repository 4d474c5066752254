//! Attempts to connect by address, of targets that are names.

use std::net::IpAddr;

use plan::{AddressSnapshot, Reason};

/// Attempts by target and by place of the address among those of the target.
#[derive(Default)]
pub struct AddressCounts {
    /// Counts since the last snapshot; none for a target that is not counted.
    of_target: Vec<Vec<AddressSnapshot>>,
}

impl AddressCounts {
    /// Counts for the addresses of each target; a target without addresses is not counted.
    #[must_use]
    pub fn new(targets: impl Iterator<Item = Vec<IpAddr>>) -> Self {
        let empty = |target, address: IpAddr| AddressSnapshot {
            target,
            address: address.to_string(),
            ..AddressSnapshot::default()
        };
        let counts = |(target, addresses): (usize, Vec<IpAddr>)| {
            addresses.into_iter().map(|address| empty(target, address)).collect()
        };
        Self { of_target: targets.enumerate().map(counts).collect() }
    }

    /// Counts an attempt to connect.
    pub fn attempted(&mut self, (target, place): (usize, usize)) {
        if let Some(counts) = self.counts(target, place) {
            counts.connect_attempts_total += 1;
        }
    }

    /// Counts a connection that the target accepted.
    pub fn accepted(&mut self, (target, place): (usize, usize)) {
        if let Some(counts) = self.counts(target, place) {
            counts.connected_total += 1;
        }
    }

    /// Counts a failed attempt.
    pub fn failed(&mut self, (target, place): (usize, usize), reason: Reason) {
        if let Some(counts) = self.counts(target, place) {
            counts.connect_failed_total += 1;
            *counts.outcomes.entry(reason).or_default() += 1;
        }
    }

    /// Moves the counts out of all addresses that have some.
    pub(super) fn take(&mut self) -> Vec<AddressSnapshot> {
        let all = self.of_target.iter_mut().flatten();
        let counted = all.filter(|counts| {
            counts.connect_attempts_total + counts.connected_total + counts.connect_failed_total > 0
        });
        let carried = |counts: &mut AddressSnapshot| {
            let address = counts.address.clone();
            let empty =
                AddressSnapshot { target: counts.target, address, ..AddressSnapshot::default() };
            std::mem::replace(counts, empty)
        };
        counted.map(carried).collect()
    }

    fn counts(&mut self, target: usize, place: usize) -> Option<&mut AddressSnapshot> {
        self.of_target.get_mut(target)?.get_mut(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_is_in_one_snapshot() {
        let addresses = vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        let mut counts = AddressCounts::new([Vec::new(), addresses].into_iter());
        assert!(counts.take().is_empty());
        counts.attempted((0, 0));
        counts.attempted((1, 1));
        counts.failed((1, 1), Reason::ConnectRefused);
        let taken = counts.take();
        let expected = AddressSnapshot {
            target: 1,
            address: "::1".into(),
            connect_attempts_total: 1,
            connected_total: 0,
            connect_failed_total: 1,
            outcomes: [(Reason::ConnectRefused, 1)].into(),
        };
        assert_eq!(taken, [expected]);
        assert!(counts.take().is_empty());
    }
}
