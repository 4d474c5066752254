//! PUBLISH packets: messages of a client and its answers to messages with a Response Topic (section
//! 4.10 of MQTT 5), for the first time and again. Properties of MQTT 5 that are always the same are
//! encoded once, the texts of clients and messages when their packet is made.

use mqtt::{
    Alias, Blocked, PacketId, Properties, Property, PropertyList, PublishHeader, QoS, Unsupported,
    Value, Version, encode_publish_header,
};
use plan::{Population, PropertyValue, Publication, Reason, STAMP_PROPERTY, Stamp, Template};

use super::{MqttScratch, MqttSetup, TokenSession, qos};
use crate::seam::Scratch;
use crate::seam::protocol::{
    Answer, Asked, At, Buffers, Hold, Outgoing, OwnMessage, Polled, Resend, Resent,
};
use crate::seam::received::Response;
use crate::seam::token::Token;

/// Identifier of a message behind which the connection ends. No other message in flight has it: the
/// clients that send such messages have one in flight at most.
const LAST_PACKET_ID: PacketId = PacketId::MAX;

/// Appends the PUBLISH of a message.
#[inline(always)]
pub fn publish(
    session: &mut TokenSession,
    at: &At<'_, MqttSetup>,
    outgoing: &Outgoing<'_>,
    token: Token,
    mut to: Buffers<'_>,
) -> Polled {
    let publication = outgoing.publication;
    let packet_id = match begin(session, qos(publication.qos), publication.retain, token) {
        Ok(packet_id) => packet_id,
        Err(polled) => return polled,
    };
    let alias = at
        .setup
        .properties(&token)
        .alias(|| outgoing.ready.variants.of(outgoing.sender.client, token.moment().number));
    let alias = alias.map_or(Alias::Unusable, |alias| session.announce(alias));
    let start = to.out.len();
    let delivery = PublishFields { packet_id, dup: false, alias };
    let appended = append(at, outgoing, &token, delivery, &mut to);
    if appended.is_none() || to.out.len() - start > session.limits().packet_bytes_max() {
        to.out.truncate(start);
        session.withdraw(packet_id, alias);
        return Polled::Refused(Reason::MessageTooLarge);
    }
    Polled::Sent(Asked::ONE)
}

/// Records a message as in flight and returns its packet identifier, or why it cannot be sent now.
#[inline]
fn begin(
    session: &mut TokenSession,
    qos: QoS,
    retain: bool,
    token: Token,
) -> Result<PacketId, Polled> {
    match session.limits().check(qos, retain) {
        Ok(()) => session.publish(qos, token).map_err(|blocked| match blocked {
            Blocked::ReceiveMaximum => Polled::Wait(Hold::Limit),
            Blocked::NoPacketId => Polled::Wait(Hold::Identifier),
        }),
        Err(unsupported) => Err(Polled::Refused(unsupported_reason(unsupported))),
    }
}

const fn unsupported_reason(unsupported: Unsupported) -> Reason {
    match unsupported {
        Unsupported::QoS => Reason::QosUnsupported,
        Unsupported::Retain => Reason::RetainUnsupported,
    }
}

/// Appends what a session has in flight once more, as far as the broker accepts it on this
/// connection.
pub fn resend(
    session: &mut TokenSession,
    at: &At<'_, MqttSetup>,
    Resend { of, refused }: Resend<'_>,
    Buffers { out, scratch }: Buffers<'_>,
) -> Polled {
    let limits = session.limits();
    let again = |token: Token, packet_id: u16, out: &mut Vec<u8>| {
        let delivery = PublishFields { packet_id, dup: true, alias: Alias::Unusable };
        let start = out.len();
        let mut to = Buffers { out, scratch: &mut *scratch };
        let (level, retain, appended) = match of(token) {
            Resent::Message(outgoing) => {
                let Publication { qos, retain, .. } = *outgoing.publication;
                (qos, retain, append(at, &outgoing, &token, delivery, &mut to))
            }
            Resent::Answer(answer) => {
                (answer.responds.qos, false, append_answer(&answer, delivery, &mut to))
            }
        };
        let reason = match limits.check(qos(level), retain) {
            Err(unsupported) => unsupported_reason(unsupported),
            Ok(()) if appended.is_none() || out.len() - start > limits.packet_bytes_max() => {
                Reason::MessageTooLarge
            }
            Ok(()) => return true,
        };
        out.truncate(start);
        refused.push((token, reason));
        false
    };
    match session.retransmit(out, again) {
        0 => Polled::Nothing,
        sent => Polled::Sent(Asked { packets: sent as u64, ..Asked::default() }),
    }
}

/// Fields of a PUBLISH beside its message.
#[derive(Clone, Copy)]
struct PublishFields {
    packet_id: u16,
    dup: bool,
    alias: Alias,
}

