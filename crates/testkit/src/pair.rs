//! One client session and the broker over a simulated link, in virtual time. The pair plays the
//! client's application: it numbers the messages and records all events.

use std::collections::VecDeque;

use mqtt::{
    Connect, DecodedPacket, MqttEvent, MqttSession, PacketId, Properties, PublishHeader, QoS,
    Version, decode, encode_publish_header,
};

use crate::{Broker, BrokerMessage, LinkId, Rng, Script};

const V: Version = Version::V311;
const LATENCY_NS: u64 = 1_000_000;
/// Topic to which the client publishes.
const TOPIC_UP: &str = "up";
/// Topic to which the broker publishes.
const TOPIC_DOWN: &str = "down";

/// Token of an own message in the client's session, enough to build the message again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairToken {
    /// Number of the message, rising; the payload.
    pub number: u64,
    /// Quality of service of the message.
    pub qos: QoS,
}

/// Events that the client's application saw, in order.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Messages delivered: number and QoS.
    pub delivered: Vec<PairToken>,
    /// Own messages that were acknowledged.
    pub acknowledged: Vec<PairToken>,
    /// QoS 2 duplicates that the session suppressed.
    pub redelivered_total: usize,
    /// Acknowledgements that matched no message in flight.
    pub unknown_acks_total: usize,
    /// Number of CONNACKs with code 0.
    pub connected_total: usize,
    /// Number of SUBACKs.
    pub subscribed_total: usize,
    /// Codes of CONNACKs that refused.
    pub refused: Vec<u8>,
}

/// A client session, the broker and the link between them.
#[derive(Debug)]
pub struct Pair {
    /// Virtual time, in nanoseconds.
    pub now_ns: u64,
    /// Source of all chance.
    pub rng: Rng,
    /// The client.
    pub session: MqttSession<PairToken>,
    /// The broker.
    pub broker: Broker,
    /// Events that the client's application saw.
    pub observed: Observed,
    connect: Connect<'static>,
    link: Option<LinkId>,
    up: PairPipe,
    down: PairPipe,
    /// Bytes at the client that are not a complete packet yet.
    input: Vec<u8>,
    /// Bytes that the client has to send.
    output: Vec<u8>,
    published: u64,
}

impl Pair {
    /// A client and a broker without a link.
    #[must_use]
    pub fn new(seed: u64, script: Script, connect: Connect<'static>) -> Self {
        Self {
            now_ns: 0,
            rng: Rng::new(seed),
            session: MqttSession::new(),
            broker: Broker::new(script),
            observed: Observed::default(),
            connect,
            link: None,
            up: PairPipe::new(LATENCY_NS),
            down: PairPipe::new(LATENCY_NS),
            input: Vec::new(),
            output: Vec::new(),
            published: 0,
        }
    }

    /// Number of messages published so far, in both directions.
    #[must_use]
    pub const fn published(&self) -> u64 {
        self.published
    }

    /// Returns true if there is a network connection.
    #[must_use]
    pub const fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// Opens a network connection and sends CONNECT. The pair must have no connection.
    pub fn connect(&mut self) {
        assert!(self.link.is_none(), "the old link must be cut first");
        self.link = Some(self.broker.open());
        let sent = self.session.connect(V, &self.connect, &mut self.output);
        sent.expect("the test's CONNECT is short");
    }

    /// Subscribes to the messages that the broker publishes.
    pub fn subscribe(&mut self, qos: QoS) {
        let filters = [(TOPIC_DOWN, qos.into())].into_iter();
        let sent = self.session.subscribe(V, Properties::NONE, filters, &mut self.output);
        sent.expect("the test's filter is short");
    }

    /// Publishes the next number from the client, which must be connected.
    pub fn publish_up(&mut self, qos: QoS) -> PairToken {
        let token = PairToken { number: self.published, qos };
        let packet_id = self.session.publish(qos, token).expect("tests have few in flight");
        write_message(token, packet_id, false, &mut self.output);
        self.published += 1;
        token
    }

    /// Publishes the next number from the broker.
    pub fn publish_down(&mut self, qos: QoS) -> PairToken {
        let token = PairToken { number: self.published, qos };
        let payload = token.number.to_be_bytes().to_vec();
        let topic = TOPIC_DOWN.to_owned();
        self.broker.publish(&BrokerMessage { topic, payload, qos, ..BrokerMessage::default() });
        self.published += 1;
        token
    }

    /// Messages that the broker accepted from the client.
    #[must_use]
    pub fn accepted(&self) -> Vec<PairToken> {
        let messages = self.broker.accepted().iter().filter(|message| message.topic == TOPIC_UP);
        messages.map(|message| token_of(&message.payload, message.qos)).collect()
    }

    /// Advances the clock by `ns`, then delivers the bytes that have arrived, in pieces of random
    /// size.
    pub fn step(&mut self, ns: u64) {
        self.now_ns += ns;
        let now_ns = self.now_ns;
        self.flush();
        let Some(id) = self.link else { return };
        let bytes = self.up.receive(now_ns, &mut self.rng);
        self.give_broker(id, &bytes);
        let bytes = self.down.receive(now_ns, &mut self.rng);
        self.give_client(&bytes);
        self.flush();
        if !self.broker.is_open(id) && self.down.is_empty() {
            self.cut();
        }
    }

