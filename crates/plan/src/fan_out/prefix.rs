//! Prefixes as conditions on numbers: the numbers for which a template renders a prefix of a text.

use super::numbers::Numbers;
use crate::template::{Level, Part, Variable};

/// Adds to `sets` those of `numbers` for which these parts render the front of `text`: one set for
/// each way to parse the text.
pub fn matching(parts: &[Part], text: &str, numbers: &Numbers, sets: &mut Vec<Numbers>) {
    match parts {
        [] => sets.push(numbers.clone()),
        [Part::Literal(literal), rest @ ..] => {
            if let Some(text) = text.strip_prefix(&**literal) {
                matching(rest, text, numbers, sets);
            }
        }
        [Part::Variable(variable), rest @ ..] => {
            let variable = variable.clone();
            let ends = ends(&variable, text);
            let level = Level::Variable { prefix: "".into(), variable, suffix: "".into() };
            for end in ends {
                let mut narrowed = numbers.clone();
                if narrowed.narrow(&level, &text[..end]).is_some() && narrowed.count() > 0 {
                    matching(rest, &text[end..], &narrowed, sets);
                }
            }
        }
    }
}

/// Positions at which a value of the variable at the front of a text may end.
fn ends(variable: &Variable, text: &str) -> Vec<usize> {
    let is_text = matches!(variable, Variable::Choice(_) | Variable::Row(_));
    let longest =
        if is_text { text.len() } else { text.bytes().take_while(u8::is_ascii_digit).count() };
    let shortest = usize::from(!is_text);
    let longest = longest.min(variable.bytes_max());
    (shortest..=longest).filter(|&end| text.is_char_boundary(end)).collect()
}
