//! NATS: login after INFO, subjects with queue groups, messages with headers, PING and PONG;
//! streams and durable consumers of JetStream.

mod stored;

use nats::client::{ConnectOptions, END, NatsCredentials, encode_publish};
use nats::{FIRST_SID, HandledOperation, Headers, NatsEvent, ServerError, client, headers, nkey};
use openssl::pkey::{Id, PKey};
use openssl::sign::Signer;
use plan::{Population, Reason, Template};

use super::cause::{Broken, Cause, ReasonTexts};
use super::keep_alive::KeepAlive;
use super::protocol::{
    Accepted, Asked, At, Buffers, Cut, Event, Notice, Outgoing, Polled, Protocol, Refusals,
    Request, Resend, Resent, Side, Step, Timeout,
};
use super::received::{Beside, Carried, Inbox, Next, Received};
use super::token::Token;

use stored::{StoredFilter, StoredSetup};

/// State of a client.
pub struct NatsClient {
    session: nats::NatsSession<Token>,
    keep_alive: KeepAlive,
}

/// Settings of a population.
pub struct NatsSetup {
    /// Number of subscriptions of a client, one for each value of a range.
    filters: u64,
    /// `true` if clients know a user name, a password, a token or a key.
    has_login: bool,
    stored: StoredSetup,
}

impl NatsSetup {
    /// Settings of a population with these options.
    pub fn new(population: &Population, options: &plan::Nats) -> Self {
        let own = population.subscriptions.iter();
        let filters = own.map(|own| u64::from(own.filter.variants())).sum();
        let texts = [&population.username, &options.token, &options.seed];
        let has_login = texts.iter().any(|text| text.is_some());
        Self { filters, has_login, stored: StoredSetup::new(population, options) }
    }
}

impl NatsClient {
    /// State of a client that has never connected.
    pub const NEW: Self = Self { session: nats::NatsSession::new(), keep_alive: KeepAlive::NEW };

    /// Time without bytes after which a client sends a PING, in seconds; 0 if not connected.
    const fn interval_s(&self, at: &At<'_, NatsSetup>) -> u16 {
        if self.session.is_connected() { at.population.keep_alive_s } else { 0 }
    }

    /// Begins a connection, on which the server speaks first; or appends CONNECT after INFO.
    fn open(&mut self, at: &At<'_, NatsSetup>, out: &mut Vec<u8>) -> Polled {
        if !self.session.is_greeted() {
            self.session.open();
            return Polled::Nothing;
        }
        let plan::PlannedProtocol::Nats(options) = &at.population.protocol else {
            return Polled::Nothing;
        };
        let text = |template: &Option<Template>| template.as_ref().map(|own| own.text(at.n, 0));
        let signed = match text(&options.seed).map(|seed| sign(&seed, self.session.nonce())) {
            Some(None) => return Polled::Refused(Reason::BadCredentials),
            signed => signed.flatten(),
        };
        let (nkey, signature) = signed.unzip();
        let texts =
            [&at.population.username, &at.population.password, &options.token, &options.jwt];
        let [username, password, token, jwt] = texts.map(text);
        let login = NatsCredentials {
            username: username.as_deref(),
            password: password.as_deref(),
            token: token.as_deref(),
            jwt: jwt.as_deref(),
            nkey: nkey.as_deref().filter(|_| jwt.is_none()),
            signature: signature.as_deref(),
        };
        let name = options.client_name.text(at.n, 0);
        let tls_required = at.population.tls.is_some();
        self.session
            .connect(&ConnectOptions { name: &name, echo: options.echo, login, tls_required }, out);
        Polled::Sent(Asked { packets: 2, awaits_answer: true, ..Asked::default() })
    }

