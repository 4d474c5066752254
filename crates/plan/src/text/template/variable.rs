//! Variables of templates: the value for a client and a message, as bytes appended to a text.

use std::sync::{Arc, OnceLock};

use super::{Part, Rendering, Template};
use crate::record::stamp::STAMP_TEXT_BYTES;
use crate::schedule::recorded::{Recorded, RecordedMessages};
use crate::text::rows::Column;

/// Content of a pair of braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    Number,
    Remainder(u64),
    Quotient(u64),
    Range {
        from: u64,
        to: u64,
    },
    Choice(Box<[Box<str>]>),
    Row(Row),
    /// The topic of a recorded message.
    Recorded(RecordedMessages),
    Random(Decimals),
    Hex(u32),
    Sequence,
    Time,
    Stamp,
}

/// A column of the population's rows.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub name: Box<str>,
    /// Values of the column, set when the file is read.
    pub column: OnceLock<Arc<Column>>,
}

/// Decimal numbers from `low` on, in steps of one at the last of `places` behind the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimals {
    pub low: i64,
    pub steps: u64,
    pub places: u32,
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
/// Hexadecimal digits of one draw.
const DRAW_DIGITS: u32 = 16;

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Row {}

impl Row {
    /// Value in the row of client number `n`.
    pub fn value(&self, n: u64) -> &str {
        self.column().map_or("", |column| column.value(n))
    }

    fn column(&self) -> Option<&Column> {
        self.column.get().map(|column| &**column)
    }
}

impl Template {
    /// Sets the messages that `{recorded}` refers to, once; before the call their topics are empty.
    pub fn bind_recorded(&self, recorded: &Arc<Recorded>) {
        for variable in self.variables() {
            if let Variable::Recorded(messages) = variable {
                messages.set(recorded);
            }
        }
    }
}

impl Variable {
    /// First value for client number `n`.
    pub(crate) fn text(&self, n: u64) -> String {
        let mut out = Vec::new();
        self.append(Rendering { n, variant: 0, message: None }, 0, &mut out);
        String::from_utf8(out).expect("values are UTF-8 and numbers are ASCII")
    }

    /// Number of values; `None` unless the variable is a range or choice.
    pub(crate) fn variants(&self) -> Option<u32> {
        match self {
            Self::Range { from, to } => Some((to - from + 1).try_into().unwrap_or(u32::MAX)),
            Self::Choice(options) => Some(options.len().try_into().unwrap_or(u32::MAX)),
            _ => None,
        }
    }

    /// Returns true if a value may begin with this character.
    pub(crate) fn may_begin_with(&self, character: char) -> bool {
        match self {
            Self::Row(row) => row
                .column()
                .is_some_and(|column| column.values().any(|value| value.starts_with(character))),
            Self::Choice(options) => options.iter().any(|option| option.starts_with(character)),
            Self::Recorded(messages) => messages.get().is_some_and(|recorded| {
                recorded.templates().iter().any(|topic| topic.may_begin_with(character))
            }),
            _ => false,
        }
    }

    /// Returns true if `text` is one of the values of the range or choice.
    pub(crate) fn goes_through(&self, text: &str) -> bool {
        match self {
            Self::Range { from, to } => {
                canonical_decimal(text).is_some_and(|value| (*from..=*to).contains(&value))
            }
            Self::Choice(options) => options.iter().any(|option| **option == *text),
            _ => false,
        }
    }

    /// Appends the value; `place` is the index of the variable in the template.
    #[inline]
    pub(super) fn append(&self, context: Rendering<'_>, place: u64, out: &mut Vec<u8>) {
        if let Some(value) = self.whole_number(context) {
            append_decimal(value, out);
            return;
        }
        match (self, context.message) {
            (Self::Row(row), _) => out.extend_from_slice(row.value(context.n).as_bytes()),
            (Self::Recorded(messages), _) => {
                let recorded = messages.get();
                if let Some(topic) = recorded.and_then(|r| r.topic(context.n, context.variant)) {
                    topic.render(context.n, 0, out);
                }
            }
            (Self::Choice(options), None) => {
                out.extend_from_slice(options[context.variant as usize].as_bytes());
            }
            (Self::Choice(options), Some(message)) => {
                let drawn = message.chance.of(place).below(options.len() as u64);
                out.extend_from_slice(options[drawn as usize].as_bytes());
            }
            (Self::Random(decimals), Some(message)) => {
                let drawn = message.chance.of(place).below(decimals.steps);
                append_scaled(decimals.low.wrapping_add_unsigned(drawn), decimals.places, out);
            }
            (Self::Hex(digits), Some(message)) => {
                let draws = message.chance.of(place);
                for digit in 0..*digits {
                    let bits = draws.of(u64::from(digit / DRAW_DIGITS)).bits();
                    let nibble = bits >> (4 * (digit % DRAW_DIGITS)) & 15;
                    out.push(HEX_DIGITS[nibble as usize]);
                }
            }
            (Self::Stamp, Some(message)) => out.extend_from_slice(&message.stamp.to_text()),
            _ => {}
        }
    }

