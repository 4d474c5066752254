//! Schedule time of a population while its rate changes. At `factor` times the planned rate the
//! schedule runs `factor` times as fast. So a change loses, doubles or bunches no message, and
//! every client keeps its phase. Between two points of a profile the factor is linear. The map
//! consists of pieces in whole numbers, so that it has an exact inverse.

use std::sync::Arc;

use crate::schedule::rate_profile::{self, RatePoint};

/// Map between real time and schedule time, both in nanoseconds after publishing began. Both times
/// are equal until the first change, if there is no profile.
#[derive(Clone, Debug, Default)]
pub struct Tempo {
    /// Factor of the planned rate over time; empty: always 1.
    profile: Arc<[RatePoint]>,
    /// Pieces in the order of time; empty if both times are equal.
    pieces: Arc<Vec<Piece>>,
    /// True if there are pieces.
    is_changed: bool,
    /// Instant of the last change.
    changed_ns: u64,
    /// Factor of the last change; `None`: 1.
    factor: Option<f64>,
    /// True if the schedule stands still whatever its factor.
    is_held: bool,
}

/// Piece of the map: from `real_ns` on, the schedule runs at `factor`, which reaches `end` after
/// `length_ns`.
#[derive(Clone, Copy, Debug)]
struct Piece {
    real_ns: u64,
    schedule_ns: u64,
    /// Factor in units of 2^-32.
    factor: u64,
    /// Factor at the end, in units of 2^-32.
    end: u64,
    length_ns: u64,
}

const FACTOR_BITS: u32 = 32;
const FACTOR_ONE: f64 = (1u64 << FACTOR_BITS) as f64;

impl Tempo {
    /// Largest factor.
    pub const FACTOR_MAX: f64 = 1e6;

    /// Map of a stage with a profile; an empty profile is the factor 1.
    #[must_use]
    pub fn new(profile: &[RatePoint]) -> Self {
        let mut tempo = Self { profile: profile.into(), ..Self::default() };
        if !profile.is_empty() {
            tempo.lay(0, 1.0);
        }
        tempo
    }

    /// Multiplies the factor of the schedule by `factor` from `at_ns` on, instead of by the factor
    /// of the last change, which must not be later. The factor is 0 to [`Tempo::FACTOR_MAX`],
    /// rounded to 2^-32.
    pub fn change(&mut self, at_ns: u64, factor: f64) {
        self.factor = Some(factor);
        self.lay_from(at_ns);
    }

    /// Stops the schedule from `at_ns` on, or continues it with the factor of the last change.
    /// Changes of a stopped schedule take effect when it continues.
    pub fn hold(&mut self, at_ns: u64, is_held: bool) {
        self.is_held = is_held;
        self.lay_from(at_ns);
    }

    fn lay_from(&mut self, at_ns: u64) {
        if !self.is_changed {
            self.lay(0, 1.0);
        }
        self.changed_ns = self.changed_ns.max(at_ns);
        let factor = if self.is_held { 0.0 } else { self.factor.unwrap_or(1.0) };
        self.lay(self.changed_ns, factor);
    }

    /// Lays the pieces from `from_ns` on anew: those of the profile, times `factor`.
    fn lay(&mut self, from_ns: u64, factor: f64) {
        let (mut real_ns, mut schedule_ns) = (from_ns, self.schedule_ns(from_ns));
        let profile = Arc::clone(&self.profile);
        let pieces = Arc::make_mut(&mut self.pieces);
        pieces.truncate(pieces.partition_point(|piece| piece.real_ns < from_ns));
        let first = profile.partition_point(|point| point.after_ns <= from_ns);
        for point in profile.iter().skip(first) {
            let length_ns = point.after_ns - real_ns;
            if length_ns == 0 {
                continue;
            }
            let start = units(rate_profile::factor_at(&profile, real_ns) * factor);
            let end = units(point.factor * factor);
            let piece = Piece { real_ns, schedule_ns, factor: start, end, length_ns };
            real_ns = point.after_ns;
            schedule_ns = piece.schedule_ns(real_ns);
            pieces.push(piece);
        }
        let last = units(rate_profile::factor_at(&profile, real_ns) * factor);
        let length_ns = u64::MAX;
        pieces.push(Piece { real_ns, schedule_ns, factor: last, end: last, length_ns });
        self.is_changed = true;
    }

