//! The frames of WebSocket on a connection that may have them. Either end begins with HTTP, or
//! with MQTT.

use websocket::frame::{FrameHeader, Opcode};
use websocket::{FrameSession, MaskingKeys, upgrade};

use crate::Rng;

/// End of the head of a request or an answer.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// One direction of a connection. `FROM_CLIENT`: the bytes are those of the client.
#[derive(Debug, Default)]
pub enum Frames<const FROM_CLIENT: bool> {
    /// Nothing has arrived.
    #[default]
    New,
    /// There are none.
    Absent,
    /// The head of HTTP, whose rest has not arrived.
    Opening(Vec<u8>),
    /// Frames follow.
    Open(Box<FrameSession<FROM_CLIENT>>),
}

impl<const FROM_CLIENT: bool> Frames<FROM_CLIENT> {
    /// Frames that certainly come, behind the head of HTTP.
    #[must_use]
    pub const fn expected() -> Self {
        Self::Opening(Vec::new())
    }

    /// Returns `true` if the connection has frames, or is about to have some.
    #[must_use]
    pub const fn are_there(&self) -> bool {
        matches!(self, Self::Opening(_) | Self::Open(_))
    }

    /// Returns `true` once frames follow.
    #[must_use]
    pub const fn are_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// Returns the payload of bytes, and appends what a server answers itself.
    pub fn take(&mut self, bytes: &[u8], replies: &mut Vec<u8>) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if matches!(self, Self::New) {
            *self = if bytes.starts_with(b"G") { Self::expected() } else { Self::Absent };
        }
        if let Self::Opening(head) = self {
            head.extend_from_slice(&bytes);
            let found = head.windows(HEAD_END.len()).position(|window| window == HEAD_END);
            let Some(end) = found else { return Vec::new() };
            bytes = head.split_off(end + HEAD_END.len());
            if FROM_CLIENT {
                upgrade::answer(head, replies).expect("the client asks for MQTT over WebSocket");
            }
            *self = Self::Open(Box::default());
        }
        if let Self::Open(session) = self {
            let received = session.receive(&mut bytes, &mut MaskingKeys::new(0));
            bytes.truncate(received.payload);
            replies.extend_from_slice(session.replies());
            session.note_replied(session.replies().len());
        }
        bytes
    }
}

/// A message of a server in frames of any sizes, with pings between them.
#[must_use]
pub fn in_frames(payload: &[u8], rng: &mut Rng) -> Vec<u8> {
    const FIN: u8 = 0x80;
    let mut out = Vec::new();
    let (mut rest, mut opcode) = (payload, Opcode::Binary);
    loop {
        if rng.chance(10) {
            out.extend_from_slice(&FrameHeader::new(Opcode::Ping, 4, None));
            out.extend_from_slice(b"ping");
        }
        let is_last = rng.chance(70);
        let size = if is_last { rest.len() } else { rng.below(rest.len() + 1) };
        let start = out.len();
        out.extend_from_slice(&FrameHeader::new(opcode, size as u32, None));
        if !is_last {
            out[start] &= !FIN;
        }
        out.extend_from_slice(&rest[..size]);
        rest = &rest[size..];
        opcode = Opcode::Continuation;
        if is_last {
            return out;
        }
    }
}
