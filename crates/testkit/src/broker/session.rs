//! State of the broker for each client: subscriptions, and messages in transit in both directions.
//! The code shares nothing with `mqtt::MqttSession` and is as simple as possible, so that both have
//! different faults.

use std::collections::{BTreeSet, VecDeque};

use mqtt::{Ack, Packet, PacketId, Publish, QoS, SubscriptionOptions, Version, topic};

use super::script::SendLimits;
use super::{BrokerMessage, LinkId};

#[derive(Debug, Default)]
pub(super) struct ClientState {
    pub(super) link: Option<LinkId>,
    pub(super) persistent: bool,
    /// Version that the client spoke last.
    pub(super) version: Version,
    pub(super) subscriptions: Vec<(String, QoS)>,
    /// Filters of subscriptions with Retain As Published.
    pub(super) as_published: BTreeSet<String>,
    /// QoS 2 messages from the client that are not released.
    pub(super) received: BTreeSet<PacketId>,
    /// QoS 1 and 2 messages that wait for the window, or for a connection of the client.
    queue: VecDeque<Queued>,
    in_flight: Vec<Unacknowledged>,
    last_packet_id: PacketId,
}

#[derive(Debug)]
struct Queued {
    message: BrokerMessage,
    /// Instant from which the broker may not begin to deliver the message, in ns.
    expires_ns: u64,
}

#[derive(Debug)]
struct Unacknowledged {
    packet_id: PacketId,
    message: BrokerMessage,
    /// True after PUBREC has arrived and PUBREL was sent.
    released: bool,
}

impl ClientState {
    /// Number of QoS 1 and 2 messages that the client has not fully acknowledged.
    pub(super) fn pending(&self) -> usize {
        self.queue.len() + self.in_flight.len()
    }

    /// QoS granted on `name` by each filter without shared subscriptions, the highest first
    /// `[MQTT-3.3.5-1]`.
    pub(super) fn granted(&self, name: &str) -> impl Iterator<Item = QoS> {
        let own = self.matching(name).filter(|(filter, _)| topic::shared(filter).is_none());
        let mut levels: Vec<QoS> = own.map(|&(_, qos)| qos).collect();
        levels.sort_unstable_by(|one, other| other.cmp(one));
        levels.into_iter()
    }

    /// Shared subscriptions that match `name`, with the QoS granted.
    pub(super) fn shared(&self, name: &str) -> impl Iterator<Item = &(String, QoS)> {
        self.matching(name).filter(|(filter, _)| topic::shared(filter).is_some())
    }

    fn matching(&self, name: &str) -> impl Iterator<Item = &(String, QoS)> {
        self.subscriptions.iter().filter(move |(filter, _)| topic::matches(filter, name))
    }

    /// Adds a subscription, or replaces a subscription with an equal filter `[MQTT-3.8.4-3]`.
    pub(super) fn subscribe(&mut self, filter: &str, options: SubscriptionOptions) {
        self.unsubscribe(filter);
        self.subscriptions.push((filter.to_owned(), options.qos));
        if options.retain_as_published {
            self.as_published.insert(filter.to_owned());
        }
    }

    pub(super) fn unsubscribe(&mut self, filter: &str) {
        self.subscriptions.retain(|(known, _)| known != filter);
        self.as_published.remove(filter);
    }

    /// Returns `true` if messages on `name` keep their RETAIN flag `[MQTT5-3.3.1-13]`.
    pub(super) fn retains(&self, name: &str) -> bool {
        self.matching(name).any(|(filter, _)| self.as_published.contains(filter))
    }

    /// Sends a message, or queues a QoS 1 or 2 message.
    pub(super) fn deliver(
        &mut self,
        message: BrokerMessage,
        limits: SendLimits,
        out: &mut Vec<u8>,
    ) {
        if message.qos != QoS::AtMostOnce {
            let expires_ns = limits.now_ns.saturating_add(message.life_ns());
            self.queue.push_back(Queued { message, expires_ns });
            self.fill_window(limits, out);
        } else if self.link.is_some() {
            write_message(&message, self.version, (0, false), out);
        }
    }

    pub(super) fn fill_window(&mut self, limits: SendLimits, out: &mut Vec<u8>) {
        while self.link.is_some() && self.in_flight.len() < limits.window {
            let Some(Queued { mut message, expires_ns }) = self.queue.pop_front() else { return };
            if expires_ns <= limits.now_ns {
                continue; // [MQTT5-3.3.2-5]
            }
            message.reduce_expiry(expires_ns - limits.now_ns);
            let packet_id = self.free_packet_id();
            write_message(&message, self.version, (packet_id, false), out);
            self.in_flight.push(Unacknowledged { packet_id, message, released: false });
        }
    }

    /// Sends all messages in flight again after a reconnect, in order `[MQTT-4.4.0-1]`. As with the
    /// embedded broker, the identifiers of new messages begin at the first free one again.
    pub(super) fn resend(&mut self, out: &mut Vec<u8>) {
        self.last_packet_id = 0;
        for Unacknowledged { packet_id, message, released } in &self.in_flight {
            if *released {
                write(&Packet::PubRel(Ack::of(*packet_id)), self.version, out);
            } else {
                write_message(message, self.version, (*packet_id, true), out);
            }
        }
    }

    /// Handles PUBACK or PUBCOMP, and returns true if the packet ended a message.
    pub(super) fn settle(&mut self, packet_id: PacketId, qos: QoS) -> bool {
        let before = self.in_flight.len();
        self.in_flight.retain(|entry| {
            let fits = entry.packet_id == packet_id && entry.message.qos == qos;
            !(fits && (entry.released || qos == QoS::AtLeastOnce))
        });
        self.in_flight.len() < before
    }

    /// Handles PUBREC.
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

fn write_message(
    message: &BrokerMessage,
    version: Version,
    (packet_id, dup): (PacketId, bool),
    out: &mut Vec<u8>,
) {
    let BrokerMessage { topic, payload, qos, retain, properties } = message;
    let properties = properties.properties();
    let flags = Publish { dup, qos: *qos, retain: *retain, ..Publish::default() };
    let publish = Publish { topic, packet_id, properties, payload, ..flags };
    write(&Packet::Publish(publish), version, out);
}

pub(super) fn write(packet: &Packet<'_>, version: Version, out: &mut Vec<u8>) {
    packet.encode(version, out).expect("tests send short packets");
}
