//! Phases of an attempt to connect: TCP, the handshake of TLS or QUIC, acceptance, subscriptions.
//! Each is recorded when it ends, so an attempt that fails later has its first phases. Together
//! they are the connect time of an attempt that succeeds, and the time of its subscriptions.

use plan::{Histogram, PopulationSnapshot};

use super::Client;
use crate::context::Context;
use crate::transport::Stream;

impl Client {
    /// Returns `true` if the handshake of TLS has ended in this attempt.
    pub(super) fn is_secure(&self) -> bool {
        self.next_due_ns != u64::MAX && self.stream.as_ref().is_some_and(Stream::is_secure)
    }

    /// Records the phases that a handshake has ended: that of TCP, and that of TLS or QUIC unless
    /// it `was_secure` before.
    pub(super) fn end_handshakes(&mut self, context: &mut Context, was_secure: bool) {
        let Some(stream) = &self.stream else { return };
        let (is_open, is_secure) = (stream.is_open(), stream.is_secure());
        if self.next_due_ns == u64::MAX && is_open {
            self.end_phase(context, |tally| &mut tally.connect_tcp);
        }
        if is_secure && !was_secure {
            self.end_phase(context, |tally| &mut tally.connect_tls);
        }
    }

    /// Records the phase that ends when the peer accepts the client.
    pub(super) fn end_accepting(&mut self, context: &mut Context) {
        self.end_phase(context, |tally| &mut tally.connect_accept);
    }

    /// Records the phase that ends with the answer to the last subscription.
    pub(super) fn end_subscribing(&mut self, context: &mut Context) {
        self.end_phase(context, |tally| &mut tally.connect_subscribe);
    }

    /// Records the time since the last phase, or since the start of the attempt.
    fn end_phase(
        &mut self,
        context: &mut Context,
        of: impl FnOnce(&mut PopulationSnapshot) -> &mut Histogram,
    ) {
        let population = self.population();
        let timeout_ns = context.setup.plan.populations[population].connect_timeout_ns;
        let since_ns = match self.next_due_ns {
            u64::MAX => self.deadline_ns - timeout_ns,
            since_ns => since_ns,
        };
        if context.now_ns == since_ns {
            // The last phase has ended in this turn, which may have lasted long.
            context.now_ns = context.host.now_ns();
        }
        let took_ns = context.now_ns.cast_signed() - since_ns.cast_signed();
        of(&mut context.tally.populations[population]).record(took_ns);
        self.next_due_ns = context.now_ns;
    }
}
