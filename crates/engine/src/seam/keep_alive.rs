//! Keep-alive of one connection, for every protocol: a packet that the peer answers after a silence
//! of the client, as in 3.1.2.10 of MQTT, and detection of a silent peer.

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
    use super::*;

    const S: u64 = SECOND_NS;

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
}
