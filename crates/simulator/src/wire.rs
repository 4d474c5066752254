//! Decodes the bytes of the simulated connections, independently of the engine: the messages that
//! clients have written and read, each by its stamp.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mqtt::{
    Connect, DecodedPacket, Packet, PacketType, Properties, Property, Publish, QoS, Reasoned,
    Value, Version, decode,
};
use plan::{NUMBERED_BYTES, STAMP_PROPERTY, Stamp};
use rustc_hash::FxHashMap;
use testkit::{Frames, KEPT};

use super::amqp::AmqpRecord;
use super::carrier::STRIPPED;
use super::nats::{NatsOperation, NatsRecord};
use super::scram::ScramExchange;
use super::spoken::Spoken;

/// First level of the response topics of these plans.
pub const REPLY: &str = "reply/";
/// A client: its agent and its index there.
pub type AgentClient = (usize, u32);
/// A message: its stream and its place there.
pub type StreamPlace = (u64, u32);

/// Messages, packets and bytes of all connections.
#[derive(Default)]
pub struct WireRecord {
    ways: FxHashMap<(usize, bool), WireWay>,
    /// Connections of NATS clients.
    nats: FxHashMap<usize, NatsRecord>,
    /// Connections of AMQP clients.
    amqp: FxHashMap<usize, AmqpRecord>,
    /// Frames of clients, by connection.
    up: FxHashMap<usize, Frames<true>>,
    /// Frames of the broker, for connections that have some.
    down: FxHashMap<usize, Frames<false>>,
    /// Number of times that clients have written each message in full, and its QoS.
    pub sent: BTreeMap<StreamPlace, (u64, QoS)>,
    /// Number of times that each client has read each message in full.
    pub received: BTreeMap<(AgentClient, StreamPlace), u64>,
    /// Answers that each client has written in full for the first time.
    pub answers_sent: BTreeMap<AgentClient, u64>,
    /// Answers that each client has written in full again. The first time was perhaps cut off.
    pub answers_resent: BTreeMap<AgentClient, u64>,
    /// Number of times that each client has read an answer to each request.
    pub answers: BTreeMap<(AgentClient, StreamPlace), u64>,
    /// Number of times that each client has read each message in a stage after its own.
    pub late: BTreeMap<(AgentClient, StreamPlace), u64>,
    /// Number of times that each client has read each message with the RETAIN flag of its
    /// publisher; `received` contains these messages.
    pub as_published: BTreeMap<(AgentClient, StreamPlace), u64>,
    /// Number of times that each client has read each message that the broker had kept.
    pub kept: BTreeMap<(AgentClient, StreamPlace), u64>,
    /// Start of the stage that is played, in nanoseconds.
    pub stage_ns: u64,
    /// Wills that each client has read in full, by the index of the population in their topic.
    pub wills: BTreeMap<(AgentClient, usize), u64>,
    /// Number of messages without their stamp that each client has read in full: a program has
    /// carried them.
    pub stripped: BTreeMap<AgentClient, u64>,
    /// Number of filters whose removal each client has read.
    pub removed: BTreeMap<AgentClient, u64>,
    /// Subscriptions of the client of each connection.
    requests: FxHashMap<usize, Requests>,
    /// Authentications, by connection and client.
    pub exchanges: BTreeMap<(usize, AgentClient), ScramExchange>,
    /// Number of packets above its Maximum Packet Size that each client has read.
    pub large: BTreeMap<AgentClient, u64>,
    /// Maximum Packet Size of the client of each connection that announces one.
    maxima: FxHashMap<usize, usize>,
    /// Packets that clients have written in full.
    pub packets_sent: u64,
    /// Packets that clients have read in full.
    pub packets_received: u64,
    /// Bytes that clients have written.
    pub bytes_sent: u64,
    /// Bytes that clients have read.
    pub bytes_received: u64,
    /// Waits of all agents.
    pub turns_total: u64,
    /// The turn and the intended instant of each message that its client wrote first in a turn.
    pub first_of_turn: Vec<(u64, u64)>,
    last_turns: FxHashMap<usize, u64>,
    /// Messages of Sparkplug that clients have written and read in full, in order.
    pub sparkplug: [Vec<SparkplugMessage>; 2],
}

/// A message of Sparkplug: its client, its topic and its payload.
pub type SparkplugMessage = (AgentClient, String, Vec<u8>);

/// One direction of a connection.
#[derive(Default)]
struct WireWay {
    /// The front of a packet.
    partial: Vec<u8>,
    /// Version of the connection.
    version: Version,
    /// It is no MQTT any more.
    is_broken: bool,
    /// A DISCONNECT was written in full.
    has_left: bool,
}

