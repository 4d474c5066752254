//! Sparkplug B beside the clients that play it: the numbers of edge nodes, the views of hosts, and
//! the messages that both send besides publications. Clients of other populations have no state
//! here, and only messages without a stamp at their start are looked at.

use agent::tally::Tally;
use plan::{Plan, Population, Sparkplug, SparkplugHost, SparkplugNode, Template};
use rustc_hash::{FxHashMap, FxHashSet};
use sparkplug::{
    Followed, MetricSet, NAMESPACE, SparkplugFollower, SparkplugKind, SparkplugReport,
    SparkplugTopic, decode_sparkplug, write_birth, write_death, write_device_death, write_rebirth,
};

use crate::ledger::receiver::Receiver;
use crate::seam::OwnMessage;
use crate::seam::received::Received;
use crate::setup::Setup;

/// Nodes that a host follows at least. It follows all nodes of the plan if there are more.
const NODES_MIN: usize = 10_000;
/// Dead devices that a host remembers at most.
const DEAD_MAX: usize = 100_000;
/// Body of a death that a node publishes itself: the deaths that brokers publish, which are wills,
/// have none.
const LEFT: &[u8] = b"left";

/// Sparkplug B of all clients of this agent.
pub struct SparkplugClients {
    /// Numbers of edge nodes, by population and local index.
    nodes: Vec<Vec<NodeNumbers>>,
    /// Hosts that have connected, by index of the client.
    hosts: FxHashMap<u32, HostViews>,
    /// Device of a client that is dead while its node lives, by index of the client.
    dead: FxHashMap<u32, u32>,
    /// Nodes that a host follows at most.
    nodes_max: usize,
    /// Actions that a client has to carry out.
    asked: Vec<SparkplugAction>,
    /// Memory for the name of a node.
    name: String,
    /// Some population of the plan has a part in Sparkplug.
    is_played: bool,
}

/// Numbers of an edge node.
#[derive(Clone, Copy)]
pub struct NodeNumbers {
    /// Number of the connection, which its death and its births have.
    bd_seq: u8,
    /// Messages since the birth of the node, with that.
    number: u64,
}

/// A host's views of edge nodes, by group and node.
#[derive(Default)]
struct HostViews {
    nodes: FxHashMap<Box<str>, SparkplugFollower>,
    /// Devices that have died, by group, node and device.
    dead: FxHashSet<Box<str>>,
    /// Instant of the connection, in milliseconds since 1970.
    connected_ms: u64,
}

/// An action that a received message asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SparkplugAction {
    /// A node sends its births again.
    Births,
    /// A host states that it is online.
    State,
    /// A host asks the node of this topic for its births.
    Ask(String),
}

/// A received message of Sparkplug.
#[derive(Clone, Copy, Default)]
pub struct SparkplugNote {
    /// The ledger has no part in the message.
    pub is_whole: bool,
    /// The client carries out an action first.
    pub asks: bool,
}

/// A client: its population, and its index in this agent and in the share of its population.
#[derive(Clone, Copy)]
pub struct SparkplugClient<'a> {
    /// Its population.
    pub population: &'a Population,
    /// Index of its population.
    pub index: usize,
    /// Index of the client in this agent.
    pub client: u32,
    /// Its index in the share of its population.
    pub local: u32,
    /// Its number.
    pub n: u64,
    /// The instant, in milliseconds since 1970.
    pub now_ms: u64,
}

impl NodeNumbers {
    /// A node that has never connected (tck-id-topics-nbirth-bdseq-increment).
    const NEW: Self = Self { bd_seq: u8::MAX, number: 0 };

    /// Number of the next message since the birth.
    pub const fn next(&self) -> u64 {
        self.number
    }

    /// Notes that a message was sent.
    pub const fn advance(&mut self) {
        self.number += 1;
    }
}

impl SparkplugClients {
    /// State before the first connection.
    pub fn new(setup: &Setup) -> Self {
        let plan: &Plan = &setup.plan;
        let node = |population: &Population| population.sparkplug().is_some_and(is_node);
        let of = |(population, share): (&Population, u32)| match node(population) {
            true => vec![NodeNumbers::NEW; share as usize],
            false => Vec::new(),
        };
        let shares = setup.populations.iter().map(|own| own.share);
        let planned = plan.populations.iter().filter(|own| node(own)).map(|own| own.clients);
        let planned: usize = planned.map(|clients| clients as usize).sum();
        Self {
            nodes: plan.populations.iter().zip(shares).map(of).collect(),
            hosts: FxHashMap::default(),
            dead: FxHashMap::default(),
            nodes_max: planned.max(NODES_MIN),
            asked: Vec::new(),
            name: String::new(),
            is_played: plan.populations.iter().any(|own| own.sparkplug().is_some()),
        }
    }

