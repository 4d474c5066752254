//! What the broker keeps per client: subscriptions, and messages on their way in both directions.
//! Written apart from `mqtt::Session` and in the plainest way, so as not to share its faults.

use std::collections::{BTreeSet, VecDeque};

use mqtt::{Packet, PacketId, Publish, QoS, topic};

use super::{LinkId, Message};

#[derive(Debug, Default)]
pub(super) struct ClientState {
    pub(super) link: Option<LinkId>,
    pub(super) persistent: bool,
    pub(super) subscriptions: Vec<(String, QoS)>,
    /// QoS 2 messages from the client that are not released.
    pub(super) received: BTreeSet<PacketId>,
    /// QoS 1 and 2 messages that wait for the window, or for the client to come back.
    queue: VecDeque<Message>,
    in_flight: Vec<InFlight>,
    last_packet_id: PacketId,
}

#[derive(Debug)]
struct InFlight {
    packet_id: PacketId,
    message: Message,
    /// PUBREC has come, PUBREL was sent.
    released: bool,
}

impl ClientState {
    /// QoS 1 and 2 messages that the client has not fully acknowledged.
    pub(super) fn pending(&self) -> usize {
        self.queue.len() + self.in_flight.len()
    }

    /// The highest QoS granted on `name` to a client alone `[MQTT-3.3.5-1]`.
    pub(super) fn granted(&self, name: &str) -> Option<QoS> {
        let own = self.matching(name).filter(|(filter, _)| topic::shared(filter).is_none());
        own.map(|&(_, qos)| qos).max()
    }

    /// Shared subscriptions that match `name`, and the QoS granted on them.
    pub(super) fn shared(&self, name: &str) -> impl Iterator<Item = &(String, QoS)> {
        self.matching(name).filter(|(filter, _)| topic::shared(filter).is_some())
    }

    fn matching(&self, name: &str) -> impl Iterator<Item = &(String, QoS)> {
        self.subscriptions.iter().filter(move |(filter, _)| topic::matches(filter, name))
    }

    /// An equal filter is replaced `[MQTT-3.8.4-3]`.
    pub(super) fn subscribe(&mut self, filter: &str, qos: QoS) {
        self.unsubscribe(filter);
        self.subscriptions.push((filter.to_owned(), qos));
    }

    pub(super) fn unsubscribe(&mut self, filter: &str) {
        self.subscriptions.retain(|(known, _)| known != filter);
    }

    /// Sends, or keeps for later; QoS 0 is not kept.
    pub(super) fn deliver(&mut self, message: Message, window: usize, out: &mut Vec<u8>) {
        if message.qos != QoS::AtMostOnce {
            self.queue.push_back(message);
            self.fill_window(window, out);
        } else if self.link.is_some() {
            write_message(&message, 0, false, out);
        }
    }

    pub(super) fn fill_window(&mut self, window: usize, out: &mut Vec<u8>) {
        while self.link.is_some() && self.in_flight.len() < window {
            let Some(message) = self.queue.pop_front() else { return };
            let packet_id = self.free_packet_id();
            write_message(&message, packet_id, false, out);
            self.in_flight.push(InFlight { packet_id, message, released: false });
        }
    }

    /// After a reconnect: all that is in flight once more, in order `[MQTT-4.4.0-1]`.
    pub(super) fn resend(&self, out: &mut Vec<u8>) {
        for InFlight { packet_id, message, released } in &self.in_flight {
            if *released {
                write(&Packet::PubRel { packet_id: *packet_id }, out);
            } else {
                write_message(message, *packet_id, true, out);
            }
        }
    }

    /// PUBACK or PUBCOMP. Returns whether it ended a message.
    pub(super) fn settle(&mut self, packet_id: PacketId, qos: QoS) -> bool {
        let before = self.in_flight.len();
        self.in_flight.retain(|entry| {
            let fits = entry.packet_id == packet_id && entry.message.qos == qos;
            !(fits && (entry.released || qos == QoS::AtLeastOnce))
        });
        self.in_flight.len() < before
    }

    /// PUBREC.
    pub(super) fn note_received(&mut self, packet_id: PacketId) {
        let found = self.in_flight.iter_mut().find(|entry| entry.packet_id == packet_id);
        if let Some(entry) = found
            && entry.message.qos == QoS::ExactlyOnce
        {
            entry.released = true;
        }
    }

    fn free_packet_id(&mut self) -> PacketId {
        loop {
            self.last_packet_id = self.last_packet_id.checked_add(1).unwrap_or(1);
            if self.in_flight.iter().all(|entry| entry.packet_id != self.last_packet_id) {
                return self.last_packet_id;
            }
        }
    }
}

fn write_message(message: &Message, packet_id: PacketId, dup: bool, out: &mut Vec<u8>) {
    let Message { topic, payload, qos, retain } = message;
    let publish = Publish { dup, qos: *qos, retain: *retain, topic, packet_id, payload };
    write(&Packet::Publish(publish), out);
}

pub(super) fn write(packet: &Packet<'_>, out: &mut Vec<u8>) {
    packet.encode(mqtt::Version::V311, out).expect("tests send short packets");
}
