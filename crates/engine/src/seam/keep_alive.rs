//! Keep-alive of one connection, for every protocol: a packet that the peer answers after a silence
//! of the client (MQTT 3.1.2.10; ZMTP 37, Connection Heartbeating), and detection of a silent peer.

use plan::{Reason, SECOND_NS};

use super::protocol::{Notice, Side, Timeout};

/// Instant of the last bytes sent, in nanoseconds, times 2. The lowest bit is set from a ping to
/// the next bytes of the peer: the instant is then that of the ping.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive(u64);

impl KeepAlive {
    /// State before the first bytes.
    pub const NEW: Self = Self(0);

    /// Notes an event of the connection. Sent bytes postpone the next ping [MQTT-3.1.2-23], but not
    /// while a ping is unanswered: traffic of the client must not postpone the end. Received bytes
    /// may be those of a packet whose rest has not arrived: the answer to a ping may wait behind
    /// other traffic.
    #[inline]
    pub const fn note(&mut self, notice: Notice) {
        match notice {
            Notice::Sent(now_ns) if !self.is_unanswered() => self.0 = now_ns << 1,
            Notice::Alive => self.0 &= !1,
            Notice::Lost { .. } => *self = Self::NEW,
            Notice::Sent(_) | Notice::Shared => {}
        }
    }

    /// Instant at which the next ping is due or an unanswered one means the end; or at which the
    /// peer gives up a client that sends nothing more, half an interval later [MQTT-3.1.2-24]. In
    /// nanoseconds; `u64::MAX` if the interval is 0.
    #[inline]
    pub const fn deadline(self, interval_s: u16, side: Side) -> u64 {
        let halves = match side {
            _ if interval_s == 0 => return u64::MAX,
            Side::Own => 2,
            Side::Peer => 3,
        };
        (self.0 >> 1).saturating_add(interval_s as u64 * SECOND_NS / 2 * halves)
    }

    /// Calls `ping` if its instant has come, or reports that the peer is silent.
    #[inline]
    pub fn timeout(&mut self, interval_s: u16, now_ns: u64, ping: impl FnOnce()) -> Timeout {
        if self.deadline(interval_s, Side::Own) > now_ns {
            return Timeout::Early;
        }
        if self.is_unanswered() {
            return Timeout::Dead(Reason::KeepAliveTimeout);
        }
        ping();
        self.0 = now_ns << 1 | 1;
        Timeout::Sent(1)
    }

