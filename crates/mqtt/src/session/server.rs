//! State of one connection that only MQTT 5 has: limits of the server in CONNACK, and topic aliases
//! in both directions. A session without such state has nothing of this on the heap.

use super::{MqttSession, PACKET_IDS};
use crate::codec::{PacketId, Properties, Property, Publish, QoS, Value};

const _: () = assert!(size_of::<Server>() <= 24, "limits 16, texts 8");

/// Properties of CONNACK that a session notes.
const NOTED: [Property; 10] = [
    Property::MaximumPacketSize,
    Property::ServerKeepAlive,
    Property::ReceiveMaximum,
    Property::TopicAliasMaximum,
    Property::MaximumQoS,
    Property::RetainAvailable,
    Property::AssignedClientIdentifier,
    Property::WildcardSubscriptionAvailable,
    Property::SubscriptionIdentifierAvailable,
    Property::SharedSubscriptionAvailable,
];

/// Bits of [`Limits::unavailable`].
const WILDCARDS: u8 = 1;
const IDENTIFIERS: u8 = 2;
const SHARED: u8 = 4;

/// Limits of a server (3.2.2.3), and topic aliases.
#[derive(Debug)]
pub(super) struct Server {
    limits: Limits,
    /// Keep-alive that replaces the client's, in seconds.
    keep_alive_s: Option<u16>,
    /// Most messages of QoS 1 and 2 in flight to the server.
    receive_maximum: u16,
    /// Largest topic alias that the server accepts.
    aliases_max: u16,
    /// `None` until a text or an alias is needed.
    texts: Option<Box<Texts>>,
}

/// Limits of a server for single packets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    packet_bytes_max: u32,
    qos_max: QoS,
    retains: bool,
    /// Kinds of subscriptions that the server has not, a bit each.
    unavailable: u8,
}

#[derive(Debug, Default)]
struct Texts {
    /// Client identifier that the server has chosen.
    client_id: Option<Box<str>>,
    /// Authentication method of CONNECT.
    method: Option<Box<str>>,
    /// Topics of the server's aliases, from alias 1 on; empty if unknown.
    topics: Vec<Box<str>>,
    /// Own aliases whose topics the server knows, a bit each.
    announced: Vec<u64>,
}

/// Use of an own topic alias in a PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alias {
    /// The server does not accept the alias: the packet has the topic only.
    Unusable,
    /// The packet has the alias and the topic, which the server then knows.
    New(u16),
    /// The packet has the alias, and an empty topic.
    Known(u16),
}

/// Reason why the server does not accept a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The QoS is above the server's maximum `[MQTT5-3.2.2-11]`.
    QoS,
    /// The server retains no messages `[MQTT5-3.2.2-14]`.
    Retain,
}

impl Default for Server {
    /// A server without limits.
    fn default() -> Self {
        Self {
            limits: Limits::NONE,
            keep_alive_s: None,
            receive_maximum: u16::MAX,
            aliases_max: 0,
            texts: None,
        }
    }
}

impl Limits {
    const NONE: Self = Self {
        packet_bytes_max: u32::MAX,
        qos_max: QoS::ExactlyOnce,
        retains: true,
        unavailable: 0,
    };

    /// Largest packet that the server accepts, in bytes `[MQTT5-3.2.2-15]`.
    #[must_use]
    #[inline]
    pub const fn packet_bytes_max(self) -> usize {
        self.packet_bytes_max as usize
    }

    /// Checks that the server accepts a message of this kind.
    ///
    /// # Errors
    /// [`Unsupported`] names the limit in the server's CONNACK.
    #[inline]
    pub fn check(self, qos: QoS, retain: bool) -> Result<(), Unsupported> {
        if qos > self.qos_max {
            Err(Unsupported::QoS)
        } else if retain && !self.retains {
            Err(Unsupported::Retain)
        } else {
            Ok(())
        }
    }

    /// Returns `true` if a filter needs a kind of subscription that the server has not.
    pub(super) fn lacks(self, filter: &str, identified: bool) -> bool {
        let lacks = |kind| self.unavailable & kind != 0;
        lacks(WILDCARDS) && filter.contains(['+', '#'])
            || lacks(IDENTIFIERS) && identified
            || lacks(SHARED) && filter.starts_with("$share/")
    }
}

impl Server {
    /// Notes the properties of CONNACK, if there are some that matter.
    pub(super) fn note_limits(server: &mut Option<Box<Self>>, properties: Properties<'_>) {
        for (property, value) in properties.iter() {
            if NOTED.contains(&property) {
                server.get_or_insert_default().note(property, value);
            }
        }
    }