    /// Steps until no bytes are in transit. Panics if that state is never reached.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            self.step(LATENCY_NS);
            if self.output.is_empty() && self.up.is_empty() && self.down.is_empty() {
                return;
            }
        }
        unreachable!("the exchange does not end");
    }

    /// Breaks the network connection, at a random byte of the bytes in transit.
    pub fn cut(&mut self) {
        let Some(id) = self.link else { return };
        self.flush();
        let bytes = self.up.cut(&mut self.rng);
        self.give_broker(id, &bytes);
        let bytes = self.down.cut(&mut self.rng);
        self.give_client(&bytes);
        self.broker.cut(id);
        self.link = None;
        self.input.clear();
        self.output.clear();
        self.session.connection_lost(!self.connect.clean_session);
    }

    fn flush(&mut self) {
        let Some(id) = self.link else { return };
        let now_ns = self.now_ns;
        if !self.output.is_empty() {
            self.up.send(now_ns, &self.output);
            self.output.clear();
        }
        self.down.send(now_ns, &self.broker.take_output(id));
    }

    fn give_broker(&mut self, id: LinkId, bytes: &[u8]) {
        if !bytes.is_empty() && self.broker.is_open(id) {
            self.broker.receive(id, bytes).expect("the client keeps to the protocol");
        }
    }

    fn give_client(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut used = 0;
        while let DecodedPacket::Packet { packet, len } =
            decode(V, &input[used..]).expect("the broker sends well-formed packets")
        {
            used += len;
            let event = self.session.handle(V, &packet, &mut self.output);
            self.observe(event.expect("the broker keeps to the protocol"));
        }
        self.input = input[used..].to_vec();
    }

    fn observe(&mut self, event: MqttEvent<'_, PairToken>) {
        let observed = &mut self.observed;
        match event {
            MqttEvent::Connected { .. } => {
                observed.connected_total += 1;
                self.session.retransmit(&mut self.output, |token, packet_id, out| {
                    write_message(token, packet_id, true, out);
                    true
                });
            }
            MqttEvent::Refused { code, .. } => observed.refused.push(code),
            MqttEvent::Delivered(publish) => {
                observed.delivered.push(token_of(publish.payload, publish.qos));
            }
            MqttEvent::Acknowledged(token) => observed.acknowledged.push(token),
            MqttEvent::Redelivered => observed.redelivered_total += 1,
            MqttEvent::UnknownAck => observed.unknown_acks_total += 1,
            MqttEvent::Subscribed { .. } => observed.subscribed_total += 1,
            MqttEvent::Unsubscribed { .. }
            | MqttEvent::Received
            | MqttEvent::Released
            | MqttEvent::Pong => {}
            MqttEvent::Challenged(_) | MqttEvent::Rejected { .. } | MqttEvent::Disconnected(_) => {
                unreachable!("MQTT 3.1.1 has no such packet")
            }
        }
    }
}

fn write_message(token: PairToken, packet_id: PacketId, dup: bool, out: &mut Vec<u8>) {
    let header = PublishHeader { dup, qos: token.qos, packet_id, ..Default::default() };
    let payload = token.number.to_be_bytes();
    encode_publish_header(V, &header, TOPIC_UP.len(), payload.len(), out, |out| {
        out.extend_from_slice(TOPIC_UP.as_bytes());
    })
    .expect("the test's message is short");
    out.extend_from_slice(&payload);
}

fn token_of(payload: &[u8], qos: QoS) -> PairToken {
    let bytes = payload.try_into().expect("the payload is a number");
    PairToken { number: u64::from_be_bytes(bytes), qos }
}

/// One direction of a simulated connection with a fixed latency: bytes in order, in pieces of any
/// size, with a break at any byte.
#[derive(Debug)]
struct PairPipe {
    latency_ns: u64,
    /// Arrival time of each byte in ns, in order, and the byte.
    bytes: VecDeque<(u64, u8)>,
}

impl PairPipe {
    /// An empty pipe.
    const fn new(latency_ns: u64) -> Self {
        Self { latency_ns, bytes: VecDeque::new() }
    }

    /// Returns true if no bytes are in transit.
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Sends bytes at `now_ns`.
    fn send(&mut self, now_ns: u64, bytes: &[u8]) {
        let due_ns = now_ns + self.latency_ns;
        self.bytes.extend(bytes.iter().map(|&byte| (due_ns, byte)));
    }

    /// Receives some of the bytes that have arrived at `now_ns`, as a socket read does: at least
    /// one byte, if any has arrived.
    fn receive(&mut self, now_ns: u64, rng: &mut Rng) -> Vec<u8> {
        let due = self.bytes.iter().take_while(|&&(due_ns, _)| due_ns <= now_ns).count();
        if due == 0 {
            return Vec::new();
        }
        let len = if rng.chance(50) { due } else { 1 + rng.below(due) };
        self.bytes.drain(..len).map(|(_, byte)| byte).collect()
    }

    /// Breaks the connection. A random part of the bytes in transit still arrives, the rest is
    /// lost.
    fn cut(&mut self, rng: &mut Rng) -> Vec<u8> {
        let len = rng.below(self.bytes.len() + 1);
        let arriving = self.bytes.drain(..len).map(|(_, byte)| byte).collect();
        self.bytes.clear();
        arriving
    }
}
