//! The other side: one connection that a PUB socket has accepted, as much of it as tests and
//! benches need. It knows neither queues nor a high-water mark: those are libzmq's, and under test.

use crate::{
    Mechanism, ZmtpError,
    command::{Command, Metadata},
    frame::{self, Decoded, Kind},
    greeting::{self, Greeting},
};

/// Sockets that a PUB socket may talk to [37/ZMTP, The Socket-Type Property].
const SUBSCRIBERS: [&[u8]; 2] = [b"SUB", b"XSUB"];

/// What PLAIN says to a wrong password: the status code of ZAP (RFC 27), as libzmq has it.
const NOT_KNOWN: &[u8] = b"400";

/// The state of one accepted connection.
#[derive(Clone, Debug, Default)]
pub struct Publisher {
    state: State,
    subscriptions: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Lost,
    AwaitingGreeting,
    AwaitingHello,
    AwaitingInitiate,
    AwaitingReady,
    Up,
}

/// What one step of [`Publisher::handle`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handled<'a> {
    /// Bytes at the front that are done with.
    pub len: usize,
    /// What they meant.
    pub event: Event<'a>,
}

/// What bytes of a subscriber meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing whole is there: show the same bytes again with more behind them.
    Incomplete,
    /// The subscriber's greeting.
    Greeted,
    /// The handshake is over; READY was appended.
    Connected,
    /// Messages with this prefix are wanted.
    Subscribed(&'a [u8]),
    /// They are wanted once less.
    Cancelled(&'a [u8]),
    /// The answer to a PING.
    Pong,
    /// A command or message that means nothing to the caller; what it asks for was appended.
    Replied,
    /// The subscriber is not known; ERROR was appended, and the connection is to be closed.
    Refused,
}

impl Publisher {
    /// A connection that was not accepted yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the greeting; to be called once on every new network connection. With
    /// [`Mechanism::Plain`] this is the server of the handshake, and the one user it knows is that
    /// of the mechanism.
    pub fn accept(&mut self, mechanism: &Mechanism<'_>, out: &mut Vec<u8>) {
        *self = Self { state: State::AwaitingGreeting, subscriptions: Vec::new() };
        Greeting::new(mechanism.name(), *mechanism != Mechanism::Null).encode(out);
    }

    /// Whether the handshake is over.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == State::Up
    }

    /// Whether a message with this first frame is to be sent.
    #[must_use]
    pub fn wants(&self, topic: &[u8]) -> bool {
        self.subscriptions.iter().any(|prefix| topic.starts_with(prefix))
    }

    /// Takes in at most one greeting, message or command at the front of `bytes`, and appends the
    /// answer that the protocol asks for.
    ///
    /// # Errors
    /// [`ZmtpError`] if the subscriber must not send this; the connection is then to be closed.
    pub fn handle<'a>(
        &mut self,
        bytes: &'a [u8],
        mechanism: &Mechanism<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Handled<'a>, ZmtpError> {
        if self.state == State::AwaitingGreeting {
            return self.handle_greeting(bytes, mechanism);
        }
        let (frame, len) = match frame::decode(bytes)? {
            Decoded::Frame { frame, len } => (frame, len),
            Decoded::Incomplete { .. } => return Ok(Handled { len: 0, event: Event::Incomplete }),
        };
        let event = match (self.state, frame.kind) {
            (State::Lost, _) => return Err(ZmtpError::NotOpen),
            (_, Kind::Command) => self.obey(Command::decode(frame.body)?, mechanism, out)?,
            (State::Up, _) => self.obey_message(frame.body),
            _ => return Err(ZmtpError::EarlyMessage),
        };
        Ok(Handled { len, event })
    }

    fn handle_greeting<'a>(
        &mut self,
        bytes: &[u8],
        mechanism: &Mechanism<'_>,
    ) -> Result<Handled<'a>, ZmtpError> {
        let Some(greeting) = Greeting::decode(bytes)? else {
            return Ok(Handled { len: 0, event: Event::Incomplete });
        };
        let (theirs, ours) = (greeting.mechanism, mechanism.name());
        if theirs != ours {
            return Err(ZmtpError::OtherMechanism { theirs, ours });
        }
        self.state = match mechanism {
            Mechanism::Null => State::AwaitingReady,
            Mechanism::Plain { .. } => State::AwaitingHello,
        };
        Ok(Handled { len: greeting::LEN, event: Event::Greeted })
    }

    fn obey<'a>(
        &mut self,
        command: Command<'a>,
        mechanism: &Mechanism<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a>, ZmtpError> {
        match (self.state, command) {
            (State::AwaitingHello, Command::Hello { username, password }) => {
                if (Mechanism::Plain { username, password }) != *mechanism {
                    self.state = State::Lost;
                    Command::Error { reason: NOT_KNOWN }.encode(out)?;
                    return Ok(Event::Refused);
                }
                self.state = State::AwaitingInitiate;
                Command::Welcome.encode(out)?;
                Ok(Event::Replied)
            }
            (State::AwaitingInitiate, Command::Initiate(metadata))
            | (State::AwaitingReady, Command::Ready(metadata)) => {
                if metadata.socket_type().is_some_and(|found| !SUBSCRIBERS.contains(&found)) {
                    return Err(ZmtpError::OtherSocketType("SUB or XSUB"));
                }
                self.state = State::Up;
                Command::Ready(Metadata::PUB).encode(out)?;
                Ok(Event::Connected)
            }
            (State::Up, Command::Subscribe(prefix)) => Ok(self.subscribe(prefix)),
            (State::Up, Command::Cancel(prefix)) => Ok(self.cancel(prefix)),
            (State::Up, Command::Ping { context, .. }) => {
                Command::Pong { context }.encode(out)?;
                Ok(Event::Replied)
            }
            (State::Up, Command::Pong { .. }) => Ok(Event::Pong),
            (State::Up, Command::Other) => Ok(Event::Replied),
            (_, command) => Err(ZmtpError::OutOfPlace(command.name())),
        }
    }

    /// A subscriber of version 3.0 subscribes by messages: 1 or 0 and the prefix.
    fn obey_message<'a>(&mut self, body: &'a [u8]) -> Event<'a> {
        match body {
            [1, prefix @ ..] => self.subscribe(prefix),
            [0, prefix @ ..] => self.cancel(prefix),
            _ => Event::Replied,
        }
    }

    fn subscribe<'a>(&mut self, prefix: &'a [u8]) -> Event<'a> {
        self.subscriptions.push(prefix.to_vec());
        Event::Subscribed(prefix)
    }

    /// Subscribing twice takes cancelling twice [37/ZMTP, The Publish-Subscribe Pattern].
    fn cancel<'a>(&mut self, prefix: &'a [u8]) -> Event<'a> {
        if let Some(index) = self.subscriptions.iter().position(|found| found == prefix) {
            self.subscriptions.swap_remove(index);
        }
        Event::Cancelled(prefix)
    }
}

/// Appends a message of two frames, topic and payload; with an empty topic of one, the payload.
#[inline]
pub fn encode_message(topic: &[u8], payload: &[u8], out: &mut Vec<u8>) {
    if !topic.is_empty() {
        frame::encode(Kind::More, topic, out);
    }
    frame::encode(Kind::Last, payload, out);
}

#[cfg(test)]
mod tests;
