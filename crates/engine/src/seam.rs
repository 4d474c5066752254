//! The seam between clients and the protocols that they speak: bytes in, neutral events out. A
//! further protocol is one file of this folder, which implements [`Protocol`], and one variant of
//! each enum of this file.

mod amqp;
mod cause;
mod keep_alive;
mod login;
mod mqtt;
mod nats;
mod protocol;
pub mod received;
mod token;
mod zmtp;

use plan::Population;

use self::amqp::{AmqpClient, AmqpSetup};
use self::mqtt::{MqttClient, MqttScratch, MqttSetup};
use self::nats::{NatsClient, NatsSetup};
use self::received::Inbox;
use self::zmtp::{ZmtpClient, ZmtpSetup};

pub use self::cause::{Broken, Cause};
pub use self::login::{Exchanges, Login, nonce};
pub use self::protocol::{
    Accepted, Answer, At, Buffers, Cut, Event, FirstBytes, Goodbye, Hold, Notice, Outgoing,
    OwnMessage, Polled, Protocol, Refusals, Request, Resend, Resent, Side, Step, Timeout,
};
pub use self::received::Response;
pub use self::token::Token;

/// Protocol state of a client.
pub enum Session {
    /// That of an MQTT client.
    Mqtt(MqttClient),
    /// That of a SUB socket of ZeroMQ.
    Zmtp(ZmtpClient),
    /// That of a client of NATS.
    Nats(NatsClient),
    /// That of a client of AMQP.
    Amqp(AmqpClient),
}

/// Settings that all clients of a population share for their protocol.
pub struct SessionSetup {
    /// Messages that the peer may send before the client acknowledges one; `u64::MAX`: all.
    pub prefetch: u64,
    /// `true` if a client proves that it has the password, and does not send the password.
    pub proves_password: bool,
    own: ProtocolSetup,
}

/// Settings of one protocol.
enum ProtocolSetup {
    Mqtt(MqttSetup),
    Zmtp(ZmtpSetup),
    Nats(NatsSetup),
    /// Of a protocol that other programs play.
    OfOthers,
    Amqp(AmqpSetup),
}

/// Memory for parts of packets while the packets are made.
#[derive(Default)]
pub struct Scratch {
    /// The text of a payload or property.
    text: Vec<u8>,
    mqtt: MqttScratch,
}

const _: () = assert!(size_of::<Session>() <= 32, "protocol 24, keep-alive 8");

/// Evaluates an expression with a session and the client as the session's protocol sees it.
macro_rules! each {
    ($session:expr, $at:expr, |$own:ident, $seen:ident| $body:expr) => {
        match $session {
            Session::Mqtt($own) => {
                let ProtocolSetup::Mqtt(setup) = &$at.setup.own else { other() };
                let $seen = &$at.with(setup);
                $body
            }
            Session::Zmtp($own) => {
                let ProtocolSetup::Zmtp(setup) = &$at.setup.own else { other() };
                let $seen = &$at.with(setup);
                $body
            }
            Session::Nats($own) => {
                let ProtocolSetup::Nats(setup) = &$at.setup.own else { other() };
                let $seen = &$at.with(setup);
                $body
            }
            Session::Amqp($own) => {
                let ProtocolSetup::Amqp(setup) = &$at.setup.own else { other() };
                let $seen = &$at.with(setup);
                $body
            }
        }
    };
}

#[cold]
fn other() -> ! {
    unreachable!("a client has the session of its population's protocol")
}

