//! A broker of AMQP for the clients of a simulated run: bindings, queues, consumers with prefetch,
//! acknowledgements, confirms, heartbeats, and deviations by a script.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use testkit::Rng;

use super::packet::{AmqpPacket, BEAT, PacketReader, matches, short};
use crate::output::Output;

/// Reply to a connection or channel that ends: code and text.
type Ending = (u16, &'static str);

/// Behaviour on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmqpConduct {
    /// As a broker does.
    Plain,
    /// Says nothing.
    Mute,
    /// Answers the protocol header with another protocol.
    NotAmqp,
    /// Answers with the header of AMQP 1.0.
    OtherVersion,
    /// Closes behind `connection.start`.
    EndBehindStart,
    /// Closes behind `connection.open-ok`.
    EndBehindOpen,
    /// Closes the connection in the login, with a code.
    Refuse(Ending),
    /// Closes the channel of the first consumer, with a code.
    CloseChannel(Ending),
    /// Sends these bytes behind the answer to the first channel.
    Bytes(&'static [u8]),
    /// Sends its packets in pieces of so many bytes.
    Pieces(usize),
    /// Refuses each second publication.
    Nacks,
    /// Blocks the connection from its first publication to the next look of the broker.
    Blocks,
    /// Ends the first consumer.
    Cancels,
}

/// Conduct of a broker.
pub struct AmqpScript {
    /// Password of each user; `None`: all are accepted.
    pub password: Option<&'static str>,
    /// Bytes of the body in one frame.
    pub part: usize,
    /// Resets connections of clients that are silent for two intervals.
    pub gives_up: bool,
    /// Draws the conduct on the next connection.
    pub conduct: Box<dyn FnMut() -> AmqpConduct>,
}

/// The broker.
pub struct AmqpBroker {
    script: AmqpScript,
    lines: BTreeMap<usize, BrokerLine>,
    /// By virtual host and name, with a slash between them.
    queues: BTreeMap<String, BrokerQueue>,
    named: u64,
    rng: Rng,
    now_ns: u64,
    /// Its next actions, in order.
    pub output: VecDeque<(usize, Output)>,
    /// Names, as plans write them, and bodies of messages that clients have published.
    pub published: VecDeque<(String, Vec<u8>)>,
    /// Number of deviations and events by kind.
    pub seen: BTreeMap<&'static str, u64>,
}

/// One connection.
struct BrokerLine {
    conduct: AmqpConduct,
    /// Virtual host, as plans write it: `/` is empty.
    host: String,
    reader: PacketReader,
    is_open: bool,
    is_blocked: bool,
    beat_ns: u64,
    sent_ns: u64,
    received_ns: u64,
    channels: BTreeMap<u16, BrokerChannel>,
}

#[derive(Default)]
struct BrokerChannel {
    confirms: bool,
    published: u64,
    /// Number of the last publication that is confirmed.
    confirmed: u64,
    delivered: u64,
    prefetch: u16,
    queue: String,
    /// Deliveries without acknowledgement: their queue, consumer and message.
    unacknowledged: BTreeMap<u64, (String, String, BrokerContent)>,
}

#[derive(Default)]
struct BrokerQueue {
    /// Connection to which the queue belongs.
    owner: Option<usize>,
    ends_with_consumers: bool,
    /// Exchanges, behind their virtual host and a slash, and keys.
    bindings: BTreeSet<(String, String)>,
    consumers: Vec<BrokerConsumer>,
    waiting: VecDeque<BrokerContent>,
}

#[derive(Clone)]
struct BrokerConsumer {
    connection: usize,
    channel: u16,
    tag: String,
    needs_ack: bool,
    prefetch: u16,
}

#[derive(Clone)]
struct BrokerContent {
    /// Virtual host and exchange, with a slash between them.
    exchange: String,
    key: String,
    properties: Vec<u8>,
    body: Vec<u8>,
    is_again: bool,
}

impl AmqpScript {
    /// A plain broker.
    pub fn plain() -> Self {
        let conduct = Box::new(|| AmqpConduct::Plain);
        Self { password: None, part: 4088, gives_up: false, conduct }
    }

    /// A broker with one conduct on all connections.
    pub fn always(conduct: AmqpConduct) -> Self {
        Self { conduct: Box::new(move || conduct), ..Self::plain() }
    }
}

impl AmqpBroker {
    /// A broker without connections.
    pub fn new(script: AmqpScript, seed: u64) -> Self {
        Self {
            script,
            lines: BTreeMap::new(),
            queues: BTreeMap::new(),
            named: 0,
            rng: Rng::new(seed ^ 0xa3c9_0091),
            now_ns: 0,
            output: VecDeque::new(),
            published: VecDeque::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Sets the time, in nanoseconds.
    pub const fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// A connection is made. `None`: the script chooses the conduct.
    pub fn accept(&mut self, connection: usize, conduct: Option<AmqpConduct>) {
        let conduct = conduct.unwrap_or_else(|| (self.script.conduct)());
        let line = BrokerLine {
            conduct,
            host: String::new(),
            reader: PacketReader::default(),
            is_open: false,
            is_blocked: false,
            beat_ns: 0,
            sent_ns: self.now_ns,
            received_ns: self.now_ns,
            channels: BTreeMap::new(),
        };
        self.lines.insert(connection, line);
    }

    /// Bytes arrive.
    pub fn receive(&mut self, connection: usize, bytes: &[u8]) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        line.received_ns = self.now_ns;
        let (packets, read) = line.reader.take(bytes);
        // A client that breaks the protocol is a failure of the test.
        read.expect("the engine speaks AMQP");
        for packet in packets {
            if self.lines.contains_key(&connection) {
                self.obey(connection, &packet);
            }
        }
        self.confirm(connection);
    }

    /// The client has closed the connection, or lost it.
    pub fn gone(&mut self, connection: usize) {
        let Some(line) = self.lines.remove(&connection) else { return };
        for queue in self.queues.values_mut() {
            let before = queue.consumers.len();
            queue.consumers.retain(|own| own.connection != connection);
            let is_empty = queue.consumers.is_empty() && before > 0;
            if queue.ends_with_consumers && is_empty {
                queue.owner = Some(connection);
            }
        }
        self.queues.retain(|_, queue| queue.owner != Some(connection));
        for channel in line.channels.into_values() {
            for (queue, _, content) in channel.unacknowledged.into_values().rev() {
                self.queue_again(&queue, content);
            }
        }
        self.pump_all();
    }

    /// All queues end.
    pub fn forget(&mut self) {
        self.queues.clear();
    }

    /// Sends heartbeats, unblocks, and gives up silent clients.
    pub fn expire(&mut self) {
        let now_ns = self.now_ns;
        let connections: Vec<usize> = self.lines.keys().copied().collect();
        for connection in connections {
            let Some(line) = self.lines.get_mut(&connection) else { continue };
            let beats = line.is_open && line.beat_ns > 0;
            if std::mem::take(&mut line.is_blocked) {
                self.answer(connection, 0, (10, 61), &[]);
            }
            let Some(line) = self.lines.get(&connection) else { continue };
            if beats && self.script.gives_up && now_ns - line.received_ns > 2 * line.beat_ns {
                self.note("silent client");
                self.output.push_back((connection, Output::Reset));
                self.gone(connection);
            } else if beats && now_ns - line.sent_ns >= line.beat_ns / 2 {
                self.write(connection, BEAT);
            }
        }
    }

    fn note(&mut self, kind: &'static str) {
        *self.seen.entry(kind).or_default() += 1;
    }

    fn write(&mut self, connection: usize, bytes: &[u8]) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        line.sent_ns = self.now_ns;
        let size = match line.conduct {
            AmqpConduct::Pieces(size) => size,
            _ => bytes.len().max(1),
        };
        for part in bytes.chunks(size) {
            self.output.push_back((connection, Output::Bytes(part.to_vec())));
        }
    }

    fn answer(&mut self, connection: usize, channel: u16, method: (u16, u16), fields: &[u8]) {
        let packet = AmqpPacket::new(channel, method, fields.to_vec());
        self.write(connection, &packet.bytes(1));
    }

    fn end(&mut self, connection: usize) {
        self.output.push_back((connection, Output::End));
        self.gone(connection);
    }

    /// Ends a connection, or a channel, with a code.
    fn fail(&mut self, connection: usize, channel: u16, (code, text): Ending) {
        self.note("closed with a code");
        let fields = [&code.to_be_bytes()[..], &short(text), &[0; 4]].concat();
        let method = if channel == 0 { (10, 50) } else { (20, 40) };
        self.answer(connection, channel, method, &fields);
        if channel == 0 {
            self.end(connection);
        }
    }

    fn obey(&mut self, connection: usize, packet: &AmqpPacket) {
        let (channel, fields) = (packet.channel, &packet.fields);
        let Some(line) = self.lines.get_mut(&connection) else { return };
        assert!(line.is_open || packet.method.0 <= 10, "a login comes first: {packet:?}");
        match packet.method {
            (0, 0) if !line.is_open => self.greet(connection),
            (0, 0) | (10, 51) | (20, 41) => {}
            (10, 11) => self.log_in(connection, fields),
            (10, 31) => {
                line.beat_ns =
                    u64::from(u16::from_be_bytes([fields[6], fields[7]])) * 1_000_000_000;
            }
            (10, 40) => {
                line.is_open = true;
                let [host] = packet.texts(0);
                line.host = if host == "/" { String::new() } else { host };
                let ends = line.conduct == AmqpConduct::EndBehindOpen;
                self.answer(connection, 0, (10, 41), &[0]);
                if ends {
                    self.note("end behind connection.open-ok");
                    self.end(connection);
                }
            }
            (10, 50) => {
                self.answer(connection, 0, (10, 51), &[]);
                self.end(connection);
            }
            (20, 10) => {
                line.channels.insert(channel, BrokerChannel::default());
                let conduct = line.conduct;
                self.answer(connection, channel, (20, 11), &[0; 4]);
                if let AmqpConduct::Bytes(bytes) = conduct {
                    self.note("broken bytes");
                    self.write(connection, bytes);
                }
            }
            (85, 10) => {
                line.channels.entry(channel).or_default().confirms = true;
                self.answer(connection, channel, (85, 11), &[]);
            }
            (40, 10) => self.answer(connection, channel, (40, 11), &[]),
            (50, 10) => self.declare(connection, packet),
            (50, 20) => self.bind(connection, packet),
            (60, 10) => {
                let own = line.channels.entry(channel).or_default();
                own.prefetch = u16::from_be_bytes([fields[4], fields[5]]);
                self.answer(connection, channel, (60, 11), &[]);
            }
            (60, 20) => self.consume(connection, packet),
            (60, 40) => self.publish(connection, packet),
            (60, 80) => self.settle(connection, packet, false),
            (60, 120) => self.settle(connection, packet, true),
            _ => unreachable!("a client does not send {packet:?}"),
        }
    }

    fn greet(&mut self, connection: usize) {
        match self.lines[&connection].conduct {
            AmqpConduct::Mute => self.note("mute broker of AMQP"),
            AmqpConduct::NotAmqp => {
                self.note("another protocol");
                self.write(connection, b"HTTP/1.1 400 Bad Request\r\n\r\n");
            }
            AmqpConduct::OtherVersion => {
                self.note("another version");
                self.write(connection, b"AMQP\0\x01\0\0");
                self.end(connection);
            }
            conduct => {
                let mechanisms = b"PLAIN EXTERNAL";
                let fields = [&[0, 9, 0, 0, 0, 0, 0, 0, 0, 14][..], mechanisms, &[0, 0, 0, 5]];
                let fields = [&fields.concat()[..], b"en_US"].concat();
                self.answer(connection, 0, (10, 10), &fields);
                if conduct == AmqpConduct::EndBehindStart {
                    self.note("end behind connection.start");
                    self.end(connection);
                }
            }
        }
    }

    fn log_in(&mut self, connection: usize, fields: &[u8]) {
        let password = self.script.password.map(|password| format!("\0{password}"));
        let is_allowed = password.is_none_or(|password| {
            fields.windows(password.len()).any(|part| part == password.as_bytes())
        });
        match self.lines[&connection].conduct {
            AmqpConduct::Refuse(ending) => self.fail(connection, 0, ending),
            _ if !is_allowed => self.fail(connection, 0, (403, "ACCESS_REFUSED")),
            _ => self.answer(connection, 0, (10, 30), &[0, 9, 0, 0, 16, 0, 0, 60]),
        }
    }

    fn declare(&mut self, connection: usize, packet: &AmqpPacket) {
        let [mut name] = packet.texts(2);
        let flags = packet.fields[3 + name.len()];
        if name.is_empty() {
            self.named += 1;
            name = format!("amq.gen-{}", self.named);
        }
        let full = format!("{}/{name}", self.lines[&connection].host);
        let queue = self.queues.entry(full).or_default();
        queue.owner = (flags & 4 != 0).then_some(connection);
        queue.ends_with_consumers = flags & 8 != 0;
        if let Some(line) = self.lines.get_mut(&connection) {
            line.channels.entry(packet.channel).or_default().queue.clone_from(&name);
        }
        let fields = [&short(&name)[..], &[0; 8]].concat();
        self.answer(connection, packet.channel, (50, 11), &fields);
    }

    /// The queue of this name; the empty name is that of the last one declared on the channel.
    fn queue_of(&self, connection: usize, channel: u16, name: &str) -> String {
        let line = &self.lines[&connection];
        let name = if name.is_empty() { &line.channels[&channel].queue } else { name };
        format!("{}/{name}", line.host)
    }

    fn bind(&mut self, connection: usize, packet: &AmqpPacket) {
        let [name, exchange, key] = packet.texts(2);
        let name = self.queue_of(connection, packet.channel, &name);
        let exchange = format!("{}/{exchange}", self.lines[&connection].host);
        let queue = self.queues.get_mut(&name).expect("the client has declared it");
        queue.bindings.insert((exchange, key));
        self.answer(connection, packet.channel, (50, 21), &[]);
    }

    fn consume(&mut self, connection: usize, packet: &AmqpPacket) {
        let [name, tag] = packet.texts(2);
        let flags = packet.fields[4 + name.len() + tag.len()];
        let (channel, name) = (packet.channel, self.queue_of(connection, packet.channel, &name));
        let conduct = self.lines[&connection].conduct;
        if let AmqpConduct::CloseChannel(ending) = conduct {
            return self.fail(connection, channel, ending);
        }
        let prefetch = self.lines[&connection].channels[&channel].prefetch;
        let needs_ack = flags & 2 == 0;
        let consumer =
            BrokerConsumer { connection, channel, tag: tag.clone(), needs_ack, prefetch };
        let queue = self.queues.get_mut(&name).expect("the client has declared it");
        queue.consumers.push(consumer);
        self.answer(connection, channel, (60, 21), &short(&tag));
        if conduct == AmqpConduct::Cancels {
            self.note("cancelled consumer");
            self.answer(connection, channel, (60, 30), &[&short(&tag)[..], &[1]].concat());
        }
        self.pump(&name);
    }

    fn publish(&mut self, connection: usize, packet: &AmqpPacket) {
        let [exchange, key] = packet.texts(2);
        let is_mandatory = packet.fields[4 + exchange.len() + key.len()] & 1 != 0;
        let content = BrokerContent {
            exchange: format!("{}/{exchange}", self.lines[&connection].host),
            key: key.clone(),
            properties: packet.properties.clone(),
            body: packet.body.clone(),
            is_again: false,
        };
        self.published.push_back((format!("{}/{key}", content.exchange), packet.body.clone()));
        if !self.route(&content) && is_mandatory {
            self.note("returned message");
            let fields = [&[1, 56][..], &short("NO_ROUTE"), &short(&exchange), &short(&key)];
            let returned =
                AmqpPacket { method: (60, 50), fields: fields.concat(), ..packet.clone() };
            let part = self.script.part;
            self.write(connection, &returned.bytes(part));
        }
        let Some(line) = self.lines.get_mut(&connection) else { return };
        line.channels.entry(packet.channel).or_default().published += 1;
        let blocks = line.conduct == AmqpConduct::Blocks && !line.is_blocked;
        if blocks {
            line.is_blocked = true;
            self.note("blocked connection");
            self.answer(connection, 0, (10, 60), &short("low on memory"));
        }
    }

    /// A program publishes a message under a name of the plans, without properties.
    pub fn publish_name(&mut self, name: &str, body: &[u8]) {
        let (exchange, key) = name.rsplit_once('/').expect("a name has an exchange");
        self.route(&BrokerContent {
            exchange: exchange.into(),
            key: key.into(),
            properties: vec![0, 0],
            body: body.into(),
            is_again: false,
        });
    }

    /// Puts a message into the queues that take it; returns `false` if none does.
    fn route(&mut self, content: &BrokerContent) -> bool {
        let BrokerContent { exchange, key, .. } = content;
        let takes = |(name, queue): (&String, &BrokerQueue)| {
            let by_name = exchange.ends_with('/') && *name == format!("{exchange}{key}");
            let bound = |(own, filter): &(String, String)| own == exchange && matches(filter, key);
            (by_name || queue.bindings.iter().any(bound)).then(|| name.clone())
        };
        let takers: Vec<String> = self.queues.iter().filter_map(takes).collect();
        for name in &takers {
            if let Some(queue) = self.queues.get_mut(name) {
                queue.waiting.push_back(content.clone());
            }
            self.pump(name);
        }
        !takers.is_empty()
    }

    /// Confirms the publications of a connection, one by one or several together.
    fn confirm(&mut self, connection: usize) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        let nacks = line.conduct == AmqpConduct::Nacks;
        let mut confirms = Vec::new();
        for (&channel, own) in line.channels.iter_mut().filter(|(_, own)| own.confirms) {
            let is_multiple = !nacks && own.published > own.confirmed + 1 && self.rng.chance(50);
            let first = if is_multiple { own.published } else { own.confirmed + 1 };
            for number in first..=own.published {
                let method = if nacks && number.is_multiple_of(2) { 120 } else { 80 };
                confirms.push((channel, method, number, is_multiple));
            }
            own.confirmed = own.published;
        }
        for (channel, method, number, is_multiple) in confirms {
            self.note(match (method, is_multiple) {
                (120, _) => "refused publication",
                (_, true) => "confirm of several",
                _ => "confirm of one",
            });
            let fields = [&number.to_be_bytes()[..], &[is_multiple.into()]].concat();
            self.answer(connection, channel, (60, method), &fields);
        }
    }

    /// The client acknowledges deliveries, or refuses them.
    fn settle(&mut self, connection: usize, packet: &AmqpPacket, refuses: bool) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        let own = line.channels.entry(packet.channel).or_default();
        let number = packet.number(0);
        let first = if packet.fields[8] & 1 != 0 { 0 } else { number };
        let meant: Vec<u64> = own.unacknowledged.range(first..=number).map(|(n, _)| *n).collect();
        assert!(!meant.is_empty(), "{number} waits for an acknowledgement");
        let settled: Vec<_> = meant.iter().filter_map(|n| own.unacknowledged.remove(n)).collect();
        let mut queues = BTreeSet::new();
        for (name, _, content) in settled.into_iter().rev() {
            if refuses {
                self.note("delivery refused");
                self.queue_again(&name, content);
            }
            queues.insert(name);
        }
        queues.iter().for_each(|name| self.pump(name));
    }

    fn queue_again(&mut self, name: &str, content: BrokerContent) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.waiting.push_front(BrokerContent { is_again: true, ..content });
        }
    }

    fn pump_all(&mut self) {
        let names: Vec<String> = self.queues.keys().cloned().collect();
        names.iter().for_each(|name| self.pump(name));
    }

    /// Delivers messages of a queue to its consumers in turn, as far as their prefetch allows.
    fn pump(&mut self, name: &str) {
        while let Some(queue) = self.queues.get_mut(name) {
            let lines = &self.lines;
            let has_room = |own: &BrokerConsumer| {
                let Some(line) = lines.get(&own.connection) else { return false };
                let waits = line.channels[&own.channel].unacknowledged.values();
                let count = waits.filter(|(_, tag, _)| *tag == own.tag).count();
                own.prefetch == 0 || count < usize::from(own.prefetch)
            };
            let Some(place) = queue.consumers.iter().position(has_room) else { return };
            let Some(content) = queue.waiting.pop_front() else { return };
            let consumer = queue.consumers.remove(place);
            queue.consumers.push(consumer.clone());
            self.deliver(name, &consumer, content);
        }
    }

    fn deliver(&mut self, queue: &str, consumer: &BrokerConsumer, content: BrokerContent) {
        let BrokerConsumer { connection, channel, tag, needs_ack, .. } = consumer;
        let Some(line) = self.lines.get_mut(connection) else { return };
        let own = line.channels.entry(*channel).or_default();
        own.delivered += 1;
        let number = own.delivered.to_be_bytes();
        let (_, exchange) = content.exchange.rsplit_once('/').expect("a host is in front");
        let (exchange, key) = (short(exchange), short(&content.key));
        let fields = [&short(tag)[..], &number, &[content.is_again.into()], &exchange, &key];
        let packet = AmqpPacket {
            channel: *channel,
            method: (60, 60),
            fields: fields.concat(),
            properties: content.properties.clone(),
            body: content.body.clone(),
        };
        if *needs_ack {
            let entry = (queue.to_owned(), tag.clone(), content);
            own.unacknowledged.insert(own.delivered, entry);
        }
        let part = self.script.part;
        self.write(*connection, &packet.bytes(part));
    }
}
