//! Filters of a population: the clients, as conditions on their numbers, whose rendered filter
//! matches a name.

use super::numbers::Numbers;
use crate::model::names::Names;
use crate::text::template::{Level, Levels, Part, Template, TemplateError, Variable};

/// Filter of the clients of a population.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Levels, with wildcards.
    Levels(Levels),
    /// A prefix of the names.
    Prefix(Vec<Part>),
}

impl Filter {
    /// Filter of a subscription outside of shared groups.
    pub fn new(names: Names, template: &Template) -> Result<Self, TemplateError> {
        Self::of_parts(names, template.parts())
    }

    /// Filter with these parts.
    pub fn of_parts(names: Names, parts: &[Part]) -> Result<Self, TemplateError> {
        Ok(match names.grammar() {
            Some(grammar) => Self::Levels(Levels::new(grammar, parts)?),
            None => Self::Prefix(parts.to_vec()),
        })
    }

    /// Adds to `sets` the numbers among `count` from `first` on whose filter matches `name`.
    pub fn matching(&self, name: &str, (first, count): (u64, u64), sets: &mut Vec<Numbers>) {
        match self {
            Self::Levels(levels) if count > 0 && levels.has_inner_rest() => {
                let words: Vec<&str> = levels.grammar.levels(name).collect();
                alternatives(&levels.list, &words, &Numbers::range(first, count), sets);
            }
            Self::Levels(levels) => sets.extend(Numbers::matching(levels, name, first, count)),
            Self::Prefix(_) if count == 0 => {}
            Self::Prefix(parts) => prefixes(parts, name, &Numbers::range(first, count), sets),
        }
    }

    /// Returns `true` if the filter of the client with this number matches `name`.
    pub fn matches(&self, name: &str, number: u64) -> bool {
        let mut sets = Vec::new();
        self.matching(name, (number, 1), &mut sets);
        sets.iter().any(|set| set.contains(number))
    }

    /// Returns `true` if all clients that match one topic render a level with the same text.
    pub fn implies(&self, level: &Level) -> bool {
        let Self::Levels(own) = self else { return false };
        let is_same = |own: &Level| own.variable() == level.variable();
        level.variable().is_none() || own.list.iter().any(is_same)
    }

    /// Returns `true` if one name may match the filters of two clients.
    pub fn may_meet(&self, other: &Self) -> bool {
        let (Self::Levels(one), Self::Levels(other)) = (self, other) else { return true };
        let is_rest = |level: &Level| *level == Level::Rest;
        let fits =
            one.list.len() == other.list.len() || one.list.iter().chain(&other.list).any(is_rest);
        let mut pairs = one.list.iter().zip(&other.list);
        let differ = |(one, other): (&Level, &Level)| match (one, other) {
            (Level::Exact(one), Level::Exact(other)) => one != other,
            _ => false,
        };
        one.grammar == other.grammar && fits && !pairs.any(differ)
    }

    /// Returns `true` if two clients may have filters with the same first level.
    pub fn may_begin_alike(&self, other: &Self) -> bool {
        let (Self::Levels(one), Self::Levels(other)) = (self, other) else { return true };
        let differ = |(one, other): (&Level, &Level)| match (one, other) {
            (Level::Exact(one), Level::Exact(other)) => one != other,
            _ => false,
        };
        !one.list.iter().zip(&other.list).take(1).any(differ)
    }

    /// Returns `true` if two clients may have the same filter.
    pub fn may_be(&self, other: &Self) -> bool {
        let may_be_same = |(one, other): (&Level, &Level)| match (one, other) {
            (Level::Variable { .. }, Level::Variable { .. } | Level::Exact(_))
            | (Level::Exact(_), Level::Variable { .. }) => true,
            (one, other) => one == other,
        };
        match (self, other) {
            (Self::Levels(one), Self::Levels(other)) => {
                one.grammar == other.grammar
                    && one.list.len() == other.list.len()
                    && one.list.iter().zip(&other.list).all(may_be_same)
            }
            (one, other) => one == other,
        }
    }
}