    /// Appends all subscriptions, and a PING that the server answers once it has read them.
    fn subscribe(&mut self, at: &At<'_, NatsSetup>, out: &mut Vec<u8>) -> Polled {
        let plan::PlannedProtocol::Nats(options) = &at.population.protocol else {
            return Polled::Nothing;
        };
        let mut packets = 1 + stored::prepare(&mut self.session, at, &at.setup.stored, out);
        let mut sid = FIRST_SID;
        for (index, subscription) in at.population.subscriptions.iter().enumerate() {
            for variant in 0..subscription.filter.variants() {
                let text = subscription.filter.text(at.n, variant);
                let shared = text.strip_prefix("$share/").and_then(|own| own.split_once('/'));
                let (group, subject) = match shared {
                    Some((group, subject)) => (Some(group), subject),
                    None => (None, text.as_str()),
                };
                let number = if group.is_some() { variant.into() } else { sid - FIRST_SID };
                let consumer = options.consumers.get(index);
                let filter = StoredFilter { consumer, sid, number, group, subject };
                let client_name = || options.client_name.text(at.n, 0);
                packets += stored::subscribe(&mut self.session, &filter, client_name, out);
                sid += 1;
            }
        }
        self.session.confirm(false, out);
        Polled::Sent(Asked { packets, awaits_answer: true, ..Asked::default() })
    }

    /// Appends the end of all subscriptions, and a PING.
    fn unsubscribe(&mut self, at: &At<'_, NatsSetup>, out: &mut Vec<u8>) -> Polled {
        let filters = at.setup.filters;
        (FIRST_SID..FIRST_SID + filters).for_each(|sid| self.session.unsubscribe(sid, out));
        self.session.confirm(true, out);
        Polled::Sent(Asked { packets: filters + 1, awaits_answer: true, ..Asked::default() })
    }

    /// Appends a message.
    #[inline]
    fn publish(&mut self, outgoing: &Outgoing<'_>, token: Token, to: Buffers<'_>) -> Polled {
        let Outgoing { publication, ready, sender } = *outgoing;
        let Buffers { out, scratch } = to;
        let moment = token.moment();
        let variant = ready.variants.of(sender.client, moment.number);
        let render = |template: &Template, text: &mut Vec<u8>| {
            template.render_message(sender.n, variant, &ready.facts(sender, moment, variant), text);
        };
        let text = &mut scratch.text;
        text.clear();
        write_headers(publication, text, render);
        let block = text.len();
        let payload = &publication.payload;
        let has_content = ready.write_content(payload, (sender, moment, variant), text);
        let bytes = if has_content {
            text.len() - block
        } else {
            ready.payload_bytes(payload, sender, moment.number)
        };
        if block + bytes > self.session.payload_max() as usize {
            return Polled::Refused(Reason::MessageTooLarge);
        }
        let Ok(headers) = headers_of(&text[..block]) else {
            return Polled::Refused(Reason::CannotEncode);
        };
        let reply = (publication.qos > 0).then(|| self.session.reply_of(token));
        encode_publish(reply, headers, bytes, out, |out| {
            publication.topic.render(sender.n, variant, out);
        });
        if has_content {
            out.extend_from_slice(&text[block..]);
        } else {
            let end = out.len() + bytes;
            if ready.stamped {
                out.extend_from_slice(&ready.stamp(sender, moment, variant).to_bytes());
            }
            out.resize(end, b'.');
        }
        out.extend_from_slice(END);
        Polled::Sent(Asked::ONE)
    }

    /// Appends the messages of an earlier connection that no stream has acknowledged.
    fn resend(&mut self, Resend { of, refused }: Resend<'_>, to: Buffers<'_>) -> Polled {
        let Buffers { out, scratch } = to;
        let mut packets = 0;
        while let Some(token) = self.session.take_again() {
            let Resent::Message(outgoing) = of(token) else { continue };
            match self.publish(&outgoing, token, Buffers { out, scratch }) {
                Polled::Refused(reason) => refused.push((token, reason)),
                _ => packets += 1,
            }
        }
        match packets {
            0 => Polled::Nothing,
            packets => Polled::Sent(Asked { packets, ..Asked::default() }),
        }
    }

