"""Topics that a filter matches: for each client, or perhaps."""

from __future__ import annotations

import pytest

from pubstorm.contract.capabilities import SUBJECTS, TOPICS
from pubstorm.scenario.defaults import covers, may_match


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        ("reply/{n}", "reply/{n}", True),
        ("reply/+", "reply/{n/10}", True),
        ("#", "a/b/{n}", True),
        ("reply/{n}/#", "reply/{n}", True),
        ("reply/{n}", "reply/{n%10}", False),
        ("reply", "reply/{n}", False),
        ("reply/{n}/+", "reply/{n}", False),
        ("$share/g/reply/{n}", "reply/{n}", False),
        ("reply/{n/10}/x", "reply/{n/10}/x", True),
    ],
)
def test_a_filter_matches_the_topic_of_each_client(
    topic_filter: str, topic: str, matches: bool
) -> None:
    assert covers(topic_filter, topic) == matches


@pytest.mark.parametrize(
    ("topic_filter", "topic", "may"),
    [
        ("t/+", "t/{n}", True),
        ("t/{n}", "t/{n/10}", True),
        ("t/1", "t/{n}", True),
        ("#", "t", True),
        ("t/#", "t", True),
        ("$share/g/t/+", "t/{n}", True),
        ("t/{a|b}", "t/c", True),
        ("t/a", "t/b", False),
        ("t/+", "t", False),
        ("t", "t/{n}", False),
    ],
)
def test_a_filter_that_may_match_is_found(topic_filter: str, topic: str, may: bool) -> None:
    assert may_match(topic_filter, topic) == may


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("a.{n}.up", "a/{n}/up"),
        ("a.*.{n/10}", "a/+/{n/10}"),
        ("a.{1..5}.>", "a/{1..5}/+/#"),
        ("a/b.c", "a.b/c"),
        (">", "+/#"),
    ],
)
def test_a_subject_has_a_twin_among_topics(subject: str, topic: str) -> None:
    assert SUBJECTS.twin(subject) == topic
    assert SUBJECTS.twin(topic) == subject.replace(">", "*.>")
    assert TOPICS.twin(topic) == topic
