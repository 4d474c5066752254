//! Topic names and topic filters (4.7): validation, and matching of filters with names.

/// Reason why a topic name or filter is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// The topic has no characters `[MQTT-4.7.3-1]`.
    #[error("topic is empty [MQTT-4.7.3-1]")]
    Empty,
    /// The topic contains U+0000 `[MQTT-4.7.3-2]`.
    #[error("topic contains U+0000 [MQTT-4.7.3-2]")]
    Nul,
    /// The topic has more than 65 535 bytes `[MQTT-4.7.3-3]`.
    #[error("topic is longer than 65535 bytes [MQTT-4.7.3-3]")]
    TooLong,
    /// `+` or `#` in a topic name `[MQTT-3.3.2-2]`.
    #[error("wildcard in a topic name [MQTT-3.3.2-2]")]
    WildcardInName,
    /// `#` that is not the whole last level `[MQTT-4.7.1-2]`.
    #[error("# is not the whole last level [MQTT-4.7.1-2]")]
    MisplacedHash,
    /// `+` that is not a whole level `[MQTT-4.7.1-3]`.
    #[error("+ is not a whole level [MQTT-4.7.1-3]")]
    MisplacedPlus,
    /// `$share/` without a group name or without a filter (MQTT 5, 4.8.2).
    #[error("shared subscription is not $share/group/filter")]
    BadShare,
}

/// Checks the topic name of a message.
///
/// # Errors
/// [`TopicError`] of the first rule that the topic breaks.
#[inline]
pub fn validate_topic(topic: &str) -> Result<(), TopicError> {
    // One pass without an early exit: the compiler vectorises the loop.
    let special = topic.bytes().fold(false, |found, byte| found | matches!(byte, 0 | b'#' | b'+'));
    if special || topic.is_empty() || topic.len() > usize::from(u16::MAX) {
        return Err(explain_topic(topic));
    }
    Ok(())
}

#[cold]
fn explain_topic(topic: &str) -> TopicError {
    if topic.is_empty() {
        TopicError::Empty
    } else if topic.contains('\0') {
        TopicError::Nul
    } else if topic.len() > usize::from(u16::MAX) {
        TopicError::TooLong
    } else {
        TopicError::WildcardInName
    }
}

/// Checks a topic filter, shared (`$share/group/filter`) or not.
///
/// # Errors
/// [`TopicError`] of the first rule that the filter breaks.
pub fn validate_filter(filter: &str) -> Result<(), TopicError> {
    if filter.is_empty() {
        return Err(TopicError::Empty);
    }
    if filter.contains('\0') {
        return Err(TopicError::Nul);
    }
    if filter.len() > usize::from(u16::MAX) {
        return Err(TopicError::TooLong);
    }
    if filter == "$share" || filter.starts_with("$share/") {
        let Some((group, inner)) = shared(filter) else { return Err(TopicError::BadShare) };
        if group.contains(['+', '#']) {
            return Err(TopicError::BadShare);
        }
        return validate_levels(inner);
    }
    validate_levels(filter)
}

fn validate_levels(filter: &str) -> Result<(), TopicError> {
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        if level.contains('#') && (level != "#" || levels.peek().is_some()) {
            return Err(TopicError::MisplacedHash);
        }
        if level.contains('+') && level != "+" {
            return Err(TopicError::MisplacedPlus);
        }
    }
    Ok(())
}

/// Group and topic filter of a shared subscription; `None` for any other filter.
#[must_use]
pub fn shared(filter: &str) -> Option<(&str, &str)> {
    let (group, inner) = filter.strip_prefix("$share/")?.split_once('/')?;
    (!group.is_empty() && !inner.is_empty()).then_some((group, inner))
}

/// Returns true if a valid `filter` matches a valid topic name. A shared filter matches if its
/// topic filter matches. A leading wildcard does not match a leading `$` `[MQTT-4.7.2-1]`.
#[must_use]
pub fn matches(filter: &str, topic: &str) -> bool {
    let filter = shared(filter).map_or(filter, |(_, inner)| inner);
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut topic_levels = topic.split('/');
    for level in filter.split('/') {
        if level == "#" {
            return true; // also the parent level itself: "sport/#" matches "sport" (4.7.1.2)
        }
        match topic_levels.next() {
            Some(name) if level == "+" || level == name => {}
            _ => return false,
        }
    }
    topic_levels.next().is_none()
}

#[cfg(test)]
mod tests;
