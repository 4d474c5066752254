//! MQTT: CONNECT and SUBSCRIBE of a client, packets of the broker as events, PUBLISH for messages.

mod answers;
mod beside;
mod properties;
pub mod scram;

use std::cell::OnceCell;

use mqtt::{
    Alias, Blocked, Breach, Connect, Decoded, Lapse, Lapses, Packet, PacketId, PacketType,
    Properties, Property, PropertyList, PublishHeader, QoS, ReasonCode, RequestError,
    RetainHandling, SubAck, SubscriptionOptions, Unsupported, Value, Version, decode, encode_auth,
    encode_publish_header,
};
use plan::{
    Answer, Authentication, Payload, Population, Publication, Reason, SCRAM_SHA_256, Subscription,
    payload_bytes,
};

use super::{
    Again, Asked, Broken, Buffers, Cause, Event, Goodbye, Identity, Outgoing, Published, Reading,
    Refusals, Resent, Step, Texts, Token,
    received::{BESIDE, Inbox, Next, RETAINED, Received},
};

use beside::Message;
use scram::Login;

pub use answers::answer;
pub use properties::PropertySetup;

/// Bytes of a SUBSCRIBE or UNSUBSCRIBE with several filters at most. Many brokers take no larger
/// packets, and do not say so.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// State of an MQTT client.
pub type Session = mqtt::Session<Token>;

/// Version for the codec.
#[inline]
pub fn version(population: &Population) -> Version {
    population.mqtt().map_or(Version::V311, |mqtt| mqtt.version.into())
}

/// Appends CONNECT.
pub fn open(
    session: &mut Session,
    identity: &Identity<'_>,
    login: Option<&Login>,
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    let Identity { population, n } = *identity;
    let Some(options) = population.mqtt() else { return Err(Reason::CannotEncode) };
    let text = |template: &plan::Template| template.text(n, 0);
    let client_id = text(&options.client_id);
    // With SCRAM, the password is not sent.
    let sent = |name: &Option<plan::Template>| name.as_ref().filter(|_| login.is_none()).map(text);
    let (username, password) = (sent(&population.username), sent(&population.password));
    let list = |properties: &[plan::Property]| {
        let mut list = PropertyList::new();
        let setup = PropertySetup::new(properties);
        let written = setup.write(&mut list, &mut Vec::new(), |template, text| {
            template.render(n, 0, text);
        });
        written.map(|()| list).ok_or(Reason::CannotEncode)
    };
    let mut properties = list(&options.properties)?;
    if let Some(Authentication { method, data }) = &options.authentication {
        let data = login.map(Login::first).or_else(|| data.as_ref().map(text));
        push_step(&mut properties, method, &data.unwrap_or_default())?;
    }
    let of_will = options.will.as_ref().map(|will| will.properties.as_slice());
    let will_properties = list(of_will.unwrap_or_default())?;
    let will = options.will.as_ref();
    let will = will.map(|will| (text(&will.topic), text(&will.payload), will));
    let connect = Connect {
        client_id: &client_id,
        username: username.as_deref(),
        password: password.as_deref().map(str::as_bytes),
        will: will.as_ref().map(|(topic, payload, will)| mqtt::Will {
            topic,
            payload: payload.as_bytes(),
            qos: qos(will.qos),
            retain: will.retain,
            properties: will_properties.properties(),
        }),
        keep_alive_s: population.keep_alive_s,
        clean_session: options.clean_session,
        bridge: options.bridge,
        properties: properties.properties(),
    };
    // The controller checks lengths; no packet can hold a longer text.
    let opened = session.connect(version(population), &connect, out);
    opened.map(drop).map_err(|_| Reason::CannotEncode)
}

/// Appends AUTH with a step of SCRAM.
pub fn authenticate(data: &str, out: &mut Vec<u8>) -> Result<(), Reason> {
    let mut properties = PropertyList::new();
    push_step(&mut properties, SCRAM_SHA_256, data)?;
    encode_auth(properties.properties(), out).map_err(|_| Reason::CannotEncode)
}

fn push_step(properties: &mut PropertyList, method: &str, data: &str) -> Result<(), Reason> {
    let method = properties.push(Property::AuthenticationMethod, Value::Text(method));
    let data = Value::Binary(data.as_bytes());
    let pushed = method.and_then(|()| properties.push(Property::AuthenticationData, data));
    pushed.map_err(|_| Reason::CannotEncode)
}

