//! Keep-alive of one connection, for every protocol: a packet that the peer answers after a silence
//! of the client (MQTT 3.1.2.10; ZMTP 37, Connection Heartbeating), and detection of a silent peer.

use plan::SECOND_NS;

/// Result of a keep-alive whose instant may have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The deadline is in the future, or there is no keep-alive.
    NotDue,
    /// The session has appended the packet that the peer answers.
    Pinged,
    /// The peer has sent nothing within an interval after that packet: the connection ends.
    Dead,
}

/// Instant of the last bytes sent, in nanoseconds, times 2. The lowest bit is set from a ping to
/// the next bytes of the peer: the instant is then that of the ping.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive(u64);

impl KeepAlive {
    /// State before the first bytes.
    pub const NEW: Self = Self(0);

    /// Notes that bytes were sent, which postpones the next ping [MQTT-3.1.2-23]. While a ping is
    /// unanswered they do not: traffic of the client must not postpone the end.
    #[inline]
    pub const fn note_sent(&mut self, now_ns: u64) {
        if !self.is_unanswered() {
            self.0 = now_ns << 1;
        }
    }

    /// Notes bytes of the peer, also those of a packet whose rest has not arrived: the answer to a
    /// ping may wait behind other traffic.
    #[inline]
    pub const fn note_receipt(&mut self) {
        self.0 &= !1;
    }

    /// Notes that a ping was sent.
    pub const fn note_ping(&mut self, now_ns: u64) {
        self.0 = now_ns << 1 | 1;
    }

    /// Returns `true` if the peer has sent nothing since the last ping.
    #[inline]
    pub const fn is_unanswered(self) -> bool {
        self.0 & 1 == 1
    }

    /// Instant at which the next ping is due or an unanswered one means the end, in nanoseconds.
    pub const fn after(self, interval_s: u16) -> u64 {
        self.after_halves(2, interval_s)
    }

    /// Instant `halves` half intervals after the last bytes sent, in nanoseconds.
    pub const fn after_halves(self, halves: u64, interval_s: u16) -> u64 {
        (self.0 >> 1).saturating_add(interval_s as u64 * SECOND_NS / 2 * halves)
    }
}

#[cfg(test)]
mod tests {
    use plan::{Population, Protocol, Security};

    use super::*;
    use crate::seam::received::{Inbox, Next, Received};
    use crate::seam::{Identity, Limits, Session};
    use testkit::plans;

    const S: u64 = SECOND_NS;
    const PING: &[u8] = b"\x04\x07\x04PING\0\0";
    const PONG: &[u8] = b"\x04\x05\x04PONG";

    struct Trash;

    impl Inbox for Trash {
        fn take(&mut self, _: &Received<'_>) -> Next {
            Next::More
        }
    }

    /// A population of one socket of ZeroMQ, with a keep-alive of 10 s.
    fn sockets() -> Population {
        let mut population = plans::population("sockets", 1);
        population.protocol = Protocol::Zmtp(plan::Zmtp {
            player: plan::Player::Engine,
            high_water_mark: 0,
            io_threads: 1,
            security: Security::Null,
        });
        population.keep_alive_s = 10;
        population
    }

    /// A connected session of a publisher of ZMTP 3.`minor`.
    fn connected(population: &Population, minor: u8) -> Session {
        let mut session = Session::new(&population.protocol);
        let identity = Identity { population, n: 0 };
        let mut out = Vec::new();
        session.open(&identity, None, &mut out).unwrap();
        out[11] = minor;
        let ready = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB";
        let bytes = [&out[..], ready].concat();
        let reading = session.reading(&identity, Limits::new(population, u32::MAX));
        let mut handled = 0;
        while handled < bytes.len() {
            let (out, inbox) = (&mut Vec::new(), &mut Trash);
            handled += session.handle(&reading, &bytes[handled..], out, inbox).len;
        }
        session
    }

    fn receive(session: &mut Session, population: &Population, bytes: &[u8]) {
        session.note_receipt();
        let reading =
            session.reading(&Identity { population, n: 0 }, Limits::new(population, u32::MAX));
        session.handle(&reading, bytes, &mut Vec::new(), &mut Trash);
    }

    #[test]
    fn a_silent_client_pings_and_a_silent_peer_is_dead() {
        let population = sockets();
        let (mut session, mut out) = (connected(&population, 1), Vec::new());
        let mut at =
            |session: &mut Session, now_ns| session.keep_alive(&population, now_ns, &mut out);
        session.note_sent(5 * S);
        assert_eq!(session.keep_alive_deadline(10), Some(15 * S));
        assert_eq!(at(&mut session, 15 * S - 1), Liveness::NotDue);
        session.note_sent(6 * S);
        assert_eq!(at(&mut session, 15 * S), Liveness::NotDue);
        assert_eq!(at(&mut session, 16 * S), Liveness::Pinged);
        session.note_sent(20 * S);
        assert_eq!(session.keep_alive_deadline(10), Some(26 * S), "sending postpones nothing now");
        assert_eq!(at(&mut session, 26 * S - 1), Liveness::NotDue);
        assert_eq!(at(&mut session, 26 * S), Liveness::Dead);
        assert_eq!(out, PING);
        session.lost(&population);
        assert_eq!(session.keep_alive_deadline(10), None);
    }

    #[test]
    fn any_bytes_of_the_peer_are_a_sign_of_life() {
        let population = sockets();
        // An answer, a message, one of two frames, and the front of a frame of 1000 bytes.
        let front = [b"\x02\0\0\0\0\0\0\x03\xe8".as_slice(), &[b'.'; 100]].concat();
        for sign in [PONG, b"\0\x01x", b"\x01\x01a\0\x01b", &front] {
            let mut session = connected(&population, 1);
            let at = |session: &mut Session, now_ns| {
                session.keep_alive(&population, now_ns, &mut Vec::new())
            };
            assert_eq!(at(&mut session, 10 * S), Liveness::Pinged);
            receive(&mut session, &population, sign);
            assert_eq!(at(&mut session, 20 * S), Liveness::Pinged, "{sign:02x?}");
            assert_eq!(at(&mut session, 30 * S), Liveness::Dead);
        }
    }

    #[test]
    fn traffic_after_a_sign_of_life_postpones_the_next_ping() {
        let mut keep_alive = KeepAlive::NEW;
        keep_alive.note_ping(10 * S);
        keep_alive.note_receipt();
        keep_alive.note_sent(14 * S);
        assert_eq!((keep_alive.after(10), keep_alive.after_halves(3, 10)), (24 * S, 29 * S));
        assert_eq!(KeepAlive::NEW.after(u16::MAX), 65_535 * S);
    }

    #[test]
    fn there_is_no_keep_alive_without_an_interval_or_a_peer_that_answers() {
        let population = sockets();
        assert_eq!(connected(&population, 1).keep_alive_deadline(0), None);
        assert_eq!(connected(&population, 0).keep_alive_deadline(10), None);
        assert_eq!(Session::new(&population.protocol).keep_alive_deadline(10), None);
        let clients = plans::population("clients", 1);
        assert_eq!(Session::new(&clients.protocol).keep_alive_deadline(10), None);
    }
}
