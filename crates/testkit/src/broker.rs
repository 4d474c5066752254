//! A broker without input or output: bytes of any number of links in, bytes out. The broker rejects
//! clients that break the standard, and breaks the standard where its [`Script`] requires.

mod authenticate;
mod handle;
mod script;
mod session;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use mqtt::{
    ConnAck, DecodeError, DecodedPacket, Packet, PacketId, PacketType, Property, PropertyList, QoS,
    Value, Version, decode,
};

use authenticate::BrokerExchange;
use session::{ClientState, write};

pub use handle::KEPT;
pub use script::{Announced, Authenticate, Fate, Script, StepAnswer};

/// Identifier of a network connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(u64);

/// A message in either direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerMessage {
    /// Topic name.
    pub topic: String,
    /// Bytes of the application.
    pub payload: Vec<u8>,
    /// Quality of service.
    pub qos: QoS,
    /// From a client: retain the message. To a client: the message was retained.
    pub retain: bool,
    /// Properties of MQTT 5 that receivers get too.
    pub properties: PropertyList,
}

impl BrokerMessage {
    /// Time until the message expires, from its arrival on.
    fn life_ns(&self) -> u64 {
        let expiry = self.properties.properties().number(Property::MessageExpiryInterval);
        expiry.map_or(u64::MAX, |s| u64::from(s) * 1_000_000_000)
    }

    /// Leaves the message at most this time until it expires `[MQTT5-3.3.2-6]`.
    fn reduce_expiry(&mut self, left_ns: u64) {
        let left_s = (left_ns / 1_000_000_000).min(u32::MAX.into()) as u32;
        let mut reduced = PropertyList::new();
        for (property, value) in self.properties.properties().iter() {
            let value = match (property, value) {
                (Property::MessageExpiryInterval, Value::Number(s)) => Value::Number(s.min(left_s)),
                (_, value) => value,
            };
            reduced.push(property, value).expect("the message has this property");
        }
        self.properties = reduced;
    }
}

/// Violation by a client. The broker closes the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerError {
    /// The bytes are not MQTT.
    Malformed(DecodeError),
    /// A first packet other than CONNECT, a second CONNECT, or a packet that clients must not send.
    Unexpected(PacketType),
    /// The link is closed.
    Closed,
}

/// The broker. [`Broker::set_now`] sets its time.
#[derive(Debug)]
pub struct Broker {
    now_ns: u64,
    script: Script,
    links: BTreeMap<LinkId, BrokerLink>,
    clients: BTreeMap<String, ClientState>,
    /// Retained messages, each with the instant of its arrival in ns.
    retained: BTreeMap<String, (u64, BrokerMessage)>,
    /// Wills with a delay, by client: when they are due, in ns.
    delayed_wills: BTreeMap<String, (u64, BrokerMessage)>,
    accepted: Vec<BrokerMessage>,
    links_total: u64,
    /// Number of messages given to shared subscriptions.
    shared_total: usize,
    /// Number of deviations of the script by kind, of those that [`Broker::deviations`] names.
    deviations: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Default)]
struct BrokerLink {
    /// Client of the link; `None` before the broker accepts it.
    client_id: Option<String>,
    /// Authentication of a client that the broker has not accepted yet.
    exchange: Option<BrokerExchange>,
    version: Version,
    /// Limits of CONNACK.
    announced: Announced,
    /// Messages of QoS 1 and 2 that the client has sent on this link and that the broker has not
    /// fully acknowledged (4.9 of MQTT 5).
    unacknowledged: BTreeSet<PacketId>,
    /// Topics of the client's aliases.
    topics: BTreeMap<u32, String>,
    will: Option<BrokerMessage>,
    /// `true` if the end of the link discards the will.
    discards_will: bool,
    /// Time from the end of the link to the publication of the will, in ns.
    will_delay_ns: u64,
    keep_alive_s: u16,
    /// Arrival time of the client's last bytes, in ns.
    received_ns: u64,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Acknowledgements with [`Fate::Delay`].
    delayed: Vec<u8>,
    closed: bool,
}

