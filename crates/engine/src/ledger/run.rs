//! Plain deliveries of one stream that follow each other in one read. Their window and their
//! latencies wait outside of the ledger and of the histograms until the run ends.

use agent::ledger::Window;
use plan::{FlowSnapshot, LatencyBatch, Stamp};

/// Deliveries that are not counted yet.
pub struct DeliveryRun {
    /// Window of the stream, which is stale in the ledger.
    window: Window,
    latencies: LatencyBatch,
    count: u32,
}

impl DeliveryRun {
    /// No deliveries.
    pub const NONE: Self =
        Self { window: Window::UNUSED, latencies: LatencyBatch::EMPTY, count: 0 };

    /// Begins a run with the window of its stream.
    pub fn begin(&mut self, window: Window) {
        *self = Self { window, ..Self::NONE };
    }

    /// Notes a delivery at `now_ns` if it is the next of the stream. Returns `false` and notes
    /// nothing otherwise.
    #[inline]
    pub fn note<'f>(
        &mut self,
        stamp: &Stamp,
        now_ns: u64,
        flow: impl FnOnce() -> &'f mut FlowSnapshot,
    ) -> bool {
        if !self.window.note_next(stamp.sequence) {
            return false;
        }
        self.count += 1;
        let Stamp { intended_ns, sent, .. } = *stamp;
        if !self.latencies.record(now_ns, intended_ns, sent) {
            let latencies = &mut flow().deliveries();
            self.latencies.record_rest((now_ns, intended_ns), sent, latencies);
        }
        true
    }

    /// Number of deliveries.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Adds the latencies to those of a flow. Returns the window of the stream.
    pub fn end(&mut self, flow: &mut FlowSnapshot) -> Window {
        self.latencies.flush(&mut flow.deliveries());
        self.window
    }
}