    /// Factor of the schedule at `real_ns`.
    #[must_use]
    pub fn factor_at(&self, real_ns: u64) -> f64 {
        self.piece_at(real_ns).map_or(1.0, |piece| {
            let (start, end) = (piece.factor as f64, piece.end as f64);
            let passed = (real_ns - piece.real_ns) as f64 / piece.length_ns as f64;
            (start + (end - start) * passed) / FACTOR_ONE
        })
    }

    /// Schedule time at `real_ns`.
    #[must_use]
    pub fn schedule_ns(&self, real_ns: u64) -> u64 {
        self.piece_at(real_ns).map_or(real_ns, |piece| piece.schedule_ns(real_ns))
    }

    /// First instant at which [`Tempo::schedule_ns`] has reached `schedule_ns` and the schedule is
    /// not paused; `u64::MAX` if the changes so far have no such instant.
    #[must_use]
    #[inline]
    pub fn real_ns(&self, schedule_ns: u64) -> u64 {
        if self.is_changed { self.changed_real_ns(schedule_ns) } else { schedule_ns }
    }

    fn changed_real_ns(&self, schedule_ns: u64) -> u64 {
        let after = self.pieces.partition_point(|piece| piece.schedule_ns < schedule_ns);
        let mut reached_ns =
            after.checked_sub(1).map_or(0, |index| self.pieces[index].real_ns(schedule_ns));
        for index in after..self.pieces.len() {
            if self.pieces[index].real_ns > reached_ns || !self.pieces[index].is_pause() {
                break;
            }
            reached_ns = self.pieces.get(index + 1).map_or(u64::MAX, |next| next.real_ns);
        }
        reached_ns
    }

    fn piece_at(&self, real_ns: u64) -> Option<&Piece> {
        self.until(real_ns).last()
    }

    /// Pieces that begin at `real_ns` or earlier.
    fn until(&self, real_ns: u64) -> &[Piece] {
        &self.pieces[..self.pieces.partition_point(|piece| piece.real_ns <= real_ns)]
    }

    /// Schedule time such that [`Tempo::real_ns`] of exactly the earlier instants of the schedule
    /// is before `real_ns`.
    #[must_use]
    pub fn schedule_before(&self, real_ns: u64) -> u64 {
        let begun = real_ns.checked_sub(1).map_or(&[][..], |last_ns| self.until(last_ns));
        let pauses = begun.iter().rev().take_while(|piece| piece.is_pause());
        let real_ns = pauses.last().map_or(real_ns, |first| first.real_ns);
        real_ns.checked_sub(1).map_or(0, |last_ns| self.schedule_ns(last_ns).saturating_add(1))
    }
}

impl Piece {
    /// Returns `true` if the schedule does not advance.
    const fn is_pause(&self) -> bool {
        self.factor == 0 && self.end == 0
    }

    fn schedule_ns(&self, real_ns: u64) -> u64 {
        self.schedule_ns.saturating_add(self.passed_ns(real_ns - self.real_ns))
    }

    /// First instant at which the schedule reaches `schedule_ns`, which is later than the start.
    fn real_ns(&self, schedule_ns: u64) -> u64 {
        let ahead_ns = schedule_ns - self.schedule_ns;
        let passed_ns = match (self.factor, self.end) {
            _ if self.is_pause() => u64::MAX,
            (factor, end) if factor == end => {
                narrow((u128::from(ahead_ns) << FACTOR_BITS).div_ceil(u128::from(factor)))
            }
            _ => self.inverse_ns(ahead_ns),
        };
        self.real_ns.saturating_add(passed_ns)
    }

    /// Schedule time that passes in the first `real_ns` of the piece: the integral of the factor,
    /// rounded down.
    fn passed_ns(&self, real_ns: u64) -> u64 {
        let (real, start) = (u128::from(real_ns), u128::from(self.factor));
        if self.factor == self.end {
            return narrow((real * start) >> FACTOR_BITS);
        }
        // Twice the integral is 2 x start x real + change x real² / length. The square does not
        // fit, so the quotient is taken first, and its remainder apart.
        let length = u128::from(self.length_ns);
        let change = real * u128::from(self.factor.abs_diff(self.end));
        let (whole, rest) = (real * (change / length), real * (change % length));
        let twice = if self.end > self.factor {
            2 * start * real + (whole + rest / length)
        } else {
            2 * start * real - (whole + rest.div_ceil(length))
        };
        narrow(twice >> (FACTOR_BITS + 1))
    }

