//! Finds out at intervals if any of many waits: a check begins with the one that was found last, so
//! that many checks for one that waits long cost little.

/// Place of the one that was found last.
#[derive(Default)]
pub struct Unfinished(usize);

impl Unfinished {
    /// Returns `true` if one of `all` waits.
    pub fn is_any<T>(&mut self, all: &[T], waits: impl Fn(&T) -> bool) -> bool {
        let (before, from) = all.split_at(self.0.min(all.len()));
        let found = from.iter().chain(before).position(waits);
        if let Some(distance) = found {
            self.0 = (self.0 + distance) % all.len();
        }
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn one_that_waits_long_is_found_at_once() {
        const ALL: usize = 1_000_000;
        let mut clients = vec![false; ALL];
        let asked = Cell::new(0);
        let waits = |&client: &bool| {
            asked.set(asked.get() + 1);
            client
        };
        let mut unfinished = Unfinished::default();
        clients[ALL - 1] = true;
        for _ in 0..1000 {
            assert!(unfinished.is_any(&clients, waits));
        }
        assert_eq!(asked.take(), ALL + 999, "all of them once");
        clients[ALL - 1] = false;
        clients[7] = true;
        assert!(unfinished.is_any(&clients, waits), "also before the last one");
        assert_eq!(asked.take(), 9);
        clients[7] = false;
        assert!(!unfinished.is_any(&clients, waits));
        assert_eq!(asked.take(), ALL, "every one was asked");
        assert!(!unfinished.is_any(&[], waits));
    }
}
