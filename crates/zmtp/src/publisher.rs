//! One connection that a PUB socket has accepted, with the features that tests and benches need.
//! Queues and the high-water mark are missing, because runs test those of libzmq.

use crate::{
    Handled, Mechanism, ZmtpError,
    command::{Metadata, ZmtpCommand},
    frame::{self, DecodedFrame, FrameKind},
    greeting::{self, Greeting},
};

/// Socket types that a PUB socket may connect to [37/ZMTP, The Socket-Type Property].
const SUBSCRIBERS: [&[u8]; 2] = [b"SUB", b"XSUB"];

/// Reason in the ERROR of PLAIN for a wrong password: the status code of ZAP (RFC 27), as libzmq
/// sends it.
const NOT_KNOWN: &[u8] = b"400";

/// The state of one accepted connection.
#[derive(Clone, Debug, Default)]
pub struct PublisherSession {
    state: PublisherState,
    subscriptions: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PublisherState {
    #[default]
    Lost,
    AwaitingGreeting,
    AwaitingHello,
    AwaitingInitiate,
    AwaitingReady,
    Up,
}

/// Meaning of the bytes of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublisherEvent<'a> {
    /// No complete frame: pass the same bytes again, followed by more.
    Incomplete,
    /// Greeting of the subscriber.
    Greeted,
    /// The handshake is complete; the publisher has appended READY.
    Connected,
    /// The subscriber adds a subscription to this prefix.
    Subscribed(&'a [u8]),
    /// The subscriber removes one subscription to this prefix.
    Cancelled(&'a [u8]),
    /// The answer to a PING.
    Pong,
    /// A command or message without a meaning for the caller; the publisher has appended the
    /// answer.
    Replied,
    /// The credentials are wrong. The publisher has appended ERROR, and the caller must close the
    /// connection.
    Refused,
}

impl PublisherSession {
    /// A connection that has not been accepted yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the greeting. Call this function once on every new network connection. With
    /// [`Mechanism::Plain`] this side is the server of the handshake, and accepts the one user of
    /// the mechanism.
    pub fn accept(&mut self, mechanism: &Mechanism<'_>, out: &mut Vec<u8>) {
        *self = Self { state: PublisherState::AwaitingGreeting, subscriptions: Vec::new() };
        Greeting::new(mechanism.name(), *mechanism != Mechanism::Null).encode(out);
    }

    /// Returns true after the handshake.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == PublisherState::Up
    }

    /// Returns true if a subscription matches a message with this first frame.
    #[must_use]
    pub fn wants(&self, topic: &[u8]) -> bool {
        self.subscriptions.iter().any(|prefix| topic.starts_with(prefix))
    }

    /// Handles at most one greeting, message or command at the front of `bytes`, and appends the
    /// answer that the protocol requires.
    ///
    /// # Errors
    /// [`ZmtpError`] if the protocol forbids the bytes. The caller must then close the connection.
    pub fn handle<'a>(
        &mut self,
        bytes: &'a [u8],
        mechanism: &Mechanism<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Handled<PublisherEvent<'a>>, ZmtpError> {
        if self.state == PublisherState::AwaitingGreeting {
            return self.handle_greeting(bytes, mechanism);
        }
        let (frame, len) = match frame::decode(bytes)? {
            DecodedFrame::Frame { frame, len } => (frame, len),
            DecodedFrame::Incomplete { .. } => {
                return Ok(Handled { len: 0, event: PublisherEvent::Incomplete });
            }
        };
        let event = match (self.state, frame.kind) {
            (PublisherState::Lost, _) => return Err(ZmtpError::NotOpen),
            (_, FrameKind::Command) => {
                self.obey(ZmtpCommand::decode(frame.body)?, mechanism, out)?
            }
            (PublisherState::Up, _) => self.obey_message(frame.body),
            _ => return Err(ZmtpError::EarlyMessage),
        };
        Ok(Handled { len, event })
    }

