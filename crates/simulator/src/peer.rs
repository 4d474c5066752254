//! The other end of the simulated connections: the scripted broker of `testkit`, and the
//! peers that replace it on some connections.

use std::collections::{BTreeMap, VecDeque};

use mqtt::{Packet, Version};
use testkit::{
    Broker, BrokerMessage, Frames, LinkId, RecordKind, RecordReader, Rng, in_frames, in_records,
};

use super::amqp::{AmqpBroker, AmqpConduct, AmqpScript};
use super::carrier::{CarriedMessage, CarrierProgram};
use super::feed::Feed;
use super::nats::{Conduct, NatsScript, NatsServer};
use super::output::Output;
use super::spoken::Spoken;

/// Behaviour of the broker on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As a broker does.
    Plain,
    /// Accepts, and does nothing else.
    Mute,
    /// Answers with something that is no MQTT.
    Garbage,
    /// Closes at once.
    End,
    /// Resets at once.
    Reset,
    /// Accepts the client, and closes behind CONNACK.
    EndBehindConnAck,
    /// Answers SUBSCRIBE with a code more than it has filters.
    ManyCodes,
}

/// The broker and its connections.
pub struct Peer {
    /// The broker.
    pub broker: Broker,
    /// A publisher of ZeroMQ in the broker's place.
    pub feed: Option<Feed>,
    /// The server of NATS clients, beside the broker.
    pub nats: NatsServer,
    /// The broker of AMQP clients.
    pub amqp: AmqpBroker,
    /// The program that carries messages from one of them to another.
    pub carrier: Option<CarrierProgram>,
    /// `true` if one server has the clients of MQTT and of NATS: it gives each the messages of the
    /// other.
    pub is_joined: bool,
    /// Its next actions, in order.
    pub output: VecDeque<(usize, Output)>,
    /// Connections that the broker has ended without being asked to.
    pub ended_total: u64,
    /// Messages of the broker that the server of NATS clients has.
    bridged: usize,
    lines: BTreeMap<usize, PeerLine>,
    connections: BTreeMap<LinkId, usize>,
    rng: Rng,
}

struct PeerLine {
    manner: Manner,
    spoken: Spoken,
    /// `None`: the broker knows nothing of it.
    link: Option<LinkId>,
    /// Frames of the client.
    frames: Frames<true>,
    /// Records of the client, under its frames.
    records: RecordReader,
}

impl Manner {
    /// Conduct of a broker of AMQP of this manner; `None`: the broker draws it.
    const fn of_amqp(self) -> Option<AmqpConduct> {
        match self {
            Self::Mute => Some(AmqpConduct::Mute),
            Self::Garbage => Some(AmqpConduct::NotAmqp),
            Self::EndBehindConnAck => Some(AmqpConduct::EndBehindOpen),
            Self::Plain | Self::End | Self::Reset | Self::ManyCodes => None,
        }
    }

    /// Its name in the counts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Mute => "mute broker",
            Self::Garbage => "garbage instead of CONNACK",
            Self::End => "end instead of CONNACK",
            Self::Reset => "reset instead of CONNACK",
            Self::EndBehindConnAck => "end behind CONNACK",
            Self::ManyCodes => "more codes than filters",
        }
    }

    /// Conduct of a NATS server of this manner; `None`: the server draws it.
    const fn conduct(self) -> Option<Conduct> {
        match self {
            Self::Mute => Some(Conduct::Mute),
            Self::Garbage => Some(Conduct::NotNats),
            Self::EndBehindConnAck => Some(Conduct::EndBehindPong),
            Self::Plain | Self::End | Self::Reset | Self::ManyCodes => None,
        }
    }
}

impl Peer {
    /// A broker without connections.
    pub fn new(broker: Broker) -> Self {
        let (lines, connections) = (BTreeMap::new(), BTreeMap::new());
        let rng = Rng::new(0xf4a3e5);
        let (feed, output) = (None, VecDeque::new());
        let nats = NatsServer::new(NatsScript::plain(), 0);
        let amqp = AmqpBroker::new(AmqpScript::plain(), 0);
        Self {
            broker,
            feed,
            nats,
            amqp,
            carrier: None,
            is_joined: true,
            output,
            ended_total: 0,
            bridged: 0,
            lines,
            connections,
            rng,
        }
    }

    /// Returns `true` until the broker closes the connection.
    pub fn has(&self, connection: usize) -> bool {
        self.lines.contains_key(&connection)
    }

