//! AMQP 0-9-1: login, queues with bindings and consumers, messages with headers, confirms, returns,
//! acknowledgements, heartbeats, and waits that the broker asks for.

mod prepare;
mod receipts;

use std::cell::OnceCell;

use amqp::content::ContentHeader;
use amqp::field::push_text;
use amqp::frame::{AmqpFrameKind, push_body, push_frame};
use amqp::method::MANDATORY;
use amqp::packet::decode_packet;
use amqp::{AmqpError, AmqpEvent, AmqpMessage, AmqpMethod, AmqpSession, Table};
use plan::{Acknowledge, Amqp, Family, Population, Reason, SECOND_NS, Template};

use super::cause::{Broken, Cause, ReasonTexts};
use super::protocol::{
    Accepted, Asked, At, Buffers, Cut, Event, Hold, Notice, Outgoing, Polled, Protocol, Refusals,
    Request, Resend, Resent, Side, Step, Timeout,
};
use super::received::{Beside, Carried, Inbox, Next, Received};
use super::token::Token;

use receipts::Receipts;

/// Bytes of the largest header of a message without its headers, with its frame.
const HEADER_BYTES: usize = 32;
/// Reply code of a client that may not log in.
const ACCESS_REFUSED: u16 = 403;

/// State of a client; `None` before the first connection, and between two of them if nothing is
/// left of the first.
pub struct AmqpClient(Option<Box<AmqpLine>>);

/// State of a client with a connection.
struct AmqpLine {
    session: AmqpSession<Token>,
    receipts: Receipts,
    /// Instant of the last bytes sent, in nanoseconds.
    sent_ns: u64,
    /// Instant at which the peer was known to live, in nanoseconds.
    alive_ns: u64,
    /// Bytes have come since then.
    has_come: bool,
    /// Start of the wait that the broker has asked for, in nanoseconds; 0: there is none.
    blocked_since_ns: u64,
}

/// Settings of a population.
pub struct AmqpSetup {
    /// Bindings and queues of a client.
    filters: u64,
    queues: Box<[QueueUse]>,
    publications: Box<[PublicationUse]>,
    /// For each channel `true` if the broker confirms its publications.
    confirms: Box<[bool]>,
}

/// The consumer of a queue.
#[derive(Clone, Copy)]
struct QueueUse {
    acknowledge: Acknowledge,
    /// Share of first deliveries that the client refuses.
    refused: f64,
}

/// Channel and flags of a publication.
#[derive(Clone, Copy)]
struct PublicationUse {
    channel: u16,
    flags: u8,
    is_persistent: bool,
}

impl AmqpSetup {
    /// Settings of a population with these options.
    pub fn new(population: &Population, options: &Amqp) -> Self {
        let filters = population.subscriptions.iter();
        let queues = options
            .queues
            .iter()
            .map(|queue| QueueUse { acknowledge: queue.acknowledge, refused: queue.refused });
        let is_set = |flags: &[bool], index: usize| flags.get(index).copied().unwrap_or(false);
        let publications = (0..population.publications.len()).map(|index| PublicationUse {
            channel: options.channel_of(index) + 1,
            flags: if is_set(&options.mandatory, index) { MANDATORY } else { 0 },
            is_persistent: is_set(&options.persistent, index),
        });
        let confirms = (0..options.channels).map(|channel| options.confirms(population, channel));
        Self {
            filters: filters.map(|own| u64::from(own.filter.variants())).sum(),
            queues: queues.collect(),
            publications: publications.collect(),
            confirms: confirms.collect(),
        }
    }
}

impl AmqpLine {
    fn new() -> Self {
        Self {
            session: AmqpSession::new(),
            receipts: Receipts::default(),
            sent_ns: 0,
            alive_ns: 0,
            has_come: false,
            blocked_since_ns: 0,
        }
    }

