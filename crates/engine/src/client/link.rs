//! The link of a client: its timer, and its figures.

use plan::Random;

use super::{Client, at};
use crate::context::Context;
use crate::transport::Stream;
use crate::transport::link::ClientLink;

/// Purpose of the random values of links.
const LINKS: u64 = 0x11_4b5;

impl Client {
    /// The link of a new connection, if the population has one.
    pub(super) fn link(&self, context: &Context) -> Option<Box<ClientLink>> {
        let schedule = context.setup.populations[self.population()].link.as_ref()?;
        let n = at(self, &context.setup, context.now_ns).n;
        let random = Random::new(context.setup.plan.seed, LINKS).of(u64::from(self.population));
        Some(Box::new(ClientLink::new(schedule, random.of(n).of(context.now_ns))))
    }

    /// Bytes have passed the link: those of the client go to the socket, and make room for more;
    /// those of the peer are read.
    pub(super) fn pass_on(&mut self, context: &mut Context) {
        if let Some(stream) = &mut self.stream {
            stream.pass_on();
        }
        self.writable(context);
        self.readable(context, false);
    }

    /// Counts the events in the link, and lets its timer be set.
    pub fn settle_link(&mut self, context: &mut Context) {
        if context.setup.populations[self.population()].link.is_none() {
            return;
        }
        self.retime = true;
        let figures = self.stream.as_mut().and_then(Stream::take_link_figures);
        let Some(figures) = figures else { return };
        let tally = &mut context.tally.populations[usize::from(self.population)];
        tally.counters.link_retransmissions_total += figures.retransmissions;
        tally.counters.link_full_total += figures.full;
        for (time_ns, wait_ns) in figures.bursts {
            tally.link_time.record(time_ns.cast_signed());
            tally.link_wait.record(wait_ns.cast_signed());
        }
    }

    /// Returns `true` while bytes of the client wait for the socket, or are in the link.
    pub(super) fn is_sending(&self) -> bool {
        let in_link = self.stream.as_ref().and_then(Stream::sends_until_ns);
        self.unsent.is_some() || in_link.is_some()
    }
}