impl Broker {
    /// A broker without clients.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self {
            now_ns: 0,
            script,
            links: BTreeMap::new(),
            clients: BTreeMap::new(),
            retained: BTreeMap::new(),
            delayed_wills: BTreeMap::new(),
            accepted: Vec::new(),
            links_total: 0,
            shared_total: 0,
            deviations: BTreeMap::new(),
        }
    }

    /// Sets the time, in ns. Only keep-alive, delays of wills and
    /// expiries of messages use the time.
    pub const fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Closes the links of clients that were silent for one and a half times their keep-alive
    /// `[MQTT-3.1.2-24]`.
    pub fn expire(&mut self) {
        let now_ns = self.now_ns;
        let is_late = |link: &BrokerLink| {
            let silence_ns = now_ns.saturating_sub(link.received_ns);
            link.keep_alive_s > 0 && silence_ns > u64::from(link.keep_alive_s) * 1_500_000_000
        };
        let late = self.links.iter().filter(|(_, link)| !link.closed && is_late(link));
        let late: Vec<LinkId> = late.map(|(&id, _)| id).collect();
        late.into_iter().for_each(|id| self.close(id));
        self.publish_delayed_wills();
    }

    /// Publishes the wills whose delay is over.
    fn publish_delayed_wills(&mut self) {
        let now_ns = self.now_ns;
        let is_due = |(client_id, will): (&String, &(u64, BrokerMessage))| {
            (will.0 <= now_ns).then(|| client_id.clone())
        };
        let due: Vec<String> = self.delayed_wills.iter().filter_map(is_due).collect();
        for client_id in due {
            self.publish_delayed_will(&client_id);
        }
    }

    fn publish_delayed_will(&mut self, client_id: &str) {
        if let Some((_, will)) = self.delayed_wills.remove(client_id) {
            self.accept(will);
        }
    }

    /// Drops the sessions of clients without a link, and the retained messages.
    pub fn forget(&mut self) {
        self.clients.retain(|_, client| client.link.is_some());
        self.delayed_wills.clear();
        self.retained.clear();
    }

    /// Replaces the script.
    pub fn set_script(&mut self, script: Script) {
        self.script = script;
    }

    /// Messages accepted from clients, wills included, in order; a QoS 2 message once.
    #[must_use]
    pub fn accepted(&self) -> &[BrokerMessage] {
        &self.accepted
    }

    /// Number of unexpected wills, of second wills, and of acknowledgements with another code of
    /// success than 0.
    #[must_use]
    pub const fn deviations(&self) -> &BTreeMap<&'static str, u64> {
        &self.deviations
    }

    fn note_deviation(&mut self, kind: &'static str, times: usize) {
        if times > 0 {
            *self.deviations.entry(kind).or_default() += times as u64;
        }
    }

    /// Number of filters in the session of a client; `None` if there is no session.
    #[must_use]
    pub fn filters(&self, client_id: &str) -> Option<usize> {
        self.clients.get(client_id).map(|client| client.subscriptions.len())
    }

    /// Number of QoS 1 and 2 messages that a client has not fully acknowledged, queued messages
    /// included.
    #[must_use]
    pub fn pending(&self, client_id: &str) -> usize {
        self.clients.get(client_id).map_or(0, ClientState::pending)
    }

    /// Opens a network connection.
    pub fn open(&mut self) -> LinkId {
        self.links_total += 1;
        let id = LinkId(self.links_total);
        self.links.insert(id, BrokerLink::default());
        id
    }

    /// Returns true while the link is open.
    #[must_use]
    pub fn is_open(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| !link.closed)
    }

    /// Takes the bytes that the broker sends on a link.
    pub fn take_output(&mut self, id: LinkId) -> Vec<u8> {
        self.links.get_mut(&id).map(|link| std::mem::take(&mut link.output)).unwrap_or_default()
    }

    /// Takes the bytes to send, for each link that has bytes or that the broker has closed. The
    /// last value is `true` if the link is open.
    pub fn take_outputs(&mut self) -> Vec<(LinkId, Vec<u8>, bool)> {
        let news = self.links.iter_mut().filter(|(_, link)| link.closed || !link.output.is_empty());
        news.map(|(&id, link)| (id, std::mem::take(&mut link.output), !link.closed)).collect()
    }

    /// Ends a network connection without DISCONNECT, and publishes its will `[MQTT-3.1.2-8]`.
    pub fn cut(&mut self, id: LinkId) {
        self.close(id);
        self.links.remove(&id);
    }

    /// Notes that a client is not silent.
    pub fn note_bytes(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.received_ns = self.now_ns;
        }
    }

    /// Handles bytes from a client.
    ///
    /// # Errors
    /// [`BrokerError`] if the client breaks the protocol; the broker then closes the link.
    pub fn receive(&mut self, id: LinkId, bytes: &[u8]) -> Result<(), BrokerError> {
        let link = self.links.get_mut(&id).filter(|link| !link.closed);
        let Some(link) = link else { return Err(BrokerError::Closed) };
        link.received_ns = self.now_ns;
        let delayed = std::mem::take(&mut link.delayed);
        let mut input = std::mem::take(&mut link.input);
        input.extend_from_slice(bytes);
        let outcome = self.receive_packets(id, &input);
        if let (Ok(used), Some(link)) = (outcome, self.links.get_mut(&id)) {
            link.input = input.split_off(used);
            link.output.extend_from_slice(&delayed);
        }
        outcome.map(|_| ()).inspect_err(|_| self.close(id))
    }

    /// Delivers a message to all subscribers, as if a client had published the message.
    pub fn publish(&mut self, message: &BrokerMessage) {
        if message.retain {
            if message.payload.is_empty() {
                self.retained.remove(&message.topic); // [MQTT-3.3.1-10]
            } else {
                self.retained.insert(message.topic.clone(), (self.now_ns, message.clone()));
            }
        }
        let limits = self.script.limits(self.now_ns);
        let mut chosen = self.choose_members(&message.topic);
        for (id, client) in &mut self.clients {
            if self.script.muted.contains(id) {
                continue;
            }
            let mut copies = chosen.remove(id).unwrap_or_default();
            let granted = client.granted(&message.topic);
            copies.extend(granted.take(if self.script.sends_copies { usize::MAX } else { 1 }));
            for granted in copies {
                let qos = granted.min(message.qos);
                let retain = message.retain && client.retains(&message.topic);
                let copy = BrokerMessage { qos, retain, ..message.clone() }; // [MQTT-3.3.1-9]
                let link = client.link.and_then(|id| self.links.get_mut(&id));
                let mut nowhere = Vec::new();
                let out = link.map_or(&mut nowhere, |link| &mut link.output);
                client.deliver(copy, limits, out);
            }
        }
    }

    /// Chooses, for each shared subscription on `name`, the member that receives the message, with
    /// the QoS granted. Members with a link take turns. Without any link all members take turns.
    fn choose_members(&mut self, name: &str) -> BTreeMap<String, Vec<QoS>> {
        let mut members: BTreeMap<&str, Vec<(bool, &String, QoS)>> = BTreeMap::new();
        for (id, client) in &self.clients {
            for (filter, qos) in client.shared(name) {
                members.entry(filter).or_default().push((client.link.is_some(), id, *qos));
            }
        }
        let mut chosen: BTreeMap<String, Vec<QoS>> = BTreeMap::new();
        for mut members in members.into_values() {
            let is_linked = members.iter().any(|(is_linked, ..)| *is_linked);
            members.retain(|member| member.0 == is_linked);
            self.shared_total += 1;
            let copies = match self.script.doubles_shared {
                true => 2 * (self.shared_total % 2),
                false => 1,
            };
            let from = self.shared_total % members.len();
            for (_, id, qos) in members.iter().cycle().skip(from).take(copies) {
                chosen.entry((*id).clone()).or_default().push(*qos);
            }
        }
        chosen
    }

    /// Handles all complete packets of `input` and returns the number of bytes consumed.
    fn receive_packets(&mut self, id: LinkId, input: &[u8]) -> Result<usize, BrokerError> {
        let mut used = 0;
        while self.is_open(id) {
            let bytes = &input[used..];
            match decode(self.version_for(id, bytes), bytes) {
                Ok(DecodedPacket::Packet { packet, len }) => {
                    let announced = self.links[&id].announced;
                    let most = announced.packet_bytes_max.map_or(usize::MAX, |n| n as usize);
                    assert!(len <= most, "a packet of {len} bytes, above the maximum of {most}");
                    self.handle(id, &packet)?;
                    used += len;
                }
                Ok(DecodedPacket::Incomplete { .. }) => break,
                Err(DecodeError::UnsupportedProtocolLevel(_)) => {
                    self.refuse(id, 1); // [MQTT-3.1.2-2]
                }
                Err(error) => return Err(BrokerError::Malformed(error)),
            }
        }
        Ok(used)
    }

    /// Version of a link, which the CONNECT at the front of `bytes` sets.
    fn version_for(&mut self, id: LinkId, bytes: &[u8]) -> Version {
        let Some(link) = self.links.get_mut(&id) else { return Version::default() };
        if link.client_id.is_none() {
            link.version = Version::of_connect(bytes).unwrap_or(link.version);
        }
        link.version
    }

    /// Version that the client of a link speaks.
    #[must_use]
    pub fn version(&self, id: LinkId) -> Version {
        self.links.get(&id).map_or(Version::default(), |link| link.version)
    }

    fn close(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.closed = true;
        let (will, delay_ns) = (link.will.take(), link.will_delay_ns);
        let is_due = !link.discards_will;
        let client_id = link.client_id.take();
        if let Some(client_id) = &client_id
            && let Some(client) = self.clients.get_mut(client_id)
        {
            client.link = None;
            if !client.persistent {
                self.clients.remove(client_id);
            }
        }
        match (will, client_id) {
            (Some(will), Some(client_id)) if delay_ns > 0 && is_due => {
                self.delayed_wills.insert(client_id, (self.now_ns + delay_ns, will));
            }
            (Some(will), _) => {
                let times = (self.script.wills)(is_due);
                let kind = if is_due { "second will" } else { "unexpected will" };
                self.note_deviation(kind, times.saturating_sub(usize::from(is_due)));
                (0..times).for_each(|_| self.accept(will.clone()));
            }
            (None, _) => {}
        }
    }

    fn refuse(&mut self, id: LinkId, code: u8) {
        self.send(
            id,
            &Packet::ConnAck(ConnAck { session_present: false, code, ..ConnAck::default() }),
        );
        self.close(id);
    }

    fn accept(&mut self, message: BrokerMessage) {
        self.publish(&message);
        self.accepted.push(message);
    }

    fn send(&mut self, id: LinkId, packet: &Packet<'_>) {
        if let Some(link) = self.links.get_mut(&id) {
            write(packet, link.version, &mut link.output);
        }
    }

    fn send_ack(&mut self, id: LinkId, packet: &Packet<'_>) {
        let fate = (self.script.fate)(packet.packet_type());
        let Some(link) = self.links.get_mut(&id) else { return };
        match packet {
            Packet::PubAck(ack) | Packet::PubComp(ack) if fate != Fate::Drop => {
                link.unacknowledged.remove(&ack.packet_id);
            }
            Packet::PubRec(ack) if fate != Fate::Drop && ack.code.is_error() => {
                link.unacknowledged.remove(&ack.packet_id);
            }
            _ => {}
        }
        match fate {
            Fate::Send => write(packet, link.version, &mut link.output),
            Fate::Drop => {}
            Fate::Duplicate => {
                write(packet, link.version, &mut link.output);
                write(packet, link.version, &mut link.output);
            }
            Fate::Delay => write(packet, link.version, &mut link.delayed),
        }
    }
}
