//! Names and filters as levels, so that receivers can be counted by arithmetic.

use super::{Part, Template, TemplateError, Variable};
use crate::model::names::{Grammar, Names};

/// Levels of a name or of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    pub grammar: &'static Grammar,
    pub list: Vec<Level>,
}

/// One level of a name or of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Any,
    Rest,
    Exact(Box<str>),
    Variable { prefix: Box<str>, variable: Variable, suffix: Box<str> },
}

impl Template {
    /// Levels of the name or filter.
    pub(crate) fn levels(&self, grammar: &'static Grammar) -> Result<Levels, TemplateError> {
        Levels::new(grammar, &self.parts)
    }

    /// Group and filter of a subscription to a shared group, `$share/GROUP/FILTER`; `None` for
    /// any other filter.
    pub(crate) fn group_and_filter(&self) -> Option<(Level, Vec<Part>)> {
        let mut pieces = split(&self.parts, '/', 3);
        let filter = pieces.pop()?;
        let [share, group] = pieces.as_slice() else { return None };
        let is_share = matches!(share.as_slice(), [Part::Literal(text)] if **text == *"$share");
        if is_share { Some((level(group, None).ok()?, filter)) } else { None }
    }
}

impl Level {
    /// Its variable; `None` if its text is fixed, or if it is a wildcard.
    pub const fn variable(&self) -> Option<&Variable> {
        let Self::Variable { variable, .. } = self else { return None };
        Some(variable)
    }
}

impl Levels {
    pub fn new(grammar: &'static Grammar, parts: &[Part]) -> Result<Self, TemplateError> {
        if let Some((choice, option)) = split_choice(parts, grammar.separator) {
            let words = grammar.excluded_words;
            return Err(TemplateError::Value(option.into(), choice.to_string(), words));
        }
        let mut head = split(parts, '/', grammar.head + 1);
        let rest = if head.len() > grammar.head { head.pop() } else { None };
        let is_empty = |parts: &Vec<Part>| {
            parts.iter().all(|part| matches!(part, Part::Literal(text) if text.is_empty()))
        };
        let rest = rest.filter(|rest| grammar.head == 0 || !is_empty(rest));
        let rest = rest.map_or(Vec::new(), |rest| split(&rest, grammar.separator, usize::MAX));
        // Only the first level in front may be a wildcard.
        let in_front =
            |(at, parts): (usize, &Vec<Part>)| level(parts, Some(grammar).filter(|_| at == 0));
        let list = rest.iter().map(|parts| level(parts, Some(grammar)));
        let list = head.iter().enumerate().map(in_front).chain(list);
        Ok(Self { grammar, list: list.collect::<Result<_, _>>()? })
    }

    /// Levels of the names of another rule that the same messages have; `None` if they have none.
    pub fn twin(&self, names: Names) -> Option<Self> {
        let (own, grammar) = (self.grammar, names.grammar()?);
        let exact = |text: &&str| Level::Exact((*text).into());
        let front: Vec<Level> = own.twin_head.iter().map(exact).collect();
        let rest = self.list.strip_prefix(&front[..])?;
        let head = grammar.twin_head.iter().map(exact);
        Some(Self { grammar, list: head.chain(rest.iter().cloned()).collect() })
    }

    /// Returns `true` if levels follow one that matches any number of levels.
    pub fn has_inner_rest(&self) -> bool {
        let rest = self.list.iter().position(|level| *level == Level::Rest);
        rest.is_some_and(|rest| rest + 1 < self.list.len())
    }
}

/// A choice with an option of several levels, and the option: no arithmetic follows its levels.
fn split_choice(parts: &[Part], separator: char) -> Option<(&Variable, &str)> {
    parts.iter().find_map(|part| {
        let Part::Variable(choice @ Variable::Choice(options)) = part else { return None };
        let option = options.iter().find(|option| option.contains(separator))?;
        Some((choice, &**option))
    })
}

/// Splits parts at a separator in their literals, into at most `most` pieces.
fn split(parts: &[Part], separator: char, most: usize) -> Vec<Vec<Part>> {
    let mut pieces = vec![Vec::new()];
    for part in parts {
        let Part::Literal(text) = part else {
            pieces.last_mut().expect("there is always one piece").push(part.clone());
            continue;
        };
        for (i, piece) in text.splitn(most - (pieces.len() - 1), separator).enumerate() {
            if i > 0 {
                pieces.push(Vec::new());
            }
            let last = pieces.last_mut().expect("there is always one piece");
            last.push(Part::Literal(piece.into()));
        }
    }
    pieces
}

/// Level of these parts; without a grammar there are no wildcards.
fn level(parts: &[Part], grammar: Option<&Grammar>) -> Result<Level, TemplateError> {
    let mut texts = [String::new(), String::new()];
    let mut variable = None;
    for part in parts {
        match part {
            Part::Literal(text) => texts[usize::from(variable.is_some())].push_str(text),
            Part::Variable(found) => {
                // The topic of a recorded message has several levels.
                let is_topic = matches!(found, Variable::Recorded(_));
                if variable.replace(found.clone()).is_some() || is_topic {
                    let text: String = parts.iter().map(ToString::to_string).collect();
                    return Err(TemplateError::Level(text));
                }
            }
        }
    }
    let [prefix, suffix] = texts;
    let is = |wildcard: fn(&Grammar) -> &str| grammar.is_some_and(|g| wildcard(g) == prefix);
    Ok(match variable {
        Some(variable) => {
            Level::Variable { prefix: prefix.into(), variable, suffix: suffix.into() }
        }
        None if is(|grammar| grammar.one) => Level::Any,
        None if is(|grammar| grammar.rest) => Level::Rest,
        None => Level::Exact(prefix.into()),
    })
}