impl SessionSetup {
    /// Settings of a population, in a plan with this largest packet that a client accepts, in
    /// bytes.
    pub fn new(population: &Population, packet_bytes_max: u32) -> Self {
        match &population.protocol {
            plan::PlannedProtocol::Mqtt(options) => Self {
                prefetch: MqttSetup::receive_maximum(options),
                proves_password: MqttSetup::proves_password(options),
                own: ProtocolSetup::Mqtt(MqttSetup::new(population, options, packet_bytes_max)),
            },
            plan::PlannedProtocol::Zmtp(options) => Self {
                prefetch: u64::MAX,
                proves_password: false,
                own: ProtocolSetup::Zmtp(ZmtpSetup::new(options)),
            },
            plan::PlannedProtocol::Nats(options) => Self {
                prefetch: u64::MAX,
                proves_password: false,
                own: ProtocolSetup::Nats(NatsSetup::new(population, options)),
            },
            plan::PlannedProtocol::Kafka(_) | plan::PlannedProtocol::Amqp1(_) => {
                Self { prefetch: u64::MAX, proves_password: false, own: ProtocolSetup::OfOthers }
            }
            plan::PlannedProtocol::Amqp(options) => Self {
                prefetch: u64::MAX,
                proves_password: false,
                own: ProtocolSetup::Amqp(AmqpSetup::new(population, options)),
            },
        }
    }
}

impl Session {
    /// State of a client that has never connected.
    pub fn new(protocol: &plan::PlannedProtocol) -> Self {
        match protocol {
            plan::PlannedProtocol::Mqtt(_) => Self::Mqtt(MqttClient::NEW),
            plan::PlannedProtocol::Zmtp(_) => Self::Zmtp(ZmtpClient::NEW),
            plan::PlannedProtocol::Nats(_) => Self::Nats(NatsClient::NEW),
            plan::PlannedProtocol::Kafka(_) | plan::PlannedProtocol::Amqp1(_) => other(),
            plan::PlannedProtocol::Amqp(_) => Self::Amqp(AmqpClient::NEW),
        }
    }
}

impl Protocol for Session {
    type Setup = SessionSetup;

    #[inline]
    fn handle<'b>(
        &mut self,
        at: &At<'_, SessionSetup>,
        bytes: &'b [u8],
        out: &mut Vec<u8>,
        inbox: &mut impl Inbox,
    ) -> Step<'b> {
        each!(self, at, |session, at| session.handle(at, bytes, out, inbox))
    }

    #[inline(always)]
    fn poll(&mut self, at: &At<'_, SessionSetup>, request: Request<'_>, to: Buffers<'_>) -> Polled {
        each!(self, at, |session, at| session.poll(at, request, to))
    }

    #[inline(always)]
    fn deadline(&self, at: &At<'_, SessionSetup>, side: Side) -> u64 {
        each!(self, at, |session, at| session.deadline(at, side))
    }

    #[inline(always)]
    fn receipt_ns(&self) -> u64 {
        match self {
            Self::Amqp(session) => session.receipt_ns(),
            Self::Mqtt(_) | Self::Zmtp(_) | Self::Nats(_) => u64::MAX,
        }
    }

    fn blocked_ns(&mut self, now_ns: u64) -> u64 {
        match self {
            Self::Amqp(session) => session.blocked_ns(now_ns),
            Self::Mqtt(_) | Self::Zmtp(_) | Self::Nats(_) => 0,
        }
    }

    #[inline(always)]
    fn timeout(&mut self, at: &At<'_, SessionSetup>, out: &mut Vec<u8>) -> Timeout {
        each!(self, at, |session, at| session.timeout(at, out))
    }

    #[inline(always)]
    fn note(&mut self, notice: Notice) -> u64 {
        match self {
            Self::Mqtt(session) => session.note(notice),
            Self::Zmtp(session) => session.note(notice),
            Self::Nats(session) => session.note(notice),
            Self::Amqp(session) => session.note(notice),
        }
    }

    fn cut(setup: &SessionSetup, packets: &[u8], end: usize) -> Cut {
        match &setup.own {
            ProtocolSetup::Mqtt(setup) => MqttClient::cut(setup, packets, end),
            ProtocolSetup::Zmtp(setup) => ZmtpClient::cut(setup, packets, end),
            ProtocolSetup::Nats(setup) => NatsClient::cut(setup, packets, end),
            ProtocolSetup::OfOthers => other(),
            ProtocolSetup::Amqp(setup) => AmqpClient::cut(setup, packets, end),
        }
    }
}
