//! Protocols that clients speak, behind one type: bytes in, neutral events out. Each file of this
//! folder has the same parts: open, handle, subscribe, publish, retransmit, goodbye, lost. The
//! keep-alive is one for all. A protocol has no socket, no timer and no counter.

mod cause;
mod keep_alive;
mod mqtt;
pub mod received;
mod token;
mod zmtp;

use ::mqtt::{Lapses, Property, PropertyList};
use agent::publication::{self, PublicationSetup};
use plan::{Counters, Population, PropertyValue, Protocol, Publication, Reason, Responds, Stamp};

pub use self::cause::{Broken, Cause, Texts};
pub use self::keep_alive::Liveness;
pub use self::mqtt::PropertySetup;
pub use self::mqtt::scram::{Exchanges, Login, nonce};
pub use self::token::Token;
use keep_alive::KeepAlive;
use received::Inbox;

/// Protocol state of a client.
pub struct Session {
    spoken: Spoken,
    keep_alive: KeepAlive,
}

/// State of the protocol that a client speaks.
enum Spoken {
    /// State of an MQTT client.
    Mqtt(mqtt::Session),
    /// State of a SUB socket of ZeroMQ.
    Zmtp(::zmtp::Session),
}

const _: () = assert!(size_of::<Session>() <= 32, "protocol 24, keep-alive 8");

/// A client as its protocol sees it.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    /// Population of the client.
    pub population: &'a Population,
    /// Number of the client.
    pub n: u64,
}

/// Limits of a client for what the peer sends.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Largest packet that the client accepts, in bytes.
    packet_bytes_max: usize,
    /// Maximum Packet Size that CONNECT announces, in bytes.
    announced_bytes_max: usize,
    /// Receive Maximum that CONNECT announces, in messages.
    receive_maximum: u32,
}

/// Settings for the packets of one read.
pub struct Reading {
    version: ::mqtt::Version,
    limits: Limits,
    credentials: Option<zmtp::Credentials>,
}

/// Result of one step through received bytes.
pub struct Step<'a> {
    /// Bytes at the front that the step has handled.
    pub len: usize,
    /// Packets in these bytes.
    read: u32,
    /// Replies that the protocol has appended.
    replied: u32,
    /// Messages in these bytes that the client has to acknowledge.
    pub in_flight: u32,
    /// Properties that the publishers of these messages have set.
    properties: u32,
    /// Subscription Identifiers of these messages.
    identifiers: u32,
    /// Rules that the peer broke, after which the connection continues.
    lapses: Lapses,
    /// Meaning of the last packet, or of the bytes after it.
    pub event: Event<'a>,
}

/// Meaning of received bytes, in terms that all protocols have.
pub enum Event<'a> {
    /// The rest of a packet has not arrived.
    Incomplete,
    /// A packet that concerns the protocol only, or a message that the inbox has taken.
    Handled,
    /// The peer has accepted the client.
    Connected {
        /// `true` if the peer has kept the session of an earlier connection.
        resumed: bool,
        /// Messages in flight that are dropped, because the peer has not kept the session.
        dropped: u64,
        /// `true` if the peer replaces the keep-alive of the client.
        sets_keep_alive: bool,
        /// Last message of the peer's authentication; empty if there is none.
        proof: &'a [u8],
    },
    /// The peer continues the authentication.
    Challenged(&'a [u8]),
    /// The peer refuses the client.
    Refused(Cause<'a>),
    /// The peer has answered the subscriptions.
    Subscribed {
        /// Filters that the peer has granted and that were not counted when they were sent.
        granted: u64,
        /// Filters that the peer has refused.
        refused: Refusals<'a>,
        /// `true` if no answer is missing any more.
        is_last: bool,
    },
    /// The peer has answered UNSUBSCRIBE.
    Unsubscribed {
        /// Filters that the peer has removed.
        removed: u64,
        /// Filters that the peer has refused to remove.
        refused: Refusals<'a>,
        /// `true` if no answer is missing any more.
        is_last: bool,
    },
    /// A message that the inbox has taken asks for an answer.
    Asked(Response<'a>),
    /// The peer has acknowledged a message of the client.
    Acknowledged(Token),
    /// The peer has refused a message of the client.
    Rejected(Token, Cause<'a>),
    /// The peer has acknowledged a message that is not in flight.
    UnknownAcknowledgement,
    /// The peer ends the connection.
    Ended(Cause<'a>),
    /// The peer has broken the protocol: the connection ends.
    Broken(Broken),
}

/// Answers to filters, some of which are refusals.
#[derive(Clone, Copy)]
pub struct Refusals<'a> {
    codes: &'a [u8],
    /// Reason of a code; `None`: the filter is granted.
    reason: fn(u8) -> Option<Reason>,
    /// Texts of the packet with the codes.
    texts: Texts<'a>,
}

/// SUBSCRIBE or UNSUBSCRIBE packets that a protocol has appended.
#[derive(Clone, Copy, Default)]
pub struct Asked {
    /// Number of packets.
    pub packets: u64,
    /// Filters that the peer grants without an answer.
    pub granted: u64,
    /// Filters that no packet has, since the peer accepts none of its size.
    pub left_out: u64,
    /// `true` if an answer will come.
    pub awaits_answer: bool,
}

/// Result of an attempt to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// Its packet is appended.
    Sent,
    /// The message must wait for an acknowledgement.
    Waits,
    /// As many messages are in flight as the peer accepts.
    Held,
    /// The peer does not accept the message.
    Refused(Reason),
}

/// Kind of the last packet of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goodbye {
    /// The peer discards the will.
    Plain,
    /// The peer publishes the will.
    WithWill,
}

/// A client and one of its publications, for the packets that the protocol makes of messages.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// Population of the client.
    pub population: &'a Population,
    /// The publication.
    pub publication: &'a Publication,
    /// The publication as prepared at the start.
    pub ready: &'a PublicationSetup,
    /// Properties of its messages.
    pub properties: &'a PropertySetup,
    /// The client.
    pub sender: &'a publication::Sender,
}

