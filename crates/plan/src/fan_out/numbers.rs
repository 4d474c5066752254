//! A set of numbers defined by conditions, such as the numbers of the clients whose filter matches
//! a topic. Arithmetic counts the set without a walk.

use std::sync::Arc;

use crate::text::rows::Column;
use crate::text::template::{Level, Levels, Variable, canonical_decimal};

/// Numbers from `from` to `to` that meet every condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub from: u64,
    pub to: u64,
    /// Condition `n % step == remainder`.
    step: u64,
    remainder: u64,
    /// Values required of the rows of the numbers.
    listed: Vec<Listed>,
}

/// A value that several rows of a file have.
#[derive(Clone, Debug)]
struct Listed {
    column: Arc<Column>,
    value: Box<str>,
}

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.column, &other.column) && self.value == other.value
    }
}

impl Eq for Listed {}

impl Numbers {
    /// The `count` numbers from `first` on, at least one.
    pub const fn range(first: u64, count: u64) -> Self {
        Self { from: first, to: first + (count - 1), step: 1, remainder: 0, listed: Vec::new() }
    }

    /// Numbers among `count` from `first` on for which a filter matches `name`; `None` if there are
    /// none.
    pub fn matching(filter: &Levels, name: &str, first: u64, count: u64) -> Option<Self> {
        let Levels { grammar, list } = filter;
        let is_wild = matches!(list.first(), Some(Level::Any | Level::Rest));
        if count == 0 || is_wild && grammar.hidden.is_some_and(|hidden| name.starts_with(hidden)) {
            return None;
        }
        let mut set = Self::range(first, count);
        let mut levels = grammar.levels(name);
        for level in list {
            if *level == Level::Rest {
                return set.some().filter(|_| levels.count() >= grammar.rest_min);
            }
            set.narrow(level, levels.next()?)?;
        }
        if levels.next().is_some() { None } else { set.some() }
    }

    /// Returns true if a filter matches `name` for the number `n`.
    pub fn has_match(filter: &Levels, name: &str, n: u64) -> bool {
        Self::matching(filter, name, n, 1).is_some_and(|set| set.contains(n))
    }

    /// Adds the condition `n % k == r`, where `r` is below `k`. Combined with the present condition
    /// this gives one condition, or no number is left (the Chinese remainder theorem: Knuth, TAOCP
    /// 2, 4.3.2).
    pub fn keep_remainder(&mut self, k: u64, r: u64) {
        if self.step == 1 {
            (self.step, self.remainder) = (k, r);
            return;
        }
        let (common, inverse) = inverse(self.step, k);
        let apart = i128::from(r) - i128::from(self.remainder);
        if apart % i128::from(common) != 0 {
            (self.from, self.to) = (1, 0);
            return;
        }
        let times = apart / i128::from(common) % i128::from(k / common) * inverse;
        let times = times.rem_euclid(i128::from(k / common)).unsigned_abs();
        let remainder = u128::from(self.remainder) + u128::from(self.step) * times;
        let step = u128::from(self.step) * u128::from(k / common);
        match (u64::try_from(step), u64::try_from(remainder)) {
            (Ok(step), Ok(remainder)) => (self.step, self.remainder) = (step, remainder),
            // Among all 64-bit numbers only this number is left.
            (Err(_), Ok(remainder)) => {
                (self.step, self.remainder) = (1, 0);
                self.limit(remainder, remainder);
            }
            (_, Err(_)) => (self.from, self.to) = (1, 0),
        }
    }

    /// Returns true if the set contains all of the `count` numbers from `first` on.
    pub fn is_range(&self, first: u64, count: u64) -> bool {
        let unconditional = self.step == 1 && self.listed.is_empty();
        unconditional && self.from == first && self.count() == count
    }

    /// Returns true if both sets have a number in common.
    pub fn meets(&self, other: &Self) -> bool {
        let mut both = self.clone();
        both.limit(other.from, other.to);
        if other.step > 1 {
            both.keep_remainder(other.step, other.remainder);
        }
        both.listed.extend(other.listed.iter().cloned());
        both.from <= both.to && both.count() > 0
    }

    /// Returns true if the set contains `n`.
    pub fn contains(&self, n: u64) -> bool {
        (self.from..=self.to).contains(&n)
            && n % self.step == self.remainder
            && self.listed.iter().all(|listed| listed.column.value(n) == &*listed.value)
    }

    /// Number of elements.
    pub fn count(&self) -> u64 {
        if !self.listed.is_empty() {
            return self.iter().count() as u64;
        }
        let first = self.first().filter(|&first| first <= self.to);
        first.map_or(0, |first| (self.to - first) / self.step + 1)
    }

    /// Returns true if counting the set needs a walk.
    pub const fn is_listed(&self) -> bool {
        !self.listed.is_empty()
    }

    /// Elements of the set; in no order if the set is listed by a value.
    pub fn iter(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        if let [Listed { column, value }, ..] = self.listed.as_slice() {
            let numbers = |&row: &u32| column.numbers_of(row, self.from..self.to.saturating_add(1));
            let listed = column.rows_with(value).iter().flat_map(numbers);
            return Box::new(listed.filter(|&n| self.contains(n)));
        }
        let step = usize::try_from(self.step).unwrap_or(usize::MAX);
        Box::new(self.first().into_iter().flat_map(move |first| (first..=self.to).step_by(step)))
    }

