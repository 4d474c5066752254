//! The connection of one simulated client: INFO, CONNECT, subscriptions, heartbeats, messages,
//! publications that JetStream acknowledges. The session stores no payloads: the token of a
//! publication lets the caller build the same message again. The caller keeps the bytes of an
//! incomplete operation and passes these bytes again, followed by more.

mod handle;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::{
    Headers,
    client::{self, ConnectOptions, NatsPublish, NatsSubscribe},
    jetstream::Consumer,
    line,
};

pub use handle::{HandledOperation, NatsEvent};

const _: () = assert!(size_of::<NatsSession<[u64; 3]>>() <= 16, "answers 8, payload 4, state 4");

/// Number of the subscription to the answers of JetStream.
const ANSWERS: u64 = 1;

/// Smallest number for the subscriptions of a caller.
pub const FIRST_SID: u64 = 2;

/// The state of one client. `T` is the token of a publication that JetStream acknowledges.
#[derive(Debug)]
pub struct NatsSession<T> {
    /// Nonce, and publications and requests without an answer; `None` before the first of them.
    waiting: Option<Box<Waiting<T>>>,
    /// Largest payload that the server accepts, in bytes.
    payload_max: u32,
    state: NatsState,
    /// Number of PINGs without a PONG.
    pings: u8,
    /// Number of PONGs up to the one that confirms the subscriptions, or below 0 their end; 0 if
    /// none does.
    confirmed_in: i8,
    /// Subscriptions that the server has refused since the last confirmation, at most 255.
    refused: u8,
}

/// Publications and requests that JetStream has not answered, in the order of their numbers.
#[derive(Debug)]
struct Waiting<T> {
    /// Text of INFO that a client with an nkey must sign; empty if there is none.
    nonce: String,
    /// Subject in front of the number of an answer.
    inbox: Vec<u8>,
    /// Reply subject of the last publication, kept for its memory.
    reply: Vec<u8>,
    /// Number of the first entry.
    first: u64,
    /// Entries by number; `None`: answered.
    entries: VecDeque<Option<Entry<T>>>,
    /// Entries without an answer that are publications.
    messages: usize,
    /// Entries without an answer that are requests.
    requests: usize,
    /// The PING that confirms the subscriptions waits for the answers to the requests.
    confirms: bool,
    /// Publications of earlier connections, to be sent again.
    again: VecDeque<T>,
}

