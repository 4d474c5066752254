//! Text with variables, as in client ids, topics and payloads. A template is compiled once and
//! rendered without allocation.
//!
//! - `{n}`, `{n%K}` and `{n/K}` are the client's number, its remainder and its quotient.
//! - `{row.NAME}` is the value of a column in the client's row of a file.
//! - `{a..b}` is a range with both ends, `{red|green}` a choice.
//! - `{recorded}` is the topic of a recorded message.
//! - `{random a..b}`, `{hex N}`, `{seq}`, `{time}` and `{stamp}` belong to a message.
//! - `{{` and `}}` are literal braces.

mod level;
mod parse;
mod places;
mod variable;

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::record::stamp::Stamp;
use crate::schedule::random::Random;
use crate::text::rows::Column;

pub(crate) use level::{Level, Levels};
pub use places::Place;
pub(crate) use variable::{Variable, canonical_decimal};

/// A compiled template; its JSON form is the source text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template {
    source: String,
    parts: Vec<Part>,
}

/// Error in a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A brace without its partner.
    #[error("found a single '{0}', write it twice to mean the character")]
    Brace(char),
    /// Braces around a text that is no variable.
    #[error(
        "found '{{{0}}}', allowed are {{n}}, {{n%K}}, {{n/K}}, {{row.NAME}}, a range such as \
         {{1..20}}, a choice such as {{red|green}}, {{random 1..6}}, {{hex 16}}, {{seq}}, {{time}} \
         and {{stamp}}"
    )]
    Variable(String),
    /// A variable that has no value at the place of the template.
    #[error("found '{0}', allowed in {1} are {2}")]
    Misplaced(String, &'static str, &'static str),
    /// More than one range or choice.
    #[error("found a second range or choice, allowed is one in a topic")]
    SecondRange,
    /// Two variables in one topic level of a filter, which cannot be counted exactly.
    #[error("found two variables in the level '{0}' of a topic filter, allowed is one a level")]
    Level(String),
    /// A value that would change the levels of a topic.
    #[error("found '{0}' for '{1}', allowed in a topic are values without {2}, not empty")]
    Value(String, String, &'static str),
    /// An unknown column.
    #[error("found '{{row.{0}}}', allowed are columns of the population's rows")]
    Column(String),
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(Box<str>),
    Variable(Variable),
}

/// Facts of a message that its payload may contain.
#[derive(Clone, Copy, Debug)]
pub struct MessageFacts {
    /// Number of the message among the messages of its client and publication, from 0, modulo 2^32.
    pub number: u32,
    /// Number of values of the range or choice of its topic; 1 without a range or choice.
    pub topic_variants: u32,
    /// Source of the values drawn for the message, one for each place of the template.
    pub chance: Random,
    /// Send time, in milliseconds since 1970.
    pub time_ms: u64,
    /// Stamp of the message.
    pub stamp: Stamp,
}

impl MessageFacts {
    /// Separates these draws from draws of schedules, targets and orders.
    const PURPOSE: u64 = 4 << 40;

    /// Source of chance for the payloads of a publication, by the publication's index over all
    /// populations. Each message draws from the sub-stream of its client (index over all agents)
    /// and number.
    #[must_use]
    pub const fn stream(seed: u64, publication: usize) -> Random {
        Random::new(seed, Self::PURPOSE + publication as u64)
    }
}

