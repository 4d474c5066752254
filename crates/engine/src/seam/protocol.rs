//! The doors of a protocol: handle received bytes, poll for bytes to send, and a timer of its own.
//! A protocol has no socket and no counter; all that it does is in what a door returns.

use agent::publication::{self, PublicationSetup};
use plan::{Counters, Population, Publication, Reason, Responds, Stamp};

use super::Scratch;
use super::cause::{Broken, Cause, ReasonTexts};
use super::login::Login;
use super::received::{Inbox, Response};
use super::token::Token;

/// Protocol state of one client.
pub trait Protocol: Sized {
    /// Settings that all clients of a population share.
    type Setup;

    /// Handles the packets at the front of `bytes` and appends the replies. The `inbox` takes the
    /// messages, up to one that it pauses at or answers, or another packet.
    fn handle<'b>(
        &mut self,
        at: &At<'_, Self::Setup>,
        bytes: &'b [u8],
        out: &mut Vec<u8>,
        inbox: &mut impl Inbox,
    ) -> Step<'b>;

    /// Appends the packets of a request.
    fn poll(&mut self, at: &At<'_, Self::Setup>, request: Request<'_>, to: Buffers<'_>) -> Polled;

    /// Instant of the next call of [`Self::timeout`], or at which the peer gives up a client that
    /// sends nothing more, in nanoseconds; `u64::MAX` if there is none.
    fn deadline(&self, at: &At<'_, Self::Setup>, side: Side) -> u64;

    /// Appends the packets of the timer, if its instant has come.
    fn timeout(&mut self, at: &At<'_, Self::Setup>, out: &mut Vec<u8>) -> Timeout;

    /// Notes an event of the connection. Returns the number of messages in flight that are dropped.
    fn note(&mut self, notice: Notice) -> u64;

    /// Instant of the next acknowledgement that the client delays, in nanoseconds; `u64::MAX` if
    /// there is none. [`Self::timeout`] sends it.
    fn receipt_ns(&self) -> u64 {
        u64::MAX
    }

    /// Time since the last call for which the peer has blocked the messages of the client, in
    /// nanoseconds.
    fn blocked_ns(&mut self, _now_ns: u64) -> u64 {
        0
    }

    /// Measures packets up to the one with the byte at `end`, for those that a socket has not taken
    /// in full. The default is that of protocols without messages of a client.
    fn cut(_setup: &Self::Setup, packets: &[u8], end: usize) -> Cut {
        Cut { len: end.min(packets.len()), ..Cut::default() }
    }
}

/// A client as its protocol sees it, at an instant.
#[derive(Clone, Copy)]
pub struct At<'a, S> {
    /// Settings of its population for the protocol.
    pub setup: &'a S,
    /// Population of the client.
    pub population: &'a Population,
    /// Number of the client.
    pub n: u64,
    /// The instant, in nanoseconds.
    pub now_ns: u64,
}

/// Side of a connection with a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Own,
    /// The peer.
    Peer,
}

/// Result of a timer whose instant may have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// The deadline is in the future, or there is none.
    Early,
    /// So many packets are appended.
    Sent(u64),
    /// The connection ends.
    Dead(Reason),
}

/// An event of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Bytes were sent at this instant, in nanoseconds.
    Sent(u64),
    /// A sign of life: bytes were received, or wait unread.
    Alive,
    /// A client with the same identifier may have continued the session.
    Shared,
    /// The connection has ended.
    Lost {
        /// `true` if the peer keeps the session.
        keeps_session: bool,
    },
}

/// Whole packets at the front of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Their length in bytes.
    pub len: usize,
    /// Messages in them that no acknowledgement ends.
    pub unacknowledged: u64,
    /// Messages in them that wait for an acknowledgement.
    pub acknowledged: u64,
}

