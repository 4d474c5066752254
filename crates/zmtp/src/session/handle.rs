//! The receiving side of a session: what the bytes of a publisher mean, and the answer to them.

use super::{
    Session, State,
    message::{self, Found, Message},
};
use crate::{
    Mechanism, ZmtpError,
    command::{Command, Metadata},
    frame::{self, Decoded, Kind},
    greeting::{self, Greeting},
};

/// Sockets that a SUB socket may talk to [37/ZMTP, The Socket-Type Property].
const PUBLISHERS: [&[u8]; 2] = [b"PUB", b"XPUB"];

/// What one step of [`Session::handle`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handled<'a> {
    /// Bytes at the front that are done with. 0 for [`Event::Incomplete`], and for a command that
    /// lies between the frames of a message, whose bytes go with the message.
    pub len: usize,
    /// What they meant.
    pub event: Event<'a>,
}

/// What bytes of a publisher meant to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing whole is there: show the same bytes again with more behind them.
    Incomplete,
    /// The publisher's greeting; the first command of the handshake was appended.
    Greeted,
    /// The handshake is over: subscribe now.
    Connected,
    /// A message.
    Message(Message<'a>),
    /// The answer to [`Session::ping`], or to the PING of a keep-alive.
    Pong,
    /// A command that means nothing to the caller; what it asks for was appended.
    Replied,
    /// The publisher refuses this client, for this reason: a status code of ZAP if it is libzmq.
    /// The connection is to be closed (libzmq leaves it open), and the same credentials will not
    /// do [37/ZMTP, Error Handling].
    Refused(&'a str),
}

impl Session {
    /// Takes in at most one greeting, message or command at the front of `bytes`, and appends the
    /// answer that the protocol asks for. To be called again with what is behind it until
    /// [`Event::Incomplete`].
    ///
    /// # Errors
    /// [`ZmtpError`] if the publisher must not send this, or if the credentials of `mechanism` fit
    /// no HELLO; the connection is then to be closed.
    #[inline]
    pub fn handle<'a>(
        &mut self,
        bytes: &'a [u8],
        mechanism: &Mechanism<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Handled<'a>, ZmtpError> {
        // The hot path: a message of one short frame. The flags are all 0 then.
        if self.state == State::Up
            && let [0, size, ..] = *bytes
            && let Some(whole) = bytes.get(..2 + usize::from(size))
        {
            self.awaiting_pong = false;
            return Ok(Handled { len: whole.len(), event: Event::Message(Message::short(whole)) });
        }
        match self.state {
            State::Up => self.handle_traffic(bytes, out),
            State::AwaitingGreeting => self.handle_greeting(bytes, mechanism, out),
            _ => self.handle_handshake(bytes, out),
        }
    }

    /// Anything of an established connection.
    #[inline(never)]
    fn handle_traffic<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Handled<'a>, ZmtpError> {
        if let Some(&flags) = bytes.first()
            && flags & frame::COMMAND != 0
        {
            return self.handle_command(bytes, out);
        }
        match message::find(bytes, self.commands_handled)? {
            Found::Message(message) => {
                self.awaiting_pong = false;
                self.commands_handled = 0;
                Ok(Handled { len: message.encoded_len(), event: Event::Message(message) })
            }
            Found::Command(body) => {
                self.commands_handled += 1;
                Ok(Handled { len: 0, event: self.obey(body, out)? })
            }
            Found::Incomplete => Ok(Handled { len: 0, event: Event::Incomplete }),
        }
    }

    #[cold]
    fn handle_greeting<'a>(
        &mut self,
        bytes: &'a [u8],
        mechanism: &Mechanism<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Handled<'a>, ZmtpError> {
        let Some(greeting) = Greeting::decode(bytes)? else {
            return Ok(Handled { len: 0, event: Event::Incomplete });
        };
        let (theirs, ours) = (greeting.mechanism, mechanism.name());
        if theirs != ours {
            return Err(ZmtpError::OtherMechanism { theirs, ours });
        }
        self.peer_is_3_1 = greeting.is_3_1();
        let (state, command) = match *mechanism {
            Mechanism::Null => (State::AwaitingReady, Command::Ready(Metadata::SUB)),
            Mechanism::Plain { username, password } => {
                (State::AwaitingWelcome, Command::Hello { username, password })
            }
        };
        command.encode(out)?;
        self.state = state;
        Ok(Handled { len: greeting::LEN, event: Event::Greeted })
    }

    /// The handshake consists of commands only.
    #[cold]
    fn handle_handshake<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Handled<'a>, ZmtpError> {
        if self.state == State::Lost {
            return Err(ZmtpError::NotOpen);
        }
        if bytes.first().is_some_and(|flags| flags & frame::COMMAND == 0) {
            return Err(ZmtpError::EarlyMessage);
        }
        self.handle_command(bytes, out)
    }

    /// The frame in front is a command, or is not all there.
    fn handle_command<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Handled<'a>, ZmtpError> {
        match frame::decode(bytes)? {
            Decoded::Frame { frame, len } => {
                debug_assert_eq!(frame.kind, Kind::Command);
                Ok(Handled { len, event: self.obey(frame.body, out)? })
            }
            Decoded::Incomplete { .. } => Ok(Handled { len: 0, event: Event::Incomplete }),
        }
    }

    fn obey<'a>(&mut self, body: &'a [u8], out: &mut Vec<u8>) -> Result<Event<'a>, ZmtpError> {
        let command = Command::decode(body)?;
        match (self.state, command) {
            (_, Command::Error { reason }) => {
                self.connection_lost();
                Ok(Event::Refused(str::from_utf8(reason).unwrap_or("a reason that is not text")))
            }
            (State::AwaitingWelcome, Command::Welcome) => {
                self.state = State::AwaitingReady;
                Command::Initiate(Metadata::SUB).encode(out)?;
                Ok(Event::Replied)
            }
            (State::AwaitingReady, Command::Ready(metadata)) => {
                if metadata.socket_type().is_some_and(|found| !PUBLISHERS.contains(&found)) {
                    return Err(ZmtpError::OtherSocketType("PUB or XPUB"));
                }
                self.state = State::Up;
                Ok(Event::Connected)
            }
            (State::Up, Command::Ping { context, .. }) => {
                Command::Pong { context }.encode(out)?;
                Ok(Event::Replied)
            }
            (State::Up, Command::Pong { .. }) => {
                self.awaiting_pong = false;
                if std::mem::take(&mut self.pings_again) {
                    self.write_ping(out);
                    return Ok(Event::Replied);
                }
                Ok(Event::Pong)
            }
            (State::Up, Command::Other) => Ok(Event::Replied),
            (_, command) => Err(ZmtpError::OutOfPlace(command.name())),
        }
    }
}
