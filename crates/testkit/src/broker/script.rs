//! How the broker misbehaves.

use std::fmt;

use mqtt::PacketType;

/// What happens to one acknowledgement that the broker is about to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is sent.
    Send,
    /// It is never sent.
    Drop,
    /// It is sent twice.
    Duplicate,
    /// It is sent after the answers to the client's next bytes, out of order.
    Delay,
}

/// What the broker does that a plain one would not.
pub struct Script {
    /// The code of every CONNACK; other than 0 refuses.
    pub connack_code: u8,
    /// Most QoS 1 and 2 messages in flight to one client.
    pub window: usize,
    /// Identifiers of clients to which nothing is delivered.
    pub muted: Vec<String>,
    /// Decides on PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK.
    pub fate: Box<dyn FnMut(PacketType) -> Fate>,
}

impl Script {
    /// A broker that does all it should.
    #[must_use]
    pub fn reliable() -> Self {
        Self::with_fates(|_| Fate::Send)
    }

    /// A broker whose acknowledgements fare as `fate` says.
    #[must_use]
    pub fn with_fates(fate: impl FnMut(PacketType) -> Fate + 'static) -> Self {
        Self { connack_code: 0, window: 20, muted: Vec::new(), fate: Box::new(fate) }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connack_code, window, muted, .. } = self;
        write!(f, "Script {{ connack_code: {connack_code}, window: {window}, muted: {muted:?} }}")
    }
}