    /// Instants of the next heartbeat and of the end of a silent peer, in nanoseconds: half an
    /// interval, and two intervals (4.2.7 of AMQP 0-9-1).
    const fn beats(&self, interval_s: u16) -> (u64, u64) {
        if interval_s == 0 || !self.session.is_connected() {
            return (u64::MAX, u64::MAX);
        }
        let interval_ns = interval_s as u64 * SECOND_NS;
        (
            self.sent_ns.saturating_add(interval_ns / 2),
            self.alive_ns.saturating_add(2 * interval_ns),
        )
    }

    /// Handles an event other than a message.
    #[cold]
    fn neutral<'b>(
        &mut self,
        at: &At<'_, AmqpSetup>,
        event: &AmqpEvent<'static, 'b, Token>,
        out: &mut Vec<u8>,
    ) -> Event<'b> {
        match *event {
            AmqpEvent::Started(mechanisms) => {
                prepare::log_in(&mut self.session, at, mechanisms, out)
            }
            AmqpEvent::Tuned(offered) => match prepare::tune(&mut self.session, at, offered, out) {
                Ok(()) => Event::Handled,
                Err(error) => Event::Broken(Broken {
                    reason: Reason::ConnectRejected,
                    text: error.to_string(),
                }),
            },
            AmqpEvent::Connected => {
                (self.alive_ns, self.sent_ns) = (at.now_ns, at.now_ns);
                Event::Connected(Accepted::default())
            }
            AmqpEvent::Prepared => {
                let granted = at.setup.filters;
                Event::Subscribed { granted, refused: Refusals::NONE, is_last: true }
            }
            AmqpEvent::Acknowledged(token) => Event::Acknowledged(token),
            AmqpEvent::Rejected(token) => Event::Rejected(token, Reason::Nacked.into()),
            AmqpEvent::UnknownConfirm => Event::UnknownAcknowledgement,
            AmqpEvent::Blocked(is_blocked) => {
                if is_blocked && self.blocked_since_ns == 0 {
                    self.blocked_since_ns = at.now_ns;
                }
                Event::Blocked(is_blocked)
            }
            AmqpEvent::Cancelled => Event::Ended(Reason::ConsumerCancelled.into()),
            AmqpEvent::Refused(ACCESS_REFUSED, text) => {
                Event::Refused(Cause { reason: Reason::BadCredentials, texts: texts(text) })
            }
            AmqpEvent::Refused(code, text) => Event::Refused(cause(code, text)),
            AmqpEvent::Ended(code, text) => Event::Ended(cause(code, text)),
            AmqpEvent::Incomplete => Event::Incomplete,
            AmqpEvent::Message(_)
            | AmqpEvent::Returned { .. }
            | AmqpEvent::Answered
            | AmqpEvent::Handled => Event::Handled,
        }
    }

    /// Appends a message.
    #[inline]
    fn publish(
        &mut self,
        at: &At<'_, AmqpSetup>,
        outgoing: &Outgoing<'_>,
        token: Token,
        to: Buffers<'_>,
    ) -> Polled {
        let Outgoing { publication, ready, sender } = *outgoing;
        let Buffers { out, scratch } = to;
        let PublicationUse { channel, flags, is_persistent } =
            at.setup.publications[token.publication()];
        let moment = token.moment();
        let variant = ready.variants.of(sender.client, moment.number);
        let text = &mut scratch.text;
        text.clear();
        publication.topic.render(sender.n, variant, text);
        let names = text.len();
        for header in &publication.properties {
            if let (Some(key), plan::PropertyValue::Text(value)) = (&header.key, &header.value) {
                let facts = ready.facts(sender, moment, variant);
                push_text(key.as_bytes(), text, |text| {
                    value.render_message(sender.n, variant, &facts, text);
                });
            }
        }
        let front = text.len();
        let payload = &publication.payload;
        if !ready.write_content(payload, (sender, moment, variant), text) {
            let bytes = ready.payload_bytes(payload, sender, moment.number);
            if ready.stamped {
                text.extend_from_slice(&ready.stamp(sender, moment, variant).to_bytes());
            }
            text.resize(front + bytes, b'.');
        }
        let (whole, body) = text.split_at(front);
        let (whole, headers) = whole.split_at(names);
        let Some((exchange, key)) = exchange_and_key(whole) else {
            return Polled::Refused(Reason::CannotEncode);
        };
        let frame_max = self.session.frame_max();
        if headers.len() + HEADER_BYTES > frame_max as usize {
            return Polled::Refused(Reason::MessageTooLarge);
        }
        let header = ContentHeader {
            body_bytes: body.len() as u64,
            is_persistent,
            headers: Some(Table(headers)).filter(|_| !headers.is_empty()),
        };
        amqp::push_publish(channel, (exchange, key), flags, &header, out);
        if body.len() + HEADER_BYTES <= frame_max as usize && !body.is_empty() {
            push_frame(AmqpFrameKind::Body, channel, out, |out| out.extend_from_slice(body));
        } else {
            push_body(channel, body, frame_max, out);
        }
        if publication.qos > 0 {
            self.session.await_confirm(channel, token);
        }
        Polled::Sent(Asked::ONE)
    }

    /// Appends the messages of an earlier connection that no broker has confirmed.
    fn resend(
        &mut self,
        at: &At<'_, AmqpSetup>,
        Resend { of, refused }: Resend<'_>,
        to: Buffers<'_>,
    ) -> Polled {
        let Buffers { out, scratch } = to;
        let mut packets = 0;
        while let Some(token) = self.session.take_again() {
            let Resent::Message(outgoing) = of(token) else { continue };
            match self.publish(at, &outgoing, token, Buffers { out, scratch }) {
                Polled::Refused(reason) => refused.push((token, reason)),
                _ => packets += 1,
            }
        }
        match packets {
            0 => Polled::Nothing,
            packets => Polled::Sent(Asked { packets, ..Asked::default() }),
        }
    }
}

