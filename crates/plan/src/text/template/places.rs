//! Places of templates, the variables allowed at each place, and the names of variables in
//! messages.

use std::fmt;

use crate::model::names::{Grammar, Names};

use super::{Levels, Part, Template, TemplateError, Variable};

/// Place of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Text of a client, such as its client identifier or its will.
    Client,
    /// Name of the messages of a publication.
    Topic(Names),
    /// A filter.
    Filter(Names),
    /// Value of a property of a message of MQTT 5.
    Property,
    /// The text of a payload.
    Payload,
    /// The text of a payload that is JSON.
    Json,
}

impl Place {
    /// Bytes of the longest text. A field of MQTT has up to 65,535 [MQTT-1.5.3].
    pub(crate) const fn bytes_max(self) -> usize {
        match self {
            Self::Topic(names) | Self::Filter(names) => names.bytes_max(),
            Self::Client | Self::Property => 65_535,
            Self::Payload | Self::Json => usize::MAX,
        }
    }
}

impl Template {
    /// Checks that every variable has a value at this place. For a filter the function also checks
    /// that its receivers can be counted exactly.
    ///
    /// # Errors
    /// [`TemplateError`] with the text found and the text allowed.
    pub fn check(&self, place: Place) -> Result<(), TemplateError> {
        let (name, allowed) = match place {
            Place::Property | Place::Payload | Place::Json => return Ok(()),
            Place::Client => ("a client's texts", "{n}, {n%K}, {n/K} and {row.NAME}"),
            Place::Topic(_) | Place::Filter(_) => {
                ("a topic", "{n}, {n%K}, {n/K}, {row.NAME} and one range or choice")
            }
        };
        if let Some(variable) = self.variables().find(|variable| !variable.is_at_home(place)) {
            return Err(TemplateError::Misplaced(variable.to_string(), name, allowed));
        }
        if self.variables().filter_map(Variable::variants).count() > 1 {
            return Err(TemplateError::SecondRange);
        }
        let (Place::Topic(names) | Place::Filter(names)) = place else { return Ok(()) };
        let Some(grammar) = names.grammar() else { return Ok(()) };
        self.check_values(grammar, place)?;
        match self.group_and_filter() {
            _ if matches!(place, Place::Topic(_)) => Ok(()),
            Some((_, filter)) => Levels::new(grammar, &filter).map(drop),
            None => self.levels(grammar).map(drop),
        }
    }

    /// Checks that values in a topic stay within one level. Options of a choice in a topic, which
    /// has no filter's levels to follow, may have several.
    fn check_values(&self, grammar: &Grammar, place: Place) -> Result<(), TemplateError> {
        let splits = |value: &&str| value.is_empty() || value.contains(grammar.excluded);
        let is_topic = matches!(place, Place::Topic(_));
        let is_wrong = |option: &&str| {
            let mut levels = option.split(grammar.separator);
            if is_topic { levels.any(|level| splits(&level)) } else { splits(option) }
        };
        for variable in self.variables() {
            let wrong = match variable {
                Variable::Choice(options) => options.iter().map(|option| &**option).find(is_wrong),
                Variable::Row(row) => {
                    row.column.get().and_then(|column| column.values().find(splits))
                }
                _ => None,
            };
            if let Some(value) = wrong {
                let (value, variable) = (value.to_owned(), variable.to_string());
                return Err(TemplateError::Value(value, variable, grammar.excluded_words));
            }
        }
        Ok(())
    }
}

impl Variable {
    fn is_at_home(&self, place: Place) -> bool {
        match self {
            Self::Number | Self::Remainder(_) | Self::Quotient(_) | Self::Row(_) => true,
            Self::Range { .. } | Self::Choice(_) => place != Place::Client,
            Self::Recorded(_) => matches!(place, Place::Topic(_)),
            _ => matches!(place, Place::Property | Place::Payload | Place::Json),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => f.write_str(text),
            Self::Variable(variable) => variable.fmt(f),
        }
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number => f.write_str("{n}"),
            Self::Remainder(k) => write!(f, "{{n%{k}}}"),
            Self::Quotient(k) => write!(f, "{{n/{k}}}"),
            Self::Range { from, to } => write!(f, "{{{from}..{to}}}"),
            Self::Choice(options) => write!(f, "{{{}}}", options.join("|")),
            Self::Row(row) => write!(f, "{{row.{}}}", row.name),
            Self::Recorded(_) => f.write_str("{recorded}"),
            Self::Random(_) => f.write_str("{random a..b}"),
            Self::Hex(digits) => write!(f, "{{hex {digits}}}"),
            Self::Sequence => f.write_str("{seq}"),
            Self::Time => f.write_str("{time}"),
            Self::Stamp => f.write_str("{stamp}"),
        }
    }
}