impl Levels {
    /// Returns `true` if this filter may match a name, whatever the values of the variables.
    /// `is_hidden`: the name [may be hidden](Self::may_be_hidden) from wildcards.
    pub fn meets(&self, name: &Self, is_hidden: bool) -> bool {
        let (filter, levels) = (&self.list, &name.list);
        let is_wild = matches!(filter.first(), Some(Level::Any | Level::Rest));
        if self.grammar != name.grammar || is_wild && is_hidden {
            return false;
        }
        let same = |(filter, name): (&Level, &Level)| match (filter, name) {
            (Level::Any, _) => true,
            (Level::Exact(filter), Level::Exact(name)) => filter == name,
            (Level::Exact(text), Level::Variable { prefix, suffix, .. })
            | (Level::Variable { prefix, suffix, .. }, Level::Exact(text)) => {
                text.starts_with(&**prefix) && text.ends_with(&**suffix)
            }
            (Level::Variable { .. }, Level::Variable { .. }) => true,
            (Level::Rest, _) | (_, Level::Any | Level::Rest) => false,
        };
        let rest = filter.iter().position(|level| *level == Level::Rest);
        let compared = rest.unwrap_or(filter.len());
        let is_long_enough = match rest {
            Some(_) => levels.len() >= compared + self.grammar.rest_min,
            None => levels.len() == compared,
        };
        is_long_enough && filter[..compared].iter().zip(levels).all(same)
    }

    /// Returns `true` if the name may begin with the character that hides it.
    pub fn may_be_hidden(&self) -> bool {
        let Some(hidden) = self.grammar.hidden else { return false };
        match self.list.first() {
            Some(Level::Exact(text)) => text.starts_with(hidden),
            Some(Level::Variable { prefix, variable, .. }) => {
                prefix.starts_with(hidden) || prefix.is_empty() && variable.may_begin_with(hidden)
            }
            Some(Level::Any | Level::Rest) | None => false,
        }
    }
}

/// Adds to `sets` those of `numbers` for which levels match these words: one set for each number of
/// words that a wildcard in front of other levels may stand for.
fn alternatives(levels: &[Level], words: &[&str], numbers: &Numbers, sets: &mut Vec<Numbers>) {
    match (levels, words) {
        ([], []) if !sets.contains(numbers) => sets.push(numbers.clone()),
        ([Level::Rest, levels @ ..], _) => {
            (0..=words.len()).for_each(|at| alternatives(levels, &words[at..], numbers, sets));
        }
        ([level, levels @ ..], [word, words @ ..]) => {
            let mut narrowed = numbers.clone();
            if narrowed.narrow(level, word).is_some() && narrowed.count() > 0 {
                alternatives(levels, words, &narrowed, sets);
            }
        }
        _ => {}
    }
}

