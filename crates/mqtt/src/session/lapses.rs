//! Rules that a server broke and after which the connection continues.

/// A rule that a server broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Lapse {
    /// A packet above the client's Maximum Packet Size `[MQTT5-3.1.2-24]`.
    PacketSize,
    /// No Assigned Client Identifier for an empty client identifier `[MQTT5-3.2.2-16]`.
    NoClientId,
    /// PUBCOMP with an error for a message that was sent once (3.7.2.1).
    PubCompError,
    /// AUTH or CONNACK with another method than CONNECT, or none `[MQTT5-4.12.0-5]`.
    OtherMethod,
    /// SUBACK that grants what CONNACK said is not available (3.2.2.3.11 to 3.2.2.3.13).
    Unavailable,
}

/// A set of lapses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lapses(u8);

impl Lapses {
    /// No lapse.
    pub const NONE: Self = Self(0);

    /// Returns `true` without a lapse.
    #[must_use]
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// A single lapse.
    #[must_use]
    pub const fn of(lapse: Lapse) -> Self {
        Self(1 << lapse as u8)
    }

    /// Adds a lapse.
    #[cold]
    pub const fn note(&mut self, lapse: Lapse) {
        *self = self.with(Self::of(lapse));
    }

    /// The lapses of both sets.
    #[must_use]
    #[inline]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The lapses.
    pub fn iter(self) -> impl Iterator<Item = Lapse> {
        use Lapse::{NoClientId, OtherMethod, PacketSize, PubCompError, Unavailable};
        [PacketSize, NoClientId, PubCompError, OtherMethod, Unavailable]
            .into_iter()
            .filter(move |&lapse| self.0 & Self::of(lapse).0 != 0)
    }
}

#[cfg(test)]
mod tests;