/// A request of the client for packets.
pub enum Request<'a> {
    /// The first bytes of a connection.
    Open(FirstBytes<'a>),
    /// A step of that exchange.
    Prove(&'a str),
    /// The subscriptions of the client.
    Subscribe,
    /// The end of all subscriptions of the client.
    Unsubscribe,
    /// A message.
    Publish(&'a Outgoing<'a>, Token),
    /// An answer.
    Answer(&'a Answer<'a>, Token),
    /// A message that belongs to no publication.
    Send(&'a OwnMessage, Token),
    /// The messages in flight on an earlier connection, as many as the peer accepts now.
    Resend(Resend<'a>),
    /// The last packet of the connection.
    Leave(Goodbye),
}

/// Parts of the first bytes of a connection.
#[derive(Clone, Copy, Default)]
pub struct FirstBytes<'a> {
    /// Exchange that proves the password; `None`: the password is sent, if there is one.
    pub login: Option<&'a Login>,
    /// The will of this connection; `None`: that of the plan.
    pub will: Option<&'a OwnMessage>,
}

/// A message of a client that belongs to no publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnMessage {
    /// Topic.
    pub topic: String,
    /// Payload.
    pub payload: Vec<u8>,
    /// QoS 0, 1 or 2.
    pub qos: u8,
    /// `true` if the broker keeps the message.
    pub retain: bool,
    /// `true` if the connection ends behind the message: the client awaits no acknowledgement.
    pub is_last: bool,
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// Packets are appended.
    Sent(Asked),
    /// The message must wait.
    Wait(Hold),
    /// No packet can hold it, or the peer does not accept it.
    Refused(Reason),
    /// The protocol has no such packets, or none now.
    Nothing,
}

/// Cause of the wait of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// No identifier is free for it.
    Identifier,
    /// As many messages are in flight as the peer accepts.
    Limit,
    /// The peer accepts no messages now.
    Blocked,
}

/// Packets that a protocol has appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// Kind of the last packet of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goodbye {
    /// The peer discards the will.
    Plain,
    /// The peer publishes the will.
    WithWill,
}

/// One of a client's publications, for the packets that the protocol makes of messages.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// The publication.
    pub publication: &'a Publication,
    /// The publication as prepared at the start.
    pub ready: &'a PublicationSetup,
    /// The client.
    pub sender: &'a publication::Sender,
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

/// Messages in flight on an earlier connection.
pub struct Resend<'a> {
    /// The message of a token.
    pub of: &'a dyn Fn(Token) -> Resent<'a>,
    /// Receives those that the peer does not accept on this connection. They are given up.
    pub refused: &'a mut Vec<(Token, Reason)>,
}

/// A message in flight that is sent again.
pub enum Resent<'a> {
    /// A message of a publication.
    Message(Outgoing<'a>),
    /// An answer.
    Answer(Answer<'a>),
}

/// Memory for packets.
pub struct Buffers<'a> {
    /// Bytes to write.
    pub out: &'a mut Vec<u8>,
    /// Parts of a packet while the packet is made.
    pub scratch: &'a mut Scratch,
}

/// Result of one step through received bytes.
pub struct Step<'b> {
    /// Bytes at the front that the step has handled.
    pub len: usize,
    /// Packets in these bytes.
    pub read: u32,
    /// Replies that the protocol has appended.
    pub replied: u32,
    /// Messages in these bytes that the client has to acknowledge.
    pub in_flight: u32,
    /// Properties that the publishers of these messages have set.
    pub properties: u32,
    /// Subscription Identifiers of these messages.
    pub identifiers: u32,
    /// Those of the messages that the peer may have delivered before.
    pub redelivered: u32,
    /// Messages that the client has refused, for the peer to queue them again.
    pub requeued: u32,
    /// `true` if the instant of [`Protocol::receipt_ns`] may have changed.
    pub retimes: bool,
    /// `true` while messages of an earlier connection are not sent again.
    pub holds_back: bool,
    /// Rules that the peer broke, after which the connection continues.
    pub lapses: Vec<Reason>,
    /// Meaning of the last packet, or of the bytes after it.
    pub event: Event<'b>,
}

/// The peer's acceptance of a client. By default the peer keeps no session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted<'b> {
    /// `true` if the peer has kept the session of an earlier connection.
    pub resumed: bool,
    /// Time for which the peer has to keep the session after the connection, in seconds;
    /// `u32::MAX`: without end. 0 also if the peer does not say at a return if it has done so.
    pub kept_s: u32,
    /// Messages in flight that are dropped, because the peer has not kept the session.
    pub dropped: u64,
    /// `true` if the peer replaces the keep-alive of the client.
    pub sets_keep_alive: bool,
    /// Last message of the peer's authentication; empty if there is none.
    pub proof: &'b [u8],
}

