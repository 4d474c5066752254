//! Rules by which filters match the names of messages.

/// Rule by which filters match names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Topics of MQTT and their filters.
    Topics,
    /// Any text. A filter is a prefix of the names that it matches.
    Prefixes,
}

impl Names {
    /// Bytes of the longest name or filter.
    pub(crate) const fn bytes_max(self) -> usize {
        match self {
            Self::Topics => 65_535, // [MQTT-1.5.3]
            Self::Prefixes => usize::MAX,
        }
    }
}
