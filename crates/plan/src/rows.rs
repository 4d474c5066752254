//! A column of a file with one row for each client: the value for a client's number, and the
//! numbers that have a value. It reads no file.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::model::Rows;

/// The values of one column.
#[derive(Debug)]
pub struct Column {
    /// All values, one after the other.
    text: String,
    /// Where in it each ends.
    ends: Vec<usize>,
    /// The client number that has the first row.
    first: u64,
    /// Rows in the order of their values, made when it is first needed.
    order: OnceLock<Vec<u32>>,
}

impl Column {
    /// An empty column of a file.
    #[must_use]
    pub const fn new(rows: &Rows) -> Self {
        Self::empty(rows.first)
    }

    /// Adds the value of the next row.
    pub fn push(&mut self, value: &str) {
        self.text.push_str(value);
        self.ends.push(self.text.len());
        self.order = OnceLock::new();
    }

    /// The same column, each value as it stands within a string of JSON.
    #[must_use]
    pub fn escaped_for_json(self: &Arc<Self>) -> Arc<Self> {
        let quoted =
            |value: &str| serde_json::to_string(value).expect("a text can be written as JSON");
        if quoted(&self.text).len() == self.text.len() + 2 {
            return Arc::clone(self);
        }
        let mut escaped = Self::empty(self.first);
        for value in self.values().map(quoted) {
            escaped.push(&value[1..value.len() - 1]);
        }
        escaped.shrink_to_fit();
        Arc::new(escaped)
    }

    /// Gives back what growing has left over.
    pub fn shrink_to_fit(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// How many rows it has.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.ends.len()
    }

    /// The value for client number `n`; beyond the last row the first comes again. Empty where
    /// there is no row.
    #[must_use]
    #[inline]
    pub fn value(&self, n: u64) -> &str {
        if self.ends.is_empty() { "" } else { self.at(self.row(n)) }
    }

    /// All values, in the order of their rows.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|row| self.at(row))
    }

    /// Bytes of the longest value.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.values().map(str::len).max().unwrap_or(0)
    }

    /// Whether some row has this value.
    #[must_use]
    pub fn has(&self, value: &str) -> bool {
        !self.rows_with(value).is_empty()
    }

    /// Rows that have this value, rising.
    pub(crate) fn rows_with(&self, value: &str) -> &[u32] {
        let order = self.order.get_or_init(|| {
            let mut order: Vec<u32> = (0..self.ends.len() as u32).collect();
            order.sort_by_key(|&row| (self.at(row as usize), row));
            order
        });
        let from = order.partition_point(|&row| self.at(row as usize) < value);
        let count = order[from..].partition_point(|&row| self.at(row as usize) == value);
        &order[from..from + count]
    }

    /// The numbers from `from` to `to` that have a row, as far as they lie in that span, rising.
    pub(crate) fn numbers_of(&self, row: u32, span: Range<u64>) -> impl Iterator<Item = u64> {
        let (rows, start) = (self.ends.len().max(1) as u64, self.first + u64::from(row));
        let rounds = span.start.saturating_sub(start).div_ceil(rows);
        let next = start + rounds * rows;
        (next..span.end.max(next)).step_by(rows as usize)
    }

    const fn empty(first: u64) -> Self {
        Self { text: String::new(), ends: Vec::new(), first, order: OnceLock::new() }
    }

    #[inline]
    fn row(&self, n: u64) -> usize {
        (n.saturating_sub(self.first) % self.ends.len() as u64) as usize
    }

    #[inline]
    fn at(&self, row: usize) -> &str {
        let from = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.text[from..self.ends[row]]
    }
}
