//! The receiving side of a session: interprets the bytes of a publisher and appends the answer.

use super::{
    ZmtpSession, ZmtpState,
    message::{self, Found, ZmtpMessage},
};
use crate::{
    Mechanism, ZmtpError,
    command::{Metadata, ZmtpCommand},
    frame::{self, DecodedFrame, FrameKind},
    greeting::{self, Greeting},
};

/// Socket types that a SUB socket may connect to [37/ZMTP, The Socket-Type Property].
const PUBLISHERS: [&[u8]; 2] = [b"PUB", b"XPUB"];

/// Outcome of one step of a connection with bytes of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handled<E> {
    /// Bytes at the front that the step has consumed. 0 if they are incomplete, and for a command
    /// between the frames of a message: its bytes are consumed with the message.
    pub len: usize,
    /// Meaning of the consumed bytes.
    pub event: E,
}

/// Meaning of the bytes of a publisher for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZmtpEvent<'a> {
    /// No complete frame: pass the same bytes again, followed by more.
    Incomplete,
    /// Greeting of the publisher; the session has appended the first command of the handshake.
    Greeted,
    /// The handshake is complete: the caller may subscribe.
    Connected,
    /// A message.
    Message(ZmtpMessage<'a>),
    /// The answer to [`ZmtpSession::ping`], or to [`ZmtpSession::heartbeat`].
    Pong,
    /// A command without a meaning for the caller; the session has appended the answer.
    Replied,
    /// The publisher refuses this client; libzmq sends a status code of ZAP as the reason. The
    /// caller must close the connection, because libzmq leaves it open. The same credentials will
    /// fail again [37/ZMTP, Error Handling].
    Refused(&'a str),
}

impl ZmtpSession {
    /// Handles at most one greeting, message or command at the front of `bytes`, and appends the
    /// answer that the protocol requires. Call this function with the remaining bytes until
    /// [`ZmtpEvent::Incomplete`].
    ///
    /// # Errors
    /// [`ZmtpError`] if the protocol forbids the bytes, or if the credentials of `mechanism` are
    /// too long for HELLO. The caller must then close the connection.
    #[inline]
    pub fn handle<'a>(
        &mut self,
        bytes: &'a [u8],
        mechanism: &Mechanism<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Handled<ZmtpEvent<'a>>, ZmtpError> {
        // The hot path: a message of one short frame, with all flags 0.
        if self.state == ZmtpState::Up
            && let [0, size, ..] = *bytes
            && let Some(whole) = bytes.get(..2 + usize::from(size))
        {
            return Ok(Handled {
                len: whole.len(),
                event: ZmtpEvent::Message(ZmtpMessage::short(whole)),
            });
        }
        match self.state {
            ZmtpState::Up => self.handle_traffic(bytes, out),
            ZmtpState::AwaitingGreeting => self.handle_greeting(bytes, mechanism, out),
            _ => self.handle_handshake(bytes, out),
        }
    }

    /// Handles bytes of an established connection.
    #[inline(never)]
    fn handle_traffic<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Handled<ZmtpEvent<'a>>, ZmtpError> {
        if let Some(&flags) = bytes.first()
            && flags & frame::COMMAND != 0
        {
            return self.handle_command(bytes, out);
        }
        match message::find(bytes, self.commands_handled)? {
            Found::Message(message) => {
                self.commands_handled = 0;
                Ok(Handled { len: message.encoded_len(), event: ZmtpEvent::Message(message) })
            }
            Found::Command(body) => {
                self.commands_handled += 1;
                Ok(Handled { len: 0, event: self.obey(body, out)? })
            }
            Found::Incomplete => Ok(Handled { len: 0, event: ZmtpEvent::Incomplete }),
        }
    }

    #[cold]
    fn handle_greeting<'a>(
        &mut self,
        bytes: &'a [u8],
        mechanism: &Mechanism<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Handled<ZmtpEvent<'a>>, ZmtpError> {
        let Some(greeting) = Greeting::decode(bytes)? else {
            return Ok(Handled { len: 0, event: ZmtpEvent::Incomplete });
        };
        let (theirs, ours) = (greeting.mechanism, mechanism.name());
        if theirs != ours {
            return Err(ZmtpError::OtherMechanism { theirs, ours });
        }
        self.peer_is_3_1 = greeting.is_3_1();
        let (state, command) = match *mechanism {
            Mechanism::Null => (ZmtpState::AwaitingReady, ZmtpCommand::Ready(Metadata::SUB)),
            Mechanism::Plain { username, password } => {
                (ZmtpState::AwaitingWelcome, ZmtpCommand::Hello { username, password })
            }
        };
        command.encode(out)?;
        self.state = state;
        Ok(Handled { len: greeting::LEN, event: ZmtpEvent::Greeted })
    }

    /// Handles bytes of the handshake, which consists of commands only.
    #[cold]
    fn handle_handshake<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Handled<ZmtpEvent<'a>>, ZmtpError> {
        if self.state == ZmtpState::Lost {
            return Err(ZmtpError::NotOpen);
        }
        if bytes.first().is_some_and(|flags| flags & frame::COMMAND == 0) {
            return Err(ZmtpError::EarlyMessage);
        }
        self.handle_command(bytes, out)
    }

    /// Handles the frame in front, which must be a command.
    fn handle_command<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Handled<ZmtpEvent<'a>>, ZmtpError> {
        match frame::decode(bytes)? {
            DecodedFrame::Frame { frame, len } => {
                debug_assert_eq!(frame.kind, FrameKind::Command);
                Ok(Handled { len, event: self.obey(frame.body, out)? })
            }
            DecodedFrame::Incomplete { .. } => Ok(Handled { len: 0, event: ZmtpEvent::Incomplete }),
        }
    }

    fn obey<'a>(&mut self, body: &'a [u8], out: &mut Vec<u8>) -> Result<ZmtpEvent<'a>, ZmtpError> {
        let command = ZmtpCommand::decode(body)?;
        match (self.state, command) {
            (_, ZmtpCommand::Error { reason }) => {
                self.connection_lost();
                Ok(ZmtpEvent::Refused(str::from_utf8(reason).unwrap_or("the reason is not UTF-8")))
            }
            (ZmtpState::AwaitingWelcome, ZmtpCommand::Welcome) => {
                self.state = ZmtpState::AwaitingReady;
                ZmtpCommand::Initiate(Metadata::SUB).encode(out)?;
                Ok(ZmtpEvent::Replied)
            }
            (ZmtpState::AwaitingReady, ZmtpCommand::Ready(metadata)) => {
                if metadata.socket_type().is_some_and(|found| !PUBLISHERS.contains(&found)) {
                    return Err(ZmtpError::OtherSocketType("PUB or XPUB"));
                }
                self.state = ZmtpState::Up;
                Ok(ZmtpEvent::Connected)
            }
            (ZmtpState::Up, ZmtpCommand::Ping { context, .. }) => {
                ZmtpCommand::Pong { context }.encode(out)?;
                Ok(ZmtpEvent::Replied)
            }
            (ZmtpState::Up, ZmtpCommand::Pong { .. }) => {
                if std::mem::take(&mut self.pings_again) {
                    self.heartbeat(out);
                    return Ok(ZmtpEvent::Replied);
                }
                Ok(ZmtpEvent::Pong)
            }
            (ZmtpState::Up, ZmtpCommand::Other) => Ok(ZmtpEvent::Replied),
            (_, command) => Err(ZmtpError::OutOfPlace(command.name())),
        }
    }
}