/// The response that a received message asks for.
#[derive(Clone, Copy)]
pub struct Response<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Its correlation data.
    pub correlation: Option<&'a [u8]>,
}

/// An answer to a received message.
#[derive(Clone, Copy)]
pub struct Answer<'a> {
    /// Options of the population that answers.
    pub responds: Responds,
    /// Topic and correlation data.
    pub response: Response<'a>,
    /// Stamp at the start of the payload; `None` for requests of other programs.
    pub stamp: Option<Stamp>,
}

/// A message in flight that is sent again.
pub enum Resent<'a> {
    /// A message of a publication.
    Message(Outgoing<'a>),
    /// An answer.
    Answer(Answer<'a>),
}

/// Messages of an earlier connection that were sent again.
#[derive(Default)]
pub struct Again {
    /// Number of messages.
    pub sent: u64,
    /// Messages that the peer does not accept on this connection. They are given up.
    pub refused: Vec<(Token, Reason)>,
}

/// Memory for packets.
pub struct Buffers<'a> {
    /// Bytes to write.
    pub out: &'a mut Vec<u8>,
    /// The text of a payload or property while its packet is made.
    pub text: &'a mut Vec<u8>,
    /// The properties of a packet while the packet is made.
    pub properties: &'a mut PropertyList,
}

impl Step<'_> {
    /// A step that has handled nothing.
    const fn new() -> Self {
        let (len, read, replied, in_flight, properties, identifiers) = (0, 0, 0, 0, 0, 0);
        let (lapses, event) = (Lapses::NONE, Event::Incomplete);
        Self { len, read, replied, in_flight, properties, identifiers, lapses, event }
    }

    /// Adds its packets and properties to the counters of a population.
    #[inline]
    pub const fn add_to(&self, counters: &mut Counters) {
        counters.packets_sent_total += self.replied as u64;
        counters.packets_received_total += self.read as u64;
        counters.properties_total += self.properties as u64;
        counters.identifiers_total += self.identifiers as u64;
    }

    /// Returns `true` if the peer broke a rule.
    #[inline]
    pub const fn has_lapses(&self) -> bool {
        !self.lapses.is_empty()
    }

    /// Rules that the peer broke, as reasons to count.
    pub fn lapses(&self) -> impl Iterator<Item = Reason> {
        self.lapses.iter().map(mqtt::reason_of)
    }
}

impl Limits {
    /// Limits of the clients of a population, of a plan with this largest packet in bytes.
    pub fn new(population: &Population, packet_bytes_max: u32) -> Self {
        let announced = |property: Property| {
            let properties = &population.mqtt()?.properties;
            let found = properties.iter().find(|each| each.kind() == Some(property))?;
            match found.value {
                PropertyValue::Number(number) => Some(number),
                PropertyValue::Text(_) => None,
            }
        };
        Self {
            packet_bytes_max: packet_bytes_max as usize,
            announced_bytes_max: announced(Property::MaximumPacketSize)
                .map_or(usize::MAX, |bytes| bytes as usize),
            receive_maximum: announced(Property::ReceiveMaximum).unwrap_or(u32::MAX),
        }
    }
}

impl Reading {
    /// Returns `true` if more messages of a read wait for an acknowledgement than the client has
    /// announced: `in_flight` that it has handled, and those in `rest`.
    #[inline]
    pub fn are_too_many(&self, in_flight: u32, rest: &[u8]) -> bool {
        let most = self.limits.receive_maximum;
        most != u32::MAX && in_flight + mqtt::in_flight(self.version, rest) > most
    }
}