impl AmqpClient {
    /// State of a client that has never connected.
    pub const NEW: Self = Self(None);

    /// Appends the end of a connection behind acknowledgements that wait for more deliveries.
    fn leave(&mut self, out: &mut Vec<u8>) -> Polled {
        let Some(line) = self.0.as_mut().filter(|line| line.session.is_connected()) else {
            return Polled::Nothing;
        };
        let packets = 1 + line.receipts.finish(out);
        line.session.close(out);
        Polled::Sent(Asked { packets, ..Asked::default() })
    }
}

impl Protocol for AmqpClient {
    type Setup = AmqpSetup;

    #[inline]
    fn handle<'b>(
        &mut self,
        at: &At<'_, AmqpSetup>,
        bytes: &'b [u8],
        out: &mut Vec<u8>,
        inbox: &mut impl Inbox,
    ) -> Step<'b> {
        let mut step = Step::new();
        let Some(line) = &mut self.0 else { return step };
        step.event = loop {
            let handled = match line.session.handle(&bytes[step.len..], out) {
                Ok(handled) => handled,
                Err(error) => break broken(&error),
            };
            step.len += handled.len;
            step.read += handled.packets;
            step.replied += handled.replies;
            let message = match handled.event {
                AmqpEvent::Message(message) => message,
                AmqpEvent::Incomplete => break Event::Incomplete,
                AmqpEvent::Handled if step.len < bytes.len() => continue,
                AmqpEvent::Returned { code, exchange, routing_key, .. } => {
                    let reason = Reason::of(Family::Amqp, code);
                    break Event::Returned(name(at, exchange, routing_key), reason);
                }
                event => {
                    let Some(event) = event.apart() else { continue };
                    // Limits and virtual host answer together.
                    let answers = if let AmqpEvent::Tuned(_) = event { 2 } else { 1 };
                    let before = out.len();
                    let event = line.neutral(at, &event, out);
                    step.replied += answers * u32::from(out.len() > before);
                    break event;
                }
            };
            let Some(queue) = prepare::queue_of(message.tag, at.setup.queues.len()) else {
                break broken(&AmqpError::OutOfPlace("delivery to no consumer"));
            };
            let QueueUse { acknowledge, refused } = at.setup.queues[queue];
            let is_first = refused > 0.0 && !message.is_redelivered;
            if is_first && line.receipts.refuses(queue, refused) {
                amqp::push_requeue(message.channel, message.number, out);
                step.requeued += 1;
                step.replied += 1;
                continue;
            }
            step.redelivered += u32::from(message.is_redelivered);
            let beside = AmqpRest { at, message: &message, topic: OnceCell::new() };
            let next =
                inbox.take(&Received { payload: message.payload, marks: 0, beside: &beside });
            let delivery = (message.channel, message.number);
            step.replied += line.receipts.take(acknowledge, delivery, at.now_ns, out);
            step.retimes |= matches!(acknowledge, Acknowledge::Late { .. });
            line.session.release();
            if next != Next::More {
                break Event::Handled;
            }
        };
        step
    }

    #[inline(always)]
    fn poll(&mut self, at: &At<'_, AmqpSetup>, request: Request<'_>, to: Buffers<'_>) -> Polled {
        if let Request::Open(_) = request {
            let line = self.0.get_or_insert_with(|| Box::new(AmqpLine::new()));
            line.session.open(to.out);
            return Polled::Sent(Asked { packets: 1, awaits_answer: true, ..Asked::default() });
        }
        let Some(line) = &mut self.0 else { return Polled::Nothing };
        match request {
            Request::Publish(outgoing, token) => {
                let channel = at.setup.publications[token.publication()].channel;
                if line.session.is_blocked(channel) {
                    return Polled::Wait(Hold::Blocked);
                }
                line.publish(at, outgoing, token, to)
            }
            Request::Subscribe => prepare::prepare(&mut line.session, at, to.out),
            Request::Resend(resend) => line.resend(at, resend, to),
            Request::Leave(_) => self.leave(to.out),
            Request::Open(_)
            | Request::Prove(_)
            | Request::Unsubscribe
            | Request::Answer(..)
            | Request::Send(..) => Polled::Nothing,
        }
    }

    fn deadline(&self, at: &At<'_, AmqpSetup>, side: Side) -> u64 {
        match (&self.0, side) {
            (Some(line), Side::Own) => {
                let (beat_ns, end_ns) = line.beats(at.population.keep_alive_s);
                beat_ns.min(end_ns)
            }
            // No message of a client depends on the end of its connection.
            (None, _) | (_, Side::Peer) => u64::MAX,
        }
    }

    fn receipt_ns(&self) -> u64 {
        self.0.as_ref().map_or(u64::MAX, |line| line.receipts.next_ns())
    }

    fn timeout(&mut self, at: &At<'_, AmqpSetup>, out: &mut Vec<u8>) -> Timeout {
        let Some(line) = &mut self.0 else { return Timeout::Early };
        let mut packets = line.receipts.send_due(at.now_ns, out);
        if std::mem::take(&mut line.has_come) {
            line.alive_ns = at.now_ns;
        }
        let (beat_ns, end_ns) = line.beats(at.population.keep_alive_s);
        if end_ns <= at.now_ns {
            return Timeout::Dead(Reason::KeepAliveTimeout);
        }
        if beat_ns <= at.now_ns {
            amqp::push_heartbeat(out);
            line.sent_ns = at.now_ns;
            packets += 1;
        }
        if packets > 0 { Timeout::Sent(packets) } else { Timeout::Early }
    }

    #[inline]
    fn note(&mut self, notice: Notice) -> u64 {
        let Some(line) = &mut self.0 else { return 0 };
        match notice {
            Notice::Sent(now_ns) => line.sent_ns = now_ns,
            Notice::Alive => line.has_come = true,
            Notice::Shared => {}
            Notice::Lost { keeps_session } => {
                let mut session = std::mem::take(&mut line.session);
                let dropped = session.connection_lost(keeps_session) as u64;
                // Nothing else is kept for the next connection.
                let is_kept = session.in_flight() > 0;
                self.0 = is_kept.then(|| Box::new(AmqpLine { session, ..AmqpLine::new() }));
                return dropped;
            }
        }
        0
    }

    fn blocked_ns(&mut self, now_ns: u64) -> u64 {
        let Some(line) = self.0.as_mut().filter(|line| line.blocked_since_ns > 0) else { return 0 };
        let is_blocked = line.session.is_blocked_anywhere();
        let since_ns = std::mem::take(&mut line.blocked_since_ns);
        line.blocked_since_ns = if is_blocked { now_ns } else { 0 };
        now_ns.saturating_sub(since_ns)
    }

    fn cut(setup: &AmqpSetup, packets: &[u8], end: usize) -> Cut {
        let mut cut = Cut::default();
        while let Ok(Some(packet)) = decode_packet(&packets[cut.len..])
            && cut.len + packet.len <= end
        {
            cut.len += packet.len;
            if let Some(AmqpMethod::BasicPublish { .. }) = packet.method {
                let place = usize::from(packet.channel).wrapping_sub(1);
                let is_confirmed = setup.confirms.get(place).copied().unwrap_or(false);
                cut.acknowledged += u64::from(is_confirmed);
                cut.unacknowledged += u64::from(!is_confirmed);
            }
        }
        cut
    }
}

