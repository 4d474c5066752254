//! The record of an AMQP connection: the packets of both ends in full.

use std::collections::{BTreeMap, BTreeSet};

use super::packet::PacketReader;

/// Both directions of a connection.
#[derive(Default)]
pub struct AmqpRecord {
    up: PacketReader,
    down: PacketReader,
    /// Bodies of deliveries by channel and number, up to a refusal of the client.
    delivered: BTreeMap<(u16, u64), Vec<u8>>,
    /// Channels with confirms.
    confirms: BTreeSet<u16>,
    /// The broker's bytes are no AMQP any more.
    is_broken: bool,
}

/// Packets that a client has written in full.
#[derive(Default)]
pub struct WrittenPackets {
    /// Number of packets.
    pub count: u64,
    /// Bodies of messages: `true` for those that the broker confirms.
    pub messages: Vec<(Vec<u8>, bool)>,
    /// Bodies of deliveries that the client has refused.
    pub refused: Vec<Vec<u8>>,
}

impl AmqpRecord {
    /// The client has written bytes; returns the packets that are whole now.
    pub fn written(&mut self, bytes: &[u8]) -> WrittenPackets {
        let (packets, read) = self.up.take(bytes);
        read.expect("the engine speaks AMQP");
        let mut written =
            WrittenPackets { count: packets.len() as u64, ..WrittenPackets::default() };
        for packet in packets {
            match packet.method {
                (85, 10) => drop(self.confirms.insert(packet.channel)),
                (60, 40) => {
                    let is_confirmed = self.confirms.contains(&packet.channel);
                    written.messages.push((packet.body, is_confirmed));
                }
                (60, 120) => {
                    let delivery = (packet.channel, packet.number(0));
                    written.refused.extend(self.delivered.remove(&delivery));
                }
                _ => {}
            }
        }
        written
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
        let mut bodies = Vec::new();
        for packet in packets.into_iter().filter(|packet| packet.method == (60, 60)) {
            let [tag] = packet.texts(0);
            let delivery = (packet.channel, packet.number(1 + tag.len()));
            self.delivered.insert(delivery, packet.body.clone());
            bodies.push(packet.body);
        }
        (count, bodies)
    }
}