/// Appends a PUBLISH. A text or a record is made in a buffer of its own first, since its size comes
/// before it.
/// Returns `None` if the packet, or a property, would be longer than MQTT allows.
#[inline]
fn append(
    at: &At<'_, MqttSetup>,
    outgoing: &Outgoing<'_>,
    token: &Token,
    delivery: PublishFields,
    Buffers { out, scratch }: &mut Buffers<'_>,
) -> Option<()> {
    let Outgoing { publication, ready, sender } = *outgoing;
    let Scratch { text, mqtt: MqttScratch(list) } = &mut **scratch;
    let moment = token.moment();
    let variant = ready.variants.of(sender.client, moment.number);
    let stamp = || ready.stamp(sender, moment, variant);
    let setup = at.setup.properties(token);
    let written = setup.of_message((delivery.alias, stamp), list, text, |template, text| {
        template.render_message(sender.n, variant, &ready.facts(sender, moment, variant), text);
    })?;
    text.clear();
    let has_content = ready.write_content(&publication.payload, (sender, moment, variant), text);
    let bytes = if has_content {
        text.len()
    } else {
        ready.payload_bytes(&publication.payload, sender, moment.number)
    };
    let header = PublishHeader {
        dup: delivery.dup,
        qos: qos(publication.qos),
        retain: publication.retain,
        packet_id: delivery.packet_id,
        properties: written,
    };
    let is_known = matches!(delivery.alias, Alias::Known(_));
    let topic_bytes =
        if is_known { 0 } else { publication.topic.rendered_bytes(sender.n, variant) };
    let encoded =
        encode_publish_header(at.setup.version, &header, topic_bytes, bytes, out, |out| {
            if !is_known {
                publication.topic.render(sender.n, variant, out);
            }
        });
    encoded.ok()?;
    if has_content {
        out.extend_from_slice(text);
        return Some(());
    }
    let end = out.len() + bytes;
    if ready.stamped {
        out.extend_from_slice(&stamp().to_bytes());
    }
    out.resize(end, b'.');
    Some(())
}

/// Appends a message that belongs to no publication.
pub fn send(
    session: &mut TokenSession,
    at: &At<'_, MqttSetup>,
    message: &OwnMessage,
    token: Token,
    Buffers { out, .. }: Buffers<'_>,
) -> Polled {
    let OwnMessage { topic, payload, qos: level, retain, is_last } = message;
    let packet_id = match is_last {
        true => LAST_PACKET_ID,
        false => match begin(session, qos(*level), *retain, token) {
            Ok(packet_id) => packet_id,
            Err(polled) => return polled,
        },
    };
    let header = PublishHeader {
        dup: false,
        qos: qos(*level),
        retain: *retain,
        packet_id,
        properties: Properties::NONE,
    };
    let (version, start) = (at.setup.version, out.len());
    let encoded = encode_publish_header(version, &header, topic.len(), payload.len(), out, |out| {
        out.extend_from_slice(topic.as_bytes());
    });
    out.extend_from_slice(payload);
    if encoded.is_err() || out.len() - start > session.limits().packet_bytes_max() {
        out.truncate(start);
        if !is_last {
            session.withdraw(packet_id, Alias::Unusable);
        }
        return Polled::Refused(Reason::MessageTooLarge);
    }
    Polled::Sent(Asked::ONE)
}

/// Appends an answer.
pub fn answer(
    session: &mut TokenSession,
    answer: &Answer<'_>,
    token: Token,
    mut to: Buffers<'_>,
) -> Polled {
    let packet_id = match begin(session, qos(answer.responds.qos), false, token) {
        Ok(packet_id) => packet_id,
        Err(polled) => return polled,
    };
    let start = to.out.len();
    let delivery = PublishFields { packet_id, dup: false, alias: Alias::Unusable };
    let appended = append_answer(answer, delivery, &mut to);
    if appended.is_none() || to.out.len() - start > session.limits().packet_bytes_max() {
        to.out.truncate(start);
        session.withdraw(packet_id, Alias::Unusable);
        return Polled::Refused(Reason::MessageTooLarge);
    }
    Polled::Sent(Asked::ONE)
}

/// Appends the PUBLISH of an answer. Returns `None` if the packet would be longer than MQTT allows.
fn append_answer(
    answer: &Answer<'_>,
    delivery: PublishFields,
    Buffers { out, scratch }: &mut Buffers<'_>,
) -> Option<()> {
    let Answer { responds, response: Response { topic, correlation }, stamp } = *answer;
    let MqttScratch(list) = &mut scratch.mqtt;
    list.clear();
    if let Some(bytes) = correlation {
        list.push(Property::CorrelationData, Value::Binary(bytes)).ok()?;
    }
    let header = PublishHeader {
        dup: delivery.dup,
        qos: qos(responds.qos),
        retain: false,
        packet_id: delivery.packet_id,
        properties: list.properties(),
    };
    let bytes = responds.bytes as usize;
    let encoded = encode_publish_header(Version::V5, &header, topic.len(), bytes, out, |out| {
        out.extend_from_slice(topic.as_bytes());
    });
    encoded.ok()?;
    let end = out.len() + bytes;
    if let Some(stamp) = stamp {
        let stamp = stamp.to_bytes();
        out.extend_from_slice(&stamp[..stamp.len().min(bytes)]);
    }
    out.resize(end, b'.');
    Some(())
}