#[derive(Clone, Copy, Debug)]
enum Entry<T> {
    Message(T),
    Request,
    /// The request for the consumer of a subscription.
    Consumer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NatsState {
    Lost,
    /// INFO is missing.
    Open,
    /// INFO has come, CONNECT is not sent.
    Greeted,
    /// CONNECT and PING are sent.
    Connecting,
    Up,
}

impl<T> Default for NatsSession<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> NatsSession<T> {
    /// A session that was never connected.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            waiting: None,
            payload_max: 0,
            state: NatsState::Lost,
            pings: 0,
            confirmed_in: 0,
            refused: 0,
        }
    }

    /// Begins a network connection, on which the server speaks first.
    pub const fn open(&mut self) {
        self.state = NatsState::Open;
    }

    /// Appends CONNECT, and a PING whose PONG is [`NatsEvent::Connected`]. Call this function after
    /// [`NatsEvent::Greeted`], and after the handshake of TLS if INFO asks for it.
    pub fn connect(&mut self, connect: &ConnectOptions<'_>, out: &mut Vec<u8>) {
        debug_assert!(self.state == NatsState::Greeted, "CONNECT before INFO");
        connect.encode(out);
        self.state = NatsState::Connecting;
        self.heartbeat(out);
    }

    /// Returns true from the answer to CONNECT until the connection is lost.
    #[must_use]
    #[inline]
    pub const fn is_connected(&self) -> bool {
        matches!(self.state, NatsState::Up)
    }

    /// Returns true after INFO until CONNECT.
    #[must_use]
    pub const fn is_greeted(&self) -> bool {
        matches!(self.state, NatsState::Greeted)
    }

    /// The text of INFO that a client with an nkey must sign; empty if there is none.
    #[must_use]
    pub fn nonce(&self) -> &str {
        self.waiting.as_ref().map_or("", |waiting| &waiting.nonce)
    }

    /// Largest payload of a message with its headers, in bytes, as the server accepts it.
    #[must_use]
    #[inline]
    pub const fn payload_max(&self) -> u32 {
        self.payload_max
    }

    /// Appends a subscription; only while connected. The server does not confirm subscriptions, see
    /// [`NatsSession::confirm`].
    pub fn subscribe(&self, subscribe: &NatsSubscribe<'_>, out: &mut Vec<u8>) {
        debug_assert!(self.is_connected() && subscribe.sid >= FIRST_SID);
        subscribe.encode(out);
    }

    /// Appends the end of the subscription with this number.
    pub fn unsubscribe(&self, sid: u64, out: &mut Vec<u8>) {
        debug_assert!(self.is_connected());
        client::encode_unsubscribe(sid, out);
    }

    /// Appends a PING whose PONG confirms that the server has processed everything before: it is
    /// [`NatsEvent::Unsubscribed`] if `unsubscribes`, else [`NatsEvent::Subscribed`]. If requests
    /// wait for answers, the PING follows the last answer.
    pub fn confirm(&mut self, unsubscribes: bool, out: &mut Vec<u8>) {
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.requests > 0) {
            waiting.confirms = true;
            return;
        }
        self.heartbeat(out);
        let pings = self.pings.cast_signed();
        self.confirmed_in = if unsubscribes { -pings } else { pings };
    }

    /// Appends a PING, which the server answers. At 127 unanswered PINGs, no further is sent.
    pub fn heartbeat(&mut self, out: &mut Vec<u8>) {
        if self.pings < i8::MAX.cast_unsigned() {
            self.pings += 1;
            out.extend_from_slice(client::PING);
        }
    }

    /// Appends the subscription to the answers of JetStream, before the first publication or
    /// request on a connection. `inbox` is a subject that no other client has.
    pub fn await_answers(&mut self, inbox: &[u8], out: &mut Vec<u8>) {
        let waiting = self.waiting.get_or_insert_default();
        waiting.inbox = [inbox, b"."].concat();
        let subject = [&waiting.inbox[..], b"*"].concat();
        NatsSubscribe { subject: &subject, group: None, sid: ANSWERS }.encode(out);
    }

    /// Appends a message that no server acknowledges.
    #[inline]
    pub fn publish(&self, publish: &NatsPublish<'_>, out: &mut Vec<u8>) {
        debug_assert!(self.is_connected());
        publish.encode(out);
    }

    /// Appends a message for a stream, whose answer is [`NatsEvent::Acknowledged`] or
    /// [`NatsEvent::Rejected`] with the token. Its reply subject is the one for answers.
    ///
    /// # Panics
    /// Before [`NatsSession::await_answers`].
    pub fn publish_stored(&mut self, publish: &NatsPublish<'_>, token: T, out: &mut Vec<u8>) {
        let reply = Some(self.reply_of(token));
        NatsPublish { reply, ..*publish }.encode(out);
    }

    /// Reply subject of a message for a stream, which the caller encodes now. See
    /// [`NatsSession::publish_stored`].
    ///
    /// # Panics
    /// Before [`NatsSession::await_answers`].
    #[inline]
    pub fn reply_of(&mut self, token: T) -> &[u8] {
        self.await_one(Entry::Message(token))
    }

    /// Appends a request to JetStream, whose answer is [`NatsEvent::Granted`] or
    /// [`NatsEvent::Denied`].
    ///
    /// # Panics
    /// Before [`NatsSession::await_answers`].
    pub fn request(&mut self, subject: &str, body: &[u8], out: &mut Vec<u8>) {
        self.ask(subject, body, Entry::Request, out);
    }

    /// Appends the request for the consumer of a subscription. [`NatsEvent::Subscribed`] counts the
    /// subscription as refused after [`NatsEvent::Denied`].
    ///
    /// # Panics
    /// Before [`NatsSession::await_answers`].
    pub fn create(&mut self, consumer: &Consumer<'_>, out: &mut Vec<u8>) {
        self.ask(&consumer.subject(), &consumer.body(), Entry::Consumer, out);
    }

    fn ask(&mut self, subject: &str, body: &[u8], entry: Entry<T>, out: &mut Vec<u8>) {
        let (subject, reply) = (subject.as_bytes(), Some(self.await_one(entry)));
        NatsPublish { subject, reply, headers: Headers::NONE, payload: body }.encode(out);
    }

    /// Adds what waits for an answer, and returns the reply subject.
    #[inline]
    fn await_one(&mut self, entry: Entry<T>) -> &[u8] {
        let waiting = self.waiting.as_mut().expect("the subscription to answers comes first");
        let number = waiting.push(entry);
        waiting.reply.clear();
        waiting.reply.extend_from_slice(&waiting.inbox);
        line::push_number(number, &mut waiting.reply);
        &waiting.reply
    }

    /// Number of publications without an acknowledgement, those of earlier connections included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.messages + waiting.again.len())
    }

    /// Takes the first publication of an earlier connection that is not sent again yet.
    pub fn take_again(&mut self) -> Option<T> {
        self.waiting.as_mut()?.again.pop_front()
    }

    /// Returns true while publications of an earlier connection are not sent again.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| !waiting.again.is_empty())
    }

    /// Records the loss of the network connection. With `keeps`, the publications without an
    /// acknowledgement are to be sent again; else returns the number of dropped publications.
    pub fn connection_lost(&mut self, keeps: bool) -> usize {
        let waiting = self.waiting.take();
        *self = Self { waiting, ..Self::new() };
        let Some(waiting) = &mut self.waiting else { return 0 };
        waiting.lose();
        if keeps {
            return 0;
        }
        std::mem::take(&mut waiting.again).len()
    }
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self {
            nonce: String::new(),
            inbox: Vec::new(),
            reply: Vec::new(),
            first: 0,
            entries: VecDeque::new(),
            messages: 0,
            requests: 0,
            confirms: false,
            again: VecDeque::new(),
        }
    }
}