impl WireRecord {
    /// A client begins a connection.
    pub fn begin(&mut self, connection: usize, spoken: Spoken) {
        match spoken {
            Spoken::Mqtt => {}
            Spoken::Nats => drop(self.nats.insert(connection, NatsRecord::default())),
            Spoken::Amqp => drop(self.amqp.insert(connection, AmqpRecord::default())),
        }
    }

    /// A client has written bytes.
    pub fn sent(&mut self, connection: usize, client: AgentClient, bytes: &[u8]) {
        if let Some(record) = self.nats.get_mut(&connection) {
            self.bytes_sent += bytes.len() as u64;
            let operations = record.written(bytes);
            self.packets_sent += operations.len() as u64;
            let stamps = operations.iter().filter_map(stamp_in);
            return stamps.for_each(|stamp| self.note_sent(connection, &stamp, QoS::AtMostOnce));
        }
        if self.sent_amqp(connection, client, bytes) {
            return;
        }
        let frames = self.up.entry(connection).or_default();
        let bytes = &frames.take(bytes, &mut Vec::new())[..];
        if frames.are_there() {
            self.down.entry(connection).or_insert_with(Frames::expected);
        }
        self.bytes_sent += bytes.len() as u64;
        let mut way = self.ways.remove(&(connection, true)).unwrap_or_default();
        let mut leaves = false;
        way.take(bytes, |packet, _| {
            self.packets_sent += 1;
            match packet {
                Packet::Publish(publish) => {
                    note_sparkplug(&mut self.sparkplug[0], client, publish);
                    if is_answer(publish) {
                        let written = if publish.dup {
                            &mut self.answers_resent
                        } else {
                            &mut self.answers_sent
                        };
                        *written.entry(client).or_default() += 1;
                    } else if let Some(stamp) = stamp_of(publish) {
                        self.note_sent(connection, &stamp, publish.qos);
                    }
                }
                Packet::Connect(Connect { properties, .. })
                | Packet::Auth(Reasoned { properties, .. }) => {
                    if let Some(most) = properties.number(Property::MaximumPacketSize) {
                        self.maxima.insert(connection, most as usize);
                    }
                    if properties.text(Property::AuthenticationMethod).is_some() {
                        let exchange = self.exchanges.entry((connection, client)).or_default();
                        let data = properties.binary(Property::AuthenticationData);
                        exchange.write(data.unwrap_or_default());
                    }
                }
                Packet::Subscribe(subscribe) => {
                    let requests = self.requests.entry(connection).or_default();
                    requests.subscribe(subscribe.filters().map(|(filter, _)| filter));
                }
                Packet::Unsubscribe(unsubscribe) => {
                    let requests = self.requests.entry(connection).or_default();
                    requests.unsubscribe(unsubscribe.filters());
                }
                packet => leaves |= packet.packet_type() == PacketType::Disconnect,
            }
        });
        way.has_left |= leaves;
        self.ways.insert((connection, true), way);
    }

    /// A client has read bytes at an instant.
    pub fn received(&mut self, connection: usize, client: AgentClient, bytes: &[u8], now_ns: u64) {
        if let Some(record) = self.nats.get_mut(&connection) {
            self.bytes_received += bytes.len() as u64;
            let (operations, ended) = record.read(bytes);
            self.packets_received += operations.len() as u64;
            if ended > 0 {
                *self.removed.entry(client).or_default() += ended;
            }
            for operation in &operations {
                if let Some(stamp) = stamp_in(operation) {
                    self.note_received(client, &stamp, now_ns);
                } else if let Some(of) = will_of(&operation.rest.replace('.', "/")) {
                    *self.wills.entry((client, of)).or_default() += 1;
                } else {
                    self.note_stripped(client, &operation.payload);
                }
            }
            return;
        }
        if self.received_amqp(connection, client, bytes, now_ns) {
            return;
        }
        let frames = self.down.get_mut(&connection);
        let bytes = frames.map_or(bytes.to_vec(), |frames| frames.take(bytes, &mut Vec::new()));
        let bytes = &bytes[..];
        self.bytes_received += bytes.len() as u64;
        let mut way = self.ways.remove(&(connection, false)).unwrap_or_default();
        let up = self.ways.get(&(connection, true));
        way.version = up.map_or(way.version, |up| up.version);
        let (version, has_left) = (way.version, up.is_some_and(|up| up.has_left));
        let most = self.maxima.get(&connection).copied().unwrap_or(usize::MAX);
        way.take(bytes, |packet, len| {
            self.packets_received += 1;
            // A client discards what it reads after its DISCONNECT.
            if has_left {
                return;
            }
            if len > most {
                *self.large.entry(client).or_default() += 1;
            }
            if packet.packet_type() == PacketType::UnsubAck {
                let requests = self.requests.entry(connection).or_default();
                *self.removed.entry(client).or_default() += requests.unsuback();
            }
            let exchange = self.exchanges.get_mut(&(connection, client));
            let publish = match packet {
                Packet::Publish(publish) => publish,
                Packet::Auth(auth) => return note(exchange, None, auth.properties),
                Packet::ConnAck(connack) => {
                    if connack.properties.number(Property::MaximumPacketSize).is_some() {
                        self.requests.entry(connection).or_default().is_limited = true;
                    }
                    return note(exchange, Some(connack.code), connack.properties);
                }
                _ => return,
            };
            note_sparkplug(&mut self.sparkplug[1], client, publish);
            self.note_published(client, publish, version, now_ns);
        });
        self.ways.insert((connection, false), way);
    }