    /// Returns `true` if the peer has sent nothing since the last ping.
    #[inline]
    const fn is_unanswered(self) -> bool {
        self.0 & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use plan::{Population, Security};

    use super::*;
    use crate::seam::received::{Inbox, Next, Received};
    use crate::seam::{At, Buffers, Protocol, Request, Scratch, Session, Setup};
    use testkit::plans;

    const S: u64 = SECOND_NS;
    const PING: &[u8] = b"\x04\x07\x04PING\0\0";
    const PONG: &[u8] = b"\x04\x05\x04PONG";
    const DEAD: Timeout = Timeout::Dead(Reason::KeepAliveTimeout);

    struct Trash;

    impl Inbox for Trash {
        fn take(&mut self, _: &Received<'_>) -> Next {
            Next::More
        }
    }

    /// A client of a population.
    struct Client {
        population: Population,
        setup: Setup,
        session: Session,
    }

    impl Client {
        fn new(population: Population) -> Self {
            let setup = Setup::new(&population, u32::MAX);
            let session = Session::new(&population.protocol);
            Self { population, setup, session }
        }

        /// A socket of ZeroMQ with a keep-alive, connected to a publisher of ZMTP 3.`minor`.
        fn connected(keep_alive_s: u16, minor: u8) -> Self {
            let mut client = Self::new(sockets(keep_alive_s));
            let mut out = Vec::new();
            let (Self { population, setup, session }, scratch) =
                (&mut client, &mut Scratch::default());
            let at = At { setup, population, n: 0, now_ns: 0 };
            session.poll(&at, Request::Open(None), Buffers { out: &mut out, scratch });
            out[11] = minor;
            let ready = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB";
            client.handle(&[&out[..], ready].concat());
            client
        }

        fn handle(&mut self, bytes: &[u8]) {
            let Self { population, setup, session } = self;
            let (at, mut handled) = (At { setup, population, n: 0, now_ns: 0 }, 0);
            while handled < bytes.len() {
                let step = session.handle(&at, &bytes[handled..], &mut Vec::new(), &mut Trash);
                if step.len == 0 {
                    break;
                }
                handled += step.len;
            }
        }

        fn timeout(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Timeout {
            let Self { population, setup, session } = self;
            session.timeout(&At { setup, population, n: 0, now_ns }, out)
        }

        fn deadline(&self) -> u64 {
            let Self { population, setup, session } = self;
            session.deadline(&At { setup, population, n: 0, now_ns: 0 }, Side::Own)
        }
    }

    /// A population of one socket of ZeroMQ.
    fn sockets(keep_alive_s: u16) -> Population {
        let mut population = plans::population("sockets", 1);
        population.protocol = plan::Protocol::Zmtp(plan::Zmtp {
            player: plan::Player::Engine,
            high_water_mark: 0,
            io_threads: 1,
            security: Security::Null,
        });
        population.keep_alive_s = keep_alive_s;
        population
    }

    #[test]
    fn a_silent_client_pings_and_a_silent_peer_is_dead() {
        let (mut client, mut out) = (Client::connected(10, 1), Vec::new());
        client.session.note(Notice::Sent(5 * S));
        assert_eq!(client.deadline(), 15 * S);
        assert_eq!(client.timeout(15 * S - 1, &mut out), Timeout::Early);
        client.session.note(Notice::Sent(6 * S));
        assert_eq!(client.timeout(15 * S, &mut out), Timeout::Early);
        assert_eq!(client.timeout(16 * S, &mut out), Timeout::Sent(1));
        client.session.note(Notice::Sent(20 * S));
        assert_eq!(client.deadline(), 26 * S, "sending postpones nothing now");
        assert_eq!(client.timeout(26 * S - 1, &mut out), Timeout::Early);
        assert_eq!(client.timeout(26 * S, &mut out), DEAD);
        assert_eq!(out, PING);
        client.session.note(Notice::Lost { keeps_session: false });
        assert_eq!(client.deadline(), u64::MAX);
    }

    #[test]
    fn any_bytes_of_the_peer_are_a_sign_of_life() {
        // An answer, a message, one of two frames, and the front of a frame of 1000 bytes.
        let front = [b"\x02\0\0\0\0\0\0\x03\xe8".as_slice(), &[b'.'; 100]].concat();
        for sign in [PONG, b"\0\x01x", b"\x01\x01a\0\x01b", &front] {
            let (mut client, out) = (Client::connected(10, 1), &mut Vec::new());
            assert_eq!(client.timeout(10 * S, out), Timeout::Sent(1));
            client.session.note(Notice::Alive);
            client.handle(sign);
            assert_eq!(client.timeout(20 * S, out), Timeout::Sent(1), "{sign:02x?}");
            assert_eq!(client.timeout(30 * S, out), DEAD);
        }
    }

    #[test]
    fn traffic_after_a_sign_of_life_postpones_the_next_ping() {
        let mut keep_alive = KeepAlive::NEW;
        assert_eq!(keep_alive.timeout(10, 10 * S, || {}), Timeout::Sent(1));
        keep_alive.note(Notice::Alive);
        keep_alive.note(Notice::Sent(14 * S));
        assert_eq!(keep_alive.deadline(10, Side::Own), 24 * S);
        assert_eq!(keep_alive.deadline(10, Side::Peer), 29 * S);
        assert_eq!(KeepAlive::NEW.deadline(u16::MAX, Side::Own), 65_535 * S);
    }

    #[test]
    fn there_is_no_keep_alive_without_an_interval_or_a_peer_that_answers() {
        assert_eq!(Client::connected(0, 1).deadline(), u64::MAX);
        assert_eq!(Client::connected(10, 0).deadline(), u64::MAX);
        assert_eq!(Client::new(sockets(10)).deadline(), u64::MAX);
        let clients = Population { keep_alive_s: 10, ..plans::population("clients", 1) };
        assert_eq!(Client::new(clients).deadline(), u64::MAX);
    }
}
