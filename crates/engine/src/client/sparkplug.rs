//! Messages of Sparkplug B that belong to no publication: births, deaths, states and commands.

use super::unsent::UNSENT_MAX;
use super::{Client, ClientPhase, at};
use crate::context::Context;
use crate::seam::{Buffers, OwnMessage, Polled, Protocol, Request, Token};
use crate::sparkplug::{SparkplugAction, SparkplugClient, SparkplugClients, rebirth};

impl Client {
    /// Begins a connection. Returns its will, if the client has a part in Sparkplug.
    pub(super) fn open_sparkplug(&self, context: &mut Context) -> Option<OwnMessage> {
        self.of_sparkplug(context, SparkplugClients::open)
    }

    /// Appends the births of a node, or the state of a host. `is_asked`: a host asks for them.
    pub(super) fn send_births(&mut self, context: &mut Context, is_asked: bool) {
        let mut births = Vec::new();
        self.of_sparkplug(context, |own, of| own.births(of, &mut births));
        if births.is_empty() {
            return;
        }
        let is_node = context.sparkplug.node(self.population(), self.local).is_some();
        for birth in &births {
            let sent = self.send_own(context, birth);
            let counters = &mut context.tally.populations[self.population()].counters;
            counters.births_total += u64::from(sent && is_node);
        }
        let counters = &mut context.tally.populations[self.population()].counters;
        counters.rebirths_total += u64::from(is_asked && is_node);
    }

    /// Appends the death of a client that leaves by its own choice.
    pub(super) fn send_death(&mut self, context: &mut Context) {
        if self.phase != ClientPhase::Ready {
            return;
        }
        if let Some(death) = self.of_sparkplug(context, |own, of| own.death(of, true)) {
            self.send_own(context, &death);
        }
    }

    /// Carries out what the messages of a read have asked for.
    pub(super) fn act(&mut self, context: &mut Context) {
        for action in context.sparkplug.take_asked() {
            match action {
                // A client that is not ready sends its births when it is.
                SparkplugAction::Births | SparkplugAction::State => {
                    if self.phase == ClientPhase::Ready {
                        self.send_births(context, true);
                    }
                }
                SparkplugAction::Ask(topic) => {
                    let now_ms = (context.now_ns + context.setup.since_1970_ns) / 1_000_000;
                    let sent = self.send_own(context, &rebirth(topic, now_ms));
                    let counters = &mut context.tally.populations[self.population()].counters;
                    counters.rebirths_asked_total += u64::from(sent);
                }
            }
        }
    }

    /// Appends a message. Returns `false` if the client does not send it: the peer takes none of
    /// its kind or size, or does not read.
    fn send_own(&mut self, context: &mut Context, message: &OwnMessage) -> bool {
        let unsent = self.unsent.as_ref().map_or(0, |unsent| unsent.rest().len());
        if unsent + context.out.len() > UNSENT_MAX {
            return false;
        }
        let Context { setup, out, scratch, now_ns, .. } = context;
        let (at, token) = (at(self, setup, *now_ns), Token::own(*now_ns));
        let request = Request::Send(message, token);
        let polled = self.session.poll(&at, request, Buffers { out, scratch });
        let tally = &mut context.tally.populations[usize::from(self.population)];
        match polled {
            Polled::Sent(asked) => {
                tally.counters.packets_sent_total += asked.packets;
                tally.gauges.in_flight += u64::from(message.qos > 0 && !message.is_last);
                true
            }
            Polled::Refused(reason) => {
                tally.outcome(reason);
                false
            }
            Polled::Wait(_) | Polled::Nothing => false,
        }
    }

    fn of_sparkplug<T>(
        &self,
        context: &mut Context,
        act: impl FnOnce(&mut SparkplugClients, &SparkplugClient<'_>) -> T,
    ) -> T {
        let Context { setup, sparkplug, now_ns, .. } = context;
        let of = SparkplugClient {
            population: &setup.plan.populations[self.population()],
            index: self.population(),
            client: self.index,
            local: self.local,
            n: setup.number(self.population(), self.local),
            now_ms: (*now_ns + setup.since_1970_ns) / 1_000_000,
        };
        act(sparkplug, &of)
    }
}