/// Handles the messages at the front of `bytes`, and the packet after them, and appends the
/// replies.
#[inline]
pub fn handle<'a>(
    session: &mut Session,
    reading: &Reading,
    bytes: &'a [u8],
    out: &mut Vec<u8>,
    inbox: &mut impl Inbox,
) -> Step<'a> {
    let most = reading.limits.packet_bytes_max;
    let (mut step, mut lapses) = (Step::new(), Lapses::NONE);
    let event = loop {
        let (packet, len) = match decode(reading.version, &bytes[step.len..]) {
            Ok(Decoded::Packet { packet, len }) if len <= most => (packet, len),
            Ok(Decoded::Incomplete { needed }) if needed <= most => {
                break Event::Incomplete;
            }
            Ok(Decoded::Packet { len, .. } | Decoded::Incomplete { needed: len }) => {
                let breach = Breach::of_size(&bytes[step.len..], len, most);
                break Event::Broken(Broken::Mqtt(breach));
            }
            Err(error) => {
                let breach = Breach::of_bytes(reading.version, &bytes[step.len..], error);
                break Event::Broken(Broken::Mqtt(breach));
            }
        };
        if len > reading.limits.announced_bytes_max {
            lapses.note(Lapse::PacketSize);
        }
        let before = out.len();
        let event = session.handle(reading.version, &packet, out);
        step.len += len;
        step.read += 1;
        step.replied += u32::from(out.len() > before);
        let publish = match event {
            Ok(mqtt::Event::Delivered(publish)) => publish,
            Ok(mqtt::Event::Acknowledged(token)) => break Event::Acknowledged(token),
            Ok(event) => break neutral(session, reading.version, event),
            Err(error) => break Event::Broken(Broken::Mqtt(Breach::Turn(error))),
        };
        step.in_flight += u32::from(publish.qos != QoS::AtMostOnce);
        let retained = if publish.retain { RETAINED } else { 0 };
        let marks = retained | if publish.properties.is_empty() { 0 } else { BESIDE };
        if marks & BESIDE != 0 {
            step.note(publish.properties);
        }
        let beside = Message { session, publish, carried: OnceCell::new() };
        let message = Received { payload: publish.payload, marks, beside: &beside };
        match inbox.take(&message) {
            Next::More => {}
            Next::Pause => break Event::Handled,
            Next::Answer => break beside.carried().asks_for().map_or(Event::Handled, Event::Asked),
        }
    };
    Step { event, lapses: session.take_lapses().with(lapses), ..step }
}

impl Step<'_> {
    /// Counts the properties of a message that show what a broker forwards.
    fn note(&mut self, properties: Properties<'_>) {
        use Property::{
            ContentType, CorrelationData, PayloadFormatIndicator, ResponseTopic,
            SubscriptionIdentifier, UserProperty,
        };
        for kind in properties.kinds() {
            match kind {
                SubscriptionIdentifier => self.identifiers += 1,
                UserProperty
                | ContentType
                | PayloadFormatIndicator
                | ResponseTopic
                | CorrelationData => self.properties += 1,
                _ => {}
            }
        }
    }
}

/// Events other than messages.
#[inline(never)]
fn neutral<'a>(session: &Session, version: Version, event: mqtt::Event<'a, Token>) -> Event<'a> {
    match event {
        mqtt::Event::Acknowledged(token) => Event::Acknowledged(token),
        mqtt::Event::Connected { session_present, dropped, properties } => Event::Connected {
            resumed: session_present,
            dropped: dropped as u64,
            sets_keep_alive: properties.number(Property::ServerKeepAlive).is_some(),
            proof: step(properties),
        },
        mqtt::Event::Challenged(properties) => Event::Challenged(step(properties)),
        mqtt::Event::Refused { code, properties } => {
            Event::Refused(cause(refusal(version, code), properties))
        }
        mqtt::Event::Subscribed { codes, properties, .. } => {
            let reason: fn(u8) -> Option<Reason> = match version {
                Version::V5 => |code| is_refusal(code).then(|| answered(PacketType::SubAck, code)),
                Version::V31 | Version::V311 => {
                    |code| is_refusal(code).then_some(Reason::SubscribeRefused)
                }
            };
            let granted = codes.iter().filter(|&&code| !is_refusal(code)).count() as u64;
            let refused = Refusals { codes, reason, texts: texts(properties) };
            Event::Subscribed { granted, refused, is_last: !session.awaits_requests() }
        }
        mqtt::Event::Rejected { token, code, properties } => {
            Event::Rejected(token, cause(answered(PacketType::PubAck, code.number()), properties))
        }
        mqtt::Event::Disconnected(reasoned) => {
            let reason = answered(PacketType::Disconnect, reasoned.code.number());
            Event::Ended(cause(reason, reasoned.properties))
        }
        mqtt::Event::UnknownAck => Event::UnknownAcknowledgement,
        mqtt::Event::Unsubscribed { filters, codes, properties, .. } => {
            let reason = |code| is_refusal(code).then(|| answered(PacketType::UnsubAck, code));
            let refused = Refusals { codes, reason, texts: texts(properties) };
            let removed = u64::from(filters) - refused.iter().count() as u64;
            Event::Unsubscribed { removed, refused, is_last: !session.awaits_requests() }
        }
        mqtt::Event::Delivered(_)
        | mqtt::Event::Redelivered
        | mqtt::Event::Received
        | mqtt::Event::Released
        | mqtt::Event::Pong => Event::Handled,
    }
}

