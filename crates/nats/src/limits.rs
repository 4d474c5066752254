//! Limits of the crate.

/// Longest control line that the crate accepts, in bytes with its end: 64 KiB. The longest lines
/// are INFO with the addresses of a large cluster.
pub const LINE_MAX: usize = 64 << 10;

/// Longest message that the crate accepts, in bytes with its headers: 64 MiB, the largest
/// `max_payload` that nats-server allows.
pub const MESSAGE_MAX: usize = 64 << 20;