/// The rest of a message, for questions that most deliveries do not raise.
struct AmqpRest<'a> {
    at: &'a At<'a, AmqpSetup>,
    message: &'a AmqpMessage<'a>,
    /// Name of the message, once it is asked for.
    topic: OnceCell<Option<String>>,
}

impl Beside for AmqpRest<'_> {
    fn topic(&self) -> Option<&str> {
        let AmqpMessage { exchange, routing_key, .. } = self.message;
        let make = || Some(name(self.at, exchange, routing_key));
        self.topic.get_or_init(make).as_deref()
    }

    fn carried(&self) -> Carried<'_> {
        Carried::default()
    }
}

/// Name of a message in the plan: virtual host, exchange and key. Federation may have brought the
/// message from another virtual host, but it is in that of the client.
fn name(at: &At<'_, AmqpSetup>, exchange: &[u8], routing_key: &[u8]) -> String {
    let mut name = virtual_host(at).map_or_else(String::new, |own| own.text(at.n, 0));
    if name == "/" {
        name.clear();
    }
    for part in [exchange, routing_key] {
        name.push('/');
        name.push_str(&String::from_utf8_lossy(part));
    }
    name
}

fn virtual_host<'a>(at: &At<'a, AmqpSetup>) -> Option<&'a Template> {
    prepare::options(at).map(|options| &options.virtual_host)
}

/// Exchange and key of a name in the plan, whose first part is the virtual host; `None` if one is
/// too long.
#[inline]
fn exchange_and_key(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = name.splitn(3, |&byte| byte == b'/').skip(1);
    let (exchange, key) = (parts.next()?, parts.next()?);
    let is_short = |text: &[u8]| text.len() <= u8::MAX.into();
    (is_short(exchange) && is_short(key)).then_some((exchange, key))
}

fn cause(code: u16, text: &str) -> Cause<'_> {
    Cause { reason: Reason::of(Family::Amqp, code), texts: texts(text) }
}

const fn texts(text: &str) -> ReasonTexts<'_> {
    ReasonTexts { reason_string: Some(text), server_reference: None }
}

#[cold]
fn broken<'b>(error: &AmqpError) -> Event<'b> {
    Event::Broken(Broken { reason: Reason::ProtocolError, text: error.to_string() })
}

#[cfg(test)]
mod tests;
