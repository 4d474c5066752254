//! Faults at an instant: what each does to the connections, the broker and the time.

use mqtt::{Ack, Packet, Publish};

use super::Network;
use crate::weather::Fault;

impl Network {
    /// Lets the fault of this index happen.
    pub(super) fn go_wrong(&mut self, index: usize) {
        let (_, fault) = self.weather.faults[index];
        self.weather.note(fault.name());
        match fault {
            Fault::Restart { down_ns, forgets } => {
                self.weather.refuse_until_ns = self.now_ns + down_ns;
                self.peer.restart(forgets, self.weather.refuse_until_ns);
            }
            Fault::Stall { per_cent, ns } => {
                for index in 0..self.connections.len() {
                    if self.rng.chance(per_cent) {
                        self.connections[index].stalled_until_ns = self.now_ns.saturating_add(ns);
                    }
                }
                self.quic.stall(per_cent, self.now_ns.saturating_add(ns));
            }
            Fault::Rebind { per_cent, keeps } => self.quic.rebind(per_cent, keeps),
            Fault::Standstill { ns } => self.now_ns += ns,
            Fault::Flood { bytes } => {
                let message =
                    Publish { topic: "flood", payload: &[b'.'; 1000], ..Publish::default() };
                self.peer.flood(bytes, &Packet::Publish(message), |_| true);
            }
            Fault::Deaf { bytes, ns, per_cent } => {
                let chosen: Vec<bool> =
                    self.connections.iter().map(|_| self.rng.chance(per_cent)).collect();
                // Of a message that is not in flight: the client answers with PUBREL.
                let packet = Packet::PubRec(Ack::of(u16::MAX));
                let over_quic = self.quic.stall(per_cent, self.now_ns + ns);
                self.peer.flood(bytes, &packet, |connection| {
                    chosen.get(connection).copied().unwrap_or(over_quic.contains(&connection))
                });
                self.take_output();
                for (connection, _) in
                    self.connections.iter_mut().zip(chosen).filter(|(_, is_chosen)| *is_chosen)
                {
                    connection.stalled_until_ns = self.now_ns + ns;
                }
            }
            Fault::Hang { per_cent, manner } => {
                self.peer.hang_up(manner, |_| self.rng.chance(per_cent));
            }
        }
        self.take_output();
    }
}
