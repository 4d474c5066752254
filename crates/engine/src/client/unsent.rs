//! Packets of a client that its socket did not take yet. They are kept whole, so that what is lost
//! with them can be counted; an offset says how much of them has gone.

use mqtt::{Decoded, Packet, Publish, QoS, Version, decode};

/// Bytes in front of the offset that are kept at most, before they are given back.
const GONE_MAX: usize = 64 * 1024;

/// Packets, the first of which may have gone in part.
pub struct Unsent {
    packets: Vec<u8>,
    /// Bytes that have gone.
    gone: usize,
}

impl Unsent {
    /// Packets of which `gone` bytes have gone.
    pub fn new(packets: &[u8], gone: usize) -> Self {
        Self { packets: packets.to_vec(), gone }
    }

    /// Puts packets behind these.
    pub fn extend(&mut self, version: Version, packets: &[u8]) {
        if self.gone >= GONE_MAX {
            let whole = boundary(version, &self.packets, self.gone);
            self.packets.drain(..whole);
            self.gone -= whole;
        }
        self.packets.extend_from_slice(packets);
    }

    /// Bytes that have not gone.
    pub fn rest(&self) -> &[u8] {
        &self.packets[self.gone..]
    }

    /// More bytes have gone.
    pub const fn advance(&mut self, count: usize) {
        self.gone += count;
    }

    /// Messages of QoS 0 that have not gone in full: nothing sends them again.
    pub fn messages(&self, version: Version) -> u64 {
        let mut at = boundary(version, &self.packets, self.gone);
        let mut messages = 0;
        while let Ok(Decoded::Packet { packet, len }) = decode(version, &self.packets[at..]) {
            let lost = matches!(packet, Packet::Publish(Publish { qos: QoS::AtMostOnce, .. }));
            messages += u64::from(lost);
            at += len;
        }
        messages
    }
}

/// Offset of the packet that contains the byte at `offset`.
fn boundary(version: Version, packets: &[u8], offset: usize) -> usize {
    let mut at = 0;
    while let Ok(Decoded::Packet { len, .. }) = decode(version, &packets[at..]) {
        if at + len > offset {
            break;
        }
        at += len;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: Version = Version::V311;

    fn packets(qos: &[QoS]) -> Vec<u8> {
        let mut out = Vec::new();
        for &qos in qos {
            let publish =
                Publish { qos, topic: "t", packet_id: 7, payload: b"p", ..Publish::default() };
            Packet::Publish(publish).encode(V, &mut out).unwrap();
        }
        out
    }

    #[test]
    fn messages_of_qos_0_count_until_their_last_byte_has_gone() {
        let all = packets(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::AtMostOnce]);
        let first = packets(&[QoS::AtMostOnce]).len();
        for gone in 0..=all.len() {
            let left = u64::from(gone < first) + u64::from(gone < all.len());
            assert_eq!(Unsent::new(&all, gone).messages(V), left, "{gone} bytes gone");
        }
    }

    #[test]
    fn what_has_gone_is_given_back_packet_by_packet() {
        let many = packets(&[QoS::AtMostOnce; 20_000]);
        let mut unsent = Unsent::new(&many, 0);
        unsent.advance(many.len() - 3);
        unsent.extend(V, &packets(&[QoS::AtMostOnce]));
        assert!(unsent.packets.len() < 100);
        assert_eq!((unsent.messages(V), unsent.rest().len()), (2, 3 + many.len() / 20_000));
    }
}
