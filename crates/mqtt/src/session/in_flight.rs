//! Values by packet id, in the order of insertion.
//!
//! The client assigns packet ids in rising order, and servers acknowledge nearly in that order. So
//! the store is a queue with the front found at once. Binary search on the distance of an id from
//! the front's id finds other values. A value removed from the middle leaves a gap. The gap
//! disappears when the front reaches the gap or when `tidy` runs.
//!
//! `push`, `remove_if` and `contains` cost O(1) for ids in order and O(log n) for other ids,
//! amortised. The queue is not ascending if ids wrap around while an old id is in flight. The same
//! follows if a server numbers its messages in no order. A search then costs O(n), until `tidy`
//! finds the queue ascending again.

use std::collections::VecDeque;

use crate::codec::PacketId;

/// Gaps that are always tolerated, so that short queues are not tidied after every removal.
const GAPS_MIN: usize = 32;

#[derive(Debug)]
pub(super) struct InFlight<V> {
    /// Slots in the order of insertion; the front is never a gap.
    slots: VecDeque<Slot<V>>,
    /// Number of slots that are not gaps.
    len: usize,
    /// True if the distance of the id from the front's id rises strictly from slot to slot.
    ascending: bool,
    /// Values removed since the last run of `tidy`.
    taken: usize,
}

#[derive(Debug)]
struct Slot<V> {
    packet_id: PacketId,
    /// `None` is a gap.
    value: Option<V>,
}

impl<V> InFlight<V> {
    pub(super) const fn new() -> Self {
        Self { slots: VecDeque::new(), len: 0, ascending: true, taken: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the store never contained a value, and so uses no heap memory.
    pub(super) fn is_unused(&self) -> bool {
        self.slots.capacity() == 0
    }

    /// Appends a value; the store must not contain `packet_id`.
    #[inline]
    pub(super) fn push(&mut self, packet_id: PacketId, value: V) {
        debug_assert!(!self.contains(packet_id), "[MQTT-2.3.1-2]");
        if let (Some(front), Some(back)) = (self.slots.front(), self.slots.back()) {
            let from_front = |id: PacketId| id.wrapping_sub(front.packet_id);
            self.ascending &= from_front(packet_id) > from_front(back.packet_id);
        }
        self.slots.push_back(Slot { packet_id, value: Some(value) });
        self.len += 1;
    }

    #[inline]
    pub(super) fn contains(&self, packet_id: PacketId) -> bool {
        self.find(packet_id).is_some()
    }

    #[inline]
    pub(super) fn find_mut(&mut self, packet_id: PacketId) -> Option<&mut V> {
        let index = self.find(packet_id)?;
        self.slots[index].value.as_mut()
    }

    pub(super) fn remove(&mut self, packet_id: PacketId) -> Option<V> {
        self.remove_if(packet_id, |_| true)
    }

    /// Removes and returns the value of `packet_id` if the value satisfies `condition`.
    #[inline]
    pub(super) fn remove_if(
        &mut self,
        packet_id: PacketId,
        condition: impl FnOnce(&V) -> bool,
    ) -> Option<V> {
        let index = self.find(packet_id)?;
        let value = self.slots[index].value.take_if(|value| condition(value))?;
        self.len -= 1;
        self.taken += 1;
        if index == 0 {
            self.drop_front_gaps();
        }
        if self.taken > self.slots.len() / 2 + GAPS_MIN {
            self.tidy();
        }
        Some(value)
    }

    /// Removes and returns the oldest value.
    pub(super) fn pop_front(&mut self) -> Option<(PacketId, V)> {
        let packet_id = self.slots.front()?.packet_id;
        self.remove(packet_id).map(|value| (packet_id, value))
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.len = 0;
        self.ascending = true;
        self.taken = 0;
    }

    #[inline]
    fn find(&self, packet_id: PacketId) -> Option<usize> {
        let (front, back) = (self.slots.front()?, self.slots.back()?);
        if front.packet_id == packet_id {
            return Some(0);
        }
        if !self.ascending {
            return self
                .slots
                .iter()
                .position(|slot| slot.packet_id == packet_id && slot.value.is_some());
        }
        let from_front = |id: PacketId| id.wrapping_sub(front.packet_id);
        let distance = from_front(packet_id);
        if distance > from_front(back.packet_id) {
            return None;
        }
        let found =
            self.slots.binary_search_by_key(&distance, |slot| from_front(slot.packet_id)).ok()?;
        self.slots[found].value.is_some().then_some(found)
    }

    fn drop_front_gaps(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.value.is_none()) {
            self.slots.pop_front();
        }
        if self.slots.is_empty() {
            self.clear();
        }
    }

    /// Removes the gaps in O(n), at most once in n / 2 removals.
    fn tidy(&mut self) {
        self.taken = 0;
        if self.len < self.slots.len() {
            self.slots.retain(|slot| slot.value.is_some());
        }
        if !self.ascending {
            let front = self.slots.front().map_or(0, |slot| slot.packet_id);
            let distances = self.slots.iter().map(|slot| slot.packet_id.wrapping_sub(front));
            self.ascending = distances.is_sorted_by(|a, b| a < b);
        }
    }
}

#[cfg(test)]
mod tests;
