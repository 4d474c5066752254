//! The receiving side of a session: interprets the bytes of a server and appends the answer.

use super::{ANSWERS, Entry, NatsSession, NatsState};
use crate::{
    NatsError,
    client::PONG,
    jetstream::{JetStreamAnswer, JetStreamError},
    line::DecodedOperation,
    refusal::{self, ServerError},
    server::{self, Info, NatsMessage, ServerOperation},
};

/// First bytes of a server.
const INFO: &[u8] = b"INFO ";

/// Status of an answer to a subject without subscribers.
const NO_RESPONDERS: u16 = 503;

/// Outcome of one step of [`NatsSession::handle`].
#[derive(Debug, PartialEq)]
pub struct HandledOperation<'a, T> {
    /// Bytes at the front that the step has consumed; 0 for [`NatsEvent::Incomplete`].
    pub len: usize,
    /// Meaning of the consumed bytes.
    pub event: NatsEvent<'a, T>,
}

/// Meaning of the bytes of a server for the session.
#[derive(Debug, PartialEq)]
pub enum NatsEvent<'a, T> {
    /// No complete operation: pass the same bytes again, followed by more.
    Incomplete,
    /// The first INFO: the caller begins TLS if INFO asks for it, then calls
    /// [`NatsSession::connect`].
    Greeted(Info<'a>),
    /// The server has accepted the client.
    Connected,
    /// A message for a subscription.
    Message(NatsMessage<'a>),
    /// The server has processed the subscriptions, see [`NatsSession::confirm`], and refused so
    /// many.
    Subscribed(u8),
    /// The server has processed the ends of subscriptions.
    Unsubscribed,
    /// The answer to [`NatsSession::heartbeat`].
    Pong,
    /// An operation without a meaning for the caller; the session has appended the answer.
    Replied,
    /// A stream has stored the publication. True: it had the message already.
    Acknowledged(T, bool),
    /// No stream has stored the publication.
    Rejected(T, JetStreamError<'a>),
    /// JetStream has done what a request asks for.
    Granted,
    /// JetStream refuses a request.
    Denied(JetStreamError<'a>),
    /// An answer to nothing that waits for one.
    UnknownAnswer,
    /// The server refuses this client, and closes the connection.
    Refused(ServerError, &'a str),
    /// The server refuses one publication or subscription; the connection continues.
    Forbidden(ServerError, &'a str),
    /// The server ends the connection.
    Ended(ServerError, &'a str),
}

impl<T> NatsSession<T> {
    /// Handles at most one operation at the front of `bytes`, and appends the answer that the
    /// protocol requires. Call this function with the remaining bytes until
    /// [`NatsEvent::Incomplete`].
    ///
    /// # Errors
    /// [`NatsError`] if the protocol forbids the bytes. The caller must then close the connection.
    #[inline]
    pub fn handle<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<HandledOperation<'a, T>, NatsError> {
        if self.state == NatsState::Open {
            let len = bytes.len().min(INFO.len());
            if !bytes[..len].eq_ignore_ascii_case(&INFO[..len]) {
                return Err(NatsError::NotNats);
            }
        }
        match server::decode(bytes)? {
            DecodedOperation::Whole { operation: ServerOperation::Message(message), len }
                if self.state == NatsState::Up && message.sid != ANSWERS =>
            {
                Ok(HandledOperation { len, event: NatsEvent::Message(message) })
            }
            DecodedOperation::Whole { operation, len } => {
                Ok(HandledOperation { len, event: self.obey(operation, out)? })
            }
            DecodedOperation::Incomplete => {
                Ok(HandledOperation { len: 0, event: NatsEvent::Incomplete })
            }
        }
    }

    /// Handles an operation that is no message for a subscription of the caller.
    #[inline(never)]
    fn obey<'a>(
        &mut self,
        operation: ServerOperation<'a>,
        out: &mut Vec<u8>,
    ) -> Result<NatsEvent<'a, T>, NatsError> {
        match (self.state, operation) {
            (NatsState::Lost, _) => Err(NatsError::OutOfPlace("operation")),
            (_, ServerOperation::Info(json)) => self.greet(json),
            (_, ServerOperation::Error(text)) => Ok(self.fail(text)),
            (_, ServerOperation::Ping) => {
                out.extend_from_slice(PONG);
                Ok(NatsEvent::Replied)
            }
            (_, ServerOperation::Ok) => Ok(NatsEvent::Replied),
            (NatsState::Connecting | NatsState::Up, ServerOperation::Pong) => self.pong(),
            (NatsState::Up, ServerOperation::Message(message)) => self.answer(&message, out),
            (_, ServerOperation::Pong) => Err(NatsError::OutOfPlace("PONG")),
            (_, ServerOperation::Message(_)) => Err(NatsError::OutOfPlace("MSG")),
        }
    }

    fn greet<'a>(&mut self, json: &'a [u8]) -> Result<NatsEvent<'a, T>, NatsError> {
        let info = Info::decode(json)?;
        self.payload_max = info.max_payload;
        if self.state != NatsState::Open {
            return Ok(NatsEvent::Replied);
        }
        self.state = NatsState::Greeted;
        if let Some(nonce) = info.nonce {
            nonce.clone_into(&mut self.waiting.get_or_insert_default().nonce);
        }
        Ok(NatsEvent::Greeted(info))
    }

    fn fail<'a>(&mut self, text: &'a str) -> NatsEvent<'a, T> {
        let error = ServerError::of(text);
        self.refused = self.refused.saturating_add(u8::from(error.refuses_subscription()));
        match self.state {
            NatsState::Up if error.ends_connection() => NatsEvent::Ended(error, text),
            NatsState::Up => NatsEvent::Forbidden(error, text),
            _ => NatsEvent::Refused(error, text),
        }
    }

    fn pong<'a>(&mut self) -> Result<NatsEvent<'a, T>, NatsError> {
        self.pings = self.pings.checked_sub(1).ok_or(NatsError::OutOfPlace("PONG"))?;
        if self.state == NatsState::Connecting {
            self.state = NatsState::Up;
            return Ok(NatsEvent::Connected);
        }
        if self.confirmed_in == 0 {
            return Ok(NatsEvent::Pong);
        }
        let sign = self.confirmed_in.signum();
        self.confirmed_in -= sign;
        Ok(match (self.confirmed_in, sign) {
            (0, 1) => NatsEvent::Subscribed(std::mem::take(&mut self.refused)),
            (0, _) => NatsEvent::Unsubscribed,
            _ => NatsEvent::Pong,
        })
    }

    /// Handles an answer of JetStream, or the server's status that no subscriber answers.
    fn answer<'a>(
        &mut self,
        message: &NatsMessage<'a>,
        out: &mut Vec<u8>,
    ) -> Result<NatsEvent<'a, T>, NatsError> {
        let entry = self.waiting.as_mut().and_then(|waiting| {
            let number = waiting.number(message.subject)?;
            let entry = waiting.take(number)?;
            let confirms = waiting.requests == 0 && std::mem::take(&mut waiting.confirms);
            Some((entry, confirms))
        });
        let Some((entry, confirms)) = entry else { return Ok(NatsEvent::UnknownAnswer) };
        if confirms {
            self.confirm(false, out);
        }
        let answer = if message.headers.status() == Some(NO_RESPONDERS) {
            JetStreamAnswer { error: Some(refusal::no_responders()), ..JetStreamAnswer::default() }
        } else {
            JetStreamAnswer::decode(message.payload)?
        };
        Ok(match (entry, answer.error) {
            (Entry::Message(token), None) => NatsEvent::Acknowledged(token, answer.duplicate),
            (Entry::Message(token), Some(refusal)) => NatsEvent::Rejected(token, refusal),
            (Entry::Request | Entry::Consumer, None) => NatsEvent::Granted,
            (Entry::Request, Some(refusal)) => NatsEvent::Denied(refusal),
            (Entry::Consumer, Some(refusal)) => {
                self.refused = self.refused.saturating_add(1);
                NatsEvent::Denied(refusal)
            }
        })
    }
}
