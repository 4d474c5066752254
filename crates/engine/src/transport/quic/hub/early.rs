//! Data of clients in 0-RTT [9001, 4.6]: the first bytes of a stream go with the offer of a
//! session. quinn-proto forgets the stream if the server rejects them. So the hub opens it again,
//! and sends the bytes once more.

use std::mem;

use quinn_proto::{ConnectionHandle, Dir};

use super::{Held, Hub, StreamState};

/// The data of a connection before the end of its handshake.
#[derive(Default)]
pub enum EarlyData {
    /// None.
    #[default]
    None,
    /// The handshake is under way. These bytes are written.
    Offered(Vec<u8>),
    /// The server has accepted them.
    Accepted,
    /// The server has rejected them. These bytes have had no room since then.
    Rejected(Vec<u8>),
}

impl Hub {
    /// Returns `true` if the server has accepted the data in 0-RTT, `false` if the server has
    /// rejected them; `None` if the client has sent none, or the handshake is under way.
    pub fn early_accepted(&self, handle: ConnectionHandle) -> Option<bool> {
        match self.held(handle)?.early {
            EarlyData::Accepted => Some(true),
            EarlyData::Rejected(_) => Some(false),
            EarlyData::None | EarlyData::Offered(_) => None,
        }
    }

    /// Returns `true` once the handshake has ended well. The stream may be open before.
    pub fn is_secure(&self, handle: ConnectionHandle) -> bool {
        let early = self.held(handle).map(|held| &held.early);
        !matches!(early, Some(EarlyData::Offered(_))) && self.handshake(handle).is_ok()
    }
}

impl Held {
    /// Opens the stream before the handshake, if the server of the offered session allows it.
    /// Returns `true` if the stream is open.
    pub(super) fn begin_early(&mut self) -> bool {
        if self.connection.has_0rtt() {
            self.open_stream();
        }
        if self.stream.is_some() {
            self.early = EarlyData::Offered(Vec::new());
        }
        self.stream.is_some()
    }

    /// Opens the stream, as soon as the peer allows one.
    pub(super) fn open_stream(&mut self) {
        if self.stream.is_none() {
            self.stream = self.connection.streams().open(Dir::Bi);
            self.writable |= self.stream.is_some();
        }
    }

    /// Notes bytes of the client that are written.
    pub(super) fn note_written(&mut self, bytes: &[u8]) {
        if let EarlyData::Offered(early) = &mut self.early {
            early.extend_from_slice(bytes);
        }
    }

    /// The handshake has ended well: sends rejected bytes again.
    pub(super) fn end_early(&mut self) {
        let EarlyData::Offered(bytes) = mem::take(&mut self.early) else { return };
        self.writable = true;
        if self.connection.accepted_0rtt() {
            self.early = EarlyData::Accepted;
            return;
        }
        (self.early, self.stream) = (EarlyData::Rejected(bytes), None);
        self.open_stream();
        self.resend_early();
    }

    /// Returns `true` if rejected bytes have had no room yet: nothing else may be written.
    pub(super) const fn resends(&self) -> bool {
        matches!(&self.early, EarlyData::Rejected(bytes) if !bytes.is_empty())
    }

    /// Sends rejected bytes again, as far as there is room, and then the end of a client that has
    /// left.
    pub(super) fn resend_early(&mut self) {
        let (EarlyData::Rejected(bytes), Some(id)) = (&mut self.early, self.stream) else { return };
        if bytes.is_empty() {
            return;
        }
        let mut stream = self.connection.send_stream(id);
        let count = stream.write(bytes).unwrap_or(0);
        bytes.drain(..count);
        if bytes.is_empty()
            && matches!(self.life, StreamState::Finished | StreamState::Lingering(_))
        {
            // A stream that the peer has stopped needs no end.
            let _ = stream.finish();
        }
    }
}
