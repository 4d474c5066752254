//! The end of an interval: a snapshot of the counts, or none while the controller does not read.

use agent::tally::SnapshotHead;

use super::EventLoop;
use crate::client::ClientPhase;
use crate::context::Context;
use crate::expectations::stalls::{Scene, Watched};

impl EventLoop {
    /// Ends an interval. Without room for its snapshot, the counters keep it for the next one.
    pub(super) fn end_interval(&mut self) {
        let Context { tally, now_ns, .. } = &mut self.context;
        if let Some(is_held) = self.stages.note_silence(*now_ns, tally) {
            self.hold(is_held);
        }
        if self.stages.has_room() {
            self.snapshot();
        } else {
            self.stages.begin_interval(self.context.now_ns);
        }
    }

    /// Sends the counts since the last snapshot, and begins an interval.
    pub(super) fn snapshot(&mut self) {
        self.stages.begin_interval(self.context.now_ns);
        self.note_backlogs();
        self.context.note_takeovers();
        self.look_for_stalls();
        let moment = SnapshotHead {
            agent: self.context.setup.agent.index(),
            stage: self.stage.as_ref().map(|stage| stage.index),
            settled: self.stages.is_settled(),
            now_ns: self.context.now_ns,
            ledger_pairs: self.context.ledger.pairs(),
        };
        let mut snapshot = self.context.tally.snapshot(&moment);
        snapshot.stalls = self.context.stalls.take();
        self.stages.send(snapshot);
    }

    /// Stops publishing, since the controller is silent, or continues.
    fn hold(&mut self, is_held: bool) {
        let now_ns = self.context.now_ns;
        if let Some(publishing) = &mut self.context.publishing {
            publishing.hold(now_ns, is_held);
        }
        for population in 0..self.context.setup.populations.len() {
            self.publish_due(population);
        }
    }

    fn look_for_stalls(&mut self) {
        let closed = self.stage.as_ref().is_some_and(|stage| stage.closed);
        let Context { stalls, setup, tally, publishing, expectations, flaps, now_ns, .. } =
            &mut self.context;
        let publishing = publishing.as_ref().filter(|_| !closed);
        let scene = Scene { setup, publishing, active: &expectations.active, now_ns: *now_ns };
        let watched = |index: usize| {
            let client = &self.clients[index];
            let reads = client.phase() == ClientPhase::Ready
                && !client.is_paused()
                && !flaps.is_unsubscribed(client.population(), client.local());
            Watched { population: client.population(), local: client.local(), reads }
        };
        stalls.check(&scene, &mut tally.populations, watched);
    }
}
