"""Retained messages that a subscription receives as published: they need a stamp."""

from __future__ import annotations

import pytest

from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.scenario.checks.topics import may_match
from tests.pure.scenario.bases import RETAINED, changed

OBSERVED = "populations.observer.subscriptions.0"


def read(keys: str, *changes: str) -> Scenario:
    publication = f"{{topic: 't/{{n}}', rate: 1/s, {keys}}}"
    given = (f"populations.device.publications: [{publication}]", *changes)
    return parse_scenario(changed(RETAINED, ", ".join(given)), "s.yaml")


OLD = "populations.device.version: 3.1.1"


@pytest.mark.parametrize(
    ("keys", "changes"),
    [
        ("retain: true, size: 31B", (f"{OBSERVED}.retain_as_published: false",)),
        ("retain: true, size: 31B", (f"{OBSERVED}.topic: u/+",)),
        ("retain: false, size: 31B", ()),
        ("retain: true, size: 32B", (OLD,)),
        ("retain: true, size: {mean: 100B, spread: 10%}", (OLD,)),
        ("retain: true, payload: state", ()),
        ("retain: true, payload: 'state {stamp}'", (OLD,)),
        ("retain: true, payload: {a: [x, '{stamp}']}", (OLD,)),
    ],
)
def test_a_retained_message_with_a_stamp_is_received_as_published(
    keys: str, changes: tuple[str, ...]
) -> None:
    assert read(keys, *changes)


def test_a_will_that_is_not_retained_needs_no_stamp() -> None:
    assert read("size: 32B", "populations.device.will: {topic: 't/{n}'}")


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