    /// First `x` with `passed_ns(x) >= ahead_ns`, for `ahead_ns` from 1 to that of the whole piece.
    fn inverse_ns(&self, ahead_ns: u64) -> u64 {
        let reaches = |real_ns: u64| self.passed_ns(real_ns) >= ahead_ns;
        // The root in floating point is right, or a little off.
        let (start, ahead) = (self.factor as f64, ahead_ns as f64 * FACTOR_ONE);
        let change = (self.end as f64 - start) / self.length_ns as f64;
        let root = (start * start + 2.0 * change * ahead).max(0.0).sqrt();
        let guess = (2.0 * ahead / (start + root)) as u64;
        let (mut below, mut reached, mut step) = (0, self.length_ns, 1);
        let mut at = guess.clamp(1, self.length_ns);
        loop {
            if reaches(at) {
                reached = at;
                at = at.saturating_sub(step).max(below);
            } else {
                below = at;
                at = at.saturating_add(step).min(reached);
            }
            if reached - below <= 1 {
                return reached;
            }
            if at == below || at == reached {
                break;
            }
            step *= 2;
        }
        while reached - below > 1 {
            let middle = below + (reached - below) / 2;
            if reaches(middle) { reached = middle } else { below = middle }
        }
        reached
    }
}

fn units(factor: f64) -> u64 {
    (factor.clamp(0.0, Tempo::FACTOR_MAX) * FACTOR_ONE).round() as u64
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::flows::{Late, Pace, Phase, Process};
    use crate::schedule::pacer::Pacer;
    use crate::schedule::rate_profile::RatePoint;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn tempo(changes: &[(u64, f64)]) -> Tempo {
        profiled(&[], changes)
    }

    fn profiled(profile: &[RatePoint], changes: &[(u64, f64)]) -> Tempo {
        let mut tempo = Tempo::new(profile);
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

    fn profiles() -> impl Strategy<Value = Vec<RatePoint>> {
        let factor = prop_oneof![Just(0.0), 1e-9..1e-3, 0.001..50.0, Just(1.0), Just(1e6)];
        let at_ns = prop_oneof![0..100_000 * MS, 0..50u64, Just(1_000 * MS)];
        let points = prop::collection::vec((at_ns, factor), 0..8);
        points.prop_map(|mut points| {
            points.sort_by_key(|point| point.0);
            let point = |(after_ns, factor)| RatePoint { after_ns, factor };
            points.into_iter().map(point).collect()
        })
    }

    /// Returns true if `real` is the first instant at which `schedule` is reached without a pause.
    fn is_first(tempo: &Tempo, real: u64, schedule: u64) -> bool {
        let has_not_begun =
            |before: u64| tempo.schedule_ns(before) < schedule || tempo.factor_at(before) == 0.0;
        tempo.schedule_ns(real) >= schedule && real.checked_sub(1).is_none_or(has_not_begun)
    }

    proptest! {
        #[test]
        fn a_profile_never_runs_back_and_has_an_exact_inverse(
            profile in profiles(),
            changes in changes(),
            schedule in prop_oneof![0..200_000 * MS, 0..1000u64],
            real in 0..200_000 * MS,
        ) {
            let tempo = profiled(&profile, &changes);
            let reached = tempo.real_ns(schedule);
            if reached < u64::MAX {
                prop_assert!(is_first(&tempo, reached, schedule));
            } else {
                let end = 1_000_000 * MS;
                prop_assert!(tempo.schedule_ns(end) < schedule || tempo.factor_at(end) == 0.0);
            }
            prop_assert!(tempo.schedule_ns(real) <= tempo.schedule_ns(real + 1));
            let at = tempo.real_ns(tempo.schedule_ns(real));
            prop_assert!(at <= real || tempo.factor_at(real) == 0.0);
            let before = schedule < tempo.schedule_before(real);
            prop_assert_eq!(before, reached < real);
        }

        #[test]
        fn the_offered_load_is_the_integral_of_the_profile(profile in profiles()) {
            let end = 200_000 * MS;
            let inner = profile.iter().map(|point| (point.after_ns, point.factor));
            let first = profile.first().map_or(1.0, |point| point.factor);
            let last = profile.last().map_or(1.0, |point| point.factor);
            let all: Vec<(u64, f64)> =
                std::iter::once((0, first)).chain(inner).chain([(end, last)]).collect();
            let area = |pair: &[(u64, f64)]| {
                (pair[1].0 - pair[0].0) as f64 * (pair[0].1 + pair[1].1) / 2.0
            };
            let integral: f64 = all.windows(2).map(area).sum();
            let schedule = Tempo::new(&profile).schedule_ns(end) as f64;
            let tolerance = 1e-9 * integral + 1e-8 * end as f64 + 10.0;
            prop_assert!((schedule - integral).abs() < tolerance, "{schedule} {integral}");
        }

        #[test]
        fn a_change_multiplies_the_profile(
            profile in profiles(), at in 0..100_000 * MS, factor in 0.0..20.0f64,
        ) {
            let (plain, changed) = (Tempo::new(&profile), profiled(&profile, &[(at, factor)]));
            for after in [0, 1, 1_000 * MS, 50_000 * MS, 150_000 * MS] {
                let expected = plain.factor_at(at + after) * factor;
                let expected = expected.min(Tempo::FACTOR_MAX);
                // Above the largest factor a line is cut at its ends only.
                if profile.iter().all(|point| point.factor * factor <= Tempo::FACTOR_MAX) {
                    let found = changed.factor_at(at + after);
                    prop_assert!((found - expected).abs() < 1e-6 * (1.0 + expected));
                }
            }
            prop_assert_eq!(plain.schedule_ns(at), changed.schedule_ns(at));
        }

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
            prop_assert!(real == u64::MAX || is_first(&tempo, real, schedule));
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
    fn the_messages_of_a_ramp_are_scheduled_at_the_roots_of_its_integral() {
        // From 0 to the planned rate in 100 s: after t the schedule has reached t²/200 s.
        let point = |after_ns, factor| RatePoint { after_ns, factor };
        let tempo = Tempo::new(&[point(0, 0.0), point(100_000 * MS, 1.0)]);
        for k in 1..50u64 {
            let exact = (k as f64 * 200.0).sqrt() * 1e9;
            let found = tempo.real_ns(k * 1_000 * MS) as f64;
            assert!((found - exact).abs() < 2.0, "message {k}: {found} {exact}");
        }
        assert_eq!(tempo.schedule_ns(100_000 * MS), 50_000 * MS);
    }

    #[test]
    fn a_factor_of_zero_pauses_and_the_next_factor_continues() {
        let mut tempo = tempo(&[(10, 0.0)]);
        assert_eq!((tempo.real_ns(9), tempo.real_ns(10)), (9, u64::MAX));
        assert_eq!((tempo.schedule_ns(1_000), tempo.schedule_before(1_000)), (10, 10));
        tempo.change(1_000, 2.0);
        assert_eq!((tempo.real_ns(10), tempo.real_ns(12)), (1_000, 1_001));
    }

    #[test]
    fn a_schedule_that_is_held_continues_with_its_last_factor() {
        let point = |after_ns, factor| RatePoint { after_ns, factor };
        for profile in [&[][..], &[point(0, 0.5), point(500, 1.5)]] {
            let mut tempo = Tempo::new(profile);
            tempo.change(20, 2.0);
            tempo.hold(40, true);
            tempo.change(50, 3.0);
            tempo.hold(90, false);
            let passed = |from, to| tempo.schedule_ns(to) - tempo.schedule_ns(from);
            let factor = |at_ns| rate_profile::factor_at(profile, at_ns);
            assert_eq!((tempo.factor_at(60), passed(40, 90)), (0.0, 0));
            assert!((tempo.factor_at(90) - 3.0 * factor(90)).abs() < 1e-9);
            assert!(passed(90, 190) >= (300.0 * factor(90)) as u64);
        }
    }

    #[test]
    fn nothing_is_scheduled_while_the_factor_is_zero_from_the_first_instant_on() {
        let point = |after_ns, factor| RatePoint { after_ns, factor };
        let until = |ns| [point(0, 0.0), point(ns, 0.0), point(ns, 1.0)];
        for (tempo, first_ns) in [
            (Tempo::new(&[point(0, 0.0)]), u64::MAX),
            (Tempo::new(&until(50)), 50),
            (tempo(&[(0, 0.0)]), u64::MAX),
            (tempo(&[(0, 0.0), (50, 0.0), (70, 3.0)]), 70),
            (profiled(&until(50), &[(60, 0.0)]), 50),
            (profiled(&until(50), &[(50, 0.0), (90, 1.0)]), 90),
            (Tempo::new(&[point(0, 0.0), point(100, 1.0)]), 0),
        ] {
            assert_eq!(tempo.real_ns(0), first_ns);
            assert_eq!(tempo.schedule_before(first_ns), 0, "first at {first_ns}");
            assert!(first_ns == u64::MAX || tempo.schedule_before(first_ns + 1) > 0);
        }
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
            arrivals: Process::Even,
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
