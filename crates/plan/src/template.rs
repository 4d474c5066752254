//! Text with variables, as in client ids, topics and payloads: `{n}` is the client's number,
//! `{n%K}` and `{n/K}` its remainder and quotient, `{a..b}` a range with both ends, `{{` and `}}`
//! the braces themselves. Compiled once, rendered without allocation. It knows no plan.

use serde::{Deserialize, Serialize};

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
    #[error("found '{{{0}}}', allowed are {{n}}, {{n%K}}, {{n/K}} and a range such as {{1..20}}")]
    Variable(String),
    /// More than one range.
    #[error("found a second range, allowed is one in a template")]
    SecondRange,
    /// Two variables in one topic level of a filter, which cannot be counted exactly.
    #[error("found two variables in the level '{0}' of a topic filter, allowed is one a level")]
    Level(String),
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(Box<str>),
    Variable(Variable),
}

/// What stands between braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    Number,
    Remainder(u64),
    Quotient(u64),
    Range { from: u64, to: u64 },
}

/// One level of a topic filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Any,
    Rest,
    Exact(Box<str>),
    Variable { prefix: Box<str>, variable: Variable, suffix: Box<str> },
}

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    /// [`TemplateError`] says what was found and what is allowed.
    pub fn new(source: &str) -> Result<Self, TemplateError> {
        let parts = parse(source)?;
        let ranges = parts.iter().filter(|p| matches!(p, Part::Variable(Variable::Range { .. })));
        if ranges.count() > 1 {
            return Err(TemplateError::SecondRange);
        }
        Ok(Self { source: source.to_owned(), parts })
    }

    /// The template of this one's text and then the other's.
    ///
    /// # Errors
    /// [`TemplateError::SecondRange`] where both have a range.
    pub fn followed_by(&self, other: &Self) -> Result<Self, TemplateError> {
        Self::new(&(self.source.clone() + &other.source))
    }

    /// The text it was compiled from.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Values of the range in it; 1 where there is none.
    #[must_use]
    pub fn variants(&self) -> u32 {
        let range = self.parts.iter().find_map(|part| match part {
            Part::Variable(Variable::Range { from, to }) => Some(to - from + 1),
            _ => None,
        });
        range.unwrap_or(1).try_into().unwrap_or(u32::MAX)
    }

    /// Appends the text for client number `n` and value number `variant` of the range.
    pub fn render(&self, n: u64, variant: u32, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Part::Variable(variable) => append_decimal(variable.value(n, variant), out),
            }
        }
    }

    /// The text for client number `n` and value number `variant` of the range.
    #[must_use]
    pub fn text(&self, n: u64, variant: u32) -> String {
        let mut out = Vec::with_capacity(self.source.len());
        self.render(n, variant, &mut out);
        String::from_utf8(out).expect("literals are UTF-8 and numbers are ASCII")
    }

    /// Bytes that [`Self::render`] appends.
    #[must_use]
    pub fn rendered_bytes(&self, n: u64, variant: u32) -> usize {
        let bytes = |part: &Part| match part {
            Part::Literal(text) => text.len(),
            Part::Variable(variable) => digits(variable.value(n, variant)),
        };
        self.parts.iter().map(bytes).sum()
    }

    /// Whether every client's rendering is the same.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Literal(_)))
    }

    /// Bytes of the longest rendering at most: a variable has up to 20 digits.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        let bytes = |part: &Part| match part {
            Part::Literal(text) => text.len(),
            Part::Variable(_) => 20,
        };
        self.parts.iter().map(bytes).sum()
    }

    /// Whether some client's rendering can be `text`; remainders and ranges count as any number.
    #[must_use]
    pub fn renders(&self, text: &str) -> bool {
        rendered_by(&self.parts, text)
    }

    /// Checks that the template is a topic filter whose receivers can be counted exactly.
    ///
    /// # Errors
    /// [`TemplateError::Level`] where a level has two variables.
    pub fn check_filter(&self) -> Result<(), TemplateError> {
        self.levels().map(drop)
    }

    /// The filter's levels.
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

impl Variable {
    /// Its value for client number `n` and value number `variant` of the range.
    pub(crate) fn value(self, n: u64, variant: u32) -> u64 {
        match self {
            Self::Number => n,
            Self::Remainder(k) => n % k,
            Self::Quotient(k) => n / k,
            Self::Range { from, .. } => from + u64::from(variant),
        }
    }
}

fn rendered_by(parts: &[Part], text: &str) -> bool {
    match parts {
        [] => text.is_empty(),
        [Part::Literal(literal), rest @ ..] => {
            text.strip_prefix(&**literal).is_some_and(|text| rendered_by(rest, text))
        }
        [Part::Variable(_), rest @ ..] => {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            (1..=digits).any(|length| rendered_by(rest, &text[length..]))
        }
    }
}

