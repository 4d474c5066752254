//! Topic filters as levels, so that receivers can be counted by arithmetic.

use super::{Part, Template, TemplateError, Variable};

/// One level of a topic filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Any,
    Rest,
    Exact(Box<str>),
    Variable { prefix: Box<str>, variable: Variable, suffix: Box<str> },
}

impl Template {
    /// Levels of the filter.
    pub(crate) fn levels(&self) -> Result<Vec<Level>, TemplateError> {
        let mut levels = vec![Vec::new()];
        for part in &self.parts {
            match part {
                Part::Literal(text) => {
                    for (i, piece) in text.split('/').enumerate() {
                        if i > 0 {
                            levels.push(Vec::new());
                        }
                        let last = levels.last_mut().expect("there is always one level");
                        last.push(Part::Literal(piece.into()));
                    }
                }
                variable @ Part::Variable(_) => {
                    levels.last_mut().expect("there is always one level").push(variable.clone());
                }
            }
        }
        levels.iter().map(|parts| level(parts)).collect()
    }
}

fn level(parts: &[Part]) -> Result<Level, TemplateError> {
    let mut texts = [String::new(), String::new()];
    let mut variable = None;
    for part in parts {
        match part {
            Part::Literal(text) => texts[usize::from(variable.is_some())].push_str(text),
            Part::Variable(found) => {
                if variable.replace(found.clone()).is_some() {
                    let text: String = parts.iter().map(ToString::to_string).collect();
                    return Err(TemplateError::Level(text));
                }
            }
        }
    }
    let [prefix, suffix] = texts;
    Ok(match (variable, prefix.as_str()) {
        (Some(variable), _) => {
            Level::Variable { prefix: prefix.into(), variable, suffix: suffix.into() }
        }
        (None, "+") => Level::Any,
        (None, "#") => Level::Rest,
        (None, _) => Level::Exact(prefix.into()),
    })
}
