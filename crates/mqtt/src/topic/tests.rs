//! The examples of section 4.7 as tables, and a comparison of matching with a recursive model.

use proptest::prelude::*;

use super::*;

#[test]
fn filters_match_as_in_the_examples_of_the_standard() {
    for (filter, topic, expected) in [
        // 4.7.1.2
        ("sport/tennis/player1/#", "sport/tennis/player1", true),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", true),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
        ("sport/#", "sport", true),
        ("sport/#", "sports", false),
        ("#", "a/b/c", true),
        // 4.7.1.3
        ("sport/tennis/+", "sport/tennis/player1", true),
        ("sport/tennis/+", "sport/tennis/player1/ranking", false),
        ("sport/+", "sport", false),
        ("sport/+", "sport/", true),
        ("+/+", "/finance", true),
        ("/+", "/finance", true),
        ("+", "/finance", false),
        ("+/tennis/#", "sport/tennis", true),
        ("+", "a", true),
        // 4.7.2
        ("#", "$SYS/uptime", false),
        ("+/monitor/Clients", "$SYS/monitor/Clients", false),
        ("$SYS/#", "$SYS/uptime", true),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", true),
        ("a/#", "a/$b", true),
        ("a/+", "a/$b", true),
        // 4.7.3
        ("ACCOUNTS", "Accounts", false),
        ("Accounts payable", "Accounts payable", true),
        ("/finance", "finance", false),
        ("a", "a/", false),
        ("a/", "a", false),
        ("a//b", "a//b", true),
        ("a/+/b", "a//b", true),
        ("/", "/", true),
        // Shared subscriptions (MQTT 5, 4.8.2).
        ("$share/g/a/+", "a/b", true),
        ("$share/g/#", "a/b", true),
        ("$share/g/#", "$SYS/uptime", false),
        ("$share/g/$SYS/#", "$SYS/uptime", true),
        ("$share/g/a", "$share/g/a", false),
        ("$shared/g/a", "$shared/g/a", true),
    ] {
        assert_eq!(matches(filter, topic), expected, "{filter} on {topic}");
    }
}

#[test]
fn filters_are_valid_or_name_the_rule_they_break() {
    use TopicError::*;
    for (filter, expected) in [
        ("sport/tennis#", Err(MisplacedHash)),
        ("sport/tennis/#/ranking", Err(MisplacedHash)),
        ("#/", Err(MisplacedHash)),
        ("##", Err(MisplacedHash)),
        ("sport+", Err(MisplacedPlus)),
        ("++", Err(MisplacedPlus)),
        ("+#", Err(MisplacedHash)),
        ("", Err(Empty)),
        ("a\0", Err(Nul)),
        ("$share", Err(BadShare)),
        ("$share/", Err(BadShare)),
        ("$share/g", Err(BadShare)),
        ("$share/g/", Err(BadShare)),
        ("$share//a", Err(BadShare)),
        ("$share/+/a", Err(BadShare)),
        ("$share/g/a#", Err(MisplacedHash)),
        ("$share/g/+/#", Ok(())),
        ("$shared", Ok(())),
        ("#", Ok(())),
        ("+/+/#", Ok(())),
        ("/", Ok(())),
        ("a b/ä/€", Ok(())),
    ] {
        assert_eq!(validate_filter(filter), expected, "{filter}");
    }
    assert_eq!(validate_filter(&"x".repeat(65_535)), Ok(()));
    assert_eq!(validate_filter(&"x".repeat(65_536)), Err(TooLong));
}

#[test]
fn names_are_valid_or_name_the_rule_they_break() {
    use TopicError::*;
    for (topic, expected) in [
        ("", Err(Empty)),
        ("a/+", Err(WildcardInName)),
        ("a#b", Err(WildcardInName)),
        ("a\0b", Err(Nul)),
        ("a/b", Ok(())),
        ("$SYS/x", Ok(())),
        ("/", Ok(())),
        ("€", Ok(())),
    ] {
        assert_eq!(validate_topic(topic), expected, "{topic}");
    }
    assert_eq!(validate_topic(&"x".repeat(65_535)), Ok(()));
    assert_eq!(validate_topic(&"x".repeat(65_536)), Err(TooLong));
}

#[test]
fn a_shared_filter_has_a_group_and_a_filter() {
    assert_eq!(shared("$share/g/a/b"), Some(("g", "a/b")));
    assert_eq!(shared("$share/g//b"), Some(("g", "/b")));
    assert_eq!(shared("$share/g/"), None);
    assert_eq!(shared("share/g/a"), None);
}

/// Matching as section 4.7.1 defines it, level by level.
fn model(filter: &[&str], topic: &[&str]) -> bool {
    match (filter, topic) {
        (["#"], _) | ([], []) => true,
        (["+", filter @ ..], [_, topic @ ..]) => model(filter, topic),
        ([level, filter @ ..], [name, topic @ ..]) => level == name && model(filter, topic),
        _ => false,
    }
}

proptest! {
    #[test]
    fn matching_agrees_with_a_recursive_model(
        filter in "([ab+]?/){0,3}([ab+#]?)",
        topic in "([ab]?/){0,3}[ab]?",
    ) {
        let (f, t): (Vec<_>, Vec<_>) = (filter.split('/').collect(), topic.split('/').collect());
        prop_assert_eq!(matches(&filter, &topic), model(&f, &t));
    }

    #[test]
    fn any_text_is_validated_and_matched_without_a_panic(filter in ".*", topic in ".*") {
        let _ = (validate_filter(&filter), validate_topic(&topic), matches(&filter, &topic));
    }
}
