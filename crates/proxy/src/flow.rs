//! One direction of a connection: reads from one end, holds back as long as it has to, writes to
//! the other. It knows streams that give and take bytes without waiting, and no socket.

use std::io::{self, ErrorKind, Read, Write};

use crate::queue::Queue;

/// Reads of a flow before others have their turn.
const TURN_READS: usize = 16;

/// One direction of a connection.
#[derive(Debug, Default)]
pub struct Flow {
    queue: Queue,
    /// The source has said that nothing more comes, though bytes may still wait in it.
    is_closing: bool,
    /// The end of the stream has been handed on.
    is_over: bool,
    /// Bytes handed on.
    pub bytes_total: u64,
}

/// How a turn of a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// One of its ends, or the clock, has to move before it can go on.
    Waits,
    /// It could go on, but others come first.
    More,
    /// Everything has been handed on but the end of the stream, which is due.
    Ends,
}

impl Flow {
    /// Moves what can be moved: into the buffer, into the queue where it has to wait, and out.
    /// `now_ns` is asked when it matters.
    ///
    /// # Errors
    /// Of either stream, which end the connection.
    pub fn pump(
        &mut self,
        (from, to): (&mut impl Read, &mut impl Write),
        delay_ns: u64,
        now_ns: impl Fn() -> u64,
        buffer: &mut [u8],
    ) -> io::Result<Turn> {
        for _ in 0..TURN_READS {
            self.flush(to, &now_ns)?;
            if self.queue.is_ended() {
                let ends = !self.is_over && self.queue.is_over(now_ns());
                return Ok(if ends { Turn::Ends } else { Turn::Waits });
            }
            if !self.queue.has_room(delay_ns > 0) {
                return Ok(Turn::Waits);
            }
            let Some(count) = unless_blocked(from.read(buffer))? else { return Ok(Turn::Waits) };
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
            // A read that fills no buffer has emptied the source, and a further one would only
            // be told so; but nothing tells of an end that has been announced.
            if count < buffer.len() && !self.is_closing {
                return Ok(Turn::Waits);
            }
        }
        Ok(Turn::More)
    }

    /// The source has said that nothing more comes.
    pub const fn closing(&mut self) {
        self.is_closing = true;
    }

    /// Whether the source has said so.
    pub const fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// The end of the stream has been handed on.
    pub const fn ended(&mut self) {
        self.is_over = true;
    }

    /// Whether everything has been handed on.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether it holds something back.
    pub fn holds(&self) -> bool {
        !self.queue.is_empty()
    }

    /// When it has to be moved again though neither end moves, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        if self.is_over { None } else { self.queue.next_ns() }
    }

    /// Hands on what has waited and is due.
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

    /// Writes until the stream takes no more; how many bytes it took.
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