    /// Returns `true` if some clients of the plan have a part in Sparkplug.
    #[inline]
    pub const fn is_played(&self) -> bool {
        self.is_played
    }

    /// The numbers of a node; `None` for other clients.
    #[inline]
    pub fn node(&mut self, population: usize, local: u32) -> Option<&mut NodeNumbers> {
        self.nodes[population].get_mut(local as usize)
    }

    /// Begins a connection. Returns its will; `None` for clients without a part in Sparkplug.
    pub fn open(&mut self, of: &SparkplugClient<'_>) -> Option<OwnMessage> {
        if let Some(numbers) = self.node(of.index, of.local) {
            numbers.bd_seq = numbers.bd_seq.wrapping_add(1);
        } else if of.population.sparkplug().is_some() {
            self.hosts.entry(of.client).or_default().connected_ms = of.now_ms;
        }
        self.death(of, false)
    }

    /// The message with which a client dies: at the end of a connection that the client chooses
    /// (`left`), or its will. A node that leaves uses QoS 0: an answer of the broker to a closed
    /// connection could reset it before the broker reads DISCONNECT.
    pub fn death(&mut self, of: &SparkplugClient<'_>, left: bool) -> Option<OwnMessage> {
        let mut qos = 1;
        let (topic, payload, retain) = match of.population.sparkplug()? {
            Sparkplug::Node(node) => {
                let numbers = self.node(of.index, of.local)?;
                let mut payload = Vec::new();
                let body = if left { LEFT } else { &[] };
                qos = u8::from(!left);
                write_death(of.now_ms, numbers.bd_seq, body, &mut payload);
                (topic_of(node, SparkplugKind::NodeDeath, of.n), payload, false)
            }
            Sparkplug::Host(host) => (state_topic(host, of.n), state(false, of.now_ms), true),
        };
        Some(OwnMessage { topic, payload, qos, retain, is_last: true })
    }

    /// Appends the messages with which a client begins: all births of a node, or the state of a
    /// host, which has the instant of its connection
    /// (tck-id-host-topic-phid-birth-payload-timestamp).
    pub fn births(&mut self, of: &SparkplugClient<'_>, out: &mut Vec<OwnMessage>) {
        match of.population.sparkplug() {
            Some(Sparkplug::Node(node)) => {
                self.dead.remove(&of.client);
                let Some(numbers) = self.node(of.index, of.local) else { return };
                numbers.number = 0;
                births_of(node, of, numbers, out);
            }
            Some(Sparkplug::Host(host)) => {
                let connected_ms = self.hosts.get(&of.client).map_or(0, |own| own.connected_ms);
                let (topic, payload) = (state_topic(host, of.n), state(true, connected_ms));
                out.push(OwnMessage { topic, payload, qos: 1, retain: true, is_last: false });
            }
            None => {}
        }
    }

    /// The birth of the device that is dead, if there is one
    /// (tck-id-operational-behavior-device-ddeath).
    pub fn revive(&mut self, of: &SparkplugClient<'_>) -> Option<OwnMessage> {
        let place = self.dead.remove(&of.client)?;
        let own = of.population.sparkplug()?.node()?;
        let numbers = self.node(of.index, of.local)?;
        device_birth(own, of, numbers, place)
    }

    /// The death of a device after its data.
    pub fn kill(&mut self, of: &SparkplugClient<'_>, place: u32) -> Option<OwnMessage> {
        let own = of.population.sparkplug()?.node()?;
        let device = own.devices.as_ref()?.text(of.n, place);
        let numbers = self.node(of.index, of.local)?;
        let (mut payload, seq) = (Vec::new(), numbers.number as u8);
        write_device_death(of.now_ms, seq, &mut payload);
        numbers.number += 1;
        self.dead.insert(of.client, place);
        let topic = format!("{}/{device}", topic_of(own, SparkplugKind::DeviceDeath, of.n));
        Some(own_message(topic, payload))
    }

    /// Returns `true` if the client that has just read has actions to carry out.
    #[inline]
    pub const fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Takes the actions of the client that has just read.
    pub fn take_asked(&mut self) -> Vec<SparkplugAction> {
        std::mem::take(&mut self.asked)
    }