    fn handle_greeting<'a>(
        &mut self,
        bytes: &[u8],
        mechanism: &Mechanism<'_>,
    ) -> Result<Handled<PublisherEvent<'a>>, ZmtpError> {
        let Some(greeting) = Greeting::decode(bytes)? else {
            return Ok(Handled { len: 0, event: PublisherEvent::Incomplete });
        };
        let (theirs, ours) = (greeting.mechanism, mechanism.name());
        if theirs != ours {
            return Err(ZmtpError::OtherMechanism { theirs, ours });
        }
        self.state = match mechanism {
            Mechanism::Null => PublisherState::AwaitingReady,
            Mechanism::Plain { .. } => PublisherState::AwaitingHello,
        };
        Ok(Handled { len: greeting::LEN, event: PublisherEvent::Greeted })
    }

    fn obey<'a>(
        &mut self,
        command: ZmtpCommand<'a>,
        mechanism: &Mechanism<'_>,
        out: &mut Vec<u8>,
    ) -> Result<PublisherEvent<'a>, ZmtpError> {
        match (self.state, command) {
            (PublisherState::AwaitingHello, ZmtpCommand::Hello { username, password }) => {
                if (Mechanism::Plain { username, password }) != *mechanism {
                    self.state = PublisherState::Lost;
                    ZmtpCommand::Error { reason: NOT_KNOWN }.encode(out)?;
                    return Ok(PublisherEvent::Refused);
                }
                self.state = PublisherState::AwaitingInitiate;
                ZmtpCommand::Welcome.encode(out)?;
                Ok(PublisherEvent::Replied)
            }
            (PublisherState::AwaitingInitiate, ZmtpCommand::Initiate(metadata))
            | (PublisherState::AwaitingReady, ZmtpCommand::Ready(metadata)) => {
                if metadata.socket_type().is_some_and(|found| !SUBSCRIBERS.contains(&found)) {
                    return Err(ZmtpError::OtherSocketType("SUB or XSUB"));
                }
                self.state = PublisherState::Up;
                ZmtpCommand::Ready(Metadata::PUB).encode(out)?;
                Ok(PublisherEvent::Connected)
            }
            (PublisherState::Up, ZmtpCommand::Subscribe(prefix)) => Ok(self.subscribe(prefix)),
            (PublisherState::Up, ZmtpCommand::Cancel(prefix)) => Ok(self.cancel(prefix)),
            (PublisherState::Up, ZmtpCommand::Ping { context, .. }) => {
                ZmtpCommand::Pong { context }.encode(out)?;
                Ok(PublisherEvent::Replied)
            }
            (PublisherState::Up, ZmtpCommand::Pong { .. }) => Ok(PublisherEvent::Pong),
            (PublisherState::Up, ZmtpCommand::Other) => Ok(PublisherEvent::Replied),
            (_, command) => Err(ZmtpError::OutOfPlace(command.name())),
        }
    }

    /// Handles a message of a subscriber of version 3.0, whose subscriptions are messages: 1 or 0
    /// and the prefix.
    fn obey_message<'a>(&mut self, body: &'a [u8]) -> PublisherEvent<'a> {
        match body {
            [1, prefix @ ..] => self.subscribe(prefix),
            [0, prefix @ ..] => self.cancel(prefix),
            _ => PublisherEvent::Replied,
        }
    }

    fn subscribe<'a>(&mut self, prefix: &'a [u8]) -> PublisherEvent<'a> {
        self.subscriptions.push(prefix.to_vec());
        PublisherEvent::Subscribed(prefix)
    }

    /// Removes one subscription: two subscriptions need two cancels [37/ZMTP, The Publish-Subscribe
    /// Pattern].
    fn cancel<'a>(&mut self, prefix: &'a [u8]) -> PublisherEvent<'a> {
        if let Some(index) = self.subscriptions.iter().position(|found| found == prefix) {
            self.subscriptions.swap_remove(index);
        }
        PublisherEvent::Cancelled(prefix)
    }
}

/// Appends a message of two frames, topic and payload. With an empty topic the message has one
/// frame, the payload.
#[inline]
pub fn encode_message(topic: &[u8], payload: &[u8], out: &mut Vec<u8>) {
    if !topic.is_empty() {
        frame::encode(FrameKind::More, topic, out);
    }
    frame::encode(FrameKind::Last, payload, out);
}

#[cfg(test)]
mod tests;
