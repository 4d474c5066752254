//! Packets of a client for which its socket had no room yet. They are kept whole, so that lost
//! messages can be counted; an offset marks the bytes that are written.

use super::Client;
use crate::context::Context;
use crate::seam::{Protocol, Session, SessionSetup};

/// Bytes of replies that may wait for the socket before the client reads no further and answers no
/// request: a peer that sends without reading would fill the memory. Messages of its own do not
/// count, since a peer may read them only after the client has read.
pub const UNSENT_MAX: usize = 1024 * 1024;

/// Bytes in front of the offset that are kept at most, before they are given back.
const GONE_MAX: usize = 64 * 1024;

/// Packets, the first of which may have gone in part.
pub struct Unsent {
    packets: Vec<u8>,
    /// Bytes that have gone.
    gone: usize,
    /// Bytes in front, of the write that found no room. Replies follow.
    first: usize,
}

impl Unsent {
    /// Packets of which `gone` bytes have gone.
    pub fn new(packets: &[u8], gone: usize) -> Self {
        Self { packets: packets.to_vec(), gone, first: packets.len() }
    }

    /// Puts packets of a protocol behind these.
    pub fn extend(&mut self, setup: &SessionSetup, packets: &[u8]) {
        if self.gone >= GONE_MAX {
            let whole = Session::cut(setup, &self.packets, self.gone).len;
            self.packets.drain(..whole);
            self.gone -= whole;
            self.first = self.first.saturating_sub(whole);
        }
        self.packets.extend_from_slice(packets);
    }

    /// Bytes that have not gone.
    pub fn rest(&self) -> &[u8] {
        &self.packets[self.gone..]
    }

    /// Bytes of replies that wait.
    pub fn replies(&self) -> usize {
        self.packets.len() - self.gone.max(self.first)
    }

    /// Returns `true` while more than [`UNSENT_MAX`] bytes of replies wait.
    pub fn is_full(&self) -> bool {
        self.replies() > UNSENT_MAX
    }

    /// More bytes have gone.
    pub const fn advance(&mut self, count: usize) {
        self.gone += count;
    }

    /// Messages that have not gone in full and that no retransmission repeats.
    pub fn messages(&self, setup: &SessionSetup) -> u64 {
        let whole = Session::cut(setup, &self.packets, self.gone).len;
        Session::cut(setup, &self.packets[whole..], usize::MAX).unacknowledged
    }
}

impl Client {
    /// Counts the messages in packets that are not written any more.
    pub(super) fn drop_unsent(&mut self, context: &mut Context) {
        let setup = &context.setup.populations[usize::from(self.population)].protocol;
        let tally = &mut context.tally.populations[usize::from(self.population)];
        if let Some(unsent) = self.unsent.take() {
            tally.counters.unsent_dropped_total += unsent.messages(setup);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::plans::population;

    fn setup() -> SessionSetup {
        SessionSetup::new(&population("p", 1), u32::MAX)
    }

    /// PUBLISH packets of MQTT 3.1.1.
    fn packets(qos: &[u8]) -> Vec<u8> {
        let packet = |&qos: &u8| match qos {
            0 => &b"\x30\x04\0\x01tp"[..],
            _ => b"\x32\x06\0\x01t\0\x07p",
        };
        qos.iter().flat_map(packet).copied().collect()
    }

    #[test]
    fn messages_of_qos_0_count_until_their_last_byte_has_gone() {
        let all = packets(&[0, 1, 0]);
        let first = packets(&[0]).len();
        for gone in 0..=all.len() {
            let left = u64::from(gone < first) + u64::from(gone < all.len());
            assert_eq!(Unsent::new(&all, gone).messages(&setup()), left, "{gone} bytes gone");
        }
    }

    #[test]
    fn what_has_gone_is_given_back_packet_by_packet() {
        let many = packets(&[0; 20_000]);
        let mut unsent = Unsent::new(&many, 0);
        unsent.advance(many.len() - 3);
        unsent.extend(&setup(), &packets(&[0]));
        assert!(unsent.packets.len() < 100);
        assert_eq!((unsent.messages(&setup()), unsent.rest().len()), (2, 3 + many.len() / 20_000));
    }

    #[test]
    fn own_messages_that_wait_keep_no_client_from_reading_and_replies_do() {
        let own = vec![0; 4 * UNSENT_MAX];
        let mut unsent = Unsent::new(&own, 1);
        assert!(!unsent.is_full());
        unsent.extend(&setup(), &vec![0; UNSENT_MAX]);
        assert!(!unsent.is_full());
        unsent.extend(&setup(), &[0, 0]);
        assert!(unsent.is_full());
        unsent.advance(own.len());
        assert!(unsent.is_full(), "one byte of the replies has gone, and one is too many");
        unsent.advance(1);
        assert!(!unsent.is_full());
    }
}
