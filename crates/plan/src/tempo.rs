//! Schedule time of a population while its rate changes. At `factor` times the planned rate the
//! schedule runs `factor` times as fast. So a change loses, doubles or bunches no message, and
//! every client keeps its phase. The map consists of pieces in whole numbers, so that it has an
//! exact inverse.

/// Map between real time and schedule time, both in nanoseconds after publishing began. Both times
/// are equal until the first change.
#[derive(Clone, Debug, Default)]
pub struct Tempo {
    /// Pieces in the order of time; empty before the first change.
    pieces: Vec<Piece>,
}

/// Piece of the map: the schedule runs at `factor` from `real_ns` on.
#[derive(Clone, Copy, Debug)]
struct Piece {
    real_ns: u64,
    schedule_ns: u64,
    /// Factor in units of 2^-32.
    factor: u64,
}

const FACTOR_BITS: u32 = 32;
const FACTOR_ONE: f64 = (1u64 << FACTOR_BITS) as f64;

impl Tempo {
    /// Largest factor.
    pub const FACTOR_MAX: f64 = 1e6;

    /// Sets the factor of the schedule from `at_ns` on, which must not be before the last change.
    /// The factor is 0 to [`Tempo::FACTOR_MAX`], rounded to 2^-32.
    pub fn change(&mut self, at_ns: u64, factor: f64) {
        let at_ns = at_ns.max(self.pieces.last().map_or(0, |last| last.real_ns));
        let schedule_ns = self.schedule_ns(at_ns);
        if self.pieces.is_empty() {
            let factor = 1 << FACTOR_BITS;
            self.pieces.push(Piece { real_ns: 0, schedule_ns: 0, factor });
        }
        let factor = (factor.clamp(0.0, Self::FACTOR_MAX) * FACTOR_ONE).round() as u64;
        self.pieces.push(Piece { real_ns: at_ns, schedule_ns, factor });
    }

