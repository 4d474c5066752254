//! Received messages: assembles frames, finds the publisher of a message by stamp or topic, and
//! notes the message in the ledger.

use agent::ledger::{Delivery, Ledger};
use agent::tally::is_received;
use plan::Stamp;
use zmq::Socket;

use crate::event_loop::Shared;
use crate::setup::{Result, ZmqSetup};

/// The last message, and the facts that identify its publisher.
pub struct LastMessage {
    topic: zmq::Message,
    payload: zmq::Message,
    /// The message has a separate frame for the topic.
    has_topic: bool,
    /// Population of each publication, over all populations.
    publisher_of: Vec<usize>,
    /// Some payloads of text carry a stamp.
    stamps_text: bool,
}

impl LastMessage {
    /// Creates the state for the publications of a plan.
    pub fn new(setup: &ZmqSetup) -> Self {
        let populations = setup.plan.populations.iter().enumerate();
        let publications = populations.flat_map(|(p, of)| of.publications.iter().map(move |_| p));
        let is_text = |publication: &plan::Publication| {
            agent::publication::is_stamped_text(&publication.payload)
        };
        let stamps_text = setup.plan.populations.iter().flat_map(|p| &p.publications).any(is_text);
        Self {
            topic: zmq::Message::new(),
            payload: zmq::Message::new(),
            has_topic: false,
            publisher_of: publications.collect(),
            stamps_text,
        }
    }

    /// Takes the next message of a socket; `false`: no message waits.
    pub fn take(&mut self, socket: &Socket) -> Result<bool> {
        match socket.recv(&mut self.payload, zmq::DONTWAIT) {
            Ok(()) => {}
            Err(zmq::Error::EAGAIN) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.has_topic = self.payload.get_more();
        if self.has_topic {
            std::mem::swap(&mut self.topic, &mut self.payload);
        }
        // All frames of a message arrive together; no agent sends more than two.
        let mut more = self.has_topic;
        while more {
            socket.recv(&mut self.payload, 0)?;
            more = self.payload.get_more();
        }
        Ok(true)
    }

    /// Counts the last message, for a receiver.
    pub fn note(&self, receiver: u32, ledger: &mut Ledger, shared: &mut Shared) {
        let to = shared.setup.population;
        let counters = &mut shared.tally.populations[to].counters;
        counters.packets_received_total += 1;
        let topic_bytes = if self.has_topic { self.topic.len() } else { 0 };
        counters.bytes_received_total += (topic_bytes + self.payload.len()) as u64;
        let stamp = self.stamp(shared.setup.plan.run_tag);
        let from = stamp.and_then(|s| self.publisher_of.get(usize::from(s.stream.publication)));
        let (Some(stamp), Some(&from)) = (stamp, from) else {
            match self.unstamped_publisher(&shared.setup) {
                Some(from) => {
                    let counters = &mut shared.tally.flow(from, to).counters;
                    counters.received_total += 1;
                    counters.expected_total += i64::from(shared.is_excluded);
                }
                None => counters.foreign_total += 1,
            }
            return;
        };
        let delivery = ledger.note(receiver, stamp.stream, stamp.sequence);
        // Engines report expected deliveries, except those that are expected as received.
        let counters = &mut shared.tally.flow(from, to).counters;
        if is_received(counters, delivery, !shared.is_excluded) {
            counters.expected_total += i64::from(shared.is_excluded);
            shared.tally.unfollowed_total += u64::from(delivery == Delivery::Unfollowed);
            shared.tally.note_received((from, to), receiver, &stamp, shared.now_ns);
        }
    }

    fn stamp(&self, run_tag: u32) -> Option<Stamp> {
        let is_ours = |stamp: &Stamp| stamp.run_tag == run_tag;
        let first = Stamp::read(&self.payload).filter(is_ours);
        let in_text = || self.stamps_text.then(|| Stamp::find(&self.payload)).flatten();
        first.or_else(|| in_text().filter(is_ours))
    }

    /// Returns the population with an unstamped publication of the topic, if one exists.
    fn unstamped_publisher(&self, setup: &ZmqSetup) -> Option<usize> {
        let topic = if self.has_topic { self.topic.as_str()? } else { "" };
        let mut publications = setup.plan.populations.iter().zip(&setup.publications).enumerate();
        publications.find_map(|(p, (population, ready))| {
            let mut publications = population.publications.iter().zip(ready);
            publications.any(|(one, ready)| !ready.stamped && one.topic.renders(topic)).then_some(p)
        })
    }
}