impl<T> Waiting<T> {
    /// Adds an entry and returns its number.
    fn push(&mut self, entry: Entry<T>) -> u64 {
        *self.count_of(&entry) += 1;
        self.entries.push_back(Some(entry));
        self.first + self.entries.len() as u64 - 1
    }

    /// Takes the entry with this number; `None` if it is answered or unknown.
    fn take(&mut self, number: u64) -> Option<Entry<T>> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let entry = self.entries.get_mut(place)?.take()?;
        *self.count_of(&entry) -= 1;
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.first += 1;
        }
        Some(entry)
    }

    const fn count_of(&mut self, entry: &Entry<T>) -> &mut usize {
        if matches!(entry, Entry::Message(_)) { &mut self.messages } else { &mut self.requests }
    }

    /// Number of an entry in the subject of an answer.
    fn number(&self, subject: &[u8]) -> Option<u64> {
        line::number(subject.strip_prefix(&self.inbox[..])?, "answer").ok()
    }

    /// Moves the publications without an answer to those that are sent again, before older ones
    /// that are not sent again yet. No number is used twice, so that a late answer of an earlier
    /// connection never fits.
    fn lose(&mut self) {
        self.first += self.entries.len() as u64;
        (self.messages, self.requests, self.confirms) = (0, 0, false);
        let lost = self.entries.drain(..).flatten().filter_map(|entry| match entry {
            Entry::Message(token) => Some(token),
            Entry::Request | Entry::Consumer => None,
        });
        let lost: Vec<T> = lost.collect();
        for token in lost.into_iter().rev() {
            self.again.push_front(token);
        }
    }
}
