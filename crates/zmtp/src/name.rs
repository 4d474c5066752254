//! The name of a security mechanism, as a greeting has it.

use std::fmt;

/// The name of a security mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `NULL`
    Null,
    /// `PLAIN`
    Plain,
    /// `CURVE`
    Curve,
    /// `GSSAPI`
    Gssapi,
    /// Any other name.
    Other,
}

impl Name {
    const ALL: [Self; 4] = [Self::Null, Self::Plain, Self::Curve, Self::Gssapi];

    /// Name as in the greeting, without the padding.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Plain => "PLAIN",
            Self::Curve => "CURVE",
            Self::Gssapi => "GSSAPI",
            Self::Other => "OTHER",
        }
    }

    /// The mechanism of a field with padding.
    pub(crate) fn from_padded(field: &[u8]) -> Self {
        let is = |name: &Self| {
            let (front, padding) = field.split_at(name.as_str().len());
            front == name.as_str().as_bytes() && padding.iter().all(|&byte| byte == 0)
        };
        Self::ALL.into_iter().find(is).unwrap_or(Self::Other)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Other { "of another name" } else { self.as_str() })
    }
}
