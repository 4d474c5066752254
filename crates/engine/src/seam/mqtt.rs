//! MQTT: packets of the broker as events, requests of the client as packets.

mod beside;
mod publish;
mod requests;

use std::cell::OnceCell;

use mqtt::{
    Breach, DecodedPacket, Lapse, Lapses, Packet, PacketType, Properties, Property, PropertyList,
    QoS, ReasonCode, SubAck, Version, decode,
};
use plan::{AnswerCode, MqttVersion, Population, PropertyValue, Reason};

use super::cause::{Broken, Cause, ReasonTexts};
use super::keep_alive::KeepAlive;
use super::protocol::{
    Accepted, Asked, At, Buffers, Cut, Event, Goodbye, Notice, Polled, Protocol, Refusals, Request,
    Side, Step, Timeout,
};
use super::received::{BESIDE, Inbox, Next, RETAINED, Received};
use super::token::Token;

use beside::ReceivedPublish;
use publish::PropertySetup;

/// State of an MQTT client.
pub struct MqttClient {
    session: TokenSession,
    keep_alive: KeepAlive,
}

/// State of the protocol itself.
type TokenSession = mqtt::MqttSession<Token>;

/// Settings of a population.
pub struct MqttSetup {
    version: Version,
    /// Largest packet that a client accepts, in bytes.
    packet_bytes_max: usize,
    /// Maximum Packet Size that CONNECT announces, in bytes.
    announced_bytes_max: usize,
    /// Session expiry that CONNECT asks for, in seconds; `u32::MAX`: without end. 0 also in MQTT
    /// 3.1, whose CONNACK does not say if there was a session.
    session_expiry_s: u32,
    /// Properties of the messages of each publication.
    publications: Vec<PropertySetup>,
}

/// The properties of a packet while the packet is made.
#[derive(Default)]
pub struct MqttScratch(PropertyList);

impl MqttSetup {
    /// Settings of a population with these options, in a plan with this largest packet that a
    /// client accepts, in bytes.
    pub fn new(population: &Population, options: &plan::Mqtt, packet_bytes_max: u32) -> Self {
        let announced_expiry = announced(options, Property::SessionExpiryInterval);
        let announced = announced(options, Property::MaximumPacketSize);
        Self {
            version: options.version.into(),
            packet_bytes_max: packet_bytes_max as usize,
            announced_bytes_max: announced.map_or(usize::MAX, |bytes| bytes as usize),
            session_expiry_s: match options.version {
                _ if options.clean_session => 0,
                MqttVersion::V31 => 0,
                MqttVersion::V311 => u32::MAX,
                MqttVersion::V5 => announced_expiry.unwrap_or(0),
            },
            publications: PropertySetup::of_publications(population),
        }
    }

    /// Receive Maximum that CONNECT announces, in messages; `u64::MAX` if there is none.
    pub fn receive_maximum(options: &plan::Mqtt) -> u64 {
        announced(options, Property::ReceiveMaximum).map_or(u64::MAX, u64::from)
    }

    /// Returns `true` if clients authenticate with SCRAM.
    pub fn proves_password(options: &plan::Mqtt) -> bool {
        options.authentication.as_ref().is_some_and(|authentication| authentication.data.is_none())
    }

    /// Properties of the publication of a message.
    #[inline]
    fn properties(&self, token: &Token) -> &PropertySetup {
        &self.publications[token.publication()]
    }
}

/// A number that CONNECT announces in a property.
fn announced(options: &plan::Mqtt, property: Property) -> Option<u32> {
    let found = options.properties.iter().find(|each| each.kind() == Some(property))?;
    match found.value {
        PropertyValue::Number(number) => Some(number),
        PropertyValue::Text(_) => None,
    }
}

impl MqttClient {
    /// State of a client that has never connected.
    pub const NEW: Self = Self { session: TokenSession::new(), keep_alive: KeepAlive::NEW };
}

impl Protocol for MqttClient {
    type Setup = MqttSetup;