impl Session {
    /// State of a client that has never connected.
    pub const fn new(protocol: &Protocol) -> Self {
        let spoken = match protocol {
            Protocol::Mqtt(_) => Spoken::Mqtt(mqtt::Session::new()),
            Protocol::Zmtp(_) => Spoken::Zmtp(::zmtp::Session::new()),
        };
        Self { spoken, keep_alive: KeepAlive::NEW }
    }

    /// Appends the first bytes of a connection, with those of an exchange with SCRAM if there is a
    /// `login`.
    ///
    /// # Errors
    /// A reason if no packet can hold the texts of the client.
    pub fn open(
        &mut self,
        identity: &Identity<'_>,
        login: Option<&Login>,
        out: &mut Vec<u8>,
    ) -> Result<(), Reason> {
        match &mut self.spoken {
            Spoken::Mqtt(session) => mqtt::open(session, identity, login, out),
            Spoken::Zmtp(session) => {
                zmtp::open(session, identity, out);
                Ok(())
            }
        }
    }

    /// Appends a step of an authentication.
    ///
    /// # Errors
    /// A reason if no packet can hold the step.
    pub fn authenticate(&self, step: &str, out: &mut Vec<u8>) -> Result<(), Reason> {
        match &self.spoken {
            Spoken::Mqtt(_) => mqtt::authenticate(step, out),
            Spoken::Zmtp(_) => Err(Reason::CannotEncode),
        }
    }

    /// Settings for the packets of one read.
    #[inline]
    pub fn reading(&self, identity: &Identity<'_>, limits: Limits) -> Reading {
        let credentials = match &self.spoken {
            Spoken::Zmtp(session) if !session.is_connected() => zmtp::credentials(identity),
            _ => None,
        };
        let version = mqtt::version(identity.population);
        Reading { version, limits, credentials }
    }

