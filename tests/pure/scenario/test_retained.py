"""Retained messages that a subscription receives as published: they need a stamp."""

from __future__ import annotations

import pytest

from pubstorm.errors import ScenarioError
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.checks.topics import may_match

BASE = """\
target: mqtt://broker
populations:
  device:
    clients: 10
    version: {version}
    {device}
  observer:
    clients: 1
    version: 5
    subscriptions: [{{topic: "{topic}"{option}}}]
stages: [connect]
"""
OPTION = ", retain_as_published: true"


def problems(
    device: str, version: str = "5", topic: str = "t/+", option: str = OPTION
) -> list[str]:
    text = BASE.format(device=device, version=version, topic=topic, option=option)
    try:
        parse_scenario(text, "s.yaml")
    except ScenarioError as caught:
        return [f"{problem}; {problem.hint}" for problem in caught.problems]
    return []


def publication(keys: str, retain: str = "true") -> str:
    return f"publications: [{{topic: 't/{{n}}', rate: 1/s, retain: {retain}, {keys}}}]"


@pytest.mark.parametrize(
    ("keys", "version"),
    [
        ("size: 31B", "5"),
        ("size: {mean: 40B, spread: 10%}", "5"),
        ("payload: state", "3.1.1"),
        ("payload: {a: [x, '{n}']}", "3.1.1"),
    ],
)
def test_a_retained_message_without_a_stamp_is_refused(keys: str, version: str) -> None:
    (problem,) = problems(publication(keys), version)
    assert "populations.device.publications.0.retain" in problem
    assert "that observer receives with retain_as_published" in problem
    assert "write {stamp} into the payload" in problem
    assert problems(publication(keys), version, option="") == []
    assert problems(publication(keys), version, topic="u/+") == []
    assert problems(publication(keys, "false"), version) == []


@pytest.mark.parametrize(
    ("keys", "version"),
    [
        ("size: 32B", "3.1.1"),
        ("size: {mean: 100B, spread: 10%}", "3.1.1"),
        ("payload: state", "5"),
        ("payload: 'state {stamp}'", "3.1.1"),
        ("payload: {a: [x, '{stamp}']}", "3.1.1"),
    ],
)
def test_a_retained_message_with_a_stamp_is_received_as_published(keys: str, version: str) -> None:
    assert problems(publication(keys), version) == []


def test_a_retained_will_has_no_stamp() -> None:
    (problem,) = problems("will: {topic: 't/{n}', retain: true}")
    assert "populations.device.will.retain" in problem
    assert "a will has no stamp" in problem
    assert problems("will: {topic: 't/{n}'}") == []


def test_shares_are_looked_at_too() -> None:
    share = "shares: {old: {part: 10%, " + publication("payload: x") + "}}"
    (problem,) = problems(share, "3.1.1")
    assert "populations.device.shares.old.publications.0.retain" in problem


def test_a_payload_that_is_no_template_is_reported_once() -> None:
    (problem,) = problems(publication("payload: {a: '{'}"), "3.1.1")
    assert "publications.0.payload.a" in problem


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
