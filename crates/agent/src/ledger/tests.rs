//! The ledger, against sets of places and numbers of copies.

use super::Delivery::{Duplicate, First, Reordered, Stale};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const STREAM: StreamId = StreamId { publication: 1, variant: 2, client: 3 };
const PLACES: u32 = INCARNATION_PLACES;

fn notes(sequences: &[u32]) -> Vec<Delivery> {
    let mut ledger = Ledger::default();
    sequences.iter().map(|&s| ledger.note(9, STREAM, s)).collect()
}

#[test]
fn each_kind_of_delivery_is_distinguished() {
    let next = First { passed_over: 0 };
    let (filled, early) = (Reordered { filled: true }, Reordered { filled: false });
    assert_eq!(notes(&[0, 1, 2]), [next, next, next]);
    assert_eq!(notes(&[0, 0, 1, 0]), [next, Duplicate, next, Duplicate]);
    assert_eq!(notes(&[0, 3, 1, 1]), [next, First { passed_over: 2 }, filled, Duplicate]);
    assert_eq!(notes(&[500, 499]), [next, early]);
    assert_eq!(notes(&[500, 300, 300]), [next, Stale, Stale]);
    assert_eq!(notes(&[0, 127, 0]), [next, First { passed_over: 126 }, Duplicate]);
    assert_eq!(notes(&[0, 5000, 4999]), [next, First { passed_over: 4999 }, filled]);
}

#[test]
fn late_deliveries_behind_the_window_are_distinguished_from_duplicates() {
    let (next, filled) = (First { passed_over: 0 }, Reordered { filled: true });
    assert_eq!(
        notes(&[0, 128, 0, 129, 1, 1]),
        [next, First { passed_over: 127 }, Duplicate, next, filled, Duplicate]
    );
    assert_eq!(
        notes(&[7, 9, 5000, 8, 4000, 8, 4000, 7]),
        [
            next,
            First { passed_over: 1 },
            First { passed_over: 4990 },
            filled,
            filled,
            Duplicate,
            Duplicate,
            Duplicate
        ]
    );
}

#[test]
fn members_of_a_group_may_be_far_behind_each_other() {
    let mut ledger = Ledger::default();
    let notes = [0, 300, 1, 301, 1, 2, 0, 300].map(|s| ledger.note_group(9, STREAM, s));
    let (next, filled) = (First { passed_over: 0 }, Reordered { filled: true });
    let gap = First { passed_over: 299 };
    assert_eq!(notes, [next, gap, filled, next, Duplicate, filled, Duplicate, Duplicate]);
}

#[test]
fn a_later_incarnation_begins_its_streams_anew() {
    let (next, early) = (First { passed_over: 0 }, Reordered { filled: false });
    assert_eq!(
        notes(&[0, 1, 9, PLACES, PLACES + 1, PLACES + 1, PLACES + 4]),
        [next, next, First { passed_over: 7 }, next, next, Duplicate, First { passed_over: 2 }]
    );
    assert_eq!(
        notes(&[7, PLACES + 3, PLACES + 2, 8, PLACES + 4]),
        [next, next, early, Stale, next]
    );
    let last = (plan::INCARNATIONS - 1) * PLACES;
    assert_eq!(notes(&[0, last, 0, last + 1, PLACES]), [next, next, Stale, next, Stale]);
}

#[test]
fn a_stream_longer_than_its_places_begins_at_the_first_again() {
    let (next, filled) = (First { passed_over: 0 }, Reordered { filled: true });
    assert_eq!(notes(&[PLACES - 1, 0, PLACES - 1]), [next, next, Duplicate]);
    let second = PLACES;
    assert_eq!(
        notes(&[second + PLACES - 3, second + 200, second + PLACES - 2, second + 1]),
        [next, First { passed_over: 202 }, filled, filled]
    );
}

#[test]
fn receivers_and_streams_are_kept_apart() {
    let mut ledger = Ledger::default();
    let other = StreamId { variant: 3, ..STREAM };
    for (receiver, stream) in [(1, STREAM), (2, STREAM), (1, other)] {
        assert_eq!(ledger.note(receiver, stream, 7), First { passed_over: 0 });
    }
    assert_eq!(ledger.note(1, other, 7), Duplicate);
    assert_eq!(ledger.pairs(), 3);
}

/// Distance of the next delivery from the place after the last one: mostly 0, else negative or
/// positive.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![4 => Just(0i64), 1 => 1i64..300, 2 => -5i64..0, 2 => -700i64..0]
}