    /// Length of the value in a text without a message, in bytes.
    #[inline]
    pub(super) fn bytes(&self, context: Rendering<'_>) -> usize {
        match self {
            Self::Row(row) => row.value(context.n).len(),
            Self::Choice(options) => options[context.variant as usize].len(),
            Self::Recorded(messages) => {
                let topic = messages.get().and_then(|r| r.topic(context.n, context.variant));
                topic.map_or(0, |topic| topic.rendered_bytes(context.n, 0))
            }
            _ => self.whole_number(context).map_or(0, digits),
        }
    }

    /// Length of the longest value, in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        match self {
            Self::Row(row) => row.column().map_or(0, Column::bytes_max),
            Self::Recorded(messages) => messages.get().map_or(0, |r| r.topic_bytes_max()),
            Self::Choice(options) => options.iter().map(|option| option.len()).max().unwrap_or(0),
            Self::Hex(digits) => *digits as usize,
            Self::Stamp => STAMP_TEXT_BYTES,
            _ => 20,
        }
    }

    /// Value as an integer; `None` for drawn values and other texts.
    #[inline]
    fn whole_number(&self, Rendering { n, variant, message }: Rendering<'_>) -> Option<u64> {
        match (self, message) {
            (Self::Number, _) => Some(n),
            (Self::Remainder(k), _) => Some(n % k),
            (Self::Quotient(k), _) => Some(n / k),
            (Self::Range { from, .. }, None) => Some(from + u64::from(variant)),
            (Self::Range { from, to }, Some(message)) => {
                let values = to - from + 1;
                let is_topics = values == u64::from(message.topic_variants);
                let turn = u64::from(if is_topics { variant } else { message.number });
                Some(from + turn % values)
            }
            (Self::Sequence, Some(message)) => Some(u64::from(message.number)),
            (Self::Time, Some(message)) => Some(message.time_ms),
            _ => None,
        }
    }
}

/// Returns true if these parts can render `text`.
pub(super) fn rendered_by(parts: &[Part], text: &str) -> bool {
    match parts {
        [] => text.is_empty(),
        [Part::Literal(literal), rest @ ..] => {
            text.strip_prefix(&**literal).is_some_and(|text| rendered_by(rest, text))
        }
        [Part::Variable(Variable::Choice(options)), rest @ ..] => options
            .iter()
            .any(|option| text.strip_prefix(&**option).is_some_and(|text| rendered_by(rest, text))),
        [Part::Variable(Variable::Row(row)), rest @ ..] => {
            let level = text.find('/').unwrap_or(text.len());
            let ends = (1..=level).filter(|&end| text.is_char_boundary(end));
            let has = |value: &str| row.column().is_some_and(|column| column.has(value));
            ends.into_iter().any(|end| rendered_by(rest, &text[end..]) && has(&text[..end]))
        }
        [Part::Variable(Variable::Recorded(messages)), rest @ ..] => {
            let mut ends = (1..=text.len()).filter(|&end| text.is_char_boundary(end));
            let is_topic = |topic: &str| messages.get().is_some_and(|r| r.renders(topic));
            ends.any(|end| rendered_by(rest, &text[end..]) && is_topic(&text[..end]))
        }
        [Part::Variable(_), rest @ ..] => {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            (1..=digits).any(|length| rendered_by(rest, &text[length..]))
        }
    }
}

#[inline]
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

/// Parses a decimal as a template writes it: digits only, no leading zero.
pub(crate) fn canonical_decimal(text: &str) -> Option<u64> {
    let canonical =
        text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}

/// Appends `value` with its last `places` digits behind a point; a zero has no sign.
fn append_scaled(value: i64, places: u32, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    let (magnitude, scale) = (value.unsigned_abs(), 10u64.pow(places));
    append_decimal(magnitude / scale, out);
    if places > 0 {
        out.push(b'.');
        let mut rest = magnitude % scale;
        for place in (0..places).rev() {
            let unit = 10u64.pow(place);
            out.push(b'0' + (rest / unit) as u8);
            rest %= unit;
        }
    }
}

#[inline]
fn digits(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}