/// Appends the subscriptions: SUBSCRIBE for the filters without an identifier, and for each
/// identifier, since a packet has only one. Nothing without filters.
pub fn subscribe(
    session: &mut Session,
    identity: &Identity<'_>,
    out: &mut Vec<u8>,
) -> Result<Asked, Reason> {
    let Identity { population, n } = *identity;
    let mut identifiers: Vec<_> = population.subscriptions.iter().map(|s| s.identifier).collect();
    identifiers.sort_unstable();
    identifiers.dedup();
    let mut asked = Asked::default();
    for identifier in identifiers {
        let mut properties = PropertyList::new();
        if let Some(number) = identifier {
            let pushed = properties.push(Property::SubscriptionIdentifier, Value::Number(number));
            pushed.map_err(|_| Reason::CannotEncode)?;
        }
        let mut filters = Vec::new();
        for subscription in population.subscriptions.iter().filter(|s| s.identifier == identifier) {
            let texts = (0..subscription.filter.variants()).map(|v| subscription.filter.text(n, v));
            filters.extend(texts.map(|text| (text, options(subscription))));
        }
        let (version, properties) = (version(population), properties.properties());
        let append: Request<'_, (String, _)> = &|session, filters, out| {
            let filters = filters.iter().map(|(filter, options)| (filter.as_str(), *options));
            session.subscribe(version, properties, filters, out)
        };
        ask(session, &filters, append, &mut asked, out)?;
    }
    Ok(Asked { awaits_answer: asked.packets > 0, ..asked })
}

/// Appends UNSUBSCRIBE with all filters.
pub fn unsubscribe(
    session: &mut Session,
    identity: &Identity<'_>,
    out: &mut Vec<u8>,
) -> Result<Asked, Reason> {
    let Identity { population, n } = *identity;
    let filters = population.subscriptions.iter().map(|subscription| &subscription.filter);
    let texts = filters.flat_map(|filter| (0..filter.variants()).map(move |v| filter.text(n, v)));
    let texts: Vec<String> = texts.collect();
    let version = version(population);
    let append: Request<'_, String> = &|session, filters, out| {
        session.unsubscribe(version, filters.iter().map(String::as_str), out)
    };
    let mut asked = Asked::default();
    ask(session, &texts, append, &mut asked, out)?;
    Ok(Asked { awaits_answer: asked.packets > 0, ..asked })
}

/// Appends a SUBSCRIBE or UNSUBSCRIBE with all of some filters.
type Request<'a, F> =
    &'a dyn Fn(&mut Session, &[F], &mut Vec<u8>) -> Result<PacketId, RequestError>;

/// Appends packets with all `filters`, none of them above the Maximum Packet Size of the broker
/// [MQTT5-3.2.2-15], and none with several filters above [`REQUEST_BYTES_MAX`]. Filters that are
/// too large for a packet of their own are left out.
fn ask<F>(
    session: &mut Session,
    filters: &[F],
    append: Request<'_, F>,
    asked: &mut Asked,
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    let (start, most) = (out.len(), session.limits().packet_bytes_max());
    let packet_id = match append(session, filters, out) {
        Ok(packet_id) => Some(packet_id),
        Err(RequestError::Encode(_)) => None,
        Err(RequestError::NoPacketId) => return Err(Reason::CannotEncode),
    };
    let most = if filters.len() > 1 { most.min(REQUEST_BYTES_MAX) } else { most };
    if packet_id.is_some() && out.len() - start <= most {
        asked.packets += 1;
        return Ok(());
    }
    out.truncate(start);
    packet_id.into_iter().for_each(|packet_id| session.withdraw_request(packet_id));
    let (front, rest) = filters.split_at(filters.len() / 2);
    if front.is_empty() {
        asked.left_out += rest.len() as u64;
        return Ok(());
    }
    ask(session, front, append, asked, out)?;
    ask(session, rest, append, asked, out)
}