    /// A connection is made.
    pub fn accept(&mut self, connection: usize, manner: Manner, spoken: Spoken, now_ns: u64) {
        self.set_now(now_ns);
        let ended = match manner {
            Manner::End => Some(Output::End),
            Manner::Reset => Some(Output::Reset),
            _ => None,
        };
        if let Some(ended) = ended {
            return self.output.push_back((connection, ended));
        }
        if let Some(feed) = &mut self.feed {
            self.output.push_back((connection, Output::Bytes(feed.accept(connection))));
        }
        let is_broker = self.feed.is_none()
            && spoken == Spoken::Mqtt
            && matches!(manner, Manner::Plain | Manner::EndBehindConnAck | Manner::ManyCodes);
        let link = is_broker.then(|| self.broker.open());
        self.connections.extend(link.map(|link| (link, connection)));
        self.lines.insert(
            connection,
            PeerLine { manner, spoken, link, frames: Frames::New, records: RecordReader::New },
        );
        match spoken {
            Spoken::Mqtt => return,
            Spoken::Nats => self.nats.accept(connection, manner.conduct()),
            Spoken::Amqp => self.amqp.accept(connection, manner.of_amqp()),
        }
        self.collect_others();
    }

    /// Bytes arrive.
    pub fn receive(&mut self, connection: usize, bytes: &[u8], now_ns: u64) {
        self.set_now(now_ns);
        let Some(line) = self.lines.get_mut(&connection) else { return };
        if let Some(feed) = &mut self.feed {
            let answer = feed.receive(connection, bytes).expect("the engine speaks ZMTP");
            self.output.push_back((connection, Output::Bytes(answer)));
            return;
        }
        let (bytes, greets) = line.records.take(bytes);
        if greets && line.manner != Manner::Mute {
            let mut greeting = Vec::new();
            RecordKind::Greeting.append(b"server", &mut greeting);
            self.output.push_back((connection, Output::Bytes(greeting)));
        }
        match line.spoken {
            Spoken::Mqtt => {}
            Spoken::Nats => {
                self.nats.receive(connection, &bytes);
                return self.collect_others();
            }
            Spoken::Amqp => {
                self.amqp.receive(connection, &bytes);
                return self.collect_others();
            }
        }
        if bytes.is_empty() {
            // A part of a record has no data, but the client is not silent.
            if let Some(link) = line.link {
                self.broker.note_bytes(link);
            }
            return;
        }
        if let Some(link) = line.link {
            let mut replies = Vec::new();
            let bytes = line.frames.take(&bytes, &mut replies);
            if !replies.is_empty() {
                let replies = sealed(line, replies, &mut self.rng);
                self.output.push_back((connection, Output::Bytes(replies)));
            }
            // A client that breaks the protocol is a failure of the test.
            self.broker.receive(link, &bytes).expect("the engine speaks MQTT");
            self.collect();
        } else if line.manner == Manner::Garbage {
            let garbage = sealed(line, line.spoken.garbage().to_vec(), &mut self.rng);
            self.output.push_back((connection, Output::Bytes(garbage)));
        }
    }

    /// The client has closed the connection.
    pub fn gone(&mut self, connection: usize, now_ns: u64) {
        self.set_now(now_ns);
        self.end(connection);
        self.collect();
    }

    /// The broker closes the connections of clients that have been silent for too long.
    pub fn expire(&mut self, now_ns: u64) {
        self.set_now(now_ns);
        self.broker.expire();
        self.nats.expire();
        self.amqp.expire();
        self.collect();
        let published = self.feed.iter_mut().flat_map(|feed| feed.publish(now_ns));
        self.output.extend(published.map(|(line, bytes)| (line, Output::Bytes(bytes))));
    }

    /// The broker ends, and everything with it but what it has on disk, up to an instant.
    pub fn restart(&mut self, forgets: bool, until_ns: u64) {
        self.hang_up(Manner::Reset, |_| true);
        self.carrier.iter_mut().for_each(|carrier| carrier.restart(until_ns));
        self.amqp.forget();
        if forgets {
            self.broker.forget();
        }
    }

    /// The broker ends some connections.
    pub fn hang_up(&mut self, manner: Manner, mut is_chosen: impl FnMut(usize) -> bool) {
        let chosen: Vec<usize> = self.lines.keys().copied().filter(|&c| is_chosen(c)).collect();
        for connection in chosen {
            let output = match manner {
                Manner::Garbage => {
                    let line = &self.lines[&connection];
                    let garbage = line.spoken.garbage();
                    Output::Bytes(sealed(line, garbage.to_vec(), &mut self.rng))
                }
                Manner::Reset => Output::Reset,
                _ => Output::End,
            };
            self.output.push_back((connection, output));
            if manner != Manner::Garbage {
                self.ended_total += 1;
                self.end(connection);
            }
        }
        self.collect();
    }

    /// The broker writes packets of its own on some connections.
    pub fn flood(&mut self, bytes: usize, packet: &Packet<'_>, is_chosen: impl Fn(usize) -> bool) {
        for (&connection, line) in self.lines.iter().filter(|(line, _)| is_chosen(**line)) {
            if let Some(packet) = line.spoken.packet() {
                let pings = packet.repeat(bytes / packet.len() + 1);
                let pings = sealed(line, pings, &mut self.rng);
                self.output.push_back((connection, Output::Bytes(pings)));
                continue;
            }
            let version = line.link.map_or(Version::default(), |link| self.broker.version(link));
            let mut packets = Vec::new();
            while packets.len() < bytes {
                packet.encode(version, &mut packets).expect("it is short");
            }
            let bytes = framed(line, packets, &mut self.rng);
            self.output.push_back((connection, Output::Bytes(bytes)));
        }
    }

