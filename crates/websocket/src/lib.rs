//! WebSocket (RFC 6455) without input or output, as MQTT uses it: bytes in, bytes out, chance as a
//! seeded generator. Headings such as [6455, 5.2] cite the RFC, [MQTT-6.0.0-1] MQTT's own rules.
//!
//! [`upgrade`] opens a connection with a request and an answer of HTTP. A [`FrameSession`] then
//! removes the frames around received bytes in place, and puts frames around bytes to send. To a
//! session the payloads of all data frames are one stream of bytes: frames may hold any part of
//! it.
//!
//! ```
//! use websocket::{FrameSession, MaskingKeys};
//!
//! let mut client = FrameSession::<false>::default();
//! let mut server = FrameSession::<true>::default();
//! let (mut keys, mut wire) = (MaskingKeys::new(1), Vec::new());
//! let frame = client.frame(b"CONNECT", &mut keys, &mut wire);
//! assert_eq!((wire.len(), client.note_written(frame, wire.len())), (2 + 4 + 7, 7));
//!
//! let received = server.receive(&mut wire, &mut keys);
//! assert_eq!(&wire[..received.payload], b"CONNECT");
//! ```

pub mod frame;
mod keys;
mod reader;
mod session;
pub mod upgrade;

pub use frame::FrameError;
pub use keys::MaskingKeys;
pub use reader::{FrameReader, PayloadPiece};
pub use session::{FRAME_MAX, FrameSession, OutgoingFrame, ReadEnd, ReceivedFrames};
pub use upgrade::UpgradeError;