/// Properties of a kind of packet.
#[derive(Default)]
pub struct PropertySetup {
    fixed: PropertyList,
    texts: Vec<Text>,
    carrier: Carrier,
    /// Topic alias of the first value of the topic's range; `None`: no aliases.
    first_alias: Option<u32>,
}

/// Property with the stamp of a message.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Carrier {
    /// No property: the stamp is in the payload, or the message has none.
    #[default]
    None,
    /// That of requests.
    CorrelationData,
    /// That of texts of the user's own.
    UserProperty,
}

struct Text {
    property: Property,
    /// Name of a user property.
    key: Option<String>,
    template: Template,
}

impl PropertySetup {
    /// Prepares properties of a plan that has been checked.
    pub fn new(properties: &[plan::Property]) -> Self {
        let mut setup = Self::default();
        for each in properties {
            let Some(property) = each.kind() else { continue };
            let fixed = match &each.value {
                PropertyValue::Number(number) => {
                    setup.fixed.push(property, Value::Number(*number)).is_ok()
                }
                PropertyValue::Text(template) if template.is_fixed() => {
                    let text = template.text(0, 0);
                    push(&mut setup.fixed, property, each.key.as_deref(), &text).is_some()
                }
                PropertyValue::Text(_) => false,
            };
            if let (false, PropertyValue::Text(template)) = (fixed, &each.value) {
                let (key, template) = (each.key.clone(), template.clone());
                setup.texts.push(Text { property, key, template });
            }
        }
        setup
    }

    /// Prepares the properties of the publications of a population. Each topic of a client has its
    /// own alias.
    pub fn of_publications(population: &Population) -> Vec<Self> {
        let mut next_alias = 1;
        let prepare = |publication: &Publication| {
            let first_alias = publication.topic_alias.then_some(next_alias);
            next_alias += first_alias.map_or(0, |_| publication.topic.variants());
            let carrier = match publication.request {
                true => Carrier::CorrelationData,
                false if population.stamps_property(publication) => Carrier::UserProperty,
                false => Carrier::None,
            };
            Self { carrier, first_alias, ..Self::new(&publication.properties) }
        };
        population.publications.iter().map(prepare).collect()
    }

    /// Topic alias for the value of the topic's range that `variant` returns; `None` without
    /// aliases, or beyond the last.
    #[inline]
    pub fn alias(&self, variant: impl FnOnce() -> u32) -> Option<u16> {
        let first = self.first_alias?;
        u16::try_from(first + variant()).ok()
    }

    /// Sets `list` to the properties, with texts that `render` appends to `text`. Returns `None` if
    /// a text is longer than MQTT allows.
    pub fn write(
        &self,
        list: &mut PropertyList,
        text: &mut Vec<u8>,
        render: impl Fn(&Template, &mut Vec<u8>),
    ) -> Option<()> {
        list.clear();
        list.extend(&self.fixed);
        for Text { property, key, template } in &self.texts {
            text.clear();
            render(template, text);
            push(list, *property, key.as_deref(), std::str::from_utf8(text).ok()?)?;
        }
        Some(())
    }

    /// Properties of a message. `list` and `text` are memory for them.
    #[inline]
    pub fn of_message<'a>(
        &'a self,
        (alias, stamp): (Alias, impl FnOnce() -> Stamp),
        list: &'a mut PropertyList,
        text: &mut Vec<u8>,
        render: impl Fn(&Template, &mut Vec<u8>),
    ) -> Option<Properties<'a>> {
        let is_fixed = self.texts.is_empty() && self.carrier == Carrier::None;
        if is_fixed && alias == Alias::Unusable {
            return Some(self.fixed.properties());
        }
        self.write(list, text, render)?;
        match self.carrier {
            Carrier::None => {}
            Carrier::CorrelationData => {
                let stamp = stamp().to_correlation();
                list.push(Property::CorrelationData, Value::Binary(&stamp)).ok()?;
            }
            Carrier::UserProperty => {
                let stamp = stamp().to_text();
                let stamp = std::str::from_utf8(&stamp).ok()?;
                list.push(Property::UserProperty, Value::Pair(STAMP_PROPERTY, stamp)).ok()?;
            }
        }
        if let Alias::New(number) | Alias::Known(number) = alias {
            list.push(Property::TopicAlias, Value::Number(number.into())).ok()?;
        }
        Some(list.properties())
    }
}

/// Appends a text, which is binary data for some properties.
fn push(list: &mut PropertyList, property: Property, key: Option<&str>, text: &str) -> Option<()> {
    let value = match (key, property) {
        (Some(key), _) => Value::Pair(key, text),
        (None, Property::CorrelationData | Property::AuthenticationData) => {
            Value::Binary(text.as_bytes())
        }
        (None, _) => Value::Text(text),
    };
    list.push(property, value).ok()
}