fn options(subscription: &Subscription) -> SubscriptionOptions {
    SubscriptionOptions {
        qos: qos(subscription.qos),
        no_local: subscription.no_local,
        retain_as_published: subscription.retain_as_published,
        retain_handling: match subscription.retain_handling {
            plan::RetainHandling::Send => RetainHandling::Send,
            plan::RetainHandling::SendIfNew => RetainHandling::SendIfNew,
            plan::RetainHandling::Never => RetainHandling::Never,
        },
    }
}

/// Appends the PUBLISH of a message.
#[inline]
pub fn publish(
    session: &mut Session,
    outgoing: &Outgoing<'_>,
    token: Token,
    mut to: Buffers<'_>,
) -> Published {
    let publication = outgoing.publication;
    let packet_id = match begin(session, qos(publication.qos), publication.retain, token) {
        Ok(packet_id) => packet_id,
        Err(published) => return published,
    };
    let alias = outgoing
        .properties
        .alias(|| outgoing.ready.variants.of(outgoing.sender.client, token.moment().number));
    let alias = alias.map_or(Alias::Unusable, |alias| session.announce(alias));
    let start = to.out.len();
    let delivery = Delivery { packet_id, dup: false, alias };
    let appended = append(outgoing, &token, delivery, &mut to);
    if appended.is_none() || to.out.len() - start > session.limits().packet_bytes_max() {
        to.out.truncate(start);
        session.withdraw(packet_id, alias);
        return Published::Refused(Reason::MessageTooLarge);
    }
    Published::Sent
}

