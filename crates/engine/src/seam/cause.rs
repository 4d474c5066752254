//! The reason of a problem, with the texts of the peer about it, or the rule that the peer broke.

use plan::{PopulationSnapshot, Reason, TextProperty};

/// A reason, with the texts of the peer.
#[derive(Clone, Copy)]
pub struct Cause<'a> {
    /// The reason.
    pub reason: Reason,
    /// Texts of the packet with the reason.
    pub texts: ReasonTexts<'a>,
}

/// Texts of a packet with a reason.
#[derive(Clone, Copy, Default)]
pub struct ReasonTexts<'a> {
    /// The reason in words.
    pub reason_string: Option<&'a str>,
    /// Another server that the client should use.
    pub server_reference: Option<&'a str>,
}

/// A rule that the peer broke, which ends the connection.
pub struct Broken {
    /// The reason to count.
    pub reason: Reason,
    /// The rule, and the bytes that broke it.
    pub text: String,
}

impl Cause<'_> {
    /// Counts the problem and its texts.
    pub fn count(&self, tally: &mut PopulationSnapshot) {
        tally.outcome(self.reason);
        let ReasonTexts { reason_string, server_reference } = self.texts;
        for (property, text) in [
            (TextProperty::ReasonString, reason_string),
            (TextProperty::ServerReference, server_reference),
        ] {
            if let Some(text) = text {
                tally.explanations.count(self.reason, property, text);
            }
        }
    }
}

impl From<Reason> for Cause<'_> {
    fn from(reason: Reason) -> Self {
        Self { reason, texts: ReasonTexts::default() }
    }
}
