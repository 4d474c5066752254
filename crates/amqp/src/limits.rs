//! Limits of the crate.

/// Smallest `frame-max` of a peer, in bytes with the 8 bytes around a payload (4.2.3 of AMQP
/// 0-9-1).
pub const FRAME_MIN: u32 = 4096;

/// Largest frame that the crate accepts and announces, in bytes with the 8 bytes around its
/// payload: 128 KiB, the default of RabbitMQ.
pub const FRAME_MAX: u32 = 128 << 10;

/// Largest body that the crate accepts, in bytes: 64 MiB. A message may come in any number of
/// frames, so that its body is kept up to the last one.
pub const BODY_MAX: u64 = 64 << 20;

/// Deepest table in a table that the crate reads.
pub const DEPTH_MAX: u8 = 8;