    /// A client has read a message of MQTT in full.
    fn note_published(
        &mut self,
        client: AgentClient,
        publish: &Publish<'_>,
        version: Version,
        now_ns: u64,
    ) {
        if is_kept(publish, version) {
            if let Some(stamp) = stamp_of(publish) {
                *self.kept.entry((client, place(&stamp))).or_default() += 1;
            }
        } else if is_answer(publish) {
            let stamp = Stamp::read(publish.payload).expect("answers of these plans have one");
            let stream = stamp.stream.of_requests().expect("it is an answer");
            let place = place(&Stamp { stream, ..stamp });
            *self.answers.entry((client, place)).or_default() += 1;
        } else if let Some(stamp) = stamp_of(publish) {
            self.note_received(client, &stamp, now_ns);
            if publish.retain {
                *self.as_published.entry((client, place(&stamp))).or_default() += 1;
            }
        } else if let Some(of) = will_of(publish.topic) {
            *self.wills.entry((client, of)).or_default() += 1;
        } else {
            self.note_stripped(client, publish.payload);
        }
    }

    /// A client of AMQP has written bytes; returns `false` for other clients.
    fn sent_amqp(&mut self, connection: usize, client: AgentClient, bytes: &[u8]) -> bool {
        let Some(record) = self.amqp.get_mut(&connection) else { return false };
        self.bytes_sent += bytes.len() as u64;
        let written = record.written(bytes);
        self.packets_sent += written.count;
        // Only a later delivery counts of a message that a client refuses.
        for stamp in written.refused.iter().filter_map(|body| Stamp::read(body)) {
            let key = (client, place(&stamp));
            match self.received.get_mut(&key) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.received.remove(&key)),
            }
        }
        for (body, is_confirmed) in written.messages {
            let qos = if is_confirmed { QoS::AtLeastOnce } else { QoS::AtMostOnce };
            if let Some(stamp) = Stamp::read(&body) {
                self.note_sent(connection, &stamp, qos);
            }
        }
        true
    }

    /// A client of AMQP has read bytes at an instant; returns `false` for other clients.
    fn received_amqp(
        &mut self,
        connection: usize,
        client: AgentClient,
        bytes: &[u8],
        now_ns: u64,
    ) -> bool {
        let Some(record) = self.amqp.get_mut(&connection) else { return false };
        self.bytes_received += bytes.len() as u64;
        let (packets, messages) = record.read(bytes);
        self.packets_received += packets;
        for body in messages {
            match Stamp::read(&body) {
                Some(stamp) => self.note_received(client, &stamp, now_ns),
                None => self.note_stripped(client, &body),
            }
        }
        true
    }

    /// A client has written a message in full.
    fn note_sent(&mut self, connection: usize, stamp: &Stamp, qos: QoS) {
        self.sent.entry(place(stamp)).or_insert((0, qos)).0 += 1;
        if self.last_turns.insert(connection, self.turns_total) != Some(self.turns_total) {
            self.first_of_turn.push((self.turns_total, stamp.intended_ns));
        }
    }

    /// A client has read a message without a stamp.
    fn note_stripped(&mut self, client: AgentClient, payload: &[u8]) {
        if payload == STRIPPED {
            *self.stripped.entry(client).or_default() += 1;
        }
    }

    /// A client has read a message in full.
    fn note_received(&mut self, client: AgentClient, stamp: &Stamp, now_ns: u64) {
        *self.received.entry((client, place(stamp))).or_default() += 1;
        if stamp.intended_ns < self.stage_ns && self.stage_ns <= now_ns {
            *self.late.entry((client, place(stamp))).or_default() += 1;
        }
    }
}