/// Records a message as in flight and returns its packet identifier, or why it cannot be sent now.
#[inline]
fn begin(
    session: &mut Session,
    qos: QoS,
    retain: bool,
    token: Token,
) -> Result<PacketId, Published> {
    match session.limits().check(qos, retain) {
        Ok(()) => session.publish(qos, token).map_err(|blocked| match blocked {
            Blocked::ReceiveMaximum => Published::Held,
            Blocked::NoPacketId => Published::Waits,
        }),
        Err(unsupported) => Err(Published::Refused(unsupported_reason(unsupported))),
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
pub fn retransmit<'a>(
    session: &mut Session,
    outgoing: impl Fn(Token) -> Resent<'a>,
    Buffers { out, text, properties }: Buffers<'_>,
) -> Again {
    let limits = session.limits();
    let mut refused = Vec::new();
    let again = |token: Token, packet_id: u16, out: &mut Vec<u8>| {
        let delivery = Delivery { packet_id, dup: true, alias: Alias::Unusable };
        let start = out.len();
        let mut to = Buffers { out, text: &mut *text, properties: &mut *properties };
        let (level, retain, appended) = match outgoing(token) {
            Resent::Message(outgoing) => {
                let Publication { qos, retain, .. } = *outgoing.publication;
                (qos, retain, append(&outgoing, &token, delivery, &mut to))
            }
            Resent::Answer(answer) => {
                (answer.responds.qos, false, answers::append(&answer, delivery, &mut to))
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
    let sent = session.retransmit(out, again) as u64;
    Again { sent, refused }
}

/// Fields of a PUBLISH beside its message.
#[derive(Clone, Copy)]
struct Delivery {
    packet_id: u16,
    dup: bool,
    alias: Alias,
}

/// Appends a PUBLISH. A text is made in a buffer of its own first, since its size comes before it.
/// Returns `None` if the packet, or a property, would be longer than MQTT allows.
#[inline]
fn append(
    outgoing: &Outgoing<'_>,
    token: &Token,
    delivery: Delivery,
    Buffers { out, text, properties }: &mut Buffers<'_>,
) -> Option<()> {
    let Outgoing { population, publication, ready, sender, properties: setup } = *outgoing;
    let moment = token.moment();
    let variant = ready.variants.of(sender.client, moment.number);
    let stamp = || ready.stamp(sender, moment, variant);
    let written =
        setup.of_message((delivery.alias, stamp), properties, text, |template, text| {
            template.render_message(sender.n, variant, &ready.facts(sender, moment, variant), text);
        })?;
    let bytes = match &publication.payload {
        Payload::Text { template, .. } => {
            text.clear();
            template.render_message(sender.n, variant, &ready.facts(sender, moment, variant), text);
            text.len()
        }
        payload => {
            let sizes = ready.sizes.of(u64::from(sender.client));
            payload_bytes(payload, sizes, moment.number).unwrap_or(0)
        }
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
        encode_publish_header(version(population), &header, topic_bytes, bytes, out, |out| {
            if !is_known {
                publication.topic.render(sender.n, variant, out);
            }
        });
    encoded.ok()?;
    if matches!(publication.payload, Payload::Text { .. }) {
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

/// Reason code of the last packet.
pub fn disconnect_code(goodbye: Goodbye) -> ReasonCode {
    match goodbye {
        Goodbye::Plain => ReasonCode::SUCCESS,
        Goodbye::WithWill => ReasonCode::DISCONNECT_WITH_WILL,
    }
}

/// Offset of the packet that contains the byte at `offset`.
pub fn boundary(version: Version, packets: &[u8], offset: usize) -> usize {
    let mut at = 0;
    while let Ok(Decoded::Packet { len, .. }) = decode(version, &packets[at..]) {
        if at + len > offset {
            break;
        }
        at += len;
    }
    at
}

/// Messages of QoS 0 in whole packets.
pub fn unrepeated(version: Version, packets: &[u8]) -> u64 {
    messages(version, packets, |qos| qos == QoS::AtMostOnce).into()
}

/// Messages of QoS 1 and 2 in whole packets.
pub fn in_flight(version: Version, packets: &[u8]) -> u32 {
    messages(version, packets, |qos| qos != QoS::AtMostOnce)
}

/// Messages in whole packets that have such a QoS.
fn messages(version: Version, packets: &[u8], is_counted: impl Fn(QoS) -> bool) -> u32 {
    let (mut at, mut messages) = (0, 0);
    while let Ok(Decoded::Packet { packet, len }) = decode(version, &packets[at..]) {
        messages +=
            u32::from(matches!(packet, Packet::Publish(message) if is_counted(message.qos)));
        at += len;
    }
    messages
}

#[inline]
fn qos(level: u8) -> QoS {
    QoS::try_from(level).expect("the plan's check allows 0, 1 and 2")
}

/// The reason behind a CONNACK code [MQTT-3.2.2.3]. Codes of MQTT 5 that mean the same have the
/// same reason.
fn refusal(version: Version, code: u8) -> Reason {
    match (version, code) {
        (Version::V5, 0x84) | (_, 1) => Reason::BadProtocolVersion,
        (Version::V5, 0x85) | (_, 2) => Reason::IdentifierRejected,
        (Version::V5, 0x88) | (_, 3) => Reason::ServerUnavailable,
        (Version::V5, 0x86) | (_, 4) => Reason::BadCredentials,
        (Version::V5, 0x87) | (_, 5) => Reason::NotAuthorized,
        (Version::V5, code) => answered(PacketType::ConnAck, code),
        _ => Reason::ConnectRejected,
    }
}

const fn is_refusal(code: u8) -> bool {
    code >= SubAck::FAILURE
}

/// Step of the broker in an authentication; empty if there is none.
fn step(properties: Properties<'_>) -> &[u8] {
    properties.binary(Property::AuthenticationData).unwrap_or_default()
}

fn cause(reason: Reason, properties: Properties<'_>) -> Cause<'_> {
    Cause { reason, texts: texts(properties) }
}

fn texts(properties: Properties<'_>) -> Texts<'_> {
    Texts {
        reason_string: properties.text(Property::ReasonString),
        server_reference: properties.text(Property::ServerReference),
    }
}

/// The reason of a lapse.
pub const fn reason_of(lapse: Lapse) -> Reason {
    match lapse {
        Lapse::PacketSize => Reason::PacketSizeExceeded,
        Lapse::NoClientId => Reason::NoClientIdAssigned,
        Lapse::PubCompError => Reason::PubcompError,
        Lapse::OtherMethod => Reason::OtherAuthenticationMethod,
        Lapse::Unavailable => Reason::UnavailableGranted,
    }
}

/// The reason of a code that the codec has checked.
fn answered(packet: PacketType, code: u8) -> Reason {
    Answer::of(packet, code).map_or(Reason::ProtocolError, Reason::Answer)
}
