//! Messages of Sparkplug B that belong to no publication: births, deaths, states and commands.

use plan::Sparkplug;

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

    /// Appends the birth of the device that is dead, before the node sends data.
    pub(super) fn revive_device(&mut self, context: &mut Context) {
        if let Some(birth) = self.of_sparkplug(context, SparkplugClients::revive) {
            let sent = self.send_own(context, &birth);
            let counters = &mut context.tally.populations[self.population()].counters;
            counters.births_total += u64::from(sent);
        }
    }

    /// Lets the device of the last message die, by a draw, if the node has sent data since
    /// `before` messages.
    pub(super) fn kill_device(&mut self, context: &mut Context, before: u64) {
        let population = &context.setup.plan.populations[self.population()];
        let node = population.sparkplug().and_then(Sparkplug::node);
        let deaths = node.map_or(0.0, |node| node.device_deaths);
        let sent = self.sent_of_all();
        if deaths == 0.0 || sent == before {
            return;
        }
        let ready = &context.setup.populations[self.population()].publications;
        let Some((progress, ready)) = self.publications.iter().zip(ready).next() else { return };
        let (client, number) = (self.global(context), progress.sent().saturating_sub(1));
        // The sizes of these payloads are not drawn.
        let chance = ready.sizes.of(u64::from(client)).of(sent).unit();
        let place = ready.variants.of(client, number);
        if chance < deaths
            && let Some(death) = self.of_sparkplug(context, |own, of| own.kill(of, place))
        {
            self.send_own(context, &death);
        }
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
