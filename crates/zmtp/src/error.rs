//! What a peer must not do, or cannot be told.

use crate::{FRAMES_MAX, MESSAGE_MAX, frame::BODY_MAX, greeting};

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZmtpError {
    /// The first bytes are not the signature of a greeting [37/ZMTP, Formal Grammar].
    #[error("the peer does not speak ZMTP: its first bytes are not the signature of a greeting")]
    NotZmtp,
    /// A peer below ZMTP 3.0.
    #[error("the peer speaks ZMTP of revision {0}, at least 3 is needed (libzmq 4.0 or later)")]
    OldVersion(u8),
    /// Both sides of a connection have the same mechanism, or none
    /// [37/ZMTP, Authentication and Confidentiality].
    #[error("the peer wants the mechanism {theirs}, this side has {ours}")]
    OtherMechanism {
        /// What the peer announced.
        theirs: greeting::Name,
        /// What this side announced.
        ours: greeting::Name,
    },
    /// Bits 7 to 3 of the flags must be zero [37/ZMTP, Framing].
    #[error("frame with flags {0:#010b}: the upper five bits must be zero")]
    ReservedFlags(u8),
    /// A command is always one frame [37/ZMTP, Framing].
    #[error("command frame with the flag MORE")]
    MoreOnCommand,
    /// A frame above what is accepted here.
    #[error("frame of {0} bytes, at most {BODY_MAX} are accepted")]
    FrameTooLong(u64),
    /// A message whose frames are above what is accepted here together.
    #[error("message of more than {MESSAGE_MAX} bytes")]
    MessageTooLong,
    /// A message of more frames, with the commands between them, than are accepted here.
    #[error("message of more than {FRAMES_MAX} frames")]
    TooManyFrames,
    /// A command that does not follow its grammar.
    #[error("malformed {0} command")]
    Malformed(&'static str),
    /// A command that has no place where it came.
    #[error("{0} command out of place")]
    OutOfPlace(&'static str),
    /// A message before the handshake is over.
    #[error("message before the handshake was over")]
    EarlyMessage,
    /// Sockets that do not fit together [37/ZMTP, The Socket-Type Property].
    #[error("the peer is a socket of another type, {0} is needed")]
    OtherSocketType(&'static str),
    /// Bytes on a connection that was never begun, was refused, or is lost.
    #[error("bytes on a connection that is not open")]
    NotOpen,
    /// A value does not fit its field: a user name or password of HELLO, or a context.
    #[error("field of {found} bytes, at most {allowed} are allowed")]
    FieldTooLong {
        /// Bytes of the value.
        found: usize,
        /// Bytes that the field takes.
        allowed: usize,
    },
}
