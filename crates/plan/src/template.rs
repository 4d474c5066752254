//! Text with variables, as in client ids, topics and payloads. `{n}` is the client's number,
//! `{n%K}` and `{n/K}` its remainder and quotient, `{row.NAME}` what the client's row of a file has
//! in a column; `{a..b}` is a range with both ends and `{red|green}` a choice; `{random a..b}`,
//! `{hex N}`, `{seq}`, `{time}` and `{stamp}` are a message's own; `{{` and `}}` are the braces
//! themselves. Compiled once, rendered without allocation. It knows no plan.

mod level;
mod parse;
mod places;
mod variable;

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::rows::Column;
use crate::stamp::Stamp;

pub(crate) use level::Level;
pub use places::Place;
pub(crate) use variable::{Variable, canonical_decimal};

/// A compiled template; in JSON it is its source text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template {
    source: String,
    parts: Vec<Part>,
}

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A brace without its partner.
    #[error("found a single '{0}', write it twice to mean the character")]
    Brace(char),
    /// Something in braces that is no variable.
    #[error(
        "found '{{{0}}}', allowed are {{n}}, {{n%K}}, {{n/K}}, {{row.NAME}}, a range such as \
         {{1..20}}, a choice such as {{red|green}}, {{random 1..6}}, {{hex 16}}, {{seq}}, {{time}} \
         and {{stamp}}"
    )]
    Variable(String),
    /// A variable that has no value where the template stands.
    #[error("found '{0}', allowed in {1} are {2}")]
    Misplaced(String, &'static str, &'static str),
    /// More than one range or choice.
    #[error("found a second range or choice, allowed is one in a topic")]
    SecondRange,
    /// Two variables in one topic level of a filter, which cannot be counted exactly.
    #[error("found two variables in the level '{0}' of a topic filter, allowed is one a level")]
    Level(String),
    /// A value that would make other levels of a topic.
    #[error("found '{0}' for '{1}', allowed in a topic are values without /, + and #, not empty")]
    Value(String, String),
    /// A column that there is not.
    #[error("found '{{row.{0}}}', allowed are columns of the population's rows")]
    Column(String),
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(Box<str>),
    Variable(Variable),
}

/// What a payload may say of its message.
#[derive(Clone, Copy, Debug)]
pub struct MessageFacts {
    /// Number of the message among those of its client and publication, from 0, modulo 2^32.
    pub number: u32,
    /// Values of the range or choice of its topic; 1 where there is none.
    pub topic_variants: u32,
    /// What is drawn for it, at each place of the template.
    pub chance: Random,
    /// When it is sent, in milliseconds since 1970.
    pub time_ms: u64,
    /// Its stamp.
    pub stamp: Stamp,
}

impl MessageFacts {
    /// Tells these draws from those of schedules, targets and orders.
    const PURPOSE: u64 = 4 << 40;

    /// What the payloads of a publication draw from, by its index over all populations: each
    /// message from the sub-stream of its client (index over all agents) and number.
    #[must_use]
    pub const fn stream(seed: u64, publication: usize) -> Random {
        Random::new(seed, Self::PURPOSE + publication as u64)
    }
}

/// For whom a template is rendered.
#[derive(Clone, Copy)]
struct Context<'a> {
    n: u64,
    variant: u32,
    /// `None` in texts that are not a message's.
    message: Option<&'a MessageFacts>,
}

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    /// [`TemplateError`] says what was found and what is allowed.
    pub fn new(source: &str) -> Result<Self, TemplateError> {
        Ok(Self { source: source.to_owned(), parts: parse::parse(source)? })
    }

    /// The template of this one's text and then the other's.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn followed_by(&self, other: &Self) -> Result<Self, TemplateError> {
        Self::new(&(self.source.clone() + &other.source))
    }

    /// The text it was compiled from.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Values of the range or choice in it; 1 where there is none.
    #[must_use]
    pub fn variants(&self) -> u32 {
        self.variables().find_map(Variable::variants).unwrap_or(1)
    }

    /// Appends the text for client number `n` and value number `variant` of the range or choice.
    /// What only a message has is left out.
    pub fn render(&self, n: u64, variant: u32, out: &mut Vec<u8>) {
        self.append(Context { n, variant, message: None }, out);
    }

    /// Appends the text of a message of client number `n`, whose topic has value number `variant`.
    pub fn render_message(&self, n: u64, variant: u32, message: &MessageFacts, out: &mut Vec<u8>) {
        self.append(Context { n, variant, message: Some(message) }, out);
    }

    /// The text for client number `n` and value number `variant` of the range or choice.
    #[must_use]
    pub fn text(&self, n: u64, variant: u32) -> String {
        let mut out = Vec::with_capacity(self.source.len());
        self.render(n, variant, &mut out);
        String::from_utf8(out).expect("literals and values are UTF-8 and numbers are ASCII")
    }

    /// Bytes that [`Self::render`] appends.
    #[must_use]
    pub fn rendered_bytes(&self, n: u64, variant: u32) -> usize {
        let context = Context { n, variant, message: None };
        let bytes = |part: &Part| match part {
            Part::Literal(text) => text.len(),
            Part::Variable(variable) => variable.bytes(context),
        };
        self.parts.iter().map(bytes).sum()
    }

    /// Whether every client's rendering is the same.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.variables().next().is_none()
    }

    /// Returns `true` if the template contains the number of a client, so that no two clients
    /// render the same text.
    #[must_use]
    pub fn has_number(&self) -> bool {
        self.variables().any(|variable| matches!(variable, Variable::Number))
    }

    /// Whether its text holds a stamp.
    #[must_use]
    pub fn has_stamp(&self) -> bool {
        self.variables().any(|variable| matches!(variable, Variable::Stamp))
    }

    /// Bytes of the longest rendering at most; that of rows counts once they are bound.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        let bytes = |part: &Part| match part {
            Part::Literal(text) => text.len(),
            Part::Variable(variable) => variable.bytes_max(),
        };
        self.parts.iter().map(bytes).sum()
    }

    /// Whether some client's rendering can be `text`; remainders and ranges count as any number.
    #[must_use]
    pub fn renders(&self, text: &str) -> bool {
        variable::rendered_by(&self.parts, text)
    }

    /// Names of the columns that it refers to.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.variables().filter_map(|variable| match variable {
            Variable::Row(row) => Some(&*row.name),
            _ => None,
        })
    }

    /// Gives it the values of the columns that it refers to, once; until then they are empty.
    ///
    /// # Errors
    /// [`TemplateError::Column`] where a column is missing.
    pub fn bind(&self, columns: &HashMap<String, Arc<Column>>) -> Result<(), TemplateError> {
        for variable in self.variables() {
            if let Variable::Row(row) = variable {
                let missing = || TemplateError::Column(row.name.to_string());
                let column = columns.get(&*row.name).ok_or_else(missing)?;
                row.column.get_or_init(|| Arc::clone(column));
            }
        }
        Ok(())
    }

    /// Its pieces, in order.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn append(&self, context: Context<'_>, out: &mut Vec<u8>) {
        let mut place = 0;
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Part::Variable(variable) => {
                    variable.append(context, place, out);
                    place += 1;
                }
            }
        }
    }

    fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Variable(variable) => Some(variable),
        })
    }
}

impl TryFrom<String> for Template {
    type Error = TemplateError;

    fn try_from(source: String) -> Result<Self, TemplateError> {
        Self::new(&source)
    }
}

impl From<Template> for String {
    fn from(template: Template) -> Self {
        template.source
    }
}

#[cfg(test)]
mod tests;