/// Adds to `sets` those of `numbers` for which these parts render the front of `text`: one set for
/// each way to parse the text.
fn prefixes(parts: &[Part], text: &str, numbers: &Numbers, sets: &mut Vec<Numbers>) {
    match parts {
        [] => sets.push(numbers.clone()),
        [Part::Literal(literal), rest @ ..] => {
            if let Some(text) = text.strip_prefix(&**literal) {
                prefixes(rest, text, numbers, sets);
            }
        }
        [Part::Variable(variable), rest @ ..] => {
            let variable = variable.clone();
            let ends = ends(&variable, text);
            let level = Level::Variable { prefix: "".into(), variable, suffix: "".into() };
            for end in ends {
                let mut narrowed = numbers.clone();
                if narrowed.narrow(&level, &text[..end]).is_some() && narrowed.count() > 0 {
                    prefixes(rest, &text[end..], &narrowed, sets);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::template::Place;

    #[test]
    fn filters_follow_the_rule_of_their_names() {
        use Names::{Keys, Prefixes, Subjects, Topics};
        for (names, filter, name, clients) in [
            (Topics, "a/#", "a", 20),
            (Topics, "#", "$SYS/a", 0),
            (Topics, "a.*", "a.b", 0),
            (Subjects, "a.b", "a.b", 20),
            (Subjects, "a.*", "a.b", 20),
            (Subjects, "a.*", "a.b.c", 0),
            (Subjects, "*.b", "a.b", 20),
            (Subjects, "a.>", "a.b.c", 20),
            (Subjects, "a.>", "a", 0),
            (Subjects, ">", "$SYS.a", 20),
            (Subjects, "a/+", "a/+", 20),
            (Subjects, "d.{n}.>", "d.7.x", 1),
            (Subjects, "d.{n%4}.*", "d.3.x", 5),
            (Keys, "/e/a.b", "/e/a.b", 20),
            (Keys, "/e/a.b", "/f/a.b", 0),
            (Keys, "v/amq.topic/a.*", "v/amq.topic/a.b", 20),
            (Keys, "/e/a.*", "/e/a", 0),
            (Keys, "/e/a.*", "/e/a.b.c", 0),
            (Keys, "/e/a.#", "/e/a", 20),
            (Keys, "/e/a.#", "/e/a.b.c", 20),
            (Keys, "/e/#", "/e/", 20),
            (Keys, "/e/", "/e/", 20),
            (Keys, "/e/", "/e/a", 0),
            (Keys, "/e/*", "/e/", 0),
            (Keys, "/e/#.c", "/e/c", 20),
            (Keys, "/e/#.c", "/e/a.b.c", 20),
            (Keys, "/e/#.c", "/e/a.b.c.d", 0),
            (Keys, "/e/a.#.c.#", "/e/a.b.c.d", 20),
            (Keys, "/e/#.*", "/e/", 0),
            (Keys, "/e/#.{n}.x", "/e/a.7.x", 1),
            (Keys, "/e/#.{n%4}.#", "/e/3.2.1", 15),
            (Keys, "//q-{n}", "//q-7", 1),
            (Keys, "*/e/a", "v/e/a", 20),
            (Keys, "*/e/a", "/e/a", 20),
            (Keys, "v-{n}/e/#", "v-7/e/a", 1),
            (Keys, "v/e/a", "w/e/a", 0),
            (Keys, "v/e", "v/e", 20),
            (Keys, "/*/a", "/e/a", 0),
            (Prefixes, "a.", "a.b", 20),
        ] {
            let template = Template::new(filter).unwrap();
            assert_eq!(template.check(Place::Filter(names)), Ok(()), "{filter}");
            let filter = Filter::new(names, &template).unwrap();
            let mut sets = Vec::new();
            filter.matching(name, (0, 20), &mut sets);
            let found: u64 = sets.iter().map(Numbers::count).sum();
            assert_eq!(found, clients, "{template:?} of {names:?} for {name}");
            assert_eq!(filter.matches(name, 3), clients > 1, "{template:?} for {name}");
        }
    }

    #[test]
    fn a_shared_group_has_the_filter_of_its_names() {
        let template = Template::new("$share/g{n}/a.{n}.>").unwrap();
        let (group, parts) = template.group_and_filter().unwrap();
        assert!(matches!(group, Level::Variable { .. }));
        let filter = Filter::of_parts(Names::Subjects, &parts).unwrap();
        assert!(filter.matches("a.3.b", 3) && !filter.matches("a.4.b", 3));
        assert!(Template::new("$share/g").unwrap().group_and_filter().is_none());
    }

    #[test]
    fn values_stay_within_one_level_of_their_names() {
        let values = |source: &str, place| Template::new(source).unwrap().check(place);
        let (topic, filter) = (Place::Topic(Names::Subjects), Place::Filter(Names::Subjects));
        assert!(values("a/{b.c|d}", Place::Topic(Names::Topics)).is_ok());
        assert!(values("a.{b/c|d}", topic).is_ok());
        assert!(values("a.{b.c|d}", topic).is_ok());
        let wrong = [("a.{b.c|d}", filter), ("a.{b..c|d}", topic), ("a.{b c|d}", topic)];
        for (source, place) in [wrong.as_slice(), &[("a.{>|d}", topic)]].concat() {
            assert!(matches!(values(source, place), Err(TemplateError::Value(..))), "{source}");
        }
    }
}
