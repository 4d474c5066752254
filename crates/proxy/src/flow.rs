//! One direction of a connection: reads from one stream, holds bytes for the delay, writes to the
//! other stream. Both streams return instead of waiting.

use std::io::{self, ErrorKind, Read, Write};

use crate::queue::Queue;

/// Reads of one flow in a time slice.
const SLICE_READS: usize = 16;

/// One direction of a connection.
#[derive(Debug, Default)]
pub struct ByteFlow {
    queue: Queue,
    /// The source has announced its end, though bytes may still wait in the source.
    is_closing: bool,
    /// The end of the stream was forwarded.
    is_over: bool,
    /// Bytes forwarded.
    pub bytes_total: u64,
}

/// Result of a time slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pumped {
    /// The flow waits for a stream or the clock.
    Waits,
    /// More bytes wait for the next time slice.
    More,
    /// All bytes were forwarded; the end of the stream is due.
    Ended,
}

impl ByteFlow {
    /// Moves bytes for a time slice: reads, holds for `delay_ns`, writes. Calls `now_ns` only when
    /// the time matters.
    ///
    /// # Errors
    /// Those of either stream, which end the connection.
    pub fn pump(
        &mut self,
        (from, to): (&mut impl Read, &mut impl Write),
        delay_ns: u64,
        now_ns: impl Fn() -> u64,
        buffer: &mut [u8],
    ) -> io::Result<Pumped> {
        for _ in 0..SLICE_READS {
            self.flush(to, &now_ns)?;
            if self.queue.is_ended() {
                let ends = !self.is_over && self.queue.is_over(now_ns());
                return Ok(if ends { Pumped::Ended } else { Pumped::Waits });
            }
            if !self.queue.has_room(delay_ns > 0) {
                return Ok(Pumped::Waits);
            }
            let Some(count) = unless_blocked(from.read(buffer))? else { return Ok(Pumped::Waits) };
            let due_ns = if delay_ns > 0 { now_ns() + delay_ns } else { 0 };
            if count == 0 {
                self.queue.end(due_ns);
                continue;
            }
            let sent = if due_ns == 0 && self.queue.is_empty() {
                self.write(to, &buffer[..count])?
            } else {
                0
            };
            self.queue.push(due_ns, &buffer[sent..count]);
            // A read that does not fill the buffer has emptied the source. But an announced end
            // shows only in a further read.
            if count < buffer.len() && !self.is_closing {
                return Ok(Pumped::Waits);
            }
        }
        Ok(Pumped::More)
    }

    /// Notes that the source has announced its end.
    pub const fn closing(&mut self) {
        self.is_closing = true;
    }

    /// Returns `true` once the source has announced its end.
    pub const fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Notes that the end of the stream was forwarded.
    pub const fn ended(&mut self) {
        self.is_over = true;
    }

    /// Returns `true` once everything was forwarded.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns `true` if bytes are held.
    pub fn holds(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns the instant of the next work without news of a stream, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        if self.is_over { None } else { self.queue.next_ns() }
    }

    /// Writes held bytes that are due.
    fn flush(&mut self, to: &mut impl Write, now_ns: impl Fn() -> u64) -> io::Result<()> {
        while !self.queue.is_empty() {
            let due = self.queue.due(now_ns());
            if due.is_empty() {
                break;
            }
            let Some(count) = unless_blocked(to.write(due))? else { break };
            self.queue.consume(count);
            self.bytes_total += count as u64;
        }
        Ok(())
    }

    /// Writes until the stream takes no more; returns the number of bytes.
    fn write(&mut self, to: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            let Some(count) = unless_blocked(to.write(&bytes[sent..]))? else { break };
            sent += count;
            self.bytes_total += count as u64;
        }
        Ok(sent)
    }
}

/// `None`: the stream would have to wait.
fn unless_blocked(moved: io::Result<usize>) -> io::Result<Option<usize>> {
    match moved {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
