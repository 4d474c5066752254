//! Rules by which filters match the names of messages, as data.

use std::borrow::Cow;

/// Rule by which filters match names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Topics of MQTT.
    Topics,
    /// Subjects of NATS.
    Subjects,
    /// Routing keys of AMQP 0-9-1, each behind its virtual host and its exchange: three parts with
    /// slashes between them. The virtual host `/` is the empty text.
    Keys,
    /// Any text. A filter is a prefix of the names that it matches.
    Prefixes,
    /// Topics of Kafka. A filter is the name that it matches.
    Words,
    /// Addresses of AMQP 1.0, with the wildcards of Artemis, RabbitMQ and Qpid.
    Addresses,
}

/// Levels of names, and the wildcards of filters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grammar {
    /// Number of levels in front, each with a slash behind it.
    pub head: usize,
    /// Levels in front of the names that have twins; empty if all have.
    pub twin_head: &'static [&'static str],
    /// Separator of two levels.
    pub separator: char,
    /// Level of a filter that matches any one level.
    pub one: &'static str,
    /// Level of a filter that matches any number of levels: the last one, or with a head any one.
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
    head: 0,
    twin_head: &[],
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
    head: 0,
    twin_head: &[],
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
    head: 0,
    twin_head: &[],
    separator: '\n',
    one: "\n",
    rest: "\n",
    rest_min: 0,
    hidden: None,
    excluded: &['\n', ' ', '/', ','],
    excluded_words: "spaces, / and ,",
};

/// Words of addresses. The brokers choose the grammar; most have this one.
static ADDRESSES: Grammar = Grammar {
    head: 0,
    twin_head: &[],
    separator: '.',
    one: "*",
    rest: "#",
    rest_min: 0,
    hidden: None,
    excluded: &['.', '*', '#', '/', ':'],
    excluded_words: "., *, #, / and :",
};

/// Words of routing keys, as topic exchanges read them: `#` matches any number of words (3.1.3.3 of
/// AMQP 0-9-1). The exchange in front has no wildcards. The plugin for MQTT of RabbitMQ publishes
/// to `amq.topic` in the virtual host `/`.
static KEYS: Grammar = Grammar {
    head: 2,
    twin_head: &["", "amq.topic"],
    separator: '.',
    one: "*",
    rest: "#",
    rest_min: 0,
    hidden: None,
    excluded: &['.', '*', '#', '/'],
    excluded_words: "., *, # and /",
};

impl Grammar {
    /// Levels of a name. An empty key behind an exchange has no words.
    pub(crate) fn levels<'a>(&self, name: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
        let separator = self.separator;
        let (head, rest) = match self.head.checked_sub(1) {
            None => (None, Some(name)),
            Some(last) => match name.match_indices('/').nth(last) {
                Some((at, _)) => (Some(&name[..at]), Some(&name[at + 1..])),
                None => (Some(name), None),
            },
        };
        let rest = rest.filter(|rest| head.is_none() || !rest.is_empty());
        let head = head.into_iter().flat_map(|head| head.split('/'));
        head.chain(rest.into_iter().flat_map(move |rest| rest.split(separator)))
    }
}

impl Names {
    /// Levels of the names; `None` if they have no levels.
    pub(crate) const fn grammar(self) -> Option<&'static Grammar> {
        match self {
            Self::Topics => Some(&TOPICS),
            Self::Subjects => Some(&SUBJECTS),
            Self::Words => Some(&WORDS),
            Self::Keys => Some(&KEYS),
            Self::Addresses => Some(&ADDRESSES),
            Self::Prefixes => None,
        }
    }

    /// Rules of the other names that one broker gives a message: nats-server delivers messages of
    /// MQTT to clients of NATS, RabbitMQ to clients of AMQP, and the other way.
    pub(crate) const fn twins(self) -> &'static [Self] {
        match self {
            Self::Topics => &[Self::Subjects, Self::Keys],
            Self::Subjects | Self::Keys => &[Self::Topics],
            Self::Prefixes | Self::Words | Self::Addresses => &[],
        }
    }

    /// The twins of a name: the same levels with the other separator. There is none if a level is
    /// empty or is no level of the other rule. Servers disagree about the names of such messages.
    pub(crate) fn twins_of(self, name: &str) -> impl Iterator<Item = (Self, String)> {
        self.twins().iter().filter_map(move |&twin| {
            let (own, other) = (self.grammar()?, twin.grammar()?);
            let mut levels = own.levels(name);
            if !own.twin_head.iter().all(|head| levels.next() == Some(head)) {
                return None;
            }
            let levels: Vec<&str> = levels.collect();
            let is_level = |level: &&str| !level.is_empty() && !level.contains(other.excluded);
            let is_possible = !levels.is_empty() && levels.iter().all(is_level);
            let front: String = other.twin_head.iter().flat_map(|head| [head, "/"]).collect();
            let rest = levels.join(other.separator.encode_utf8(&mut [0; 4]));
            is_possible.then(|| (twin, front + &rest))
        })
    }

    /// A name of this rule in the other one; `None` if no broker gives a message both names.
    #[must_use]
    pub fn name_in(self, other: Self, name: &str) -> Option<Cow<'_, str>> {
        if self == other {
            return Some(Cow::Borrowed(name));
        }
        self.twins_of(name).find(|(twin, _)| *twin == other).map(|(_, name)| Cow::Owned(name))
    }

    /// Bytes of the longest name or filter.
    pub(crate) const fn bytes_max(self) -> usize {
        match self {
            Self::Topics | Self::Subjects | Self::Addresses => 65_535, // [MQTT-1.5.3]
            Self::Words => 249, // bytes of the name of a topic's folder
            Self::Keys => 511,  // Two short strings and a slash.
            Self::Prefixes => usize::MAX,
        }
    }
}