    /// Handles an operation other than a message, and appends CONNECT after INFO.
    #[cold]
    fn neutral<'b>(
        &mut self,
        at: &At<'_, NatsSetup>,
        event: &NatsEvent<'b, Token>,
        out: &mut Vec<u8>,
    ) -> Event<'b> {
        match *event {
            NatsEvent::Greeted(_) if at.population.tls.is_some() => Event::Secure,
            NatsEvent::Greeted(_) => match self.open(at, out) {
                Polled::Refused(reason) => Event::Refused(reason.into()),
                _ => Event::Handled,
            },
            NatsEvent::Connected => Event::Connected(Accepted::default()),
            NatsEvent::Subscribed(refused) => {
                let granted = at.setup.filters.saturating_sub(refused.into());
                Event::Subscribed { granted, refused: Refusals::NONE, is_last: true }
            }
            NatsEvent::Unsubscribed => {
                let removed = at.setup.filters;
                Event::Unsubscribed { removed, refused: Refusals::NONE, is_last: true }
            }
            NatsEvent::Forbidden(ServerError::SubscribePermission, text) => {
                let cause = Cause { reason: Reason::SubscribeRefused, texts: texts(text) };
                Event::Subscribed { granted: 0, refused: Refusals::one(cause), is_last: false }
            }
            NatsEvent::Refused(error, text) => {
                let reason = refusal(error, at.setup.has_login);
                Event::Refused(Cause { reason, texts: texts(text) })
            }
            NatsEvent::Forbidden(error, text) | NatsEvent::Ended(error, text) => {
                let reason = match error {
                    ServerError::PublishPermission => Reason::NotAuthorized,
                    ServerError::SlowConsumer => Reason::SlowConsumer,
                    ServerError::MaximumPayload => Reason::MessageTooLarge,
                    _ => Reason::ClosedByBroker,
                };
                Event::Ended(Cause { reason, texts: texts(text) })
            }
            NatsEvent::UnknownAnswer => Event::UnknownAcknowledgement,
            NatsEvent::Incomplete => Event::Incomplete,
            NatsEvent::Acknowledged(token, _) => Event::Acknowledged(token),
            NatsEvent::Rejected(token, ref refusal) => {
                Event::Rejected(token, stored::cause(refusal))
            }
            NatsEvent::Denied(ref refusal) => {
                let refused = Refusals::one(stored::cause(refusal));
                Event::Subscribed { granted: 0, refused, is_last: false }
            }
            NatsEvent::Message(_) | NatsEvent::Pong | NatsEvent::Replied | NatsEvent::Granted => {
                Event::Handled
            }
        }
    }
}

impl Protocol for NatsClient {
    type Setup = NatsSetup;

    #[inline]
    fn handle<'b>(
        &mut self,
        at: &At<'_, NatsSetup>,
        bytes: &'b [u8],
        out: &mut Vec<u8>,
        inbox: &mut impl Inbox,
    ) -> Step<'b> {
        let mut step = Step::new();
        step.event = loop {
            let before = out.len();
            let HandledOperation { len, event } = match self.session.handle(&bytes[step.len..], out)
            {
                Ok(handled) => handled,
                Err(error) => break broken(error),
            };
            step.len += len;
            let message = match event {
                NatsEvent::Message(message) => message,
                NatsEvent::Incomplete => break Event::Incomplete,
                event => {
                    step.read += 1;
                    // CONNECT and PING answer INFO. Other operations have one answer at most.
                    let answers = if matches!(event, NatsEvent::Greeted(_)) { 2 } else { 1 };
                    let event = self.neutral(at, &event, out);
                    step.replied += answers * u32::from(out.len() > before);
                    break event;
                }
            };
            step.read += 1;
            let (payload, marks) = (message.payload, 0);
            let next = inbox.take(&Received { payload, marks, beside: &message });
            step.replied += stored::acknowledge(&message, out);
            if next != Next::More {
                break Event::Handled;
            }
        };
        step
    }

    #[inline(always)]
    fn poll(&mut self, at: &At<'_, NatsSetup>, request: Request<'_>, to: Buffers<'_>) -> Polled {
        match request {
            Request::Publish(outgoing, token) => self.publish(outgoing, token, to),
            Request::Open(_) => self.open(at, to.out),
            Request::Subscribe => self.subscribe(at, to.out),
            Request::Unsubscribe => self.unsubscribe(at, to.out),
            Request::Resend(resend) => self.resend(resend, to),
            // A client closes its connection without a word.
            Request::Prove(_) | Request::Answer(..) | Request::Send(..) | Request::Leave(_) => {
                Polled::Nothing
            }
        }
    }

    fn deadline(&self, at: &At<'_, NatsSetup>, side: Side) -> u64 {
        match side {
            Side::Own => self.keep_alive.deadline(self.interval_s(at), side),
            // The server sends PINGs of its own.
            Side::Peer => u64::MAX,
        }
    }

    fn timeout(&mut self, at: &At<'_, NatsSetup>, out: &mut Vec<u8>) -> Timeout {
        let interval_s = self.interval_s(at);
        self.keep_alive.timeout(interval_s, at.now_ns, || self.session.heartbeat(out))
    }

    #[inline]
    fn note(&mut self, notice: Notice) -> u64 {
        self.keep_alive.note(notice);
        match notice {
            Notice::Lost { keeps_session } => self.session.connection_lost(keeps_session) as u64,
            Notice::Sent(_) | Notice::Alive | Notice::Shared => 0,
        }
    }

    fn cut(_: &NatsSetup, packets: &[u8], end: usize) -> Cut {
        let mut cut = Cut::default();
        while let Ok(nats::DecodedOperation::Whole { operation, len }) =
            client::decode(&packets[cut.len..])
            && cut.len + len <= end
        {
            cut.len += len;
            if let client::ClientOperation::Publish(publish) = operation {
                stored::count(&publish, &mut cut);
            }
        }
        cut
    }
}

