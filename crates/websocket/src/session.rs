//! An open connection: frames in, frames out, pings answered, the end noted.

use crate::MaskingKeys;
use crate::frame::{FrameError, FrameHeader, Opcode, mask, rotated};
use crate::reader::{FrameReader, PayloadPiece};

/// Longest payload of a frame that a session sends, in bytes. More bytes make more frames.
pub const FRAME_MAX: usize = 128 * 1024;

/// Bytes of answers that wait for a peer which asks and does not read. Further pings get no answer,
/// since an answer stands for all pings before it [6455, 5.5.3].
const REPLIES_MAX: usize = 4096;
/// Close codes [6455, 7.4.1].
const NORMAL: u16 = 1000;
const PROTOCOL_ERROR: u16 = 1002;

/// An open connection of a client, or of a server (`SERVER`).
#[derive(Debug, Default)]
pub struct FrameSession<const SERVER: bool> {
    reader: FrameReader<SERVER>,
    /// `None` almost always.
    aside: Option<Box<Interleaved>>,
}

/// A frame of data to send, or the rest of one.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct OutgoingFrame {
    /// Bytes of the payload that have not gone.
    left: u32,
    /// Masking key for the first of them.
    key: [u8; 4],
    /// Bytes of the header that have not gone.
    header_left: u8,
}

/// State of a connection whose peer has sent control frames, or that has sent a frame in part.
#[derive(Debug, Default)]
struct Interleaved {
    /// The frame of data that has gone in part.
    frame: OutgoingFrame,
    /// A close frame has gone, or waits.
    is_closed: bool,
    /// The front of the payload of a control frame.
    control: Vec<u8>,
    /// Control frames to send, the first of which may have gone in part.
    replies: Vec<u8>,
    end: Option<ReadEnd>,
}

/// The reason why nothing more is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// The peer has closed the connection, with a code or without one.
    Closed(Option<u16>),
    /// The peer has broken the protocol.
    Broken(FrameError),
}

/// Content of received bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedFrames {
    /// Bytes of payload, which are now at the front.
    pub payload: usize,
    /// Pings that have ended here.
    pub pings: u32,
    /// Pongs that have ended here.
    pub pongs: u32,
}

impl<const SERVER: bool> FrameSession<SERVER> {
    /// Moves the payload in received bytes to their front, and notes the answers to pings.
    /// Nothing behind the [`ReadEnd`] is read.
    #[inline]
    pub fn receive(&mut self, bytes: &mut [u8], keys: &mut MaskingKeys) -> ReceivedFrames {
        let mut received = ReceivedFrames::default();
        let mut at = 0;
        while at < bytes.len() && self.end().is_none() {
            let PayloadPiece { opcode, range, ends } = match self.reader.next(&mut bytes[at..]) {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => {
                    self.aside().end = Some(ReadEnd::Broken(error));
                    break;
                }
            };
            let range = at + range.start..at + range.end;
            at = range.end;
            if opcode.is_control() {
                self.aside().control.extend_from_slice(&bytes[range]);
                if ends {
                    self.control(opcode, &mut received, keys);
                }
                continue;
            }
            let count = range.len();
            if range.start > received.payload {
                bytes.copy_within(range, received.payload);
            }
            received.payload += count;
        }
        received
    }

    /// The reason why nothing more is read; `None` while the connection is open.
    #[must_use]
    #[inline]
    pub fn end(&self) -> Option<ReadEnd> {
        self.aside.as_ref().and_then(|aside| aside.end)
    }

    /// Appends the next frame of `payload`, or the rest of a frame that has gone in part: then the
    /// payload begins with the same bytes as the rest of the frame. [`Self::replies`] go first, and
    /// [`Self::note_written`] follows.
    #[inline]
    pub fn frame(
        &self,
        payload: &[u8],
        keys: &mut MaskingKeys,
        out: &mut Vec<u8>,
    ) -> OutgoingFrame {
        let frame = match &self.aside {
            Some(aside) if aside.frame.has_rest() => aside.frame,
            _ => OutgoingFrame::new::<SERVER>(payload, keys),
        };
        if frame.header_left > 0 {
            let header = frame.header::<SERVER>();
            out.extend_from_slice(&header[header.len() - usize::from(frame.header_left)..]);
        }
        let start = out.len();
        out.extend_from_slice(&payload[..payload.len().min(frame.left as usize)]);
        if !SERVER {
            mask(&mut out[start..], frame.key);
        }
        frame
    }

