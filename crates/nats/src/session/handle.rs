//! The receiving side of a session: interprets the bytes of a server and appends the answer.

use super::{ANSWERS, Entry, Session, State};
use crate::{
    NatsError,
    client::PONG,
    jetstream::{Answer, Refusal},
    line::Decoded,
    refusal::{self, ServerError},
    server::{self, Info, Message, Operation},
};

/// First bytes of a server.
const INFO: &[u8] = b"INFO ";

/// Status of an answer to a subject without subscribers.
const NO_RESPONDERS: u16 = 503;

/// Outcome of one step of [`Session::handle`].
#[derive(Debug, PartialEq)]
pub struct Handled<'a, T> {
    /// Bytes at the front that the step has consumed; 0 for [`Event::Incomplete`].
    pub len: usize,
    /// Meaning of the consumed bytes.
    pub event: Event<'a, T>,
}

/// Meaning of the bytes of a server for the session.
#[derive(Debug, PartialEq)]
pub enum Event<'a, T> {
    /// No complete operation: pass the same bytes again, followed by more.
    Incomplete,
    /// The first INFO: the caller begins TLS if INFO asks for it, then calls [`Session::connect`].
    Greeted(Info<'a>),
    /// The server has accepted the client.
    Connected,
    /// A message for a subscription.
    Message(Message<'a>),
    /// The server has processed the subscriptions, see [`Session::confirm`], and refused so many.
    Subscribed(u8),
    /// The server has processed the ends of subscriptions.
    Unsubscribed,
    /// The answer to [`Session::heartbeat`].
    Pong,
    /// An operation without a meaning for the caller; the session has appended the answer.
    Replied,
    /// A stream has stored the publication. True: it had the message already.
    Acknowledged(T, bool),
    /// No stream has stored the publication.
    Rejected(T, Refusal<'a>),
    /// JetStream has done what a request asks for.
    Granted,
    /// JetStream refuses a request.
    Denied(Refusal<'a>),
    /// An answer to nothing that waits for one.
    UnknownAnswer,
    /// The server refuses this client, and closes the connection.
    Refused(ServerError, &'a str),
    /// The server refuses one publication or subscription; the connection continues.
    Forbidden(ServerError, &'a str),
    /// The server ends the connection.
    Ended(ServerError, &'a str),
}

impl<T> Session<T> {
    /// Handles at most one operation at the front of `bytes`, and appends the answer that the
    /// protocol requires. Call this function with the remaining bytes until [`Event::Incomplete`].
    ///
    /// # Errors
    /// [`NatsError`] if the protocol forbids the bytes. The caller must then close the connection.
    #[inline]
    pub fn handle<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Handled<'a, T>, NatsError> {
        if self.state == State::Open {
            let len = bytes.len().min(INFO.len());
            if !bytes[..len].eq_ignore_ascii_case(&INFO[..len]) {
                return Err(NatsError::NotNats);
            }
        }
        match server::decode(bytes)? {
            Decoded::Whole { operation: Operation::Message(message), len }
                if self.state == State::Up && message.sid != ANSWERS =>
            {
                Ok(Handled { len, event: Event::Message(message) })
            }
            Decoded::Whole { operation, len } => {
                Ok(Handled { len, event: self.obey(operation, out)? })
            }
            Decoded::Incomplete => Ok(Handled { len: 0, event: Event::Incomplete }),
        }
    }

    /// Handles an operation that is no message for a subscription of the caller.
    #[inline(never)]
    fn obey<'a>(
        &mut self,
        operation: Operation<'a>,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a, T>, NatsError> {
        match (self.state, operation) {
            (State::Lost, _) => Err(NatsError::OutOfPlace("operation")),
            (_, Operation::Info(json)) => self.greet(json),
            (_, Operation::Error(text)) => Ok(self.fail(text)),
            (_, Operation::Ping) => {
                out.extend_from_slice(PONG);
                Ok(Event::Replied)
            }
            (_, Operation::Ok) => Ok(Event::Replied),
            (State::Connecting | State::Up, Operation::Pong) => self.pong(),
            (State::Up, Operation::Message(message)) => self.answer(&message, out),
            (_, Operation::Pong) => Err(NatsError::OutOfPlace("PONG")),
            (_, Operation::Message(_)) => Err(NatsError::OutOfPlace("MSG")),
        }
    }

    fn greet<'a>(&mut self, json: &'a [u8]) -> Result<Event<'a, T>, NatsError> {
        let info = Info::decode(json)?;
        self.payload_max = info.max_payload;
        if self.state != State::Open {
            return Ok(Event::Replied);
        }
        self.state = State::Greeted;
        if let Some(nonce) = info.nonce {
            nonce.clone_into(&mut self.waiting.get_or_insert_default().nonce);
        }
        Ok(Event::Greeted(info))
    }

    fn fail<'a>(&mut self, text: &'a str) -> Event<'a, T> {
        let error = ServerError::of(text);
        self.refused = self.refused.saturating_add(u8::from(error.refuses_subscription()));
        match self.state {
            State::Up if error.ends_connection() => Event::Ended(error, text),
            State::Up => Event::Forbidden(error, text),
            _ => Event::Refused(error, text),
        }
    }

    fn pong<'a>(&mut self) -> Result<Event<'a, T>, NatsError> {
        self.pings = self.pings.checked_sub(1).ok_or(NatsError::OutOfPlace("PONG"))?;
        if self.state == State::Connecting {
            self.state = State::Up;
            return Ok(Event::Connected);
        }
        if self.confirmed_in == 0 {
            return Ok(Event::Pong);
        }
        let sign = self.confirmed_in.signum();
        self.confirmed_in -= sign;
        Ok(match (self.confirmed_in, sign) {
            (0, 1) => Event::Subscribed(std::mem::take(&mut self.refused)),
            (0, _) => Event::Unsubscribed,
            _ => Event::Pong,
        })
    }

    /// Handles an answer of JetStream, or the server's status that no subscriber answers.
    fn answer<'a>(
        &mut self,
        message: &Message<'a>,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a, T>, NatsError> {
        let entry = self.waiting.as_mut().and_then(|waiting| {
            let number = waiting.number(message.subject)?;
            let entry = waiting.take(number)?;
            let confirms = waiting.requests == 0 && std::mem::take(&mut waiting.confirms);
            Some((entry, confirms))
        });
        let Some((entry, confirms)) = entry else { return Ok(Event::UnknownAnswer) };
        if confirms {
            self.confirm(false, out);
        }
        let answer = if message.headers.status() == Some(NO_RESPONDERS) {
            Answer { error: Some(refusal::no_responders()), ..Answer::default() }
        } else {
            Answer::decode(message.payload)?
        };
        Ok(match (entry, answer.error) {
            (Entry::Message(token), None) => Event::Acknowledged(token, answer.duplicate),
            (Entry::Message(token), Some(refusal)) => Event::Rejected(token, refusal),
            (Entry::Request | Entry::Consumer, None) => Event::Granted,
            (Entry::Request, Some(refusal)) => Event::Denied(refusal),
            (Entry::Consumer, Some(refusal)) => {
                self.refused = self.refused.saturating_add(1);
                Event::Denied(refusal)
            }
        })
    }
}