    #[inline]
    fn handle<'b>(
        &mut self,
        at: &At<'_, MqttSetup>,
        bytes: &'b [u8],
        out: &mut Vec<u8>,
        inbox: &mut impl Inbox,
    ) -> Step<'b> {
        let Self { session, .. } = self;
        let MqttSetup { version, packet_bytes_max, announced_bytes_max, .. } = *at.setup;
        let (mut step, mut lapses) = (Step::new(), Lapses::NONE);
        let event = loop {
            let (packet, len) = match decode(version, &bytes[step.len..]) {
                Ok(DecodedPacket::Packet { packet, len }) if len <= packet_bytes_max => {
                    (packet, len)
                }
                Ok(DecodedPacket::Incomplete { needed }) if needed <= packet_bytes_max => {
                    break Event::Incomplete;
                }
                Ok(
                    DecodedPacket::Packet { len, .. } | DecodedPacket::Incomplete { needed: len },
                ) => {
                    break broken(&Breach::of_size(&bytes[step.len..], len, packet_bytes_max));
                }
                Err(error) => {
                    break broken(&Breach::of_bytes(version, &bytes[step.len..], error));
                }
            };
            if len > announced_bytes_max {
                lapses.note(Lapse::PacketSize);
            }
            let before = out.len();
            let event = session.handle(version, &packet, out);
            step.len += len;
            step.read += 1;
            step.replied += u32::from(out.len() > before);
            let publish = match event {
                Ok(mqtt::MqttEvent::Delivered(publish)) => publish,
                Ok(mqtt::MqttEvent::Acknowledged(token)) => break Event::Acknowledged(token),
                Ok(event) => break neutral(session, at.setup, event),
                Err(error) => break broken(&Breach::Turn(error)),
            };
            step.in_flight += u32::from(publish.qos != QoS::AtMostOnce);
            let retained = if publish.retain { RETAINED } else { 0 };
            let marks = retained | if publish.properties.is_empty() { 0 } else { BESIDE };
            if marks & BESIDE != 0 {
                step.note(publish.properties);
            }
            let beside = ReceivedPublish { session, publish, carried: OnceCell::new() };
            let message = Received { payload: publish.payload, marks, beside: &beside };
            match inbox.take(&message) {
                Next::More => {}
                Next::Pause => break Event::Handled,
                Next::Answer => {
                    break beside.carried().asks_for().map_or(Event::Handled, Event::Asked);
                }
            }
        };
        let lapses = session.take_lapses().with(lapses);
        let lapses = if lapses.is_empty() { Vec::new() } else { reasons_of(lapses) };
        Step { holds_back: session.holds_back(), lapses, event, ..step }
    }

    #[inline(always)]
    fn poll(&mut self, at: &At<'_, MqttSetup>, request: Request<'_>, to: Buffers<'_>) -> Polled {
        let session = &mut self.session;
        let asked = match request {
            Request::Publish(outgoing, token) => {
                return publish::publish(session, at, outgoing, token, to);
            }
            Request::Answer(answer, token) => return publish::answer(session, answer, token, to),
            Request::Send(message, token) => return publish::send(session, at, message, token, to),
            Request::Resend(resend) => return publish::resend(session, at, resend, to),
            Request::Open(opening) => requests::open(session, at, opening, to.out),
            Request::Prove(step) => requests::authenticate(step, to.out),
            Request::Subscribe => requests::subscribe(session, at, to.out),
            Request::Unsubscribe => requests::unsubscribe(session, at, to.out),
            Request::Leave(goodbye) if session.is_open() => {
                session.disconnect(at.setup.version, disconnect_code(goodbye), to.out);
                Ok(Asked::ONE)
            }
            Request::Leave(_) => return Polled::Nothing,
        };
        asked.map_or_else(Polled::Refused, Polled::Sent)
    }

    #[inline]
    fn deadline(&self, at: &At<'_, MqttSetup>, side: Side) -> u64 {
        let interval_s = match side {
            Side::Own if !self.session.is_connected() => 0,
            _ => self.session.keep_alive_s(at.population.keep_alive_s),
        };
        self.keep_alive.deadline(interval_s, side)
    }

    #[inline]
    fn timeout(&mut self, at: &At<'_, MqttSetup>, out: &mut Vec<u8>) -> Timeout {
        if !self.session.is_connected() {
            return Timeout::Early;
        }
        let interval_s = self.session.keep_alive_s(at.population.keep_alive_s);
        self.keep_alive.timeout(interval_s, at.now_ns, || self.session.ping(out))
    }

    #[inline]
    fn note(&mut self, notice: Notice) -> u64 {
        self.keep_alive.note(notice);
        match notice {
            Notice::Sent(_) | Notice::Alive => 0,
            Notice::Shared => {
                self.session.forget_received();
                0
            }
            Notice::Lost { keeps_session } => self.session.connection_lost(keeps_session) as u64,
        }
    }

    fn cut(setup: &MqttSetup, packets: &[u8], end: usize) -> Cut {
        let mut cut = Cut::default();
        while let Ok(DecodedPacket::Packet { packet, len }) =
            decode(setup.version, &packets[cut.len..])
            && cut.len + len <= end
        {
            cut.len += len;
            if let Packet::Publish(message) = packet {
                let is_acknowledged = message.qos != QoS::AtMostOnce;
                cut.acknowledged += u64::from(is_acknowledged);
                cut.unacknowledged += u64::from(!is_acknowledged);
            }
        }
        cut
    }
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
fn neutral<'a>(
    session: &TokenSession,
    &MqttSetup { version, session_expiry_s, .. }: &MqttSetup,
    event: mqtt::MqttEvent<'a, Token>,
) -> Event<'a> {
    match event {
        mqtt::MqttEvent::Acknowledged(token) => Event::Acknowledged(token),
        mqtt::MqttEvent::Connected { session_present, dropped, properties } => {
            // The server may replace the expiry [MQTT5-3.2.2.3.2].
            let replaced = properties.number(Property::SessionExpiryInterval);
            Event::Connected(Accepted {
                resumed: session_present,
                kept_s: replaced.filter(|_| session_expiry_s > 0).unwrap_or(session_expiry_s),
                dropped: dropped as u64,
                sets_keep_alive: properties.number(Property::ServerKeepAlive).is_some(),
                proof: step(properties),
            })
        }
        mqtt::MqttEvent::Challenged(properties) => Event::Challenged(step(properties)),
        mqtt::MqttEvent::Refused { code, properties } => {
            Event::Refused(cause(refusal(version, code), properties))
        }
        mqtt::MqttEvent::Subscribed { codes, properties, .. } => {
            let reason: fn(u8) -> Option<Reason> = match version {
                Version::V5 => |code| is_refusal(code).then(|| answered(PacketType::SubAck, code)),
                Version::V31 | Version::V311 => {
                    |code| is_refusal(code).then_some(Reason::SubscribeRefused)
                }
            };
            let granted = codes.iter().filter(|&&code| !is_refusal(code)).count() as u64;
            let texts = texts(properties);
            let refused = Refusals { codes, reason, texts, ..Refusals::NONE };
            Event::Subscribed { granted, refused, is_last: !session.awaits_requests() }
        }
        mqtt::MqttEvent::Rejected { token, code, properties } => {
            Event::Rejected(token, cause(answered(PacketType::PubAck, code.number()), properties))
        }
        mqtt::MqttEvent::Disconnected(reasoned) => {
            let reason = answered(PacketType::Disconnect, reasoned.code.number());
            Event::Ended(cause(reason, reasoned.properties))
        }
        mqtt::MqttEvent::UnknownAck => Event::UnknownAcknowledgement,
        mqtt::MqttEvent::Unsubscribed { filters, codes, properties, .. } => {
            let reason = |code| is_refusal(code).then(|| answered(PacketType::UnsubAck, code));
            let texts = texts(properties);
            let refused = Refusals { codes, reason, texts, ..Refusals::NONE };
            let removed = u64::from(filters) - refused.iter().count() as u64;
            Event::Unsubscribed { removed, refused, is_last: !session.awaits_requests() }
        }
        mqtt::MqttEvent::Delivered(_)
        | mqtt::MqttEvent::Redelivered
        | mqtt::MqttEvent::Received
        | mqtt::MqttEvent::Released
        | mqtt::MqttEvent::Pong => Event::Handled,
    }
}

#[cold]
fn broken<'b>(breach: &Breach) -> Event<'b> {
    let reason = match breach {
        Breach::Size { .. } => Reason::PacketTooLarge,
        _ => Reason::ProtocolError,
    };
    Event::Broken(Broken { reason, text: breach.to_string() })
}

/// Reason code of the last packet.
const fn disconnect_code(goodbye: Goodbye) -> ReasonCode {
    match goodbye {
        Goodbye::Plain => ReasonCode::SUCCESS,
        Goodbye::WithWill => ReasonCode::DISCONNECT_WITH_WILL,
    }
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

fn texts(properties: Properties<'_>) -> ReasonTexts<'_> {
    ReasonTexts {
        reason_string: properties.text(Property::ReasonString),
        server_reference: properties.text(Property::ServerReference),
    }
}

#[cold]
fn reasons_of(lapses: Lapses) -> Vec<Reason> {
    lapses.iter().map(reason_of).collect()
}

/// The reason of a lapse.
const fn reason_of(lapse: Lapse) -> Reason {
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
    AnswerCode::of(packet, code).map_or(Reason::ProtocolError, Reason::Answer)
}

#[cfg(test)]
mod tests;
