//! Migration: the connection of a client over QUIC changes to another port while it is open.

use plan::{PopulationSnapshot, Reason, TextProperty};

use super::{Client, ClientPhase};
use crate::context::Context;
use crate::transport::Stream;

impl Client {
    /// Changes the connection of a ready client to another port, if it is one of QUIC.
    pub fn migrate(&mut self, context: &mut Context) {
        context.has_migrations = true;
        let has_moved =
            self.phase == ClientPhase::Ready && self.stream.as_ref().is_some_and(Stream::migrate);
        let counters = &mut context.tally.populations[self.population()].counters;
        counters.migrated_total += u64::from(has_moved);
    }

    /// Counts a migration that has ended the connection, and what explains the end of it.
    pub(super) fn explain_end(&self, tally: &mut PopulationSnapshot, reason: Reason) {
        let mut explain = |words: &str| {
            tally.explanations.count(reason, TextProperty::Detail, words);
        };
        if self.phase == ClientPhase::Subscribing && reason.is_end_by_peer() {
            explain("before SUBACK");
        }
        let Some(stream) = &self.stream else { return };
        if let Some(words) = stream.last_words() {
            explain(&words);
        }
        if stream.is_migrating() {
            explain("after a migration");
            tally.counters.migrations_lost_total += 1;
        }
    }

    /// Counts a migration that the peer has followed.
    pub fn settle_migration(&self, context: &mut Context) {
        let has_followed = self.stream.as_ref().is_some_and(Stream::takes_followed);
        let counters = &mut context.tally.populations[self.population()].counters;
        counters.migrations_followed_total += u64::from(has_followed);
    }
}
