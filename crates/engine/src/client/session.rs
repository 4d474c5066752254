//! The protocol state of one client, whichever protocol it speaks: what its life needs of it.

use mqtt::{KeepAlive, Version};

use super::Message;

/// The protocol state of a client.
pub enum Session {
    /// A client of MQTT.
    Mqtt(mqtt::Session<Message>),
    /// A SUB socket of ZeroMQ.
    Zmtp(zmtp::Session),
}

impl Session {
    /// One that was never connected.
    pub const fn new(zmtp: bool) -> Self {
        if zmtp { Self::Zmtp(zmtp::Session::new()) } else { Self::Mqtt(mqtt::Session::new()) }
    }

    /// The state of a client of MQTT.
    #[inline]
    pub const fn mqtt(&mut self) -> Option<&mut mqtt::Session<Message>> {
        match self {
            Self::Mqtt(session) => Some(session),
            Self::Zmtp(_) => None,
        }
    }

    /// The state of a SUB socket.
    #[inline]
    pub const fn zmtp(&mut self) -> Option<&mut zmtp::Session> {
        match self {
            Self::Mqtt(_) => None,
            Self::Zmtp(session) => Some(session),
        }
    }

    /// Appends what is said before a connection is closed; whether there is anything to say.
    pub fn say_goodbye(&mut self, version: Version, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Mqtt(session) if session.is_open() => {
                session.disconnect(version, out);
                true
            }
            Self::Mqtt(_) | Self::Zmtp(_) => false,
        }
    }

    /// The connection is gone; how many messages in flight are dropped, unless they are kept.
    pub fn connection_lost(&mut self, keep: bool) -> usize {
        match self {
            Self::Mqtt(session) => session.connection_lost(keep),
            Self::Zmtp(session) => {
                session.connection_lost();
                0
            }
        }
    }

    /// Something was sent.
    #[inline]
    pub const fn note_sent(&mut self, now_ns: u64) {
        match self {
            Self::Mqtt(session) => session.note_sent(now_ns),
            Self::Zmtp(session) => session.note_sent(now_ns),
        }
    }

    /// Something was received, or has come and was not read yet: a sign of life.
    #[inline]
    pub const fn note_heard(&mut self) {
        if let Self::Mqtt(session) = self {
            session.note_heard();
        }
    }

    /// When a sign of life is due, in nanoseconds.
    pub fn keep_alive_deadline(&self, keep_alive_s: u16) -> Option<u64> {
        match self {
            Self::Mqtt(session) => session.keep_alive_deadline(keep_alive_s),
            Self::Zmtp(session) => session.keep_alive_deadline(keep_alive_s),
        }
    }

    /// Appends a sign of life if one is due, or says that the peer gives none.
    pub fn handle_keep_alive(
        &mut self,
        now_ns: u64,
        keep_alive_s: u16,
        version: Version,
        out: &mut Vec<u8>,
    ) -> KeepAlive {
        match self {
            Self::Mqtt(session) => session.handle_keep_alive(now_ns, keep_alive_s, version, out),
            Self::Zmtp(session) => match session.handle_keep_alive(now_ns, keep_alive_s, out) {
                zmtp::KeepAlive::NotDue => KeepAlive::NotDue,
                zmtp::KeepAlive::Pinged => KeepAlive::Pinged,
                zmtp::KeepAlive::Dead => KeepAlive::Dead,
            },
        }
    }
}