    fn note(&mut self, property: Property, value: Value<'_>) {
        let limits = &mut self.limits;
        match (property, value) {
            (Property::MaximumPacketSize, Value::Number(n)) => limits.packet_bytes_max = n,
            (Property::ServerKeepAlive, Value::Number(n)) => self.keep_alive_s = Some(n as u16),
            (Property::ReceiveMaximum, Value::Number(n)) => self.receive_maximum = n as u16,
            (Property::TopicAliasMaximum, Value::Number(n)) => self.aliases_max = n as u16,
            (Property::MaximumQoS, Value::Number(0)) => limits.qos_max = QoS::AtMostOnce,
            (Property::MaximumQoS, Value::Number(_)) => limits.qos_max = QoS::AtLeastOnce,
            (Property::RetainAvailable, Value::Number(n)) => limits.retains = n == 1,
            (Property::WildcardSubscriptionAvailable, Value::Number(0)) => {
                limits.unavailable |= WILDCARDS;
            }
            (Property::SubscriptionIdentifierAvailable, Value::Number(0)) => {
                limits.unavailable |= IDENTIFIERS;
            }
            (Property::SharedSubscriptionAvailable, Value::Number(0)) => {
                limits.unavailable |= SHARED;
            }
            (Property::AssignedClientIdentifier, Value::Text(text)) => {
                self.texts.get_or_insert_default().client_id = Some(text.into());
            }
            _ => {}
        }
    }

    /// The rest after the end of a connection: the assigned client identifier of a kept session.
    pub(super) fn after_connection(mut self, keep: bool) -> Option<Box<Self>> {
        let client_id = self.texts.take().and_then(|texts| texts.client_id).filter(|_| keep)?;
        let texts = Texts { client_id: Some(client_id), ..Texts::default() };
        Some(Box::new(Self { texts: Some(Box::new(texts)), ..Self::default() }))
    }

    /// Stores the topic of an alias of the server. Allocates only for a new topic.
    pub(super) fn note_topic(&mut self, alias: u16, topic: &str) {
        let topics = &mut self.texts.get_or_insert_default().topics;
        let index = usize::from(alias) - 1;
        if topics.len() <= index {
            topics.resize_with(index + 1, Box::default);
        }
        if &*topics[index] != topic {
            topics[index] = topic.into();
        }
    }

    pub(super) const fn keep_alive_s(&self) -> Option<u16> {
        self.keep_alive_s
    }

    pub(super) fn assigned_client_id(&self) -> Option<&str> {
        self.texts.as_ref()?.client_id.as_deref()
    }

    /// Notes the authentication method of CONNECT, which the server has to repeat.
    pub(super) fn expect_method(&mut self, method: &str) {
        self.texts.get_or_insert_default().method = Some(method.into());
    }

    pub(super) fn expected_method(&self) -> Option<&str> {
        self.texts.as_ref()?.method.as_deref()
    }

    fn announce(&mut self, alias: u16) -> Alias {
        if alias == 0 || alias > self.aliases_max {
            return Alias::Unusable;
        }
        let announced = &mut self.texts.get_or_insert_default().announced;
        let (index, mark) = (usize::from(alias / 64), 1 << (alias % 64));
        if announced.len() <= index {
            announced.resize(index + 1, 0);
        }
        if announced[index] & mark != 0 {
            return Alias::Known(alias);
        }
        announced[index] |= mark;
        Alias::New(alias)
    }

    /// The server has not received the topic of an alias.
    fn withdraw(&mut self, alias: u16) {
        let announced = self.texts.as_mut().map(|texts| &mut texts.announced);
        if let Some(bits) = announced.and_then(|bits| bits.get_mut(usize::from(alias / 64))) {
            *bits &= !(1 << (alias % 64));
        }
    }
}

impl<T: Copy> MqttSession<T> {
    /// Limits of the server for single packets.
    #[must_use]
    #[inline]
    pub fn limits(&self) -> Limits {
        self.server.as_ref().map_or(Limits::NONE, |server| server.limits)
    }

    /// Most messages of QoS 1 and 2 in flight to the server `[MQTT5-3.3.4-7]`.
    #[inline]
    pub(super) fn receive_maximum(&self) -> usize {
        self.server.as_ref().map_or(PACKET_IDS, |server| usize::from(server.receive_maximum))
    }

    /// Forgets the last message: the caller has not written its PUBLISH.
    #[cold]
    pub fn withdraw(&mut self, packet_id: PacketId, alias: Alias) {
        if let Some(windows) = &mut self.windows {
            windows.sent.remove(packet_id);
        }
        if let (Alias::New(alias), Some(server)) = (alias, &mut self.server) {
            server.withdraw(alias);
        }
    }

    /// Chooses the use of an own topic alias in the next PUBLISH, which the caller then appends.
    /// An alias stands for the same topic during a connection.
    pub fn announce(&mut self, alias: u16) -> Alias {
        self.server.as_mut().map_or(Alias::Unusable, |server| server.announce(alias))
    }

    /// Topic of a received message: its own, or the one of its topic alias.
    #[must_use]
    pub fn topic<'t>(&'t self, publish: &Publish<'t>) -> Option<&'t str> {
        if !publish.topic.is_empty() {
            return Some(publish.topic);
        }
        let index = usize::from(publish.alias()?) - 1;
        let topics = &self.server.as_ref()?.texts.as_ref()?.topics;
        topics.get(index).map(|topic| &**topic).filter(|topic| !topic.is_empty())
    }
}

#[cfg(test)]
mod tests;