    /// Handles the packets at the front of `bytes` and appends the replies. The `inbox` takes the
    /// messages, up to one that it pauses at or answers, or another packet.
    #[inline]
    pub fn handle<'a>(
        &mut self,
        reading: &Reading,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
        inbox: &mut impl Inbox,
    ) -> Step<'a> {
        match &mut self.spoken {
            Spoken::Mqtt(session) => mqtt::handle(session, reading, bytes, out, inbox),
            Spoken::Zmtp(session) => zmtp::handle(session, reading, bytes, out, inbox),
        }
    }

    /// Appends the subscriptions of the client.
    ///
    /// # Errors
    /// A reason if no packet can hold the filters.
    pub fn subscribe(
        &mut self,
        identity: &Identity<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Asked, Reason> {
        match &mut self.spoken {
            Spoken::Mqtt(session) => mqtt::subscribe(session, identity, out),
            Spoken::Zmtp(session) => Ok(zmtp::subscribe(session, identity, out)),
        }
    }

    /// Appends the packets that end all subscriptions of the client.
    ///
    /// # Errors
    /// A reason if no packet can hold the filters.
    pub fn unsubscribe(
        &mut self,
        identity: &Identity<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Asked, Reason> {
        match &mut self.spoken {
            Spoken::Mqtt(session) => mqtt::unsubscribe(session, identity, out),
            // Plans have no flapping sockets.
            Spoken::Zmtp(_) => Err(Reason::CannotEncode),
        }
    }

    /// Appends a message.
    #[inline]
    pub fn publish(&mut self, outgoing: &Outgoing<'_>, token: Token, to: Buffers<'_>) -> Published {
        match &mut self.spoken {
            Spoken::Mqtt(session) => mqtt::publish(session, outgoing, token, to),
            // Engines play subscribers of ZeroMQ only.
            Spoken::Zmtp(_) => Published::Waits,
        }
    }

    /// Appends an answer.
    pub fn answer(&mut self, answer: &Answer<'_>, token: Token, to: Buffers<'_>) -> Published {
        match &mut self.spoken {
            Spoken::Mqtt(session) => mqtt::answer(session, answer, token, to),
            Spoken::Zmtp(_) => Published::Waits,
        }
    }

    /// Appends the messages in flight on an earlier connection once more, each as `outgoing` of its
    /// token, as many as the peer accepts now.
    pub fn retransmit<'a>(
        &mut self,
        outgoing: impl Fn(Token) -> Resent<'a>,
        to: Buffers<'_>,
    ) -> Again {
        match &mut self.spoken {
            Spoken::Mqtt(session) => mqtt::retransmit(session, outgoing, to),
            Spoken::Zmtp(_) => Again::default(),
        }
    }

    /// Returns `true` while messages of an earlier connection are not sent again.
    #[inline]
    pub fn holds_back(&self) -> bool {
        match &self.spoken {
            Spoken::Mqtt(session) => session.holds_back(),
            Spoken::Zmtp(_) => false,
        }
    }

    /// Notes that bytes were sent.
    #[inline]
    pub const fn note_sent(&mut self, now_ns: u64) {
        self.keep_alive.note_sent(now_ns);
    }

    /// Notes a sign of life: bytes were received, or wait unread.
    #[inline]
    pub const fn note_receipt(&mut self) {
        self.keep_alive.note_receipt();
    }

    /// Instant of the next keep-alive, in nanoseconds; `None` without keep-alive.
    pub fn keep_alive_deadline(&self, keep_alive_s: u16) -> Option<u64> {
        let interval_s = match &self.spoken {
            Spoken::Mqtt(session) if session.is_connected() => session.keep_alive_s(keep_alive_s),
            Spoken::Zmtp(session) if session.has_heartbeats() => keep_alive_s,
            Spoken::Mqtt(_) | Spoken::Zmtp(_) => 0,
        };
        (interval_s > 0).then(|| self.keep_alive.after(interval_s))
    }

    /// Appends a keep-alive if its instant has come, or reports that the peer is silent.
    pub fn keep_alive(
        &mut self,
        population: &Population,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Liveness {
        let deadline_ns = self.keep_alive_deadline(population.keep_alive_s);
        if deadline_ns.is_none_or(|deadline_ns| deadline_ns > now_ns) {
            return Liveness::NotDue;
        }
        if self.keep_alive.is_unanswered() {
            return Liveness::Dead;
        }
        match &self.spoken {
            Spoken::Mqtt(session) => session.ping(out),
            Spoken::Zmtp(session) => session.heartbeat(out),
        }
        self.keep_alive.note_ping(now_ns);
        Liveness::Pinged
    }

    /// Instant at which the peer gives up a client that sends nothing more, in nanoseconds: one and
    /// a half times the keep-alive after its last packet [MQTT-3.1.2-24]. `u64::MAX` without
    /// keep-alive.
    pub fn silence_deadline(&self, keep_alive_s: u16) -> u64 {
        match &self.spoken {
            Spoken::Mqtt(session) => match session.keep_alive_s(keep_alive_s) {
                0 => u64::MAX,
                interval_s => self.keep_alive.after_halves(3, interval_s),
            },
            Spoken::Zmtp(_) => u64::MAX,
        }
    }

    /// Appends the last packet of a connection. Returns `false` if the protocol has none.
    pub fn goodbye(
        &mut self,
        population: &Population,
        goodbye: Goodbye,
        out: &mut Vec<u8>,
    ) -> bool {
        match &mut self.spoken {
            Spoken::Mqtt(session) if session.is_open() => {
                let code = mqtt::disconnect_code(goodbye);
                session.disconnect(mqtt::version(population), code, out);
                true
            }
            Spoken::Mqtt(_) | Spoken::Zmtp(_) => false,
        }
    }

    /// Notes that a client with the same identifier may have continued the session.
    pub fn shared(&mut self) {
        if let Spoken::Mqtt(session) = &mut self.spoken {
            session.forget_received();
        }
    }

    /// Notes the end of the connection. Returns the number of messages in flight that are dropped.
    pub fn lost(&mut self, population: &Population) -> usize {
        self.keep_alive = KeepAlive::NEW;
        match &mut self.spoken {
            Spoken::Mqtt(session) => session.connection_lost(population.keeps_session()),
            Spoken::Zmtp(session) => {
                session.connection_lost();
                0
            }
        }
    }
}

/// Offset of the packet that contains the byte at `offset`.
pub fn boundary(population: &Population, packets: &[u8], offset: usize) -> usize {
    match population.protocol {
        Protocol::Mqtt(_) => mqtt::boundary(mqtt::version(population), packets, offset),
        Protocol::Zmtp(_) => offset,
    }
}

/// Messages in whole packets that no retransmission repeats.
pub fn unrepeated(population: &Population, packets: &[u8]) -> u64 {
    match population.protocol {
        Protocol::Mqtt(_) => mqtt::unrepeated(mqtt::version(population), packets),
        Protocol::Zmtp(_) => 0,
    }
}

impl<'a> Refusals<'a> {
    /// No refusals.
    const NONE: Self = Self {
        codes: &[],
        reason: |_| None,
        texts: Texts { reason_string: None, server_reference: None },
    };

    /// Cause of each refusal.
    pub fn iter(&self) -> impl Iterator<Item = Cause<'a>> {
        let reasons = self.codes.iter().filter_map(|&code| (self.reason)(code));
        reasons.map(|reason| Cause { reason, texts: self.texts })
    }
}