    /// Factor of the schedule since the last change.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.pieces.last().map_or(1.0, |last| last.factor as f64 / FACTOR_ONE)
    }

    /// Schedule time at `real_ns`.
    #[must_use]
    pub fn schedule_ns(&self, real_ns: u64) -> u64 {
        let piece = self.pieces.iter().rev().find(|piece| piece.real_ns <= real_ns);
        piece.map_or(real_ns, |piece| {
            let passed = u128::from(real_ns - piece.real_ns) * u128::from(piece.factor);
            piece.schedule_ns.saturating_add(narrow(passed >> FACTOR_BITS))
        })
    }

    /// First instant at which [`Tempo::schedule_ns`] reaches `schedule_ns`; `u64::MAX` if the
    /// changes so far never reach it.
    #[must_use]
    #[inline]
    pub fn real_ns(&self, schedule_ns: u64) -> u64 {
        if self.pieces.is_empty() { schedule_ns } else { self.changed_real_ns(schedule_ns) }
    }

    fn changed_real_ns(&self, schedule_ns: u64) -> u64 {
        match self.pieces.iter().rev().find(|piece| piece.schedule_ns < schedule_ns) {
            None => 0,
            Some(piece) if piece.factor == 0 => u64::MAX,
            Some(piece) => {
                let ahead = u128::from(schedule_ns - piece.schedule_ns) << FACTOR_BITS;
                let real_ns = narrow(ahead.div_ceil(u128::from(piece.factor)));
                piece.real_ns.saturating_add(real_ns)
            }
        }
    }

    /// Schedule time such that exactly the earlier instants of the schedule are reached before
    /// `real_ns`.
    #[must_use]
    pub fn schedule_before(&self, real_ns: u64) -> u64 {
        real_ns.checked_sub(1).map_or(0, |last_ns| self.schedule_ns(last_ns).saturating_add(1))
    }
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Late, Pace, Phase};
    use crate::pacer::Pacer;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn tempo(changes: &[(u64, f64)]) -> Tempo {
        let mut tempo = Tempo::default();
        changes.iter().for_each(|&(at_ns, factor)| tempo.change(at_ns, factor));
        tempo
    }

    fn changes() -> impl Strategy<Value = Vec<(u64, f64)>> {
        let factor = prop_oneof![Just(0.0), 0.001..50.0, Just(1.0)];
        let changes = prop::collection::vec((0..100_000 * MS, factor), 0..6);
        changes.prop_map(|mut changes| {
            changes.sort_by_key(|change| change.0);
            changes
        })
    }

    proptest! {
        #[test]
        fn the_schedule_never_runs_back(
            changes in changes(), a in 0..200_000 * MS, b in 0..1000u64,
        ) {
            let tempo = tempo(&changes);
            prop_assert!(tempo.schedule_ns(a) <= tempo.schedule_ns(a + b));
            prop_assert!(tempo.real_ns(a) <= tempo.real_ns(a + b));
        }

        #[test]
        fn each_direction_undoes_the_other(changes in changes(), schedule in 0..200_000 * MS) {
            let tempo = tempo(&changes);
            let real = tempo.real_ns(schedule);
            if real < u64::MAX {
                prop_assert!(tempo.schedule_ns(real) >= schedule);
                prop_assert!(real == 0 || tempo.schedule_ns(real - 1) < schedule);
            }
        }

        #[test]
        fn schedule_before_is_exact(
            changes in changes(), schedule in 0..100_000 * MS, real in 0..200_000 * MS,
        ) {
            let tempo = tempo(&changes);
            let before = schedule < tempo.schedule_before(real);
            prop_assert_eq!(before, tempo.real_ns(schedule) < real);
        }

        #[test]
        fn the_offered_load_is_the_integral_of_the_factor(changes in changes()) {
            let end = 200_000 * MS;
            let ends = changes.iter().skip(1).map(|c| c.0).chain([end]);
            let first = changes.first().map_or(end, |c| c.0) as f64;
            let rest: f64 = changes.iter().zip(ends).map(|(c, to)| c.1 * (to - c.0) as f64).sum();
            let schedule = tempo(&changes).schedule_ns(end) as f64;
            prop_assert!((schedule - first - rest).abs() < 1e-6 * end as f64 + 10.0);
        }
    }

    #[test]
    fn an_unchanged_tempo_is_real_time() {
        let tempo = Tempo::default();
        for ns in [0, 1, 17, u64::MAX] {
            assert_eq!((tempo.schedule_ns(ns), tempo.real_ns(ns)), (ns, ns));
            assert_eq!(tempo.schedule_before(ns), ns);
        }
    }

    #[test]
    fn a_factor_of_zero_pauses_and_the_next_factor_continues() {
        let mut tempo = tempo(&[(10, 0.0)]);
        assert_eq!((tempo.real_ns(10), tempo.real_ns(11)), (10, u64::MAX));
        assert_eq!(tempo.schedule_ns(1_000), 10);
        tempo.change(1_000, 2.0);
        assert_eq!((tempo.real_ns(10), tempo.real_ns(12)), (10, 1_001));
    }

    #[test]
    fn a_change_moves_every_phase_and_makes_no_burst() {
        let (period_ns, late) = (100 * MS, Late::Send);
        let pace = Pace::Open {
            period_ns,
            spread: 0.0,
            jitter: 0.0,
            phase: Phase::Spread,
            late,
            burst: 1,
        };
        let pacer = Pacer::new(&pace, 1, 0).unwrap();
        let tempo = tempo(&[(1_000 * MS, 2.0), (2_000 * MS, 0.5)]);
        let due = |c, k| tempo.real_ns(pacer.due_ns(c, k));
        for (from_ms, to_ms, expected) in [(0, 1000, 1000), (1000, 2000, 2000), (2000, 3000, 500)] {
            let span = from_ms * MS..to_ms * MS;
            let all = (0..100).flat_map(|c| (0..60).map(move |k| (c, k)));
            let sent = all.filter(|&(c, k)| span.contains(&due(c, k))).count();
            assert_eq!(sent, expected, "from {from_ms} to {to_ms} ms");
        }
        let all = (0..100).flat_map(|c| (0..60).map(move |k| (c, k)));
        let mut near: Vec<u64> = all.map(|(c, k)| due(c, k)).collect();
        near.sort_unstable();
        let after = near.iter().filter(|&&ns| (1_000 * MS..1_001 * MS).contains(&ns)).count();
        assert!(after <= 4, "2 messages a millisecond are due, not {after}");
    }
}