/// Meaning of received bytes, in terms that all protocols have.
pub enum Event<'b> {
    /// The rest of a packet has not arrived.
    Incomplete,
    /// A packet that concerns the protocol only, or a message that the inbox has taken.
    Handled,
    /// The peer has accepted the client.
    Connected(Accepted<'b>),
    /// TLS begins on the open connection, if the target has it; then the client asks for the first
    /// bytes again.
    Secure,
    /// The peer continues the authentication.
    Challenged(&'b [u8]),
    /// The peer refuses the client.
    Refused(Cause<'b>),
    /// The peer has answered the subscriptions.
    Subscribed {
        /// Filters that the peer has granted and that were not counted when they were sent.
        granted: u64,
        /// Filters that the peer has refused.
        refused: Refusals<'b>,
        /// `true` if no answer is missing any more.
        is_last: bool,
    },
    /// The peer has answered UNSUBSCRIBE.
    Unsubscribed {
        /// Filters that the peer has removed.
        removed: u64,
        /// Filters that the peer has refused to remove.
        refused: Refusals<'b>,
        /// `true` if no answer is missing any more.
        is_last: bool,
    },
    /// A message that the inbox has taken asks for an answer.
    Asked(Response<'b>),
    /// The peer has acknowledged a message of the client.
    Acknowledged(Token),
    /// The peer has refused a message of the client.
    Rejected(Token, Cause<'b>),
    /// The peer returns a message of this name, which no subscriber receives.
    Returned(String, Reason),
    /// The peer accepts no messages now, or accepts them again.
    Blocked(bool),
    /// The peer has acknowledged a message that is not in flight.
    UnknownAcknowledgement,
    /// The peer ends the connection.
    Ended(Cause<'b>),
    /// The peer has broken the protocol: the connection ends.
    Broken(Broken),
}

/// Answers to filters, some of which are refusals.
#[derive(Clone, Copy)]
pub struct Refusals<'b> {
    /// Codes of the answers.
    pub codes: &'b [u8],
    /// Reason of a code; `None`: the filter is granted.
    pub reason: fn(u8) -> Option<Reason>,
    /// Texts of the packet with the codes.
    pub texts: ReasonTexts<'b>,
    /// A refusal without a code.
    pub one: Option<Cause<'b>>,
}

impl<'a, S> At<'a, S> {
    /// The client with the settings of another protocol type.
    #[inline]
    pub const fn with<T>(&self, setup: &'a T) -> At<'a, T> {
        let Self { population, n, now_ns, .. } = *self;
        At { setup, population, n, now_ns }
    }
}

impl Asked {
    /// One packet.
    pub const ONE: Self = Self { packets: 1, granted: 0, left_out: 0, awaits_answer: false };
}

impl Step<'_> {
    /// A step that has handled nothing.
    #[inline]
    pub const fn new() -> Self {
        Self {
            len: 0,
            read: 0,
            replied: 0,
            in_flight: 0,
            properties: 0,
            identifiers: 0,
            redelivered: 0,
            requeued: 0,
            retimes: false,
            holds_back: false,
            lapses: Vec::new(),
            event: Event::Incomplete,
        }
    }

    /// Adds its packets and properties to the counters of a population.
    #[inline]
    pub const fn add_to(&self, counters: &mut Counters) {
        counters.packets_sent_total += self.replied as u64;
        counters.packets_received_total += self.read as u64;
        counters.properties_total += self.properties as u64;
        counters.identifiers_total += self.identifiers as u64;
        counters.redelivered_total += self.redelivered as u64;
        counters.requeued_total += self.requeued as u64;
    }
}

impl<'b> Refusals<'b> {
    /// No refusals.
    pub const NONE: Self = Self {
        codes: &[],
        reason: |_| None,
        texts: ReasonTexts { reason_string: None, server_reference: None },
        one: None,
    };

    /// The refusal of one filter.
    pub const fn one(cause: Cause<'b>) -> Self {
        Self { one: Some(cause), ..Self::NONE }
    }

    /// Cause of each refusal.
    pub fn iter(&self) -> impl Iterator<Item = Cause<'b>> {
        let reasons = self.codes.iter().filter_map(|&code| (self.reason)(code));
        reasons.map(|reason| Cause { reason, texts: self.texts }).chain(self.one)
    }
}
