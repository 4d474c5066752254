//! Scripted faults of the broker.

use std::fmt;

use mqtt::{PacketType, QoS};

/// Reason code of a CONNACK: Bad authentication method.
const BAD_METHOD: u8 = 0x8c;

/// Treatment of one acknowledgement that the broker would send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Sent once.
    Send,
    /// Never sent.
    Drop,
    /// Sent twice.
    Duplicate,
    /// Sent after the answers to the client's next bytes, out of order.
    Delay,
}

/// Answer to a step of an enhanced authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepAnswer {
    /// AUTH with these data: the client answers.
    Continue(Vec<u8>),
    /// CONNACK with these data: the client is accepted.
    Accept(Vec<u8>),
    /// CONNACK with this reason code, which refuses.
    Refuse(u8),
    /// Nothing.
    Silence,
}

/// Limits that CONNACK announces to a client of MQTT 5. The broker panics if a client exceeds one.
#[derive(Clone, Copy, Debug)]
pub struct Announced {
    /// Messages of QoS 1 and 2 in flight.
    pub receive_maximum: u16,
    /// Bytes of a packet; `None`: CONNACK has no maximum.
    pub packet_bytes_max: Option<u32>,
    /// Largest topic alias.
    pub topic_alias_maximum: u16,
    /// Largest QoS.
    pub qos_max: QoS,
    /// `true` if messages may be retained.
    pub retains: bool,
}

impl Announced {
    /// Limits of a plain broker.
    pub const PLAIN: Self = Self {
        receive_maximum: 5,
        packet_bytes_max: None,
        topic_alias_maximum: 2,
        qos_max: QoS::ExactlyOnce,
        retains: true,
    };
}

impl Default for Announced {
    /// No limits, as for clients of older versions.
    fn default() -> Self {
        Self { receive_maximum: u16::MAX, topic_alias_maximum: 0, ..Self::PLAIN }
    }
}

/// Answers the steps that a client has sent.
pub type Authenticate = Box<dyn FnMut(&[Vec<u8>]) -> StepAnswer>;

/// Deviations of the broker from a plain broker.
pub struct Script {
    /// Code of every CONNACK; codes other than 0 refuse.
    pub connack_code: u8,
    /// Largest number of QoS 1 and 2 messages in flight to one client.
    pub window: usize,
    /// Chooses the limits of each connection of MQTT 5.
    pub announce: Box<dyn FnMut() -> Announced>,
    /// Identifiers of clients that receive no messages.
    pub muted: Vec<String>,
    /// Each shared subscription receives every second message through two members, and the others
    /// never.
    pub doubles_shared: bool,
    /// A client receives a copy of a message for each of its matching filters `[MQTT-3.3.5-1]`.
    pub sends_copies: bool,
    /// Messages are delivered whose expiry is over, and with the expiry that they came with.
    pub ignores_expiry: bool,
    /// UNSUBSCRIBE of MQTT 5 is refused: Not authorized.
    pub refuses_unsubscribe: bool,
    /// Answers a client that has sent these steps in CONNECT and AUTH. By default the broker has no
    /// method of authentication.
    pub authenticate: Authenticate,
    /// Number of times that the broker publishes the will of a connection; `true`: the connection
    /// ended in a way after which the will is due.
    pub wills: Box<dyn FnMut(bool) -> usize>,
    /// Chooses the reason code of the PUBACK or PUBREC of each message of MQTT 5. Codes from 0x80
    /// on refuse the message.
    pub code: Box<dyn FnMut() -> u8>,
    /// Chooses the fate of each PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK.
    pub fate: Box<dyn FnMut(PacketType) -> Fate>,
}

/// Limits of what the broker sends to one client.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendLimits {
    /// Largest number of QoS 1 and 2 messages in flight.
    pub(super) window: usize,
    /// Instant up to which messages have expired, in ns.
    pub(super) now_ns: u64,
}

impl Script {
    pub(super) const fn limits(&self, now_ns: u64) -> SendLimits {
        let now_ns = if self.ignores_expiry { 0 } else { now_ns };
        SendLimits { window: self.window, now_ns }
    }

    /// A broker without faults.
    #[must_use]
    pub fn reliable() -> Self {
        Self::with_fates(|_| Fate::Send)
    }

    /// A broker whose acknowledgements have the fate that `fate` returns.
    #[must_use]
    pub fn with_fates(fate: impl FnMut(PacketType) -> Fate + 'static) -> Self {
        let fate = Box::new(fate);
        let muted = Vec::new();
        Self {
            connack_code: 0,
            window: 20,
            announce: Box::new(|| Announced::PLAIN),
            muted,
            doubles_shared: false,
            sends_copies: false,
            ignores_expiry: false,
            refuses_unsubscribe: false,
            authenticate: Box::new(|_| StepAnswer::Refuse(BAD_METHOD)),
            wills: Box::new(usize::from),
            code: Box::new(|| 0),
            fate,
        }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connack_code, window, muted, .. } = self;
        write!(f, "Script {{ connack_code: {connack_code}, window: {window}, muted: {muted:?} }}")
    }
}
