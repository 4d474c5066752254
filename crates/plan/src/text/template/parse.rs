//! Parser of templates: from source text to parts.

use std::sync::OnceLock;

use super::variable::{Decimals, Row, Variable};
use super::{Part, TemplateError};
use crate::schedule::recorded::RecordedMessages;

/// Largest number of values of a range.
const RANGE_VALUES_MAX: u64 = 65_536;
/// Largest number of digits of a drawn number, before and behind the point together.
const DRAWN_DIGITS_MAX: usize = 18;
const HEX_DIGITS_MAX: u32 = 4096;

pub(super) fn parse(source: &str) -> Result<Vec<Part>, TemplateError> {
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
        let text = &rest[..end];
        let variable = variable(text).ok_or_else(|| TemplateError::Variable(text.to_owned()))?;
        parts.push(Part::Variable(variable));
        rest = &rest[end + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() || parts.is_empty() {
        parts.push(Part::Literal(literal.into()));
    }
    Ok(parts)
}

fn variable(text: &str) -> Option<Variable> {
    if text.contains('{') {
        return None;
    }
    if text.contains('|') {
        return choice(text);
    }
    let (word, rest) = text.split_once(' ').map_or((text, None), |(w, rest)| (w, Some(rest)));
    match (word, rest) {
        ("n", None) => return Some(Variable::Number),
        ("seq", None) => return Some(Variable::Sequence),
        ("time", None) => return Some(Variable::Time),
        ("recorded", None) => return Some(Variable::Recorded(RecordedMessages::default())),
        ("stamp", None) => return Some(Variable::Stamp),
        ("hex", Some(digits)) => return hex(digits),
        ("random", Some(ends)) => return random(ends),
        _ => {}
    }
    if let Some(name) = text.strip_prefix("row.") {
        let row = || Variable::Row(Row { name: name.into(), column: OnceLock::new() });
        return (!name.is_empty()).then(row);
    }
    if let Some(divisor) = text.strip_prefix("n%") {
        return whole(divisor).filter(|&k| k > 0).map(Variable::Remainder);
    }
    if let Some(divisor) = text.strip_prefix("n/") {
        return whole(divisor).filter(|&k| k > 0).map(Variable::Quotient);
    }
    let (from, to) = text.split_once("..")?;
    let (from, to) = (whole(from)?, whole(to)?);
    (from <= to && to - from < RANGE_VALUES_MAX).then_some(Variable::Range { from, to })
}

fn choice(text: &str) -> Option<Variable> {
    let options: Box<[Box<str>]> = text.split('|').map(Into::into).collect();
    let whole = options.iter().all(|option| !option.is_empty());
    (whole && options.len() as u64 <= RANGE_VALUES_MAX).then_some(Variable::Choice(options))
}

fn hex(digits: &str) -> Option<Variable> {
    let digits = whole(digits).and_then(|digits| digits.try_into().ok())?;
    (1..=HEX_DIGITS_MAX).contains(&digits).then_some(Variable::Hex(digits))
}

fn random(ends: &str) -> Option<Variable> {
    let (low, high) = ends.split_once("..")?;
    let places_of = |text: &str| text.split_once('.').map_or(0, |(_, places)| places.len());
    let places = places_of(low).max(places_of(high));
    let (low, high) = (scaled(low, places)?, scaled(high, places)?);
    let steps = high.checked_sub(low)?.checked_add(1).filter(|&steps| steps > 0)?;
    let decimals = Decimals { low, steps: steps.cast_unsigned(), places: places as u32 };
    Some(Variable::Random(decimals))
}

/// A decimal number as an integer in units of its last of `places`.
fn scaled(text: &str, places: usize) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (before, behind) = digits.split_once('.').unwrap_or((digits, ""));
    let is_decimal = !before.is_empty() && (!behind.is_empty() || !digits.contains('.'));
    if !is_decimal || before.len() + places > DRAWN_DIGITS_MAX {
        return None;
    }
    whole(&format!("{before}{behind:0<places$}")).map(|value| sign * value.cast_signed())
}

/// A number of digits only: `parse` alone would accept a sign.
fn whole(text: &str) -> Option<u64> {
    let digits = text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}
