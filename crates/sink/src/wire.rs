//! Bytes of a peer: MQTT itself, or MQTT in frames of WebSocket. The first byte decides.

use std::io::{self, ErrorKind};

use websocket::frame::{FrameHeader, Opcode};
use websocket::{FrameSession, MaskingKeys, upgrade};

/// First byte of a request of HTTP; CONNECT has another one.
const HTTP: u8 = b'G';

/// State of a peer's bytes.
#[derive(Default)]
pub enum PeerWire {
    /// Nothing has arrived.
    #[default]
    New,
    /// MQTT itself.
    Plain,
    /// A request of HTTP whose rest has not arrived.
    Opening(Vec<u8>),
    /// MQTT in frames.
    Framed(Box<FrameSession<true>>),
}

impl PeerWire {
    /// Moves the bytes of MQTT to the front, appends what the wire itself answers, and returns the
    /// number of bytes of MQTT.
    ///
    /// # Errors
    /// The peer has closed the WebSocket, or has sent something else.
    pub fn take(&mut self, bytes: &mut [u8], replies: &mut Vec<u8>) -> io::Result<usize> {
        if matches!(self, Self::New) {
            let is_http = bytes.first() == Some(&HTTP);
            *self = if is_http { Self::Opening(Vec::new()) } else { Self::Plain };
        }
        match self {
            Self::New | Self::Plain => Ok(bytes.len()),
            Self::Opening(head) => {
                head.extend_from_slice(bytes);
                let invalid = |_| io::Error::from(ErrorKind::InvalidData);
                // A client waits for the answer before it sends frames.
                if upgrade::answer(head, replies).map_err(invalid)?.is_some() {
                    *self = Self::Framed(Box::default());
                }
                Ok(0)
            }
            Self::Framed(session) => {
                // Only clients mask.
                let received = session.receive(bytes, &mut MaskingKeys::new(0));
                replies.extend_from_slice(session.replies());
                session.note_replied(session.replies().len());
                if session.end().is_some() && received.payload == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                Ok(received.payload)
            }
        }
    }

    /// A frame with these packets; `None` if nothing is put into frames.
    pub fn framed(&self, packets: &[u8]) -> Option<Vec<u8>> {
        if packets.is_empty() || !matches!(self, Self::Framed(_)) {
            return None;
        }
        Some([&FrameHeader::new(Opcode::Binary, packets.len() as u32, None)[..], packets].concat())
    }
}
