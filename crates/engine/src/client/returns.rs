//! Messages that the broker returns because no queue takes them, and times in which the broker
//! accepts no messages.

use plan::{Reason, WaitCause};

use super::Client;
use crate::context::Context;
use crate::seam::Protocol;

impl Client {
    /// Counts a message of this name that came back: no subscriber receives it.
    #[cold]
    pub(super) fn returned(&self, context: &mut Context, name: &str, reason: Reason) {
        let population = self.population();
        let client = self.global(context);
        let tally = &mut context.tally;
        tally.populations[population].counters.returned_total += 1;
        tally.populations[population].outcome(reason);
        let publications = &context.setup.plan.populations[population].publications;
        if let Some(index) = publications.iter().position(|own| own.topic.renders(name)) {
            let publication = (population, client, index);
            context.expectations.expect(&context.setup, tally, publication, (name, -1));
        }
    }

    /// Counts a block of the broker, or its end. Returns `true` if publications can continue.
    #[cold]
    pub(super) fn blocked(&mut self, context: &mut Context, is_blocked: bool) -> bool {
        let counters = &mut context.tally.populations[usize::from(self.population)].counters;
        counters.blocked_total += u64::from(is_blocked);
        if !is_blocked {
            counters.blocked_ns += self.session.blocked_ns(context.now_ns);
            self.free_from(WaitCause::Window, context.now_ns);
        }
        !is_blocked
    }
}
