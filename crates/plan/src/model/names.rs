//! Rules by which filters match the names of messages, as data.

/// Rule by which filters match names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Topics of MQTT.
    Topics,
    /// Subjects of NATS.
    Subjects,
    /// Any text. A filter is a prefix of the names that it matches.
    Prefixes,
    /// Topics of Kafka. A filter is the name that it matches.
    Words,
}

/// Levels of names, and the wildcards of filters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grammar {
    /// Separator of two levels.
    pub separator: char,
    /// Level of a filter that matches any one level.
    pub one: &'static str,
    /// Last level of a filter that matches all further levels.
    pub rest: &'static str,
    /// Number of levels that `rest` matches at least.
    pub rest_min: usize,
    /// First character of names that a filter matches only if it does not begin with a wildcard.
    pub hidden: Option<char>,
    /// Characters that a value in a level may not have.
    pub excluded: &'static [char],
    /// The same in words.
    pub excluded_words: &'static str,
}

/// Levels of topics. `#` also matches the parent (4.7.1.2 of MQTT); wildcards hide names with a
/// dollar sign [MQTT-4.7.2-1].
pub(crate) static TOPICS: Grammar = Grammar {
    separator: '/',
    one: "+",
    rest: "#",
    rest_min: 0,
    hidden: Some('$'),
    excluded: &['/', '+', '#'],
    excluded_words: "/, + and #",
};

/// Tokens of subjects. A subject is a word of a line, so that it has no spaces.
static SUBJECTS: Grammar = Grammar {
    separator: '.',
    one: "*",
    rest: ">",
    rest_min: 1,
    hidden: None,
    excluded: &['.', '*', '>', ' ', '\t', '\r', '\n'],
    excluded_words: "., *, > and spaces",
};

/// A word, which has one level. No filter has wildcards: the separator is in no word.
static WORDS: Grammar = Grammar {
    separator: '\n',
    one: "\n",
    rest: "\n",
    rest_min: 0,
    hidden: None,
    excluded: &['\n', ' ', '/', ','],
    excluded_words: "spaces, / and ,",
};

impl Names {
    /// Levels of the names; `None` if they have no levels.
    pub(crate) const fn grammar(self) -> Option<&'static Grammar> {
        match self {
            Self::Topics => Some(&TOPICS),
            Self::Subjects => Some(&SUBJECTS),
            Self::Words => Some(&WORDS),
            Self::Prefixes => None,
        }
    }

    /// Rule of the other names that one broker gives a message: nats-server delivers messages of
    /// MQTT to clients of NATS, and the other way.
    pub(crate) const fn twin(self) -> Option<Self> {
        match self {
            Self::Topics => Some(Self::Subjects),
            Self::Subjects => Some(Self::Topics),
            Self::Prefixes | Self::Words => None,
        }
    }

    /// The twin of a name: the same levels with the other separator. `None` if a level is empty or
    /// is no level of the other rule. Servers disagree about the names of such messages.
    pub(crate) fn twin_of(self, name: &str) -> Option<(Self, String)> {
        let twin = self.twin()?;
        let (own, other) = (self.grammar()?, twin.grammar()?);
        let is_level = |level: &str| !level.is_empty() && !level.contains(other.excluded);
        let is_possible = name.split(own.separator).all(is_level);
        is_possible.then(|| (twin, name.replace(own.separator, &other.separator.to_string())))
    }

    /// Bytes of the longest name or filter.
    pub(crate) const fn bytes_max(self) -> usize {
        match self {
            Self::Topics | Self::Subjects => 65_535, // [MQTT-1.5.3]
            Self::Words => 249,                      // bytes of the name of a topic's folder
            Self::Prefixes => usize::MAX,
        }
    }
}
