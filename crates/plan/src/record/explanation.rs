//! Texts of a broker beside its reason codes: a few examples of each outcome, with their counts.
//! Each set keeps the texts that come first in order, so that sets merge in any order.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::reason::Reason;

/// Different texts of an outcome and a property that are kept.
const EXAMPLES_MAX: usize = 5;
/// Characters of a text that are kept.
const CHARACTERS_MAX: usize = 200;

/// Property of a packet that holds a text, or another kind of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextProperty {
    /// Reason String, or the text that another protocol has for it.
    ReasonString,
    /// Server Reference: another server that the client should use.
    ServerReference,
    /// No text of the peer: the packet, the field and the rule that it broke.
    Detail,
}

/// A text of a broker beside an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explanation {
    /// The outcome.
    pub outcome: Reason,
    /// Property that held the text.
    pub property: TextProperty,
    /// The text, escaped and cut to 200 characters; `None` for all other texts together.
    pub text: Option<String>,
    /// Number of outcomes with the text.
    pub count: u64,
}

/// Texts beside outcomes, with their counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Explanation>", into = "Vec<Explanation>")]
pub struct Explanations(BTreeMap<(Reason, TextProperty), Examples>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Examples {
    counts: BTreeMap<Box<str>, u64>,
    /// Outcomes with texts that are not kept.
    others: u64,
}

impl Explanations {
    /// Counts a text beside an outcome. Allocates only for a new text, or for one that is escaped.
    pub fn count(&mut self, outcome: Reason, property: TextProperty, text: &str) {
        let examples = self.0.entry((outcome, property)).or_default();
        examples.add(&readable(text), 1);
    }
}

impl Examples {
    fn add(&mut self, text: &str, count: u64) {
        if let Some(found) = self.counts.get_mut(text) {
            *found += count;
            return;
        }
        let is_full = self.counts.len() == EXAMPLES_MAX;
        if is_full && self.counts.last_key_value().is_some_and(|(last, _)| &**last < text) {
            self.others += count;
            return;
        }
        self.counts.insert(text.into(), count);
        if is_full && let Some((_, dropped)) = self.counts.pop_last() {
            self.others += dropped;
        }
    }
}

impl From<Vec<Explanation>> for Explanations {
    fn from(list: Vec<Explanation>) -> Self {
        let mut all = Self::default();
        for Explanation { outcome, property, text, count } in list {
            let examples = all.0.entry((outcome, property)).or_default();
            match text {
                Some(text) => examples.add(&text, count),
                None => examples.others += count,
            }
        }
        all
    }
}

impl From<Explanations> for Vec<Explanation> {
    fn from(all: Explanations) -> Self {
        let mut list = Self::new();
        for ((outcome, property), examples) in all.0 {
            let one = |text, count| Explanation { outcome, property, text, count };
            list.extend(examples.counts.into_iter().map(|(text, n)| one(Some(text.into()), n)));
            list.extend((examples.others > 0).then(|| one(None, examples.others)));
        }
        list
    }
}

/// The text without characters that a terminal would not print, cut to its first characters.
fn readable(text: &str) -> Cow<'_, str> {
    let is_plain = |character: char| matches!(character, ' '..='~') && character != '\\';
    if text.len() <= CHARACTERS_MAX && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for (number, character) in text.chars().enumerate() {
        if number == CHARACTERS_MAX {
            shown.push('…');
            break;
        }
        match character {
            '"' | '\'' => shown.push(character),
            character => shown.extend(character.escape_debug()),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASON: Reason = Reason::NotAuthorized;

    fn counted(texts: &[&str]) -> Explanations {
        let mut all = Explanations::default();
        texts.iter().for_each(|text| all.count(REASON, TextProperty::ReasonString, text));
        all
    }

    fn listed(all: Explanations) -> Vec<(Option<String>, u64)> {
        Vec::from(all).into_iter().map(|one: Explanation| (one.text, one.count)).collect()
    }

    #[test]
    fn the_first_texts_in_order_are_kept_and_all_are_counted() {
        let texts = ["g", "f", "e", "d", "c", "b", "a", "g", "b"];
        let mut backwards = texts;
        backwards.reverse();
        let found = listed(counted(&texts));
        assert_eq!(found, listed(counted(&backwards)));
        let names: Vec<_> = found.iter().map(|(text, _)| text.as_deref()).collect();
        assert_eq!(names, [Some("a"), Some("b"), Some("c"), Some("d"), Some("e"), None]);
        assert_eq!(
            found.iter().map(|(_, count)| count).collect::<Vec<_>>(),
            [&1, &2, &1, &1, &1, &3]
        );
    }

    #[test]
    fn texts_are_escaped_and_cut() {
        let found = listed(counted(&["it's \"no\"", "a\u{1b}[31m\n\u{202e}é", "\\n"]));
        let texts: Vec<_> = found.into_iter().filter_map(|(text, _)| text).collect();
        assert_eq!(texts, [r"\\n", r"a\u{1b}[31m\n\u{202e}é", "it's \"no\""]);
        let long = "x".repeat(CHARACTERS_MAX + 1);
        let found = listed(counted(&[&long]));
        assert_eq!(found[0].0.as_ref().unwrap().chars().count(), CHARACTERS_MAX + 1);
        assert!(found[0].0.as_ref().unwrap().ends_with('…'));
    }

    #[test]
    fn outcomes_and_properties_are_apart() {
        let mut all = counted(&["b1"]);
        all.count(REASON, TextProperty::ServerReference, "b1");
        all.count(Reason::ServerUnavailable, TextProperty::ReasonString, "b1");
        let list = Vec::from(all.clone());
        assert_eq!(list.len(), 3);
        assert_eq!(Explanations::from(list), all);
    }
}
