//! What a subscriber receives: frames into a message, the message to its publisher by its stamp or
//! its topic, and its place into the ledger. It knows no connection.

use agent::ledger::Ledger;
use anyhow::Result;
use plan::Stamp;
use zmq::Socket;

use crate::event_loop::Shared;
use crate::own::Own;

/// The message that was taken last, and what tells whose it is.
pub struct Arrivals {
    topic: zmq::Message,
    payload: zmq::Message,
    /// Whether it has a frame of its own for the topic.
    has_topic: bool,
    /// Population of each publication, over all populations.
    publisher_of: Vec<usize>,
    /// Whether some payloads of text carry a stamp.
    stamps_text: bool,
}

impl Arrivals {
    /// For the publications of a plan.
    pub fn new(own: &Own) -> Self {
        let populations = own.plan.populations.iter().enumerate();
        let publications = populations.flat_map(|(p, of)| of.publications.iter().map(move |_| p));
        let is_text = |publication: &plan::Publication| {
            agent::publication::is_stamped_text(&publication.payload)
        };
        let stamps_text = own.plan.populations.iter().flat_map(|p| &p.publications).any(is_text);
        Self {
            topic: zmq::Message::new(),
            payload: zmq::Message::new(),
            has_topic: false,
            publisher_of: publications.collect(),
            stamps_text,
        }
    }

    /// Takes the next message of a socket; `false`: there is none now.
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
        // All frames of a message arrive together; those between the first and the last are not
        // ours.
        let mut more = self.has_topic;
        while more {
            socket.recv(&mut self.payload, 0)?;
            more = self.payload.get_more();
        }
        Ok(true)
    }

    /// Counts the message that was taken last, for a receiver.
    pub fn note(&self, receiver: u32, ledger: &mut Ledger, shared: &mut Shared) {
        let to = shared.own.population;
        let counters = &mut shared.tally.populations[to].counters;
        counters.packets_received_total += 1;
        let topic_bytes = if self.has_topic { self.topic.len() } else { 0 };
        counters.bytes_received_total += (topic_bytes + self.payload.len()) as u64;
        let stamp = self.stamp(shared.own.plan.run_tag);
        let from = stamp.and_then(|s| self.publisher_of.get(usize::from(s.stream.publication)));
        let (Some(stamp), Some(&from)) = (stamp, from) else {
            match self.unstamped_publisher(&shared.own) {
                Some(from) => shared.tally.flow(from, to).counters.received_total += 1,
                None => counters.foreign_total += 1,
            }
            return;
        };
        let delivery = ledger.note(receiver, stamp.stream, stamp.sequence);
        // What it is owed is said by the engines.
        shared.tally.deliveries((from, to), true, shared.now_ns).note(delivery, &stamp);
    }

    fn stamp(&self, run_tag: u32) -> Option<Stamp> {
        let is_ours = |stamp: &Stamp| stamp.run_tag == run_tag;
        let first = Stamp::read(&self.payload).filter(is_ours);
        let in_text = || self.stamps_text.then(|| Stamp::find(&self.payload)).flatten();
        first.or_else(|| in_text().filter(is_ours))
    }

    /// The population whose unstamped publication has its topic, if there is one.
    fn unstamped_publisher(&self, own: &Own) -> Option<usize> {
        let topic = if self.has_topic { self.topic.as_str()? } else { "" };
        let mut publications = own.plan.populations.iter().zip(&own.publications).enumerate();
        publications.find_map(|(p, (population, ready))| {
            let mut own = population.publications.iter().zip(ready);
            own.any(|(one, ready)| !ready.stamped && one.topic.renders(topic)).then_some(p)
        })
    }
}
