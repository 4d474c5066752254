//! A file with one row for each client, and a column of the file: the value for a client's number,
//! and the numbers with a given value.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::model::bounds;
use crate::schedule::shard::Shard;

/// A file of comma-separated values with a line of headings: one row for each client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// Path of the file.
    pub file: String,
    /// Client number `{n}` of the first row.
    #[serde(deserialize_with = "bounds::number")]
    pub first: u64,
    /// True if clients beyond the last row begin with the first row again.
    pub repeat: bool,
}

/// The values of one column.
#[derive(Debug)]
pub struct Column {
    /// All values, one after the other.
    text: String,
    /// Index in `text` at which each value ends.
    ends: Vec<usize>,
    /// Client number of the first row.
    first: u64,
    /// Rows of the file so far. Of these the column keeps each `every`-th, from `offset` on.
    rows: usize,
    every: usize,
    offset: usize,
    /// Rows sorted by value, computed at the first use.
    order: OnceLock<Vec<u32>>,
}

impl Column {
    /// An empty column of a file.
    #[must_use]
    pub const fn new(rows: &Rows) -> Self {
        Self::empty(rows.first, 1, 0)
    }

    /// An empty column that keeps the rows of one agent's clients, whose first number is `first`
    /// over all agents. The rows must not repeat.
    #[must_use]
    pub fn of_shard(rows: &Rows, first: u64, shard: Shard) -> Self {
        let every = u64::from(shard.count());
        let offset = (first.saturating_sub(rows.first) + u64::from(shard.index())) % every;
        Self::empty(rows.first, every as usize, offset as usize)
    }

    /// Adds the value of the next row.
    pub fn push(&mut self, value: &str) {
        if self.rows % self.every == self.offset {
            self.keep(value);
        }
        self.rows += 1;
    }

    /// The same column, each value escaped as within a string of JSON.
    #[must_use]
    pub fn escaped_for_json(self: &Arc<Self>) -> Arc<Self> {
        let quoted =
            |value: &str| serde_json::to_string(value).expect("a text can be written as JSON");
        if quoted(&self.text).len() == self.text.len() + 2 {
            return Arc::clone(self);
        }
        let mut escaped = Self::empty(self.first, self.every, self.offset);
        for value in self.values().map(quoted) {
            escaped.keep(&value[1..value.len() - 1]);
        }
        escaped.rows = self.rows;
        escaped.shrink_to_fit();
        Arc::new(escaped)
    }

    /// Frees unused capacity.
    pub fn shrink_to_fit(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Number of rows in the file.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Value for client number `n`; rows repeat after the last row. Empty if the column does not
    /// keep this row.
    #[must_use]
    #[inline]
    pub fn value(&self, n: u64) -> &str {
        let Some(row) = n.saturating_sub(self.first).checked_rem(self.rows as u64) else {
            return "";
        };
        let row = row as usize;
        if row % self.every == self.offset { self.at(row / self.every) } else { "" }
    }

    /// All values that the column keeps, in the order of their rows.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|row| self.at(row))
    }

    /// Bytes of the longest value.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.values().map(str::len).max().unwrap_or(0)
    }

    /// Returns true if some row has this value.
    #[must_use]
    pub fn has(&self, value: &str) -> bool {
        !self.rows_with(value).is_empty()
    }

    /// Rows that have this value, in rising order. The column keeps all rows.
    pub(crate) fn rows_with(&self, value: &str) -> &[u32] {
        debug_assert_eq!(self.every, 1, "topics need the rows of all clients");
        let order = self.order.get_or_init(|| {
            let mut order: Vec<u32> = (0..self.ends.len() as u32).collect();
            order.sort_by_key(|&row| (self.at(row as usize), row));
            order
        });
        let from = order.partition_point(|&row| self.at(row as usize) < value);
        let count = order[from..].partition_point(|&row| self.at(row as usize) == value);
        &order[from..from + count]
    }

    /// Numbers in `span` that have the row `row`, in rising order.
    pub(crate) fn numbers_of(&self, row: u32, span: Range<u64>) -> impl Iterator<Item = u64> {
        let (rows, start) = (self.ends.len().max(1) as u64, self.first + u64::from(row));
        let rounds = span.start.saturating_sub(start).div_ceil(rows);
        let next = start + rounds * rows;
        (next..span.end.max(next)).step_by(rows as usize)
    }

    const fn empty(first: u64, every: usize, offset: usize) -> Self {
        let text = String::new();
        Self { text, ends: Vec::new(), first, rows: 0, every, offset, order: OnceLock::new() }
    }

    fn keep(&mut self, value: &str) {
        self.text.push_str(value);
        self.ends.push(self.text.len());
        self.order = OnceLock::new();
    }

    /// Value at this place among those that the column keeps.
    #[inline]
    fn at(&self, place: usize) -> &str {
        let from = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.text[from..self.ends[place]]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_column_of_a_shard_has_the_values_of_its_clients(
            clients in 1u32..200, count in 1u32..9, rows_first in 0u64..5, later in 0u64..20,
        ) {
            let rows = Rows { file: "f".into(), first: rows_first, repeat: false };
            let first = rows_first + later;
            let values: Vec<String> =
                (0..u64::from(clients) + later).map(|row| format!("\"{row}")).collect();
            let filled = |mut column: Column| {
                values.iter().for_each(|value| column.push(value));
                column
            };
            let whole = filled(Column::new(&rows));
            let mut kept = 0;
            for index in 0..count {
                let shard = Shard::new(index, count).unwrap();
                let own = Arc::new(filled(Column::of_shard(&rows, first, shard)));
                let escaped = own.escaped_for_json();
                prop_assert_eq!(own.rows(), whole.rows());
                prop_assert_eq!(escaped.rows(), whole.rows());
                for local in 0..shard.share(clients) {
                    let n = first + u64::from(shard.global(local));
                    prop_assert_eq!(own.value(n), whole.value(n));
                    prop_assert_eq!(escaped.value(n), format!("\\{}", whole.value(n)));
                }
                kept += own.values().count();
            }
            prop_assert_eq!(kept, values.len());
        }
    }
}