    /// More bytes wait for a NATS client than its server allows.
    pub fn slow(&mut self, connection: usize) {
        self.nats.slow(connection);
        self.collect_others();
    }

    /// The program that carries messages publishes what is due.
    pub fn carry(&mut self, now_ns: u64) {
        self.set_now(now_ns);
        let Some(carrier) = &mut self.carrier else { return };
        let (qos, retain) = carrier.flags();
        for CarriedMessage { to, name, payload, .. } in carrier.take_due() {
            let is_joined = self.is_joined && to != Spoken::Amqp;
            if to == Spoken::Nats || is_joined {
                self.nats.publish_topic(&name, &payload);
            }
            if to == Spoken::Amqp {
                self.amqp.publish_name(&name, &payload);
            } else if to == Spoken::Mqtt || is_joined {
                let topic = if to == Spoken::Nats { name.replace('.', "/") } else { name };
                let flags = BrokerMessage { qos, retain, ..BrokerMessage::default() };
                let message = BrokerMessage { topic, payload, ..flags };
                self.broker.publish(&message);
            }
        }
        self.collect();
    }

    fn set_now(&mut self, now_ns: u64) {
        self.broker.set_now(now_ns);
        self.nats.set_now(now_ns);
        self.amqp.set_now(now_ns);
        self.carrier.iter_mut().for_each(|carrier| carrier.set_now(now_ns));
    }

    fn end(&mut self, connection: usize) {
        let Some(line) = self.lines.remove(&connection) else { return };
        self.feed.iter_mut().for_each(|feed| feed.gone(connection));
        self.nats.gone(connection);
        self.amqp.gone(connection);
        if let Some(link) = line.link {
            self.connections.remove(&link);
            self.broker.cut(link);
        }
    }

    /// Takes what the broker has written, and the connections that it has closed.
    fn collect(&mut self) {
        // A server of both protocols gives what clients of MQTT publish to clients of NATS.
        for BrokerMessage { topic, payload, .. } in &self.broker.accepted()[self.bridged..] {
            if self.is_joined {
                self.nats.publish_topic(topic, payload);
            }
            self.carrier.iter_mut().for_each(|own| own.take(Spoken::Mqtt, topic, payload));
        }
        self.bridged = self.broker.accepted().len();
        self.collect_mqtt();
        self.collect_others();
    }

    fn collect_mqtt(&mut self) {
        for (link, mut bytes, is_open) in self.broker.take_outputs() {
            let Some(&connection) = self.connections.get(&link) else { continue };
            let manner = self.lines[&connection].manner;
            let behind_connack = manner == Manner::EndBehindConnAck;
            if manner == Manner::ManyCodes {
                add_code(&mut bytes);
            }
            if !bytes.is_empty() {
                let bytes = framed(&self.lines[&connection], bytes, &mut self.rng);
                self.output.push_back((connection, Output::Bytes(bytes)));
            }
            if behind_connack || !is_open {
                self.output.push_back((connection, Output::End));
                self.end(connection);
            }
        }
    }

    /// Takes what the brokers of other clients have written, and the connections that they have
    /// ended.
    fn collect_others(&mut self) {
        while let Some((subject, payload)) = self.nats.published.pop_front() {
            self.carrier.iter_mut().for_each(|own| own.take(Spoken::Nats, &subject, &payload));
            if self.is_joined {
                let topic = subject.replace('.', "/");
                self.broker.publish(&BrokerMessage { topic, payload, ..BrokerMessage::default() });
            }
        }
        while let Some((name, payload)) = self.amqp.published.pop_front() {
            self.carrier.iter_mut().for_each(|own| own.take(Spoken::Amqp, &name, &payload));
        }
        self.collect_mqtt();
        loop {
            let next = self.nats.output.pop_front().or_else(|| self.amqp.output.pop_front());
            let Some((connection, output)) = next else { return };
            let Some(line) = self.lines.get(&connection) else { continue };
            let output = match output {
                Output::Bytes(bytes) => Output::Bytes(sealed(line, bytes, &mut self.rng)),
                end => {
                    self.end(connection);
                    end
                }
            };
            self.output.push_back((connection, output));
        }
    }
}

/// Puts packets into frames, if the connection has some.
fn framed(line: &PeerLine, packets: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let bytes = if line.frames.are_open() { in_frames(&packets, rng) } else { packets };
    sealed(line, bytes, rng)
}

/// Puts bytes into records, if the connection has some.
fn sealed(line: &PeerLine, bytes: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    if line.records.are_open() { in_records(&bytes, rng) } else { bytes }
}

/// Makes a SUBACK that stands alone one code longer.
fn add_code(bytes: &mut Vec<u8>) {
    if let [0x90, length, ..] = &mut bytes[..] {
        *length += 1;
        bytes.push(0);
    }
}
