//! Limits of the crate.

/// Longest body that the crate accepts, in bytes: 64 MiB. The protocol allows 2^63 - 1.
pub const BODY_MAX: usize = 64 << 20;

/// Longest message that the crate accepts, in bytes with all headers: 64 MiB.
pub const MESSAGE_MAX: usize = 64 << 20;

/// Largest number of frames of a message, commands between the frames included. The limit bounds
/// the work of parsing again a message that arrives in pieces.
pub const FRAMES_MAX: usize = 1024;