    /// Notes a message without a stamp at its start. Returns what it means; nothing for messages of
    /// other topics.
    pub fn note(
        &mut self,
        (setup, tally): (&Setup, &mut Tally),
        receiver: Receiver,
        message: &Received<'_>,
        now_ns: u64,
    ) -> SparkplugNote {
        let topic = message.beside.topic().and_then(SparkplugTopic::parse);
        let own = setup.plan.populations[receiver.population].sparkplug();
        let (kind, group, node) = match topic {
            None => return SparkplugNote::default(),
            Some(SparkplugTopic::State(id)) => {
                let n = setup.number(receiver.population, receiver.local);
                return self.note_state(own.and_then(Sparkplug::host), (id, n), message.payload);
            }
            Some(SparkplugTopic::Node { kind, group, node, device }) => {
                (kind, group, (node, device.unwrap_or_default()))
            }
        };
        let counters = &mut tally.populations[receiver.population].counters;
        match kind {
            SparkplugKind::NodeBirth | SparkplugKind::DeviceBirth => {
                counters.births_received_total += 1;
            }
            SparkplugKind::NodeDeath | SparkplugKind::DeviceDeath => {
                counters.deaths_received_total += 1;
            }
            _ => {}
        }
        let is_data = matches!(kind, SparkplugKind::NodeData | SparkplugKind::DeviceData);
        let host = own.and_then(Sparkplug::host);
        if is_data && host.is_none() {
            return SparkplugNote::default();
        }
        let Ok(payload) = decode_sparkplug(message.payload) else {
            counters.unreadable_total += 1;
            return SparkplugNote { is_whole: true, asks: false };
        };
        let is_will = kind == SparkplugKind::NodeDeath && payload.body != LEFT;
        let is_whole = !is_data && !is_will;
        let Some(host) = host else {
            let asks = kind == SparkplugKind::NodeCommand
                && payload.is_rebirth
                && own.is_some_and(is_node);
            self.asked.extend(asks.then_some(SparkplugAction::Births));
            return SparkplugNote { is_whole, asks };
        };
        let numbered = setup.origins.numbered(message.payload);
        let followed = Followed {
            kind,
            payload: &payload,
            number: numbered.map(|(_, number)| number),
            is_of_dead: false,
            sent_ns: numbered.map_or(now_ns, |(stamp, _)| stamp.intended_ns),
            now_ns,
        };
        let Some(report) = self.follow(receiver.index, (group, node), &followed, host) else {
            counters.nodes_unfollowed_total += 1;
            return SparkplugNote { is_whole, asks: false };
        };
        count(&report, receiver.population, tally);
        if report.asks {
            let word = SparkplugKind::NodeCommand.word();
            let topic = format!("{NAMESPACE}/{group}/{word}/{}", node.0);
            self.asked.push(SparkplugAction::Ask(topic));
        }
        SparkplugNote { is_whole, asks: report.asks }
    }

    /// A host that is online repeats its state if another one, such as a will that came late, says
    /// that it is not (tck-id-message-flow-hid-sparkplug-state-message-delivered).
    fn note_state(
        &mut self,
        host: Option<&SparkplugHost>,
        (id, n): (&str, u64),
        payload: &[u8],
    ) -> SparkplugNote {
        let is_own = host.is_some_and(|host| host.host.text(n, 0) == id);
        let asks = is_own && !payload.starts_with(ONLINE);
        self.asked.extend(asks.then_some(SparkplugAction::State));
        SparkplugNote { is_whole: true, asks }
    }

    /// Takes a message of a node into the view of a host. Returns `None` if the host follows as
    /// many nodes as it can.
    fn follow(
        &mut self,
        client: u32,
        (group, (node, device)): (&str, (&str, &str)),
        followed: &Followed<'_>,
        host: &SparkplugHost,
    ) -> Option<SparkplugReport> {
        let Self { hosts, nodes_max, name, .. } = self;
        let HostViews { nodes: views, dead, .. } = hosts.entry(client).or_default();
        name.clear();
        name.extend([group, "/", node, "/", device]);
        let is_of_dead = note_device(dead, followed.kind, name);
        let followed = &Followed { is_of_dead, ..*followed };
        name.truncate(group.len() + 1 + node.len());
        if let Some(follower) = views.get_mut(name.as_str()) {
            return Some(follower.take(followed, host.ask_again_ns));
        }
        if views.len() == *nodes_max {
            return None;
        }
        let follower = views.entry(name.as_str().into()).or_default();
        Some(follower.take(followed, host.ask_again_ns))
    }
}

