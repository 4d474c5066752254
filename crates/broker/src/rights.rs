//! Rights of a user: packed rows of topic filters, and the topics that they grant.

/// Longest text of all rows of a user, in bytes; rows beyond it are left out.
pub const PACKED_MAX: usize = 64 << 10;

/// Access that a row grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Subscribe only, `1`.
    Subscribe,
    /// Publish only, `2`.
    Publish,
    /// Both, `3`.
    Both,
}

impl Access {
    /// All kinds of access.
    pub const ALL: [Self; 3] = [Self::Subscribe, Self::Publish, Self::Both];

    /// Reads the word in a row; `None` for any other word.
    pub fn from_word(word: &[u8]) -> Option<Self> {
        match word {
            b"1" => Some(Self::Subscribe),
            b"2" => Some(Self::Publish),
            b"3" => Some(Self::Both),
            _ => None,
        }
    }
}

/// Topic filters, each followed by NUL, which no filter contains [MQTT-1.5.3-2]: a million clients
/// with twenty rows each would not fit into memory as twenty million strings.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FilterRows(String);

impl FilterRows {
    /// Adds a filter.
    pub fn add(&mut self, filter: &str) {
        self.0.push_str(filter);
        self.0.push(END);
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the text, without spare capacity; empty without rows.
    pub fn into_text(mut self) -> String {
        self.0.shrink_to_fit();
        self.0
    }
}

/// Returns `true` if a row of a packed text covers a filter or a topic.
pub fn grants(rows: &str, asked: &str) -> bool {
    rows.split_terminator(END).any(|row| covers(row, asked))
}

/// Returns `true` if `row` matches every topic that `asked`, a filter or a topic, matches. A
/// wildcard at the start covers nothing that begins with `$` [MQTT-4.7.2-1].
pub fn covers(row: &str, asked: &str) -> bool {
    if asked.starts_with('$') && row.starts_with(['#', '+']) {
        return false;
    }
    let (mut row, mut asked) = (row.split('/'), asked.split('/'));
    loop {
        match (row.next(), asked.next()) {
            // `a/#` matches `a` too [MQTT-4.7.1-2].
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(level)) if level != "#" => {}
            (Some(same), Some(level)) if same == level => {}
            _ => return false,
        }
    }
}

const END: char = '\0';

#[cfg(test)]
mod tests {
    use super::{Access, FilterRows, covers, grants};

    #[test]
    fn a_row_covers_what_it_matches_as_a_whole() {
        let covered = [
            ("a", "a"),
            ("a/b", "a/b"),
            ("a/#", "a"),
            ("a/#", "a/b"),
            ("a/#", "a/b/c"),
            ("a/#", "a/#"),
            ("a/#", "a/+"),
            ("a/#", "a/b/+"),
            ("a/#", "a/+/#"),
            ("#", "#"),
            ("#", "+/a"),
            ("#", "a/b"),
            ("+", "a"),
            ("+", "+"),
            ("+/b", "a/b"),
            ("a/+", "a/b"),
            ("a/+", "a/+"),
            ("a/+", "a/"),
            ("a/+/c", "a/b/c"),
            ("/a", "/a"),
            ("+/a", "/a"),
            ("$SYS/#", "$SYS/broker"),
            ("$SYS/+", "$SYS/+"),
        ];
        for (row, asked) in covered {
            assert!(covers(row, asked), "{row} covers {asked}");
        }
    }

    #[test]
    fn a_row_does_not_cover_what_it_matches_in_part_or_not_at_all() {
        let uncovered = [
            ("a", "b"),
            ("a", "a/b"),
            ("a/b", "a"),
            ("a", "A"),
            ("a", "+"),
            ("a", "#"),
            ("a/b", "a/+"),
            ("a/b", "a/#"),
            ("a/+", "a"),
            ("a/+", "a/#"),
            ("a/+", "a/b/c"),
            ("+", "#"),
            ("+", "a/b"),
            ("+", "/a"),
            ("a/#", "b"),
            ("a/#", "#"),
            ("a/#", "+/b"),
            ("a/#", "ab"),
            ("#", "$SYS/broker"),
            ("+/broker", "$SYS/broker"),
            ("", "a"),
        ];
        for (row, asked) in uncovered {
            assert!(!covers(row, asked), "{row} does not cover {asked}");
        }
    }

    #[test]
    fn one_row_of_several_is_enough_and_none_grants_nothing() {
        let mut rows = FilterRows::default();
        rows.add("a/b");
        rows.add("c/#");
        let text = rows.into_text();
        for (asked, granted) in [("a/b", true), ("c/d", true), ("a", false), ("a/b\0c", false)] {
            assert_eq!(grants(&text, asked), granted, "{asked}");
        }
        assert!(!grants("", "a"));
        assert!(!grants("", ""));
    }

    #[test]
    fn only_three_words_are_an_access() {
        let words: [&[u8]; 6] = [b"1", b"2", b"3", b"0", b"", b"31"];
        let found = words.map(Access::from_word);
        let [subscribe, publish, both] = Access::ALL.map(Some);
        assert_eq!(found, [subscribe, publish, both, None, None, None]);
    }
}