impl Beside for nats::server::NatsMessage<'_> {
    fn topic(&self) -> Option<&str> {
        str::from_utf8(self.subject).ok()
    }

    fn carried(&self) -> Carried<'_> {
        Carried::default()
    }
}

/// Appends the headers of a message; nothing if the publication has none.
#[inline]
fn write_headers(
    publication: &plan::Publication,
    out: &mut Vec<u8>,
    render: impl Fn(&Template, &mut Vec<u8>),
) {
    if publication.properties.is_empty() {
        return;
    }
    headers::begin(out);
    for header in &publication.properties {
        if let (Some(name), plan::PropertyValue::Text(value)) = (&header.key, &header.value) {
            headers::push_name(name.as_bytes(), out);
            render(value, out);
            out.extend_from_slice(END);
        }
    }
    headers::end(out);
}

fn headers_of(block: &[u8]) -> Result<Headers<'_>, nats::NatsError> {
    if block.is_empty() { Ok(Headers::NONE) } else { Headers::decode(block) }
}

/// Public key and signature of a nonce, as texts; `None` if the seed is no seed of a user.
fn sign(seed: &str, nonce: &str) -> Option<(String, String)> {
    let key = PKey::private_key_from_raw_bytes(&nkey::private_key(seed)?, Id::ED25519).ok()?;
    let public = key.raw_public_key().ok()?.try_into().ok()?;
    let signature = Signer::new_without_digest(&key).ok()?.sign_oneshot_to_vec(nonce.as_bytes());
    Some((nkey::public_text(&public), nkey::signature_text(&signature.ok()?)))
}

/// Reason for which a server does not accept a client.
const fn refusal(error: ServerError, has_login: bool) -> Reason {
    match error {
        ServerError::AuthorizationViolation if has_login => Reason::BadCredentials,
        ServerError::AuthorizationViolation
        | ServerError::AuthenticationTimeout
        | ServerError::AuthenticationExpired
        | ServerError::AuthenticationRevoked => Reason::NotAuthorized,
        ServerError::MaximumConnections | ServerError::ConnectionClosed => {
            Reason::ServerUnavailable
        }
        _ => Reason::ConnectRejected,
    }
}

const fn texts(text: &str) -> ReasonTexts<'_> {
    ReasonTexts { reason_string: Some(text), server_reference: None }
}

#[cold]
fn broken<'b>(error: nats::NatsError) -> Event<'b> {
    Event::Broken(Broken { reason: Reason::ProtocolError, text: error.to_string() })
}

#[cfg(test)]
mod tests;
