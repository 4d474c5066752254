//! MQTT: CONNECT and SUBSCRIBE of a client, packets of the broker as events, PUBLISH for messages.

use mqtt::{
    Connect, Decoded, Packet, Properties, Publish, PublishHeader, QoS, SubAck, Version, decode,
    encode_publish_header,
};
use plan::{Mqtt, MqttVersion, Payload, Population, Protocol, Reason, payload_bytes};

use super::{Asked, Buffers, Event, Identity, Message, Outgoing, Reading, Token};

/// State of an MQTT client.
pub type Session = mqtt::Session<Token>;

/// Version for the codec.
#[inline]
pub const fn version(population: &Population) -> Version {
    match &population.protocol {
        Protocol::Mqtt(Mqtt { version: MqttVersion::V311, .. }) | Protocol::Zmtp(_) => {
            Version::V311
        }
    }
}

/// Appends CONNECT.
pub fn open(
    session: &mut Session,
    identity: &Identity<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    let Identity { population, n } = *identity;
    let Some(options) = population.mqtt() else { return Err(Reason::ProtocolError) };
    let text = |template: &plan::Template| template.text(n, 0);
    let client_id = text(&options.client_id);
    let username = population.username.as_ref().map(text);
    let password = population.password.as_ref().map(text);
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
            ..mqtt::Will::default()
        }),
        keep_alive_s: population.keep_alive_s,
        clean_session: options.clean_session,
        bridge: options.bridge,
        ..Connect::default()
    };
    // The controller checks lengths; no packet can hold a longer text.
    let opened = session.connect(version(population), &connect, out);
    opened.map(drop).map_err(|_| Reason::ProtocolError)
}

/// Handles one packet and appends its reply.
#[inline]
pub fn handle<'a>(
    session: &mut Session,
    reading: &Reading,
    bytes: &'a [u8],
    out: &mut Vec<u8>,
) -> (usize, Event<'a>) {
    let (packet, len) = match decode(reading.version, bytes) {
        Ok(Decoded::Packet { packet, len }) if len <= reading.packet_bytes_max => (packet, len),
        Ok(Decoded::Incomplete { needed }) if needed <= reading.packet_bytes_max => {
            return (0, Event::Incomplete);
        }
        Ok(_) => return (0, Event::Ended(Reason::PacketTooLarge)),
        Err(_) => return (0, Event::Ended(Reason::ProtocolError)),
    };
    let Ok(event) = session.handle(reading.version, &packet, out) else {
        return (len, Event::Ended(Reason::ProtocolError));
    };
    let event = match event {
        mqtt::Event::Delivered(publish) => Event::Delivered(Message::Mqtt(publish)),
        mqtt::Event::Acknowledged(token) => Event::Acknowledged(token),
        mqtt::Event::Connected { session_present, .. } => {
            Event::Connected { resumed: session_present }
        }
        mqtt::Event::Refused { code } => Event::Refused(refusal(code)),
        mqtt::Event::Subscribed { codes, .. } => {
            let refused = codes.iter().filter(|&&code| code == SubAck::FAILURE).count();
            Event::Subscribed { granted: (codes.len() - refused) as u64, refused: refused as u64 }
        }
        mqtt::Event::Rejected { .. } | mqtt::Event::Disconnected(_) => {
            Event::Ended(Reason::ProtocolError)
        }
        mqtt::Event::UnknownAck => Event::UnknownAcknowledgement,
        mqtt::Event::Unsubscribed { .. }
        | mqtt::Event::Redelivered
        | mqtt::Event::Received
        | mqtt::Event::Released
        | mqtt::Event::Pong => Event::Handled,
    };
    (len, event)
}

/// Appends one SUBSCRIBE with all filters; nothing if there are none.
pub fn subscribe(
    session: &mut Session,
    identity: &Identity<'_>,
    out: &mut Vec<u8>,
) -> Result<Asked, Reason> {
    let Identity { population, n } = *identity;
    let mut filters = Vec::new();
    for subscription in &population.subscriptions {
        let texts = (0..subscription.filter.variants()).map(|v| subscription.filter.text(n, v));
        filters.extend(texts.map(|text| (text, qos(subscription.qos))));
    }
    if filters.is_empty() {
        return Ok(Asked::default());
    }
    let requested = filters.iter().map(|(filter, qos)| (filter.as_str(), *qos));
    let requested = requested.map(|(filter, qos)| (filter, qos.into()));
    let asked = session.subscribe(version(population), Properties::NONE, requested, out);
    asked.map_err(|_| Reason::ProtocolError)?;
    Ok(Asked { packets: 1, granted: 0, awaits_answer: true })
}

/// Appends the PUBLISH of a message; `false` if no packet identifier is free.
#[inline]
pub fn publish(
    session: &mut Session,
    outgoing: &Outgoing<'_>,
    token: Token,
    to: Buffers<'_>,
) -> bool {
    let Ok(packet_id) = session.publish(qos(outgoing.publication.qos), token) else {
        return false;
    };
    append(outgoing, &token, (packet_id, false), to);
    true
}

/// Appends what a session has in flight once more.
pub fn retransmit<'a>(
    session: &mut Session,
    outgoing: impl Fn(Token) -> Outgoing<'a>,
    (out, text): Buffers<'_>,
) -> u64 {
    let again = |token: Token, packet_id: u16, out: &mut Vec<u8>| {
        append(&outgoing(token), &token, (packet_id, true), (out, text));
    };
    session.retransmit(out, again) as u64
}

/// Appends a PUBLISH. A text is made in a buffer of its own first, since its size comes before it.
/// `delivery` is packet identifier and DUP.
#[inline]
fn append(
    outgoing: &Outgoing<'_>,
    token: &Token,
    (packet_id, dup): (u16, bool),
    (out, text): Buffers<'_>,
) {
    let Outgoing { population, publication, ready, sender } = *outgoing;
    let moment = token.moment();
    let variant = ready.variants.of(sender.client, moment.number);
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
        dup,
        qos: qos(publication.qos),
        retain: publication.retain,
        packet_id,
        ..PublishHeader::default()
    };
    let topic_bytes = publication.topic.rendered_bytes(sender.n, variant);
    encode_publish_header(version(population), &header, topic_bytes, bytes, out, |out| {
        publication.topic.render(sender.n, variant, out);
    })
    .expect("the plan's check bounds topics and payloads");
    if matches!(publication.payload, Payload::Text { .. }) {
        out.extend_from_slice(text);
        return;
    }
    let end = out.len() + bytes;
    if ready.stamped {
        out.extend_from_slice(&ready.stamp(sender, moment, variant).to_bytes());
    }
    out.resize(end, b'.');
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
    let (mut at, mut messages) = (0, 0);
    while let Ok(Decoded::Packet { packet, len }) = decode(version, &packets[at..]) {
        let lost = matches!(packet, Packet::Publish(Publish { qos: QoS::AtMostOnce, .. }));
        messages += u64::from(lost);
        at += len;
    }
    messages
}

#[inline]
fn qos(level: u8) -> QoS {
    QoS::try_from(level).expect("the plan's check allows 0, 1 and 2")
}

/// The reason behind a CONNACK code [MQTT-3.2.2.3].
const fn refusal(code: u8) -> Reason {
    match code {
        1 => Reason::BadProtocolVersion,
        2 => Reason::IdentifierRejected,
        3 => Reason::ServerUnavailable,
        4 => Reason::BadCredentials,
        5 => Reason::NotAuthorized,
        _ => Reason::ConnectRejected,
    }
}
