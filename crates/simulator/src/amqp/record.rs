//! The record of an AMQP connection: the packets of both ends in full.

use std::collections::BTreeSet;

use super::packet::PacketReader;

/// Both directions of a connection.
#[derive(Default)]
pub struct AmqpRecord {
    up: PacketReader,
    down: PacketReader,
    /// Channels with confirms.
    confirms: BTreeSet<u16>,
    /// The broker's bytes are no AMQP any more.
    is_broken: bool,
}

impl AmqpRecord {
    /// The client has written bytes; returns the number of packets that are whole now, and the
    /// bodies of messages among them: `true` for those that the broker confirms.
    pub fn written(&mut self, bytes: &[u8]) -> (u64, Vec<(Vec<u8>, bool)>) {
        let (packets, read) = self.up.take(bytes);
        read.expect("the engine speaks AMQP");
        let (count, mut messages) = (packets.len() as u64, Vec::new());
        for packet in packets {
            match packet.method {
                (85, 10) => drop(self.confirms.insert(packet.channel)),
                (60, 40) => {
                    messages.push((packet.body, self.confirms.contains(&packet.channel)));
                }
                _ => {}
            }
        }
        (count, messages)
    }

    /// The client has read bytes; returns the number of packets that are whole now, and the bodies
    /// of deliveries among them.
    pub fn read(&mut self, bytes: &[u8]) -> (u64, Vec<Vec<u8>>) {
        if self.is_broken {
            return (0, Vec::new());
        }
        let (packets, read) = self.down.take(bytes);
        self.is_broken = read.is_err();
        let count = packets.len() as u64;
        let deliveries = packets.into_iter().filter(|packet| packet.method == (60, 60));
        (count, deliveries.map(|packet| packet.body).collect())
    }
}