fn level(parts: &[Part]) -> Result<Level, TemplateError> {
    let mut texts = [String::new(), String::new()];
    let mut variable = None;
    for part in parts {
        match part {
            Part::Literal(text) => texts[usize::from(variable.is_some())].push_str(text),
            Part::Variable(found) => {
                if variable.replace(*found).is_some() {
                    return Err(TemplateError::Level(describe(parts)));
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

fn describe(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Literal(text) => text.to_string(),
        Part::Variable(Variable::Number) => "{n}".to_owned(),
        Part::Variable(Variable::Remainder(k)) => format!("{{n%{k}}}"),
        Part::Variable(Variable::Quotient(k)) => format!("{{n/{k}}}"),
        Part::Variable(Variable::Range { from, to }) => format!("{{{from}..{to}}}"),
    });
    texts.collect()
}

fn parse(source: &str) -> Result<Vec<Part>, TemplateError> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = source;
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        let brace = if rest.as_bytes()[at] == b'{' { '{' } else { '}' };
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            literal.push(brace);
            rest = after;
            continue;
        }
        let end = if brace == '{' { rest.find('}') } else { None };
        let end = end.ok_or(TemplateError::Brace(brace))?;
        if !literal.is_empty() {
            parts.push(Part::Literal(std::mem::take(&mut literal).into()));
        }
        parts.push(Part::Variable(parse_variable(&rest[..end])?));
        rest = &rest[end + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() || parts.is_empty() {
        parts.push(Part::Literal(literal.into()));
    }
    Ok(parts)
}

fn parse_variable(text: &str) -> Result<Variable, TemplateError> {
    let positive = |k: &str| k.parse().ok().filter(|&k: &u64| k > 0);
    let range = |from: &str, to: &str| {
        let (from, to) = (from.parse::<u64>().ok()?, to.parse::<u64>().ok()?);
        (from <= to && to - from < 65_536).then_some(Variable::Range { from, to })
    };
    let variable = match text.strip_prefix('n') {
        Some("") => Some(Variable::Number),
        Some(rest) => match rest.split_at_checked(1).unwrap_or_default() {
            ("%", k) => positive(k).map(Variable::Remainder),
            ("/", k) => positive(k).map(Variable::Quotient),
            _ => None,
        },
        None => text.split_once("..").and_then(|(from, to)| range(from, to)),
    };
    variable.ok_or_else(|| TemplateError::Variable(text.to_owned()))
}

fn append_decimal(value: u64, out: &mut Vec<u8>) {
    let mut buffer = [0u8; 20];
    let mut at = buffer.len();
    let mut rest = value;
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&buffer[at..]);
}

fn digits(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced() {
        let cases = [
            ("dev-{n}", 42, 0, "dev-42"),
            ("a/{n%10}/{n/10}", 42, 0, "a/2/4"),
            ("t_{1..20}", 0, 19, "t_20"),
            ("{{n}}", 7, 0, "{n}"),
            ("", 7, 0, ""),
            ("{n}", u64::MAX, 0, "18446744073709551615"),
            ("{n}{0..3}x", 0, 2, "02x"),
        ];
        for (source, n, variant, expected) in cases {
            let template = Template::new(source).unwrap();
            assert_eq!(template.text(n, variant), expected);
            assert_eq!(template.rendered_bytes(n, variant), expected.len(), "{source}");
        }
    }

    #[test]
    fn a_range_counts_both_ends() {
        assert_eq!(Template::new("t_{1..20}").unwrap().variants(), 20);
        assert_eq!(Template::new("t").unwrap().variants(), 1);
    }

    #[test]
    fn a_template_without_variables_is_fixed() {
        for (source, expected) in [("a", true), ("", true), ("{{n}}", true), ("a{n}", false)] {
            assert_eq!(Template::new(source).unwrap().is_fixed(), expected, "{source}");
        }
    }

    #[test]
    fn wrong_templates_are_named() {
        use TemplateError::{Brace, SecondRange, Variable};
        let cases = [
            ("{", Brace('{')),
            ("a}", Brace('}')),
            ("{}", Variable(String::new())),
            ("{m}", Variable("m".into())),
            ("{n%0}", Variable("n%0".into())),
            ("{né}", Variable("né".into())),
            ("{5..1}", Variable("5..1".into())),
            ("{1..2}{1..2}", SecondRange),
        ];
        for (source, expected) in cases {
            assert_eq!(Template::new(source).unwrap_err(), expected, "{source}");
        }
    }

    #[test]
    fn a_text_is_recognised_as_a_rendering() {
        let template = Template::new("a/{n}5/t_{1..20}").unwrap();
        assert!(template.renders("a/125/t_3"));
        for other in ["a/12/t_3", "a/125/t_", "a/125/t_3/x", "", "a/x5/t_3"] {
            assert!(!template.renders(other), "{other}");
        }
    }

    #[test]
    fn a_filter_level_holds_one_variable() {
        assert!(Template::new("a/{n}/x{1..3}y/#").unwrap().check_filter().is_ok());
        assert_eq!(
            Template::new("a/{n}-{n%2}").unwrap().check_filter(),
            Err(TemplateError::Level("{n}-{n%2}".into()))
        );
    }
}
