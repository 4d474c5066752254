//! Virtual time: it moves when the test says so.

/// A clock in ns, beginning at 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    now_ns: u64,
}

impl Clock {
    /// The present, in ns.
    #[must_use]
    pub const fn now_ns(self) -> u64 {
        self.now_ns
    }

    /// Lets `ns` pass.
    pub const fn advance(&mut self, ns: u64) {
        self.now_ns += ns;
    }
}