    /// Notes that bytes of the frame have gone. Returns the number of bytes of payload among them.
    #[inline]
    pub fn note_written(&mut self, frame: OutgoingFrame, count: usize) -> usize {
        let header = count.min(usize::from(frame.header_left));
        let payload = count - header;
        let rest = OutgoingFrame {
            left: frame.left - payload as u32,
            key: rotated(frame.key, payload),
            header_left: frame.header_left - header as u8,
        };
        if rest.has_rest() || self.aside.is_some() {
            self.aside().frame = rest;
            self.forget();
        }
        payload
    }

    /// Control frames to send; empty while a frame has gone in part.
    #[must_use]
    #[inline]
    pub fn replies(&self) -> &[u8] {
        match &self.aside {
            Some(aside) if !aside.frame.has_rest() => &aside.replies,
            _ => &[],
        }
    }

    /// Notes that bytes of the replies have gone.
    pub fn note_replied(&mut self, count: usize) {
        self.aside().replies.drain(..count);
        self.forget();
    }

    /// Ends the connection behind everything that was sent, with the code of the peer if the peer
    /// has closed it. No frame of data may follow [6455, 5.5.1].
    pub fn close(&mut self, keys: &mut MaskingKeys) {
        if std::mem::replace(&mut self.aside().is_closed, true) {
            return;
        }
        let code = match self.end() {
            None => Some(NORMAL),
            Some(ReadEnd::Broken(_)) => Some(PROTOCOL_ERROR),
            Some(ReadEnd::Closed(code)) => code,
        };
        let payload = code.map(u16::to_be_bytes);
        self.reply(Opcode::Close, payload.as_ref().map_or(&[], |code| &code[..]), keys);
    }

    fn control(&mut self, opcode: Opcode, received: &mut ReceivedFrames, keys: &mut MaskingKeys) {
        let payload = std::mem::take(&mut self.aside().control);
        match opcode {
            Opcode::Ping => {
                received.pings += 1;
                if self.aside().replies.len() < REPLIES_MAX {
                    self.reply(Opcode::Pong, &payload, keys);
                }
            }
            Opcode::Close => {
                self.aside().end = Some(match close_code(&payload) {
                    Ok(code) => ReadEnd::Closed(code),
                    Err(error) => ReadEnd::Broken(error),
                });
            }
            _ => received.pongs += 1,
        }
        self.forget();
    }

    fn reply(&mut self, opcode: Opcode, payload: &[u8], keys: &mut MaskingKeys) {
        let key = (!SERVER).then(|| keys.mask());
        let replies = &mut self.aside().replies;
        replies.extend_from_slice(&FrameHeader::new(opcode, payload.len() as u32, key));
        let start = replies.len();
        replies.extend_from_slice(payload);
        mask(&mut replies[start..], key.unwrap_or_default());
    }

    fn aside(&mut self) -> &mut Interleaved {
        self.aside.get_or_insert_default()
    }

    /// Gives the memory of control frames back once nothing is left of them.
    fn forget(&mut self) {
        if let Some(aside) = &self.aside
            && aside.end.is_none()
            && !aside.frame.has_rest()
            && !aside.is_closed
            && aside.control.is_empty()
            && aside.replies.is_empty()
        {
            self.aside = None;
        }
    }
}

/// Code of a close frame, which has none or two bytes of it [6455, 5.5.1].
fn close_code(payload: &[u8]) -> Result<Option<u16>, FrameError> {
    if payload.is_empty() {
        return Ok(None);
    }
    let code = payload.first_chunk().ok_or(FrameError::ShortClose)?;
    match u16::from_be_bytes(*code) {
        // Codes of 7.4.2 that no range has, and those that no frame may have.
        code @ (..=999 | 1004..=1006 | 1015 | 5000..) => Err(FrameError::CloseCode(code)),
        code => Ok(Some(code)),
    }
}

impl OutgoingFrame {
    #[inline]
    fn new<const SERVER: bool>(payload: &[u8], keys: &mut MaskingKeys) -> Self {
        let key = if SERVER { [0; 4] } else { keys.mask() };
        let mut frame = Self { left: payload.len().min(FRAME_MAX) as u32, key, header_left: 0 };
        frame.header_left = frame.header::<SERVER>().len() as u8;
        frame
    }

    #[inline]
    const fn has_rest(&self) -> bool {
        self.left > 0 || self.header_left > 0
    }

    /// Header of the frame. Its key and length change only once the header has gone.
    #[inline]
    fn header<const SERVER: bool>(&self) -> FrameHeader {
        FrameHeader::new(Opcode::Binary, self.left, (!SERVER).then_some(self.key))
    }
}

#[cfg(test)]
mod tests;
