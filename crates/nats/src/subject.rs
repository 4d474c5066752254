//! Subjects: tokens between dots, with `*` for one token and `>` for one or more at the end.

/// Returns true if messages may be published to `subject`: tokens that are not empty, without
/// wildcards and white space.
#[must_use]
pub fn is_name(subject: &[u8]) -> bool {
    is_filter(subject) && subject.split(is_dot).all(|token| token != b"*" && token != b">")
}

/// Returns true if clients may subscribe to `subject`: tokens that are not empty, `>` only as the
/// last of them, no white space. A `*` or `>` within a longer token is a plain letter.
#[must_use]
pub fn is_filter(subject: &[u8]) -> bool {
    let is_token = |token: &[u8]| {
        !token.is_empty() && !token.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0)
    };
    let before_last = subject.iter().rposition(is_dot).map_or(&[][..], |dot| &subject[..dot]);
    subject.split(is_dot).all(is_token) && !before_last.split(is_dot).any(|token| token == b">")
}

/// Returns true if the subscription `filter` receives the messages of `subject`.
#[must_use]
pub fn matches(filter: &[u8], subject: &[u8]) -> bool {
    let mut tokens = subject.split(is_dot);
    for pattern in filter.split(is_dot) {
        match (pattern, tokens.next()) {
            (b">", token) => return token.is_some(),
            (_, None) => return false,
            (b"*", Some(_)) => {}
            (pattern, Some(token)) if pattern == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

#[inline]
fn is_dot(byte: &u8) -> bool {
    *byte == b'.'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_match_by_tokens() {
        let cases: [(&str, &str, bool); 9] = [
            ("a.b", "a.b", true),
            ("a.*", "a.b", true),
            ("a.*", "a.b.c", false),
            ("a.*", "a", false),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            (">", "a", true),
            ("*.b", "a.b", true),
            ("a*", "ab", false),
        ];
        for (filter, subject, expected) in cases {
            assert_eq!(
                matches(filter.as_bytes(), subject.as_bytes()),
                expected,
                "{filter} {subject}"
            );
        }
    }

    #[test]
    fn subjects_have_no_empty_tokens_and_names_no_wildcards() {
        for name in ["a", "a.b", "$JS.API", "a*.b"] {
            assert!(is_name(name.as_bytes()) && is_filter(name.as_bytes()), "{name}");
        }
        for filter in ["*", ">", "a.*.c", "a.>"] {
            assert!(!is_name(filter.as_bytes()) && is_filter(filter.as_bytes()), "{filter}");
        }
        for wrong in ["", ".", "a.", "a..b", "a b", "a.>.b", "a\t"] {
            assert!(!is_name(wrong.as_bytes()) && !is_filter(wrong.as_bytes()), "{wrong}");
        }
    }
}
