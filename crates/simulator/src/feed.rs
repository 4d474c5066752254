//! A publisher of ZeroMQ in the simulation: a scripted PUB socket in the place of the broker.

use std::collections::BTreeMap;

use plan::{SentAt, Stamp, StreamId};
use zmtp::publisher::{PublisherEvent, PublisherSession, encode_message};
use zmtp::{Mechanism, ZmtpError};

/// Topics of the one publisher, in turn.
const TOPICS: u64 = 4;
/// A PUB socket.
pub struct Feed {
    run_tag: u32,
    lines: BTreeMap<usize, (PublisherSession, Vec<u8>)>,
    /// Messages at each tick.
    pub burst: u64,
    /// Messages so far.
    pub total: u64,
    /// Messages so far, each counted once for each subscriber that it was sent to.
    pub copies: i64,
}

impl Feed {
    /// A socket without connections.
    pub fn new(run_tag: u32) -> Self {
        Self { run_tag, lines: BTreeMap::new(), burst: 0, total: 0, copies: 0 }
    }

    /// A connection is made; returns the greeting.
    pub fn accept(&mut self, connection: usize) -> Vec<u8> {
        let (mut publisher, mut greeting) = (PublisherSession::new(), Vec::new());
        publisher.accept(&Mechanism::Null, &mut greeting);
        self.lines.insert(connection, (publisher, Vec::new()));
        greeting
    }

    /// Bytes arrive; returns the answer.
    pub fn receive(&mut self, connection: usize, bytes: &[u8]) -> Result<Vec<u8>, ZmtpError> {
        let mut out = Vec::new();
        if let Some((publisher, front)) = self.lines.get_mut(&connection) {
            front.extend_from_slice(bytes);
            loop {
                let handled = publisher.handle(front, &Mechanism::Null, &mut out)?;
                let (len, event) = (handled.len, handled.event);
                if matches!(event, PublisherEvent::Incomplete) {
                    break;
                }
                front.drain(..len);
            }
        }
        Ok(out)
    }

    /// The connection has ended.
    pub fn gone(&mut self, connection: usize) {
        self.lines.remove(&connection);
    }

    /// Publishes the messages of a tick; returns the bytes for each connection.
    pub fn publish(&mut self, now_ns: u64) -> Vec<(usize, Vec<u8>)> {
        let mut all: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for number in self.total..self.total + self.burst {
            let variant = (number % TOPICS) as u16;
            let stamp = Stamp {
                run_tag: self.run_tag,
                stream: StreamId { publication: 0, variant, client: 0 },
                sequence: (number / TOPICS) as u32,
                intended_ns: now_ns,
                sent: SentAt::plain(now_ns),
            };
            let topic = topic(number);
            for (&connection, (publisher, _)) in &self.lines {
                if publisher.is_connected() && publisher.wants(topic.as_bytes()) {
                    let out = all.entry(connection).or_default();
                    encode_message(topic.as_bytes(), &stamp.to_bytes(), out);
                    self.copies += 1;
                }
            }
        }
        self.total += self.burst;
        all.into_iter().collect()
    }
}

/// Topic of a message by its number.
pub fn topic(number: u64) -> String {
    format!("s{}/", 1 + number % TOPICS)
}
