//! Compares the store with a plain list, and checks its cost in the cases that could be quadratic.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A plain list with the same meaning as the store.
#[derive(Default)]
struct Model(Vec<(PacketId, u32)>);

impl Model {
    fn remove(&mut self, packet_id: PacketId) -> Option<u32> {
        let index = self.0.iter().position(|&(id, _)| id == packet_id)?;
        Some(self.0.remove(index).1)
    }

    fn assert_same(&self, store: &InFlight<u32>) {
        assert_eq!(store.len(), self.0.len());
        let held = store.slots.iter().filter_map(|slot| Some((slot.packet_id, slot.value?)));
        assert!(held.eq(self.0.iter().copied()));
        if let Some(front) = store.slots.front() {
            assert!(front.value.is_some(), "the front is never a gap");
        }
    }
}

proptest! {
    #[test]
    fn the_store_behaves_like_a_plain_list(
        steps in vec((any::<bool>(), 1..40_u16, any::<u32>()), 0..400),
    ) {
        let (mut store, mut model) = (InFlight::new(), Model::default());
        for (push, packet_id, value) in steps {
            let held = model.0.iter().any(|&(id, _)| id == packet_id);
            prop_assert_eq!(store.contains(packet_id), held);
            if push && !store.contains(packet_id) {
                store.push(packet_id, value);
                model.0.push((packet_id, value));
            } else {
                prop_assert_eq!(store.remove(packet_id), model.remove(packet_id));
            }
            model.assert_same(&store);
        }
    }

    #[test]
    fn the_store_behaves_like_a_plain_list_with_rising_ids(
        start in 1..=u16::MAX,
        steps in vec((0..3_u8, any::<prop::sample::Index>()), 0..600),
    ) {
        let (mut store, mut model) = (InFlight::new(), Model::default());
        let mut next = start;
        for (kind, index) in steps {
            if kind > 0 || model.0.is_empty() {
                store.push(next, u32::from(next));
                model.0.push((next, u32::from(next)));
                next = next.checked_add(1).unwrap_or(1);
                prop_assert!(store.ascending);
            } else {
                let (packet_id, _) = model.0[index.index(model.0.len())];
                prop_assert_eq!(store.remove(packet_id), model.remove(packet_id));
            }
            model.assert_same(&store);
        }
    }
}

#[test]
fn an_old_id_neither_accumulates_gaps_nor_keeps_the_queue_unsorted() {
    let mut store = InFlight::new();
    store.push(7, 0);
    let mut next = 8_u16;
    for _ in 0..200_000 {
        if next != 7 {
            store.push(next, 1);
            assert_eq!(store.remove(next), Some(1));
        }
        next = next.checked_add(1).unwrap_or(1);
        assert!(store.slots.len() < 3 * GAPS_MIN, "{} gaps", store.slots.len());
    }
    assert_eq!(store.remove(7), Some(0));
    assert!(store.slots.is_empty() && store.ascending);
}

#[test]
fn an_unsorted_queue_becomes_ascending_again_without_running_empty() {
    let mut store = InFlight::new();
    for id in [10, 20, 15] {
        store.push(id, ());
    }
    assert!(!store.ascending);
    for id in 21..300 {
        store.push(id, ());
        store.remove(if id == 21 {
            10
        } else if id == 22 {
            20
        } else if id == 23 {
            15
        } else {
            id - 3
        });
    }
    assert!(store.len() >= 3 && store.ascending);
}
