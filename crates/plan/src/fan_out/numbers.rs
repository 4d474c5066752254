//! A set of numbers as conditions on them, such as those of the clients whose filter matches a
//! topic: counted without being walked. It knows neither clients nor brokers.

use std::sync::Arc;

use crate::rows::Column;
use crate::template::{Level, Variable};

/// Numbers from `from` to `to` that meet every condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub from: u64,
    pub to: u64,
    /// `n % k == r` for each `(k, r)`.
    remainders: Vec<(u64, u64)>,
    /// Values that their rows have.
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
    /// The `count` numbers from `first` on for which a filter matches `topic`; `None`: there is
    /// none.
    pub fn matching(filter: &[Level], topic: &str, first: u64, count: u64) -> Option<Self> {
        let wild = matches!(filter.first(), Some(Level::Any | Level::Rest));
        if count == 0 || wild && topic.starts_with('$') {
            return None; // [MQTT-4.7.2-1]
        }
        let to = first + (count - 1);
        let mut set = Self { from: first, to, remainders: Vec::new(), listed: Vec::new() };
        let mut levels = topic.split('/');
        for level in filter {
            if *level == Level::Rest {
                return set.some();
            }
            set.narrow(level, levels.next()?)?;
        }
        if levels.next().is_some() { None } else { set.some() }
    }

    /// Whether a filter matches `topic` for the number `n`.
    pub fn has_match(filter: &[Level], topic: &str, n: u64) -> bool {
        Self::matching(filter, topic, n, 1).is_some_and(|set| set.contains(n))
    }

    /// Adds the condition `n % k == r`.
    pub fn keep_remainder(&mut self, k: u64, r: u64) {
        if k > 1 {
            self.remainders.push((k, r));
        }
    }

    /// Whether it holds all of the `count` numbers from `first` on.
    pub fn is_range(&self, first: u64, count: u64) -> bool {
        let unconditional = self.remainders.is_empty() && self.listed.is_empty();
        unconditional && self.from == first && self.to - self.from + 1 == count
    }

    /// Whether it holds `n`.
    pub fn contains(&self, n: u64) -> bool {
        (self.from..=self.to).contains(&n)
            && self.remainders.iter().all(|&(k, r)| n % k == r)
            && self.listed.iter().all(|listed| listed.column.value(n) == &*listed.value)
    }

    /// How many it holds.
    pub fn count(&self) -> u64 {
        match self.remainders.as_slice() {
            _ if self.from > self.to => 0,
            _ if !self.listed.is_empty() => self.iter().count() as u64,
            [] => self.to - self.from + 1,
            &[(k, r)] => {
                let below = |end: u64| if end > r { (end - r - 1) / k + 1 } else { 0 };
                below(self.to + 1) - below(self.from)
            }
            _ => self.iter().count() as u64,
        }
    }

    /// The numbers themselves, walked by the rows of a value, or in steps of the largest remainder
    /// condition; in no order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        if let [Listed { column, value }, ..] = self.listed.as_slice() {
            let numbers = |&row: &u32| column.numbers_of(row, self.from..self.to.saturating_add(1));
            let listed = column.rows_with(value).iter().flat_map(numbers);
            return Box::new(listed.filter(|&n| self.contains(n)));
        }
        let (k, r) = self.remainders.iter().copied().max().unwrap_or((1, 0));
        let offset = (r + k - self.from % k) % k;
        Box::new((self.from + offset..=self.to).step_by(k as usize).filter(|&n| self.contains(n)))
    }

    fn some(self) -> Option<Self> {
        (self.from <= self.to).then_some(self)
    }

    /// Adds the condition under which `level` matches `text`; `None`: it never does.
    fn narrow(&mut self, level: &Level, text: &str) -> Option<()> {
        match level {
            Level::Any | Level::Rest => Some(()),
            Level::Exact(exact) => (**exact == *text).then_some(()),
            Level::Variable { prefix, variable, suffix } => {
                let middle = text.strip_prefix(&**prefix)?.strip_suffix(&**suffix)?;
                match variable {
                    Variable::Choice(options) => {
                        options.iter().any(|option| **option == *middle).then_some(())
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
            Variable::Range { from, to } => return (from..=to).contains(&value).then_some(()),
            _ => return None,
        }
        Some(())
    }

    /// Adds the condition that the row of a number has this value. The row of the number `n` is a
    /// remainder too, so one row alone needs no list.
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

    fn limit(&mut self, from: u64, to: u64) {
        self.from = self.from.max(from);
        self.to = self.to.min(to);
    }
}

/// How many numbers at least one of the sets holds.
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

/// The value of a decimal as a template writes it: digits only, no leading zero.
fn canonical_decimal(text: &str) -> Option<u64> {
    let canonical =
        text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}
