//! Connections of clients that have fallen silent. Nothing is read or written. A connection is
//! closed when the broker has closed its side, or at the end of the run.

use super::Stream;
use crate::host::Host;

/// Connections that have fallen silent.
pub struct Silent {
    /// Index that news of the first of them have: the number of clients.
    first: usize,
    streams: Vec<Option<Stream>>,
    /// Indices in `streams` without a connection.
    free: Vec<usize>,
}

impl Silent {
    /// No connections, beside those of `clients` clients.
    pub const fn new(clients: usize) -> Self {
        Self { first: clients, streams: Vec::new(), free: Vec::new() }
    }

    /// Keeps a connection open, with news of its own: the client may use its index again.
    pub fn keep(&mut self, mut stream: Stream, host: &Host) {
        let place = self.free.pop().unwrap_or(self.streams.len());
        if place == self.streams.len() {
            self.streams.push(None);
        }
        if host.rename(stream.channel_mut(), self.first + place).is_ok() {
            self.streams[place] = Some(stream);
        } else {
            self.free.push(place);
        }
    }

    /// Closes a connection whose other side the broker has closed. `index` is that of its news.
    pub fn close(&mut self, index: usize) {
        let place = index - self.first;
        if self.streams.get_mut(place).is_some_and(|stream| stream.take().is_some()) {
            self.free.push(place);
        }
    }

    /// Closes all connections.
    pub fn close_all(&mut self) {
        self.streams.clear();
        self.free.clear();
    }
}