/// First bytes of the state of a host that is online.
const ONLINE: &[u8] = br#"{"online":true,"#;

fn state(online: bool, timestamp_ms: u64) -> Vec<u8> {
    format!(r#"{{"online":{online},"timestamp":{timestamp_ms}}}"#).into_bytes()
}

/// The command that asks the node of a topic for its births.
pub fn rebirth(topic: String, now_ms: u64) -> OwnMessage {
    let mut payload = Vec::new();
    write_rebirth(now_ms, &mut payload);
    own_message(topic, payload)
}

/// A message of a node, with QoS 0.
const fn own_message(topic: String, payload: Vec<u8>) -> OwnMessage {
    OwnMessage { topic, payload, qos: 0, retain: false, is_last: false }
}

/// Notes the life of a device, by the name of its node, a slash and its own name. Returns `true`
/// for data of one that has died and was not born again. Births and deaths of the node, which have
/// no name after the slash, end what is known of its devices.
fn note_device(dead: &mut FxHashSet<Box<str>>, kind: SparkplugKind, name: &str) -> bool {
    match kind {
        SparkplugKind::DeviceDeath if dead.len() < DEAD_MAX => drop(dead.insert(name.into())),
        SparkplugKind::DeviceData => return dead.contains(name),
        SparkplugKind::DeviceBirth => drop(dead.remove(name)),
        SparkplugKind::NodeBirth | SparkplugKind::NodeDeath => {
            dead.retain(|device| !device.starts_with(name));
        }
        _ => {}
    }
    false
}

const fn is_node(sparkplug: &Sparkplug) -> bool {
    sparkplug.node().is_some()
}

fn state_topic(host: &SparkplugHost, n: u64) -> String {
    format!("{NAMESPACE}/STATE/{}", host.host.text(n, 0))
}

fn topic_of(own: &SparkplugNode, kind: SparkplugKind, n: u64) -> String {
    let (group, node) = (own.group.text(n, 0), own.node.text(n, 0));
    format!("{NAMESPACE}/{group}/{}/{node}", kind.word())
}

/// Appends the births of a node: its own, then one for each device.
fn births_of(
    own: &SparkplugNode,
    of: &SparkplugClient<'_>,
    numbers: &mut NodeNumbers,
    out: &mut Vec<OwnMessage>,
) {
    let of_node = if own.devices.is_none() { own.metrics } else { 0 };
    let (mut payload, seq) = (Vec::new(), numbers.number as u8);
    let metrics = MetricSet::of_device(0, of_node);
    write_birth(of.now_ms, seq, Some(numbers.bd_seq), metrics, &mut payload);
    numbers.number += 1;
    out.push(own_message(topic_of(own, SparkplugKind::NodeBirth, of.n), payload));
    out.extend((0..own.devices()).filter_map(|place| device_birth(own, of, numbers, place)));
}

/// The birth of a device.
fn device_birth(
    own: &SparkplugNode,
    of: &SparkplugClient<'_>,
    numbers: &mut NodeNumbers,
    place: u32,
) -> Option<OwnMessage> {
    let device = own.devices.as_ref().map(|own: &Template| own.text(of.n, place))?;
    let (mut payload, seq) = (Vec::new(), numbers.number as u8);
    let metrics = MetricSet::of_device(place, own.metrics);
    write_birth(of.now_ms, seq, None, metrics, &mut payload);
    numbers.number += 1;
    let topic = format!("{}/{device}", topic_of(own, SparkplugKind::DeviceBirth, of.n));
    Some(own_message(topic, payload))
}

/// Counts what a message means for a host.
fn count(report: &SparkplugReport, population: usize, tally: &mut Tally) {
    let tally = &mut tally.populations[population];
    let counters = &mut tally.counters;
    counters.old_deaths_total += u64::from(report.is_old_death);
    counters.gaps_total += u64::from(report.gap.is_some());
    counters.hidden_gaps_total += u64::from(report.is_hidden_gap);
    counters.unborn_total += u64::from(report.is_unborn);
    counters.rebirths_received_total += u64::from(report.reborn_ns.is_some());
    if let Some(gap) = report.gap {
        tally.gap_time.record(gap.noticed_ns);
    }
    if let Some(reborn_ns) = report.reborn_ns {
        tally.rebirth_time.record(reborn_ns.cast_signed());
    }
}