/// Arguments of a rendering.
#[derive(Clone, Copy)]
struct Rendering<'a> {
    n: u64,
    variant: u32,
    /// Facts of the message; `None` in texts without a message.
    message: Option<&'a MessageFacts>,
}

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    /// [`TemplateError`] with the text found and the text allowed.
    pub fn new(source: &str) -> Result<Self, TemplateError> {
        Ok(Self { source: source.to_owned(), parts: parse::parse(source)? })
    }

    /// Template of this source text followed by the source text of `other`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn followed_by(&self, other: &Self) -> Result<Self, TemplateError> {
        Self::new(&(self.source.clone() + &other.source))
    }

    /// Source text.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Number of values of the range or choice; 1 without a range or choice.
    #[must_use]
    pub fn variants(&self) -> u32 {
        self.variables().find_map(Variable::variants).unwrap_or(1)
    }

    /// Appends the text for client number `n` and value number `variant` of the range or choice.
    /// Variables of a message are empty.
    pub fn render(&self, n: u64, variant: u32, out: &mut Vec<u8>) {
        self.append(Rendering { n, variant, message: None }, out);
    }

    /// Appends the text of a message of client number `n`, whose topic has value number `variant`.
    pub fn render_message(&self, n: u64, variant: u32, message: &MessageFacts, out: &mut Vec<u8>) {
        self.append(Rendering { n, variant, message: Some(message) }, out);
    }

    /// Text for client number `n` and value number `variant` of the range or choice.
    #[must_use]
    pub fn text(&self, n: u64, variant: u32) -> String {
        let mut out = Vec::with_capacity(self.source.len());
        self.render(n, variant, &mut out);
        String::from_utf8(out).expect("literals and values are UTF-8 and numbers are ASCII")
    }

    /// Number of bytes that [`Self::render`] appends.
    #[must_use]
    pub fn rendered_bytes(&self, n: u64, variant: u32) -> usize {
        let context = Rendering { n, variant, message: None };
        let bytes = |part: &Part| match part {
            Part::Literal(text) => text.len(),
            Part::Variable(variable) => variable.bytes(context),
        };
        self.parts.iter().map(bytes).sum()
    }

    /// Number of bytes that [`Self::render_message`] appends at most.
    #[must_use]
    pub fn message_bytes_max(&self, n: u64, variant: u32) -> usize {
        let context = Rendering { n, variant, message: None };
        let bytes = |part: &Part| match part {
            Part::Literal(text) => text.len(),
            Part::Variable(variable) => match variable.bytes(context) {
                0 => variable.bytes_max(),
                bytes => bytes,
            },
        };
        self.parts.iter().map(bytes).sum()
    }

    /// Returns true if the text is the same for all clients.
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

    /// Returns true if the text contains a stamp.
    #[must_use]
    pub fn has_stamp(&self) -> bool {
        self.variables().any(|variable| matches!(variable, Variable::Stamp))
    }

    /// Upper bound of the length of a text, in bytes; rows count once bound.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        let bytes = |part: &Part| match part {
            Part::Literal(text) => text.len(),
            Part::Variable(variable) => variable.bytes_max(),
        };
        self.parts.iter().map(bytes).sum()
    }

    /// Returns true if some client's text can be `text`; remainders and ranges count as any number.
    #[must_use]
    pub fn renders(&self, text: &str) -> bool {
        variable::rendered_by(&self.parts, text)
    }

    /// Names of the columns in the template.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.variables().filter_map(|variable| match variable {
            Variable::Row(row) => Some(&*row.name),
            _ => None,
        })
    }

    /// Sets the values of the columns in the template, once; before the call these values are
    /// empty.
    ///
    /// # Errors
    /// [`TemplateError::Column`] if a column is missing.
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

    /// Returns `true` if the template contains `{recorded}`.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.variables().any(|variable| matches!(variable, Variable::Recorded(_)))
    }

    /// Returns `true` if all variables follow from the number of a client.
    pub(crate) fn is_of_numbers(&self) -> bool {
        self.variables().all(|variable| {
            matches!(variable, Variable::Number | Variable::Remainder(_) | Variable::Quotient(_))
        })
    }

    /// Returns `true` if a text of a client may begin with this character.
    pub(crate) fn may_begin_with(&self, character: char) -> bool {
        match self.parts.first() {
            Some(Part::Literal(text)) => text.starts_with(character),
            Some(Part::Variable(variable)) => variable.may_begin_with(character),
            None => false,
        }
    }

    /// Parts of the template, in order.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn append(&self, context: Rendering<'_>, out: &mut Vec<u8>) {
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