impl WireWay {
    fn take(&mut self, bytes: &[u8], mut act: impl FnMut(&Packet<'_>, usize)) {
        self.partial.extend_from_slice(bytes);
        let mut taken = 0;
        while !self.is_broken {
            let rest = &self.partial[taken..];
            self.version = Version::of_connect(rest).unwrap_or(self.version);
            match decode(self.version, rest) {
                Ok(DecodedPacket::Packet { packet, len }) => {
                    act(&packet, len);
                    taken += len;
                }
                Ok(DecodedPacket::Incomplete { .. }) => break,
                Err(_) => self.is_broken = true,
            }
        }
        self.partial.drain(..taken);
    }
}

fn note_sparkplug(to: &mut Vec<SparkplugMessage>, client: AgentClient, publish: &Publish<'_>) {
    if is_sparkplug(publish) {
        to.push((client, publish.topic.to_owned(), publish.payload.to_vec()));
    }
}

/// Notes a step of the broker.
fn note(exchange: Option<&mut ScramExchange>, code: Option<u8>, properties: Properties<'_>) {
    if let Some(exchange) = exchange {
        exchange.read(code, properties.binary(Property::AuthenticationData).unwrap_or_default());
    }
}

/// The population whose will has this topic.
pub fn will_of(topic: &str) -> Option<usize> {
    topic.strip_prefix("will/")?.split('/').next()?.parse().ok()
}

/// Returns `true` for a message of Sparkplug, by its topic.
fn is_sparkplug(publish: &Publish<'_>) -> bool {
    publish.topic.starts_with("spBv1.0/")
}

/// Returns `true` for an answer, by its topic.
fn is_answer(publish: &Publish<'_>) -> bool {
    publish.topic.starts_with(REPLY)
}

/// Returns `true` for a message that the broker has kept. MQTT 5 can have the flag of the publisher
/// instead.
fn is_kept(publish: &Publish<'_>, version: Version) -> bool {
    let is_mark = |(property, value)| (property, value) == (Property::UserProperty, KEPT);
    publish.retain && (version != Version::V5 || publish.properties.iter().any(is_mark))
}

/// The stamp of a message, in a user property or at the start of its payload.
fn stamp_of(publish: &Publish<'_>) -> Option<Stamp> {
    if is_sparkplug(publish) {
        let start = publish.payload.len().checked_sub(NUMBERED_BYTES)?;
        let has_body = publish.topic.contains("DATA/");
        return has_body.then(|| Stamp::read(&publish.payload[start..])).flatten();
    }
    let mut properties = publish.properties.iter();
    let beside = properties.find_map(|property| match property {
        (Property::UserProperty, Value::Pair(STAMP_PROPERTY, text)) => Some(text),
        _ => None,
    });
    beside.map_or_else(|| Stamp::read(publish.payload), |text| Stamp::find(text.as_bytes()))
}

/// The stamp of a message of NATS, at the start of its payload.
fn stamp_in(operation: &NatsOperation) -> Option<Stamp> {
    Stamp::read(&operation.payload)
}

fn place(stamp: &Stamp) -> StreamPlace {
    (stamp.stream.key(), stamp.sequence)
}

/// SUBSCRIBE and UNSUBSCRIBE of clients, as they were written.
#[derive(Default)]
pub struct Requests {
    /// Filters that the client of a connection has subscribed to.
    subscribed: BTreeSet<String>,
    /// Filters that the client has unsubscribed from since.
    unsubscribed: BTreeSet<String>,
    /// The broker has a Maximum Packet Size: an UNSUBSCRIBE may have a filter that was too large
    /// for a SUBSCRIBE, by a byte.
    is_limited: bool,
    /// Number of filters of each UNSUBSCRIBE whose UNSUBACK the client has not read.
    asked: VecDeque<u64>,
}

impl Requests {
    /// A SUBSCRIBE was written. After an UNSUBSCRIBE, the client has unsubscribed from all filters.
    pub fn subscribe<'a>(&mut self, filters: impl Iterator<Item = &'a str>) {
        if !self.unsubscribed.is_empty() {
            let unsubscribed = std::mem::take(&mut self.unsubscribed);
            assert!(std::mem::take(&mut self.subscribed).is_subset(&unsubscribed));
        }
        self.subscribed.extend(filters.map(ToOwned::to_owned));
    }

    /// An UNSUBSCRIBE was written.
    pub fn unsubscribe<'a>(&mut self, filters: impl Iterator<Item = &'a str>) {
        let filters: Vec<String> = filters.map(ToOwned::to_owned).collect();
        self.asked.push_back(filters.len() as u64);
        self.unsubscribed.extend(filters);
        let is_known = self.unsubscribed.is_subset(&self.subscribed);
        assert!(is_known || self.is_limited, "{:?}", self.unsubscribed);
    }

    /// UNSUBACK was read. Returns the number of filters that it answers.
    pub fn unsuback(&mut self) -> u64 {
        self.asked.pop_front().unwrap_or_default()
    }
}
