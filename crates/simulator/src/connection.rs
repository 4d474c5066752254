//! Connections as the engine uses them: plain, or under a filter of bytes that behaves as the
//! record layer of TLS. A record is read as a whole, and the rest of it waits in the filter without
//! an event of the socket. A write that found no room is repeated with the same bytes. An update of
//! keys makes reading wait for room to write.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};

use engine::{ClientLink, Halt, LinkedWire, SimulatedConnection, Wire, reason_of_socket_error};
use plan::Reason;
use testkit::{HEADER_BYTES, PAYLOAD_MAX, RecordKind};

use super::socket::Socket;

/// A connection without a filter, perhaps over a link.
pub struct PlainConnection {
    wire: Wire<Socket>,
    /// Its link has bytes that the client has written, and has not read.
    is_linked: bool,
}

/// A connection under the filter.
pub struct FilteredConnection {
    wire: Wire<Socket>,
    /// The front of a record.
    front: Vec<u8>,
    /// Bytes of a record that are not read.
    unread: VecDeque<u8>,
    /// Bytes of records that the socket has not taken.
    outgoing: Vec<u8>,
    /// Payload of the record whose write is repeated.
    repeated: Vec<u8>,
    has_greeted: bool,
    is_open: bool,
    /// Reading waits for room to write.
    reads_when_writable: bool,
}

impl PlainConnection {
    /// A connection that is being opened.
    pub fn new(socket: Socket, link: Option<Box<ClientLink>>) -> Self {
        let is_linked = link.is_some();
        if is_linked {
            socket.secure();
        }
        Self { wire: Wire::new(socket, link), is_linked }
    }
}

impl SimulatedConnection for PlainConnection {
    fn secure(self: Box<Self>) -> Box<dyn SimulatedConnection> {
        Box::new(FilteredConnection::new(self.wire))
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn is_secure(&self) -> bool {
        false
    }

    fn rename(&mut self, index: usize) {
        self.wire.socket().rename(index);
    }

    fn handshake(&mut self) -> Result<(), Halt> {
        self.wire.open()
    }

    fn wake(&mut self, ended: bool) {
        self.wire.wake(ended);
    }

    fn read(&mut self, buffer: &mut [u8], connecting: bool) -> Result<usize, Halt> {
        let count = self.wire.receive(buffer, connecting)?;
        if self.is_linked {
            self.wire.socket().note_read(&buffer[..count]);
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8], connecting: bool) -> Result<usize, Halt> {
        let count = self.wire.send(bytes, connecting)?;
        if self.is_linked {
            self.wire.socket().note_written(&bytes[..count]);
        }
        Ok(count)
    }

    fn takes_reading(&mut self) -> bool {
        false
    }

    fn finish(&mut self) {}

    fn wire(&self) -> &dyn LinkedWire {
        &self.wire
    }

    fn wire_mut(&mut self) -> &mut dyn LinkedWire {
        &mut self.wire
    }
}

impl FilteredConnection {
    /// A connected socket under the filter; nothing is sent yet.
    pub fn new(wire: Wire<Socket>) -> Self {
        wire.socket().secure();
        Self {
            wire,
            front: Vec::new(),
            unread: VecDeque::new(),
            outgoing: Vec::new(),
            repeated: Vec::new(),
            has_greeted: false,
            is_open: false,
            reads_when_writable: false,
        }
    }

    fn next_record(&mut self, connecting: bool) -> Result<(RecordKind, Vec<u8>), Halt> {
        loop {
            let broken = if connecting { Reason::TlsFailed } else { Reason::TlsBroken };
            let found = match self.front.first_chunk() {
                Some(header) => Some(RecordKind::of(*header).ok_or(Halt::Lost(broken))?),
                None => None,
            };
            let needed = HEADER_BYTES + found.map_or(0, |(_, length)| length);
            if let Some((kind, _)) = found.filter(|_| self.front.len() == needed) {
                let payload = std::mem::take(&mut self.front).split_off(HEADER_BYTES);
                return Ok((kind, payload));
            }
            let mut piece = vec![0; needed - self.front.len()];
            match again(|| self.wire.read(&mut piece)) {
                Ok(0) => return Err(lost(&ErrorKind::UnexpectedEof.into(), connecting)),
                Ok(count) => self.front.extend_from_slice(&piece[..count]),
                Err(error) => return Err(lost(&error, connecting)),
            }
        }
    }