    /// First number from `from` on that has the remainder.
    fn first(&self) -> Option<u64> {
        let over = self.from % self.step;
        let below = self.step - over;
        let ahead =
            if over <= self.remainder { self.remainder - over } else { below + self.remainder };
        self.from.checked_add(ahead)
    }

    /// Returns the set, or `None` if the set is empty.
    fn some(self) -> Option<Self> {
        (self.from <= self.to).then_some(self)
    }

    /// Keeps the numbers from `from` to `to`.
    pub fn limit(&mut self, from: u64, to: u64) {
        self.from = self.from.max(from);
        self.to = self.to.min(to);
    }

    /// Adds the condition under which `level` matches `text`; `None` if `level` never matches.
    pub fn narrow(&mut self, level: &Level, text: &str) -> Option<()> {
        match level {
            Level::Any | Level::Rest => Some(()),
            Level::Exact(exact) => (**exact == *text).then_some(()),
            Level::Variable { prefix, variable, suffix } => {
                let middle = text.strip_prefix(&**prefix)?.strip_suffix(&**suffix)?;
                match variable {
                    Variable::Choice(_) | Variable::Range { .. } => {
                        variable.goes_through(middle).then_some(())
                    }
                    Variable::Row(row) => self.require_row(row.column.get()?, middle),
                    _ => self.require(variable, canonical_decimal(middle)?),
                }
            }
        }
    }

    fn require(&mut self, variable: &Variable, value: u64) -> Option<()> {
        match *variable {
            Variable::Number => self.limit(value, value),
            Variable::Quotient(k) => {
                let from = value.checked_mul(k)?;
                self.limit(from, from.saturating_add(k - 1));
            }
            Variable::Remainder(k) if value < k => self.keep_remainder(k, value),
            _ => return None,
        }
        Some(())
    }

    /// Adds the condition that the row of a number has this value. A single row needs no list,
    /// since the row of the number `n` is a remainder too.
    fn require_row(&mut self, column: &Arc<Column>, value: &str) -> Option<()> {
        match column.rows_with(value) {
            [] => return None,
            &[row] => {
                let first = column.numbers_of(row, 0..u64::MAX).next()?;
                let rows = column.rows() as u64;
                self.keep_remainder(rows, first % rows);
            }
            _ => self.listed.push(Listed { column: Arc::clone(column), value: value.into() }),
        }
        Some(())
    }
}

/// Number of elements in at least one of the sets.
pub fn count_union(sets: &[Numbers]) -> u64 {
    match sets {
        [] => 0,
        [one] => one.count(),
        many => {
            let fresh = |(i, set): (usize, &Numbers)| {
                set.iter().filter(|&n| !many[..i].iter().any(|s| s.contains(n))).count()
            };
            many.iter().enumerate().map(fresh).sum::<usize>() as u64
        }
    }
}

/// Greatest common divisor of two numbers, and the factor of the first number that leaves the
/// divisor modulo the second (Euclid's algorithm, extended: Knuth, TAOCP 2, 4.5.2).
fn inverse(a: u64, b: u64) -> (u64, i128) {
    let (mut divisor, mut rest) = (i128::from(a), i128::from(b));
    let (mut times, mut next) = (1, 0);
    while rest != 0 {
        let quotient = divisor / rest;
        (divisor, rest) = (rest, divisor - quotient * rest);
        (times, next) = (next, times - quotient * next);
    }
    (divisor as u64, times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn combined_conditions_keep_the_numbers_that_meet_each(
            first in 0u64..1000,
            count in 1u64..3000,
            conditions in prop::collection::vec((1u64..60, 0u64..60), 0..4),
        ) {
            let mut set = Numbers::range(first, count);
            let kept = |n: &u64| conditions.iter().all(|&(k, r)| n % k == r % k);
            conditions.iter().for_each(|&(k, r)| set.keep_remainder(k, r % k));
            let expected: Vec<u64> = (first..first + count).filter(kept).collect();
            prop_assert_eq!(set.count(), expected.len() as u64);
            prop_assert!((first..first + count).all(|n| set.contains(n) == kept(&n)));
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn sets_meet_if_both_contain_the_same_number(
            of in prop::array::uniform2((0u64..500, 1u64..400, 1u64..40, 0u64..40)),
        ) {
            let [one, other] = of.map(|(first, count, k, r)| {
                let mut set = Numbers::range(first, count);
                set.keep_remainder(k, r % k);
                set
            });
            let expected = one.iter().any(|n| other.contains(n));
            prop_assert_eq!((one.meets(&other), other.meets(&one)), (expected, expected));
        }

        #[test]
        fn conditions_of_any_size_keep_a_number_that_meets_them(
            n: u64, steps in prop::collection::vec(1u64.., 1..5),
        ) {
            let mut set = Numbers::range(n.saturating_sub(5), 10.min(n.saturating_add(1)));
            steps.iter().for_each(|&step| set.keep_remainder(step, n % step));
            let met = |m: u64| steps.iter().all(|&step| m % step == n % step);
            let around = n.saturating_sub(5)..n.saturating_sub(5) + 10.min(n.saturating_add(1));
            prop_assert_eq!(set.count(), around.filter(|&m| met(m)).count() as u64);
        }
    }
}
