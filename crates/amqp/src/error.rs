//! Errors of the protocol, by the peer or by this side.

use crate::limits::{BODY_MAX, DEPTH_MAX, FRAME_MIN};

/// Reason why a connection cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmqpError {
    /// The first bytes of the peer are no frame.
    #[error("the peer does not speak AMQP: its first bytes are no frame")]
    NotAmqp,
    /// The peer answered the protocol header with the header of a version that it speaks.
    #[error("the peer speaks AMQP {0}-{1}-{2}, needed is 0-9-1")]
    OtherVersion(u8, u8, u8),
    /// A frame of a type that the protocol does not define.
    #[error("frame of the unknown type {0}")]
    FrameType(u8),
    /// A frame above the negotiated size.
    #[error("frame of {0} bytes, at most {1} are allowed")]
    FrameTooLong(u64, u32),
    /// The peer allows frames that are too small for the protocol.
    #[error("the peer allows frames of {0} bytes, needed are at least {FRAME_MIN}")]
    FrameMax(u32),
    /// The last byte of a frame is not 206.
    #[error("frame that ends with {0}, needed is 206")]
    FrameEnd(u8),
    /// A method, header or table that breaks its grammar.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// A table with tables in more than [`DEPTH_MAX`] levels.
    #[error("table with more than {DEPTH_MAX} levels")]
    TooDeep,
    /// A method that the protocol does not define, or that the crate does not use.
    #[error("unknown method {0}.{1}")]
    Unknown(u16, u16),
    /// A frame that the state of the connection or of its channel does not allow.
    #[error("{0} out of place")]
    OutOfPlace(&'static str),
    /// A frame on a channel that is not open.
    #[error("frame on channel {0}, which is not open")]
    ChannelUnknown(u16),
    /// A body above [`BODY_MAX`].
    #[error("message of {0} bytes, at most {BODY_MAX} are accepted")]
    BodyTooLong(u64),
    /// Body frames with more bytes than the header of the message says.
    #[error("body of more than the {0} bytes of its header")]
    BodyOverrun(u64),
    /// Fewer channels than the client needs.
    #[error("the peer allows at most {0} channels of a connection, needed are {1}")]
    TooFewChannels(u16, u16),
}
