//! A message as it lies in the read buffer: one or more frames, and possibly commands between the
//! frames.
//!
//! By the grammar a command is not part of a message [37/ZMTP, Formal Grammar]. Yet libzmq writes
//! PING and PONG between any two frames. So the crate accepts commands there and does not count
//! them as frames of the message.

use crate::{
    FRAMES_MAX, MESSAGE_MAX, ZmtpError,
    frame::{self, DecodedFrame, Frame, FrameKind},
};

/// A complete message, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZmtpMessage<'a> {
    /// All frames of the message with their headers.
    bytes: &'a [u8],
    /// Index at which the body of the last frame begins.
    payload_start: usize,
}

/// Content of bytes that begin with a frame of a message.
pub(super) enum Found<'a> {
    /// All frames of a message.
    Message(ZmtpMessage<'a>),
    /// Some frames of a message; the next frame is incomplete.
    Incomplete,
    /// A command between two frames that was not handled yet.
    Command(&'a [u8]),
}

impl<'a> ZmtpMessage<'a> {
    /// The message of one short frame; `bytes` are header and body.
    #[inline]
    pub(super) const fn short(bytes: &'a [u8]) -> Self {
        Self { bytes, payload_start: 2 }
    }

    /// Body of the first frame, which publishers compare with subscriptions.
    #[must_use]
    #[inline]
    pub fn topic(&self) -> &'a [u8] {
        self.frames().next().unwrap_or_default()
    }

    /// Body of the last frame, which is the first of a message of one frame.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.payload_start..]
    }

    /// Bodies of all frames, in their order.
    #[inline]
    pub fn frames(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.bytes;
        let next = std::iter::from_fn(move || {
            let Ok(DecodedFrame::Frame { frame, len }) = frame::decode(rest) else { return None };
            rest = &rest[len..];
            Some(frame)
        });
        next.filter(|frame| frame.kind != FrameKind::Command).map(|frame| frame.body)
    }

    /// Bytes of the message, with all headers and commands between its frames.
    #[must_use]
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Parses the message in front; the caller has handled the first `commands_handled` commands.
pub(super) fn find(bytes: &[u8], commands_handled: u16) -> Result<Found<'_>, ZmtpError> {
    let (mut end, mut commands) = (0, 0);
    for _ in 0..FRAMES_MAX {
        let (Frame { kind, body }, len) = match frame::decode(&bytes[end..])? {
            DecodedFrame::Frame { frame, len } => (frame, len),
            DecodedFrame::Incomplete { needed } if needed > MESSAGE_MAX - end => {
                return Err(ZmtpError::MessageTooLong);
            }
            DecodedFrame::Incomplete { .. } => return Ok(Found::Incomplete),
        };
        end += len;
        if end > MESSAGE_MAX {
            return Err(ZmtpError::MessageTooLong);
        }
        match kind {
            FrameKind::More => {}
            FrameKind::Last => {
                let payload_start = end - body.len();
                return Ok(Found::Message(ZmtpMessage { bytes: &bytes[..end], payload_start }));
            }
            FrameKind::Command if commands < commands_handled => commands += 1,
            FrameKind::Command => return Ok(Found::Command(body)),
        }
    }
    Err(ZmtpError::TooManyFrames)
}
