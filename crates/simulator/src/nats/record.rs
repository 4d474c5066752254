//! The record of a NATS connection: the operations of both ends in full, and answers to PINGs.

use std::collections::VecDeque;

use super::operation::NatsOperation;

/// Both directions of a connection.
#[derive(Default)]
pub struct NatsRecord {
    up: RecordWay,
    down: RecordWay,
    /// Subscriptions that the client has ended since its last PING.
    ended: u64,
    /// Subscriptions that the client ended before each PING whose PONG it has not read.
    pings: VecDeque<u64>,
}

/// One direction.
#[derive(Default)]
struct RecordWay {
    /// The front of an operation.
    front: Vec<u8>,
    /// It is no NATS any more.
    is_broken: bool,
}

impl NatsRecord {
    /// The client has written bytes; returns the operations that are whole now.
    pub fn written(&mut self, bytes: &[u8]) -> Vec<NatsOperation> {
        let operations = self.up.take(bytes);
        for operation in &operations {
            match &operation.name[..] {
                "UNSUB" => self.ended += 1,
                "PING" => self.pings.push_back(std::mem::take(&mut self.ended)),
                _ => {}
            }
        }
        operations
    }

    /// The client has read bytes; returns the operations that are whole now, and the number of
    /// subscriptions whose end the server has confirmed.
    pub fn read(&mut self, bytes: &[u8]) -> (Vec<NatsOperation>, u64) {
        let operations = self.down.take(bytes);
        let pongs = operations.iter().filter(|operation| operation.name == "PONG");
        let ended = pongs.map(|_| self.pings.pop_front().unwrap_or(0)).sum();
        (operations, ended)
    }
}

impl RecordWay {
    fn take(&mut self, bytes: &[u8]) -> Vec<NatsOperation> {
        self.front.extend_from_slice(bytes);
        let (mut operations, mut taken) = (Vec::new(), 0);
        while !self.is_broken {
            match NatsOperation::read(&self.front[taken..]) {
                Ok(Some((operation, len))) => {
                    operations.push(operation);
                    taken += len;
                }
                Ok(None) => break,
                Err(_) => self.is_broken = true,
            }
        }
        self.front.drain(..taken);
        operations
    }
}
