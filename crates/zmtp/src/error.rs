//! Errors of the protocol, by the peer or by this side.

use crate::{
    limits::{BODY_MAX, FRAMES_MAX, MESSAGE_MAX},
    name::Name,
};

/// Reason why a connection cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZmtpError {
    /// The first bytes are not the signature of a greeting [37/ZMTP, Formal Grammar].
    #[error("the peer does not speak ZMTP: its first bytes are not the signature of a greeting")]
    NotZmtp,
    /// A peer with a version below ZMTP 3.0.
    #[error("the peer speaks ZMTP of revision {0}, at least 3 is needed (libzmq 4.0 or later)")]
    OldVersion(u8),
    /// The peer and this side announced different mechanisms [37/ZMTP, Authentication and
    /// Confidentiality].
    #[error("the peer announces the mechanism {theirs}, this side announces {ours}")]
    OtherMechanism {
        /// Mechanism that the peer announced.
        theirs: Name,
        /// Mechanism that this side announced.
        ours: Name,
    },
    /// Bits 7 to 3 of the flags are not zero [37/ZMTP, Framing].
    #[error("frame with flags {0:#010b}: the upper five bits must be zero")]
    ReservedFlags(u8),
    /// A command with the flag MORE; a command is always one frame [37/ZMTP, Framing].
    #[error("command frame with the flag MORE")]
    MoreOnCommand,
    /// A frame with a body above [`BODY_MAX`].
    #[error("frame of {0} bytes, at most {BODY_MAX} are accepted")]
    FrameTooLong(u64),
    /// A message with frames above [`MESSAGE_MAX`] together.
    #[error("message of more than {MESSAGE_MAX} bytes")]
    MessageTooLong,
    /// A message with more than [`FRAMES_MAX`] frames and commands between the frames.
    #[error("message of more than {FRAMES_MAX} frames")]
    TooManyFrames,
    /// A command that breaks its grammar.
    #[error("malformed {0} command")]
    Malformed(&'static str),
    /// A command that the state of the connection does not allow.
    #[error("{0} command out of place")]
    OutOfPlace(&'static str),
    /// A message before the end of the handshake.
    #[error("message before the end of the handshake")]
    EarlyMessage,
    /// Socket types that cannot be combined [37/ZMTP, The Socket-Type Property].
    #[error("the peer is a socket of another type, {0} is needed")]
    OtherSocketType(&'static str),
    /// Bytes on a connection that has not begun, was refused, or is lost.
    #[error("bytes on a connection that is not open")]
    NotOpen,
    /// A value that is too long for its field: a user name or password of HELLO, or a context.
    #[error("field of {found} bytes, at most {allowed} are allowed")]
    FieldTooLong {
        /// Bytes of the value.
        found: usize,
        /// Bytes allowed in the field.
        allowed: usize,
    },
}