    fn flush(&mut self, connecting: bool) -> Result<(), Halt> {
        while !self.outgoing.is_empty() {
            let count = again(|| self.wire.write(&self.outgoing));
            let count = count.map_err(|error| lost(&error, connecting))?;
            self.outgoing.drain(..count);
        }
        Ok(())
    }
}

impl SimulatedConnection for FilteredConnection {
    fn secure(self: Box<Self>) -> Box<dyn SimulatedConnection> {
        self
    }

    fn is_plain(&self) -> bool {
        false
    }

    fn is_secure(&self) -> bool {
        self.is_open
    }

    fn rename(&mut self, index: usize) {
        self.wire.socket().rename(index);
    }

    fn wake(&mut self, ended: bool) {
        self.wire.wake(ended);
    }

    fn takes_reading(&mut self) -> bool {
        std::mem::take(&mut self.reads_when_writable)
    }

    /// Exchanges greetings.
    fn handshake(&mut self) -> Result<(), Halt> {
        self.wire.open()?;
        self.wire.wake(false);
        if !std::mem::replace(&mut self.has_greeted, true) {
            RecordKind::Greeting.append(b"client", &mut self.outgoing);
        }
        let shaken = self.flush(true).and_then(|()| {
            while !self.is_open {
                self.is_open = self.next_record(true)?.0 == RecordKind::Greeting;
            }
            Ok(())
        });
        shaken.map_err(|halt| match halt {
            Halt::Lost(Reason::ConnectReset | Reason::ConnectClosed) => {
                Halt::Lost(Reason::TlsRefused)
            }
            other => other,
        })
    }

    /// As `SSL_read`.
    fn read(&mut self, buffer: &mut [u8], connecting: bool) -> Result<usize, Halt> {
        self.reads_when_writable = false;
        while self.unread.is_empty() {
            let (kind, payload) = self.next_record(connecting)?;
            match kind {
                RecordKind::Data => self.unread.extend(payload),
                RecordKind::End => {
                    return Err(lost(&ErrorKind::UnexpectedEof.into(), connecting));
                }
                RecordKind::Greeting => {}
                RecordKind::Update => {
                    RecordKind::Update.append(b"", &mut self.outgoing);
                    if let Err(halt) = self.flush(connecting) {
                        self.reads_when_writable = halt == Halt::Later;
                        self.wire.socket().note("update without room to write");
                        return Err(halt);
                    }
                }
            }
        }
        let count = self.unread.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(self.unread.drain(..count)) {
            *to = from;
        }
        self.wire.socket().note_read(&buffer[..count]);
        Ok(count)
    }

    /// As `SSL_write`, with partial writes.
    fn write(&mut self, bytes: &[u8], connecting: bool) -> Result<usize, Halt> {
        if self.repeated.is_empty() {
            self.repeated = bytes[..bytes.len().min(PAYLOAD_MAX)].to_vec();
            RecordKind::Data.append(&self.repeated, &mut self.outgoing);
        }
        assert!(bytes.starts_with(&self.repeated), "a write is repeated with the same bytes");
        if let Err(halt) = self.flush(connecting) {
            self.wire.socket().note("record written in parts");
            return Err(halt);
        }
        let written = std::mem::take(&mut self.repeated);
        self.wire.socket().note_written(&written);
        Ok(written.len())
    }

    fn finish(&mut self) {
        RecordKind::End.append(b"", &mut self.outgoing);
        let _ = self.flush(false);
    }

    fn wire(&self) -> &dyn LinkedWire {
        &self.wire
    }

    fn wire_mut(&mut self) -> &mut dyn LinkedWire {
        &mut self.wire
    }
}

/// The result of a call that may be interrupted.
fn again(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn lost(error: &io::Error, connecting: bool) -> Halt {
    match error.kind() {
        ErrorKind::WouldBlock => Halt::Later,
        _ => Halt::Lost(reason_of_socket_error(error, connecting)),
    }
}