proptest! {
    /// The ledger against a set of the places that were delivered.
    #[test]
    fn deliveries_are_classed_as_by_a_set_of_places(
        incarnation in 0..plan::INCARNATIONS,
        first in prop_oneof![0i64..5000, i64::from(PLACES) - 500..i64::from(PLACES) + 5000],
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut ledger = Ledger::default();
        let (mut seen, mut next) = (std::collections::BTreeSet::new(), first);
        let (mut passed, mut filled) = (0, 0);
        for step in std::iter::once(0).chain(steps) {
            let place = next + step;
            let sequence = incarnation * PLACES + place.rem_euclid(PLACES.into()) as u32;
            let expected = if place >= next {
                let passed_over = (place - next) as u32;
                next = place + 1;
                First { passed_over }
            } else if seen.contains(&place) {
                Duplicate
            } else if place >= first {
                Reordered { filled: true }
            } else if place >= next - i64::from(WINDOW) {
                Reordered { filled: false }
            } else {
                Stale
            };
            // Those before the first delivery are followed only while the window holds them.
            let forgotten = place < first && place < next - i64::from(WINDOW);
            let expected = if forgotten { Stale } else { expected };
            if expected != Stale {
                seen.insert(place);
            }
            let found = ledger.note(9, STREAM, sequence);
            prop_assert_eq!(found, expected, "place {} of {}", place, first);
            match found {
                First { passed_over } => passed += passed_over,
                Reordered { filled: true } => filled += 1,
                _ => {}
            }
        }
        let missing = (first..next).filter(|place| !seen.contains(place)).count();
        prop_assert_eq!((passed - filled) as usize, missing);
    }

    /// As many copies of a message count as there are ways, in whatever order they come.
    #[test]
    fn copies_count_once_for_each_way(
        plain: bool,
        expected: bool,
        more in 0u8..3,
        copies in prop::collection::vec(0usize..5, 1..60),
        shifts in prop::collection::vec(0usize..40, 300),
    ) {
        let which = if expected || plain { Expected::Client } else { Expected::Nothing };
        let ways = Ways { every: plain, expected: which, more };
        let by_arithmetic = usize::from(which != Expected::Nothing);
        let most = usize::from(more) + by_arithmetic;
        prop_assume!(most > 0);
        let mut order: Vec<(usize, u32)> = Vec::new();
        for (place, &count) in copies.iter().enumerate() {
            (0..count).for_each(|_| order.push((place + shifts[order.len()], place as u32)));
        }
        order.sort_by_key(|&(at, _)| at);
        let mut ledger = Ledger::default();
        let mut counted: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for (_, place) in order {
            let (delivery, found) = ledger.note_ways(9, STREAM, place, || ways);
            if delivery == Duplicate {
                continue;
            }
            let gap = matches!(delivery, First { passed_over: 1.. } | Reordered { filled: true });
            prop_assert!(ways.every || !gap);
            let (all, arithmetic) = counted.entry(place).or_default();
            *all += 1;
            *arithmetic += usize::from(found != Expected::Nothing);
        }
        for (place, &count) in copies.iter().enumerate().filter(|(_, count)| **count > 0) {
            prop_assert_eq!(counted[&(place as u32)], (count.min(most), by_arithmetic));
        }
    }
}

#[test]
fn the_table_grows_in_small_steps_up_to_its_bound() {
    const STEP: u32 = 1_000;
    let mut ledger = Ledger::default();
    let (mut rooms, mut most) = (vec![0; PARTS], 0);
    for step in 0..3_600 {
        for client in step * STEP..(step + 1) * STEP {
            ledger.note(7, StreamId { publication: 0, variant: 0, client }, 0);
        }
        // Pairs that were moved: those of the parts with more room than before.
        let mut moved = 0;
        for (part, room) in ledger.windows.parts.iter().zip(&mut rooms) {
            let before = std::mem::replace(room, part.capacity());
            moved += if before > 0 && before < *room { part.len() } else { 0 };
        }
        most = most.max(moved);
    }
    // A part moves three pairs at most for each new one, and the largest moves at once.
    assert!(most <= 3 * STEP as usize + PART_PAIRS_MAX, "{most} pairs moved in one step");
    let all: usize = ledger.windows.parts.iter().map(FxHashMap::capacity).sum();
    assert!(all <= PARTS * PART_PAIRS_MAX, "room for {all} pairs");
}

proptest! {
    #[test]
    fn places_that_a_peer_has_made_up_are_noted(
        sequences in prop::collection::vec(
            prop_oneof![any::<u32>(), 0u32..300, (u32::MAX - 300)..=u32::MAX], 0..60),
    ) {
        let firsts = notes(&sequences).iter().filter(|n| matches!(n, First { .. })).count();
        prop_assert_eq!(firsts > 0, !sequences.is_empty());
    }
}
