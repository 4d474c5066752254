//! A message as it lies in the read buffer: one frame or more, and possibly commands between them.
//!
//! By the grammar a command is not part of a message [37/ZMTP, Formal Grammar], yet libzmq writes
//! PING and PONG between any two frames. So they are accepted there, and are not frames of the
//! message.

use crate::{
    ZmtpError,
    frame::{self, Decoded, Frame, Kind},
};

/// The longest message that is accepted, in bytes with all headers: 64 MiB.
pub const MESSAGE_MAX: usize = 64 << 20;

/// The most frames of a message, counted with the commands between them. It bounds the work of
/// looking again at a message that comes in pieces.
pub const FRAMES_MAX: usize = 1024;

/// A whole message, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// All its frames with their headers.
    bytes: &'a [u8],
    /// Where the body of the last frame begins.
    payload_start: usize,
}

/// What lies at the front of some bytes that begin with a frame of a message.
pub(super) enum Found<'a> {
    /// All frames of a message.
    Message(Message<'a>),
    /// Some frames of a message, and the next is not all there.
    Incomplete,
    /// A command between two frames that was not dealt with yet.
    Command(&'a [u8]),
}

impl<'a> Message<'a> {
    /// The message of one short frame that is `bytes`, header and body.
    #[inline]
    pub(super) const fn short(bytes: &'a [u8]) -> Self {
        Self { bytes, payload_start: 2 }
    }

    /// The body of the first frame: what subscriptions are compared with.
    #[must_use]
    #[inline]
    pub fn topic(&self) -> &'a [u8] {
        self.frames().next().unwrap_or_default()
    }

    /// The body of the last frame; the first, if there is one only.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.payload_start..]
    }

    /// The bodies of all frames, in their order.
    #[inline]
    pub fn frames(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.bytes;
        let next = std::iter::from_fn(move || {
            let Ok(Decoded::Frame { frame, len }) = frame::decode(rest) else { return None };
            rest = &rest[len..];
            Some(frame)
        });
        next.filter(|frame| frame.kind != Kind::Command).map(|frame| frame.body)
    }

    /// Bytes that it takes, with all headers and commands between its frames.
    #[must_use]
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Looks at the message in front; `commands_handled` of the commands in it were dealt with.
pub(super) fn find(bytes: &[u8], commands_handled: u16) -> Result<Found<'_>, ZmtpError> {
    let (mut end, mut commands) = (0, 0);
    for _ in 0..FRAMES_MAX {
        let (Frame { kind, body }, len) = match frame::decode(&bytes[end..])? {
            Decoded::Frame { frame, len } => (frame, len),
            Decoded::Incomplete { needed } if needed > MESSAGE_MAX - end => {
                return Err(ZmtpError::MessageTooLong);
            }
            Decoded::Incomplete { .. } => return Ok(Found::Incomplete),
        };
        end += len;
        if end > MESSAGE_MAX {
            return Err(ZmtpError::MessageTooLong);
        }
        match kind {
            Kind::More => {}
            Kind::Last => {
                let payload_start = end - body.len();
                return Ok(Found::Message(Message { bytes: &bytes[..end], payload_start }));
            }
            Kind::Command if commands < commands_handled => commands += 1,
            Kind::Command => return Ok(Found::Command(body)),
        }
    }
    Err(ZmtpError::TooManyFrames)
}
